"""Whatever is damaged, and however: one sentence and an exit code that fits, no hang, no more memory than 2 GB.

Each case is a function of the seed, the kind and its number: HEADSTART_MUTATIONS_SEED=7 makes others,
HEADSTART_MUTATIONS=1000 more. The damaged copy of a failed case is kept, and its path told.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
import typer.testing
from typer.testing import CliRunner

from headstart.cli import app

SEED = os.environ.get("HEADSTART_MUTATIONS_SEED", "0")
CASES = int(os.environ.get("HEADSTART_MUTATIONS", 100))
NIGHTLY = 1000
LONGEST = float(os.environ.get("HEADSTART_MUTATIONS_SECONDS", 30))
MEMORY = 2 << 30
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
@pytest.mark.timeout(3600)
def test_no_damage_out_of_a_thousand_is_a_bug_of_ours(
    kind: Any, shelf: dict[str, Path], opened: Path, request: Any
) -> None:
    _try(kind, shelf, opened, request.node.callspec.id, range(round(CASES * kind.share), NIGHTLY))


def _try(kind: Any, shelf: dict[str, Path], work: Path, name: str, cases: range) -> None:
    """Run `cases` in processes of their own: a crash or a hang ends one, and the next goes on."""
    answers, said = work / "answers.jsonl", work / "said.txt"
    left, found = list(cases), []
    while left:
        answers.write_text("")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a process with threads should not be forked
            child = os.fork()
        if not child:
            _child(kind, shelf, work, name, left, answers, said)
        _, status = os.waitpid(child, 0)
        told = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
        found += [answer for answer in told if answer]
        left = left[len(told) :]
        if left:  # it ended in the middle of a case
            died = said.read_text("utf-8", "replace").partition("Timeout")
            words = (work / "case.txt").read_text("utf-8")
            found.append(f"{words} ended the process ({status:#x}):\n{died[2][:2500] or died[0][-2500:]}")
            left = left[1:]
    assert not found, f"seed {SEED}, {len(found)} of {len(cases)} cases:\n\n" + "\n\n".join(found[:20])


def _child(
    kind: Any, shelf: dict[str, Path], work: Path, name: str, cases: list[int], answers: Path, said: Path
) -> None:
    """Never comes back."""
    try:
        for number in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        warnings.simplefilter("ignore")
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        torch.set_num_threads(1)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        log = sys.__stderr__.fileno() if sys.__stderr__ else 2
        with answers.open("a", encoding="utf-8") as file:
            for case in cases:
                faulthandler.dump_traceback_later(LONGEST, exit=True, file=log)
                answer = _case(kind, shelf, work / str(case), random.Random(f"{SEED} {name} {case}"))
                faulthandler.cancel_dump_traceback_later()
                file.write(json.dumps(answer) + "\n")
                file.flush()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(0)


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
    work.with_name("case.txt").write_text(told, "utf-8", "backslashreplace")
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


# The mutators: a file becomes something else, and its name for a person is told.


def mutate(file: Path, rng: random.Random) -> str:
    data = file.read_bytes()
    chance = rng.random()
    if chance < 0.1:
        how = rng.choice(PLACES)
        file.unlink()
        how(file)
        return how.__name__.strip("_")
    changed = None
    if chance < 0.55:
        changed = _json(data, rng) if file.suffix in (".json", ".jsonl") else _words(data, rng)
    if changed is None or changed == data:
        changed = data
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            changed = rng.choice(BYTES)(changed, rng)
    file.write_bytes(changed)
    at = next((i for i, (a, b) in enumerate(zip(data, changed, strict=False)) if a != b), min(len(data), len(changed)))
    return f"from byte {at}: {data[at : at + 30]!r} became {changed[at : at + 30]!r}"


def _a_folder(file: Path) -> None:
    file.mkdir()


def _gone(file: Path) -> None:
    pass


def _empty(file: Path) -> None:
    file.touch()


def _a_loop(file: Path) -> None:
    file.symlink_to(file.name)


def _a_pipe(file: Path) -> None:
    os.mkfifo(file)


def _a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


PLACES = (_a_folder, _gone, _empty, _a_loop, _a_pipe, _a_device)
RAW = ("1e999", "-1e999", "9" * 5000, "[" * 50 + "]" * 50, "[" * 100_000, "{" * 1000, '"\\ud800"', "NaN", "-Infinity", "1.0e-400", "")  # fmt: skip
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, "", " ", "x", "0", "\0", "\u202e abc",
    "../../../etc/passwd", "/", "~", "é" * 300, "x" * 100_000, "%s{0}{x}", [], [[]], {}, [None], [0] * 1000, {"": ""}, {"a": {}},
]  # fmt: skip
WORDS = [
    b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\t", b"\"", b"'", b",", b"{", b"]", b"\\", b"-1", b"0", b"1e999", b"nan",
    b"9" * 400, b"99999999999", b"\xe2\x80\xae", b"\xf0\x9f\x91\xa8\xe2\x80\x8d", b"null", b"true", b"[]", b"[[", b"''", b"", b" ",
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\xff" * 8, b"=1+1", b"/dev/zero", b"x" * 70_000,
]  # fmt: skip


def _json(data: bytes, rng: random.Random) -> bytes | None:
    """JSON with one node that is something else; of JSON lines, in one of them."""
    lines = data.splitlines(keepends=True)
    try:
        whole = json.loads(data)
    except ValueError:
        if len(lines) < 2:
            return None
        at = rng.randrange(len(lines))
        changed = _json(lines[at].rstrip(), rng)
        return None if changed is None else b"".join([*lines[:at], changed, b"\n", *lines[at + 1 :]])
    nodes = list(_nodes(whole))
    if not nodes:
        return None
    parent, key = rng.choice(nodes)
    raw = rng.choice(RAW) if rng.random() < 0.2 else None
    act = rng.random()
    if act < 0.15:
        del parent[key]
    elif act < 0.25 and isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)
    else:
        parent[key] = "@raw@" if raw is not None else rng.choice(ODD)
    return json.dumps(whole).replace('"@raw@"', raw or "").encode()


def _nodes(value: Any) -> Any:
    """Every place below `value` that something stands in: the shallow ones are as likely as the many deep ones."""
    level = [value]
    while level:
        here = [(v, k) for v in level for k in (v if isinstance(v, dict) else range(len(v)))]
        yield from here[:50]
        level = [v[k] for v, k in here if isinstance(v[k], (dict, list))]


def _words(data: bytes, rng: random.Random) -> bytes | None:
    """A word, a number or a string among text that is another one."""
    found = list(re.finditer(rb"[\w.+-]+|\"[^\"\n]*\"", data[:100_000]))
    if not found:
        return None
    at = rng.choice(found)
    return (
        data[: at.start()] + rng.choice([*WORDS, b'""', b"{}", b'["a"]', b"[1, 2]", b"-3", b"0.5"]) + data[at.end() :]
    )


def _span(data: bytes, rng: random.Random, longest: int = 200) -> tuple[int, int]:
    """Somewhere in the file; heads and tails say what the rest is, so one time in two there."""
    size = len(data)
    start = rng.choice((rng.randrange(size + 1), rng.randrange(size + 1), min(size, rng.randrange(256)), max(0, size - 1 - rng.randrange(256))))  # fmt: skip
    return start, min(size, start + rng.randrange(1, longest))


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: _span(data, rng)[0]]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 8)) if data else 0):
        changed[min(_span(data, rng)[0], len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _delete(data: bytes, rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    start, _ = _span(data, rng)
    return data[:start] + rng.randbytes(rng.choice((1, 4, 64))) + data[start:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 500)) + data[end:]


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    (start, _), word = _span(data, rng), rng.choice(WORDS)
    return data[:start] + word + data[start + len(word) :]


def _swap(data: bytes, rng: random.Random) -> bytes:
    (a, b), (c, d) = sorted((_span(data, rng), _span(data, rng)))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:] if b <= c else data


BYTES = (_cut, _flip, _flip, _delete, _insert, _repeat, _overwrite, _overwrite, _swap)
