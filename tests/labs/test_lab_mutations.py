"""Files of labs, damaged in a hundred ways: every time one sentence and an exit code that is not our bug's, or no harm."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import UserError
from headstart.labs.folder import read_results
from headstart.labs.lab import open_lab
from headstart.labs.page import write_page
from headstart.labs.results import gather, markdown
from headstart.labs.run import run_steps
from headstart.runs.environment import environment
from headstart.runs.watch import Watch

LAB = """
title = "Counting"
question = "How long are the lines?"
verdict = ["check: warnings[0]", "rows: file"]
minutes = 3
[rows]
T5 = "lengths"
[[data]]
what = "a text"
source = "https://example.org"
licence = "public domain"
[[step]]
name = "rows"
shows = "A table of lines."
command = "headstart data table small-corpus --first 3 --out {out}/rows.csv"
[[step]]
name = "check"
shows = "Their lengths, counted."
command = "headstart data check {out}/rows.csv --unit sentence --plot {out}/map.png"
quick = "--unit line"
[[figure]]
row = "T5"
what = "rows"
reference = 4
value = "rows: rows"
interval = "check: interval"
seeds = "check: seeds"
better = "higher"
[[figure]]
row = "T5"
what = "accuracy"
reference = 0.5
value = "check: by_seed[*][max]"
[[table]]
caption = "longest lines"
[table.columns]
rows = "check: splits[*].rows"
seeds = "check: by_seed"
[[picture]]
file = "map.png"
caption = "where they are"
[[picture]]
file = "map.svg"
caption = "the same"
[[answer]]
question = "How many?"
text = "There are {rows:,} of them in {file!r}: {right:.1%}."
[answer.values]
rows = "check: splits.train.rows"
file = "rows: file"
right = "check: arms[name=full,labels=3].mean"
"""
ANSWERS: dict[str, Any] = {
    "rows": {"rows": 3, "file": "rows.csv"},
    "check": {
        "splits": {"train": {"rows": 3, "words": {"max": 4.0}}},
        "warnings": ["It helps."],
        "interval": [2, 4],
        "seeds": 5,
        "by_seed": [[0.1, 0.6], [0.3, None]],
        "arms": [{"name": "full", "labels": 3, "mean": 0.75}],
    },
}
FILES = ("lab.json", "steps/rows/step.json", "steps/check/step.json", "steps/rows/result.json", "steps/check/result.json", "results.json", "map.png", "map.svg")  # fmt: skip
MUTATIONS = 100
Mutation = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def retype(data: bytes, rng: random.Random) -> bytes:
    """Another value in the place of one, or of the whole."""
    others = (None, True, -1, 0.5, 1e308, "x", "\ud800", [], {}, [1, "a", None], {"a": [{}]}, "9" * 4000)
    try:
        whole = json.loads(data)
    except ValueError:
        return b"\0" * rng.randrange(100)
    inside, key = {"": whole}, ""
    while isinstance(inside[key], (dict, list)) and inside[key] and rng.random() < 0.8:
        inside = inside[key]
        key = rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))  # type: ignore[assignment]
    inside[key] = rng.choice(others)
    return json.dumps(whole if key != "" else inside[""]).encode()


def spoil(data: bytes, rng: random.Random) -> bytes:
    texts = (
        b"",
        b"null",
        b"NaN",
        b"[1e999]",
        b"[" * 5000,
        b'{"a":' * 500,
        b"\xff\xfe",
        b'{"exit": 1, "exit": 0}',
        b"1" * 5000,
    )
    return rng.choice(texts)


MUTATE: tuple[Mutation, ...] = (cut, flip, retype, retype, retype, spoil)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab that is done, as its steps would have left it."""
    folder = tmp_path_factory.mktemp("mutations")
    (folder / "x.toml").write_text(LAB)
    out = folder / "out"
    facts = {"lab": str(folder / "x.toml"), "quick": False, "data_dir": "", "environment": environment()}
    for step, answer in ANSWERS.items():
        (out / "steps" / step).mkdir(parents=True)
        (out / "steps" / step / "result.json").write_text(json.dumps(answer))
    (out / "lab.json").write_text(json.dumps(facts))
    (out / "map.png").write_bytes(b"\x89PNG and so on")
    (out / "map.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><text>drawn</text></svg>")
    record(out, folder / "x.toml")
    assert lab(folder / "x.toml", out) == 0
    return folder


def record(out: Path, file: Path) -> None:
    for step, words in open_lab(str(file))[1].commands(str(out), "", False).items():
        kept = {"words": words, "exit": 0, "seconds": 1.0}
        (out / "steps" / step / "step.json").write_text(json.dumps(kept))


def lab(file: Path, out: Path) -> int:
    """`lab FILE --out OUT`, without what the command line does around it: an exit code that is not that of a bug."""

    def run() -> None:
        _, wanted = open_lab(str(file))
        run_steps(str(file), wanted, out, None, False, Watch())
        write_page(gather(str(file), wanted, out), out)

    return exit_code(run)


def exit_code(action: Callable[[], object]) -> int:
    code, told = 0, ""
    try:
        action()
    except UserError as error:
        code, told = error.exit_code, str(error)
    assert code in (0, 2, 3, 4, 5, 6)
    assert "\n" not in told
    return code


@pytest.fixture
def copy(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, whose steps would all fail, should one be run."""
    shutil.copytree(done / "out", tmp_path / "out")
    shutil.copy(done / "x.toml", tmp_path / "x.toml")
    (tmp_path / "out" / "lab.json").write_text(
        (done / "out" / "lab.json").read_text().replace(str(done), str(tmp_path))
    )
    record(tmp_path / "out", tmp_path / "x.toml")
    monkeypatch.setattr("headstart.labs.run._run", lambda words, log, home: (log.touch() or 3, b""))
    monkeypatch.setattr("os.fsync", lambda _: None)  # nobody pulls the plug here
    return tmp_path


def test_a_damaged_file_in_the_folder_of_a_lab_is_told(copy: Path) -> None:
    rng = random.Random(0)
    for _ in range(MUTATIONS):
        file = copy / "out" / rng.choice(FILES)
        before = {path: path.read_bytes() for path in (file, copy / "out" / "results.json")}
        file.write_bytes(rng.choice(MUTATE)(before[file], rng))
        exit_code(lambda: markdown([read_results(copy / "out")]))
        lab(copy / "x.toml", copy / "out")
        for path, data in before.items():
            path.write_bytes(data)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing", "missing"])
def test_something_else_in_place_of_a_file_of_a_lab_is_told(kind: str, copy: Path) -> None:
    for name in (*FILES, "steps/rows/log.txt", "report.html"):
        file = copy / "out" / name
        before = file.read_bytes() if file.exists() else None
        file.unlink(missing_ok=True)
        match kind:
            case "folder":
                file.mkdir()
            case "pipe":
                os.mkfifo(file)
            case "link to nothing":
                file.symlink_to(copy / "nowhere")
        exit_code(lambda: markdown([read_results(copy / "out")]))
        lab(copy / "x.toml", copy / "out")
        if file.is_dir():
            file.rmdir()
        else:
            file.unlink(missing_ok=True)
        if before is not None:
            file.write_bytes(before)


def test_a_damaged_file_of_a_lab_is_told(copy: Path) -> None:
    rng = random.Random(1)
    file = copy / "x.toml"
    before = file.read_bytes()
    for _ in range(MUTATIONS):
        data = rng.choice((cut, flip, flip, flip))(before, rng)
        file.write_bytes(data)
        lab(file, copy / "out")
    for data in (
        b"",
        b"\xff",
        b"[[step]]\n" * 1000,
        b"a=" + b"[" * 5000,
        b"title = 3",
        before * 2,
        b"rows = [" + b"1," * 10**5 + b"]",
    ):
        file.write_bytes(data)
        assert lab(file, copy / "out") == 4


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("lab.json", b"{", "lab.json is damaged (Expecting property name"),
        ("lab.json", b'{"lab": "x"}', "lab.json is damaged (quick: Field required). Choose another --out."),
        ("steps/rows/step.json", b"[]", "step.json is damaged (the whole: "),
        ("steps/rows/result.json", b'{"rows": NaN}', "result.json is damaged (NaN is not a number). Remove "),
    ],
)
def test_what_to_do_about_a_damaged_file_is_told(name: str, data: bytes, says: str, copy: Path) -> None:
    (copy / "out" / name).write_bytes(data)
    result = CliRunner().invoke(app, ["lab", str(copy / "x.toml"), "--out", str(copy / "out"), "--quiet"])
    assert result.exit_code == 5
    assert "error[LAB_DAMAGED]: " in result.stderr
    assert says in result.stderr


def test_a_step_whose_record_was_removed_is_run_again(copy: Path) -> None:
    shutil.rmtree(copy / "out" / "steps" / "rows")
    assert lab(copy / "x.toml", copy / "out") == 3, "the one that stands in for it fails"
