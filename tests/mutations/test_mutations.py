"""Whatever is damaged, and however: one sentence and an exit code that fits, no hang, no more memory than 2 GB.

Each case is a function of the seed, the kind and its number: HEADSTART_MUTATIONS_SEED=7 makes others,
HEADSTART_MUTATIONS=1000 more,
HEADSTART_MUTATIONS_NIGHTLY=5000 more in the slow test. The damaged copy of a failed case is kept, and its path told.
"""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

from headstart.cli import app
from tests import isolated
from tests.mutator import mutate

SEED = os.environ.get("HEADSTART_MUTATIONS_SEED", "0")
CASES = int(os.environ.get("HEADSTART_MUTATIONS", 100))
SLOW = int(os.environ.get("HEADSTART_MUTATIONS_NIGHTLY", 1000))
LONGEST = float(os.environ.get("HEADSTART_MUTATIONS_SECONDS", 30))
ALLOWED = (0, 2, 3, 4, 5, 6, 7, 8, 9)


@pytest.fixture
def opened(kind: Any, shelf: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cases go, once the undamaged specimen was opened here: whatever that loads, the children find loaded."""
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = [_case(kind, shelf, tmp_path / "whole", None, command) for command in kind.commands]
    assert refused == [""] * len(kind.commands)
    return tmp_path


def test_no_damage_is_a_bug_of_ours(kind: Any, shelf: dict[str, Path], opened: Path, request: Any) -> None:
    _try(kind, shelf, opened, request.node.callspec.id, range(round(CASES * kind.share)))


@pytest.mark.slow
@pytest.mark.timeout(max(3600, 4 * SLOW))
def test_no_damage_out_of_a_thousand_is_a_bug_of_ours(
    kind: Any, shelf: dict[str, Path], opened: Path, request: Any
) -> None:
    _try(kind, shelf, opened, request.node.callspec.id, range(round(CASES * kind.share), SLOW))


def _try(kind: Any, shelf: dict[str, Path], work: Path, name: str, cases: range) -> None:
    def case(number: int) -> str:
        return _case(kind, shelf, work / str(number), random.Random(f"{SEED} {name} {number}"))

    found = isolated.faults(case, cases, work, LONGEST)
    assert not found, f"seed {SEED}, {len(found)} of {len(cases)} cases:\n\n" + "\n\n".join(found[:20])


def _case(kind: Any, shelf: dict[str, Path], work: Path, rng: random.Random | None, command: str = "") -> str:
    """What went wrong, or nothing; without `rng` nothing is damaged, and `command` must be done."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    first, _, rest = kind.specimen.partition("/")
    it = work / Path(kind.specimen).name
    source = shelf[first] / rest if rest else shelf[first]
    shutil.copytree(source, it) if source.is_dir() else shutil.copy(source, it)
    for file in it.rglob("*.json") if kind.moved else ():
        file.write_text(file.read_text("utf-8").replace(str(source), str(it)), "utf-8")
    if kind.unsealed:
        (it / "model" / "MANIFEST.json").unlink()
    damage = "nothing"
    if rng is not None:
        command = rng.choice(kind.commands)
        target = rng.choice(sorted(p for p in it.glob(kind.files) if p.is_file())) if kind.files else it
        damage = f"{target.relative_to(work)}: {mutate(target, rng)}"
    places = {**shelf, "it": it, "out": work / "out"}
    argv = [re.sub(r"\{(\w+)\}", lambda m: str(places[m[1]]), word) for word in command.split(" ")]
    told = f"case {work.name} ({damage})\n  headstart {' '.join(argv)}\n"
    isolated.begins(work.parent, told)
    os.chdir(work)
    try:
        done = CliRunner().invoke(app, argv)
        code, output = done.exit_code, done.output
    except BaseException:  # of Rust, which typer lets pass
        code, output = 1, traceback.format_exc()
    if rng is None:
        fine = code == kind.whole
    else:
        fine = code in ALLOWED and "Traceback" not in output and (kind.asked or "[MEMORY]" not in output)
    if fine:
        shutil.rmtree(work)
        return ""
    reports = [p.read_text("utf-8", "replace") for p in work.parent.glob("headstart-crash-*")]
    for path in work.parent.glob("headstart-crash-*"):
        path.unlink()
    return f"{told} exit {code}\n{output[-1000:]}{''.join(reports)[-1500:]}"
