"""The night goes on after a failure and after a cut, and its page hides nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nightly import __main__ as night
from tests.nightly.checks import CHECKS, Check

COUNT = "import pathlib; p = pathlib.Path(r'{}'); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Check, ...]:
    """One that fails, one that passes and counts how often it was run, one that was not asked for."""
    monkeypatch.setattr(night, "commit", lambda: "0123456789")
    told = "import os; print('==== ', os.environ['TOYS'], 'toys | tried ====')"
    return (
        Check("broken", "It breaks.", (sys.executable, "-c", "print('1 toy broke'); raise SystemExit(3)"), 1),
        Check("toys", "{N} toys work.", (sys.executable, "-c", f"{COUNT.format(tmp_path / 'count')}; {told}"), 2, "TOYS", 1200),
        Check("other", "Never run.", ("no-such-program",), 3),
    )  # fmt: skip


def go(checks: tuple[Check, ...], folder: Path, *words: str) -> tuple[int, str]:
    code = night.main(words, checks, folder / "nightly", folder / "nightly.md")
    return code, (folder / "nightly.md").read_text("utf-8")


def test_a_failed_check_is_on_the_page_and_does_not_stop_the_next(checks: tuple[Check, ...], tmp_path: Path) -> None:
    code, page = go(checks, tmp_path, "broken", "toys")
    assert code == 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"][2:]
    assert rows[0][:4] == ["broken", "It breaks.", "**failed**, exit code 3", "`1 toy broke`"]
    assert rows[1][:4] == ["toys", "1,200 toys work.", "passed", "`1200 toys / tried`"]
    assert rows[2] == ["other", "Never run.", "not run yet", "", "about 3 min"]
    assert "1 of 3 checks passed, 1 failed, 1 were not run." in page
    assert re.search(r"^20\d\d-\d\d-\d\d, Headstart \S+ at 0123456789, \d+ cores of .+\.$", page, re.MULTILINE)
    assert (tmp_path / "nightly" / "broken.log").read_text() == "1 toy broke\n"


def test_a_night_goes_on_with_what_has_not_passed(checks: tuple[Check, ...], tmp_path: Path, monkeypatch) -> None:
    def times() -> int:
        return len((tmp_path / "count").read_text())

    go(checks, tmp_path, "broken", "toys")
    (tmp_path / "nightly" / "broken.json").unlink()
    assert go(checks, tmp_path, "broken", "toys")[0] == 1
    assert (times(), (tmp_path / "nightly" / "broken.json").exists()) == (1, True)
    assert go(checks, tmp_path, "toys")[0] == 0
    assert times() == 1
    go(checks, tmp_path, "toys", "--again")
    assert times() == 2
    monkeypatch.setenv("TOYS", "7")  # another number is another check
    assert "| 7 toys work. | passed |" in go(checks, tmp_path, "toys")[1]
    assert times() == 3
    for version in ("abcdef0123", "abcdef0123+", "abcdef0123+"):  # another commit; files that are not committed, twice
        monkeypatch.setattr(night, "commit", lambda version=version: version)
        page = go(checks, tmp_path, "toys")[1]
    assert times() == 6
    assert "at abcdef0123 with changes that are not committed, " in page
    assert "exit code 3 (0123456789, 20" in page


def test_what_cannot_be_started_or_takes_too_long_has_failed(checks, tmp_path, monkeypatch) -> None:
    code, page = go(checks, tmp_path, "other")
    assert code == 1
    assert "cannot be started: " in page
    monkeypatch.setattr(night, "PATIENCE", 1 / 60)
    slow = Check("slow", "It hangs.", (sys.executable, "-c", "import time; time.sleep(60)"), 1)
    outcome = night.run(slow, tmp_path, "0123456789")
    assert (outcome["outcome"], outcome["closing"]) == ("failed", "ended after 1.0 s")
    assert json.loads((tmp_path / "slow.json").read_text()) == outcome


def test_a_check_that_was_cut_off_finds_what_it_had_made(tmp_path: Path) -> None:
    code = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.mkdir(parents=True, exist_ok=True); (p / f'{len([*p.iterdir()])}').touch()"
    check = Check("lab", "It goes on.", (sys.executable, "-c", code, "{out}"), 1)
    made = tmp_path / "made" / "0123456789" / "lab"
    night.run(check, tmp_path, "0123456789")
    (tmp_path / "lab.json").unlink()
    night.run(check, tmp_path, "0123456789")
    assert sorted(path.name for path in made.iterdir()) == ["0", "1"]
    night.run(check, tmp_path, "0123456789")  # it was done, so it begins anew
    assert [path.name for path in made.iterdir()] == ["0"]
    assert night.run(check, tmp_path, "other")["outcome"] == "passed"
    assert len([*made.iterdir()]) == len([*(tmp_path / "made" / "other" / "lab").iterdir()]) == 1


def test_a_night_that_is_stopped_takes_its_check_along_and_keeps_no_outcome(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    wait = f"import os, pathlib, time; pathlib.Path(r'{begun}').write_text(str(os.getpid())); time.sleep(60)"
    code = (
        "import pathlib, sys, tests.nightly.checks as table\n"
        f"table.CHECKS = (table.Check('wait', 'It waits.', (sys.executable, '-c', {wait!r}), 1),)\n"
        "import tests.nightly.__main__ as night\n"
        f"night.main.__defaults__ = (None, table.CHECKS, pathlib.Path(r'{tmp_path}'), pathlib.Path(r'{tmp_path / 'page.md'}'))\n"
        "night.watch_signals()\nsys.argv = ['night']\nsys.exit(night.main())"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=night.ROOT, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (begun.exists() and begun.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    assert not (tmp_path / "wait.json").exists()
    assert "| wait | It waits. | not run yet |" in (tmp_path / "page.md").read_text("utf-8")


def test_a_misspelled_check_is_refused_with_the_names(checks: tuple[Check, ...], tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        go(checks, tmp_path, "toy")
    assert "no check is called toy. There are: broken, toys, other." in capsys.readouterr().err


def test_the_table_names_files_that_exist() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    words = {word for check in CHECKS for word in check.command}
    assert [word for word in words if word.startswith("tests/") and not (night.ROOT / word).exists()] == []
    modules = [word for word in words if word.startswith("tests.")]
    assert [m for m in modules if not (night.ROOT / f"{m.replace('.', '/')}.py").exists()] == []
    assert all(("{N}" in check.shows) == bool(check.variable) for check in CHECKS)
