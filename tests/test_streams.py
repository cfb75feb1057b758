"""C4: wherever the output goes, and whatever the locale, there is no traceback and the text is UTF-8."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.cli import terminal

HEADSTART = [sys.executable, "-m", "headstart"]
PLAIN_C = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # without Python's own remedies
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m")
PROGRESS = """
from headstart.cli.terminal import Bar
bar = Bar(quiet=False)
with bar.bar("learning", 10):
    bar.advance(5, loss=1.0, tokens_per_second=100.0)
bar.note("half-way")
"""


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\nété 🧀,nég\nça va,pos\n", "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ("--help", 1),  # typer's own answer, without a word
        ("data list", 0),
        ("data list --json", 0),
        ("data check {rows}", 0),
    ],
)
def test_a_reader_that_goes_away_is_no_fault(verb, code, rows):
    command = [*HEADSTART, *(word.format(rows=rows) for word in verb.split())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()  # before a line is written, as `| head -0` does
        assert running.stderr.read() == b""
    assert running.returncode == code


@pytest.mark.parametrize(("closed", "verb", "code"), [(">&-", "list", 0), ("2>&-", "list", 0), ("2>&-", "get nope", 3)])
def test_output_that_is_closed_from_the_start_is_no_fault(closed, verb, code):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m headstart data {verb} {closed}"], capture_output=True, text=True
    )
    assert done.returncode == code
    assert "error" not in done.stderr


@pytest.mark.parametrize("locale", [PLAIN_C, {"PYTHONIOENCODING": "latin-1"}], ids=["C", "latin-1"])
def test_output_is_utf_8_whatever_the_locale(locale, rows):
    env = {**os.environ, **locale}
    done = subprocess.run([*HEADSTART, "data", "check", rows], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "nég 1" in done.stdout.decode("utf-8")
    failed = subprocess.run([*HEADSTART, "data", "check", rows, "--text-column", "nope"], capture_output=True, env=env)
    assert failed.returncode == 3
    assert failed.stderr.startswith(b"error[DATA_COLUMNS]")


def test_what_is_no_terminal_gets_no_escapes(rows):
    for command in (
        [*HEADSTART, "data", "check", rows],
        [*HEADSTART, "data", "chekc"],
        [sys.executable, "-c", PROGRESS],
    ):
        done = subprocess.run(command, capture_output=True)
        assert done.stdout + done.stderr
        assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_obeyed_on_a_terminal(no_color):
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color}
    with subprocess.Popen([sys.executable, "-c", PROGRESS], stderr=theirs, env=env) as running:
        os.close(theirs)
        seen = b""
        while part := _read(ours):
            seen += part
    os.close(ours)
    assert running.returncode == 0
    assert b"learning" in seen
    assert bool(COLOUR.search(seen)) == (not no_color)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how a terminal says that nobody has it open any more
        return b""


def test_a_log_is_told_how_long_it_will_take(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "TOLD_EVERY", -1.0)
    bar = terminal.Bar(quiet=False)
    with bar.bar("images", 8):
        bar.began -= 30.0  # so long ago
        bar.reach(2, "looked at")
        bar.reach(2, "cell", left=7500)
        bar.advance(6, loss=1.0, tokens_per_second=100.0)
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == ["2 of 8: looked at, about 1 min 30 s left", "2 of 8: cell, about 2 h 5 min left"]
    assert told[2] == "step 6 of 8: loss 1.000, 100 tokens/s, about 10 s left"
