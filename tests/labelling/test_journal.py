"""labels.csv: nothing that was acknowledged is lost, whoever writes and however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headstart.errors import DataError, ModelError, ResourceError
from headstart.labelling.journal import HEADER, Journal

LABELS_ROWS = """
import sys
from pathlib import Path
from headstart.labelling.journal import Journal

journal, first, count, by = Journal(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
for row in range(first, first + count):
    journal.label(row, f"label {row % 7}", by)
    print(row, flush=True)
"""


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "labels.csv").write_text(HEADER)
    return Journal(tmp_path / "labels.csv")


def now(journal: Journal) -> dict[int, str | None]:
    """What counts of each row, as another process reads it."""
    found = Journal(journal.path).refresh()
    return {row: given[-1].label for row, given in found.answers.items() if given}


def test_an_answer_counts_until_it_is_taken_back(journal: Journal) -> None:
    journal.label(3, 'a, "b"', "me")
    journal.skip(4, "me")
    assert now(journal) == {3: 'a, "b"', 4: None}
    journal.label(3, "c", "me")
    journal.undo(3, "me")
    assert now(journal) == {3: 'a, "b"', 4: None}
    journal.undo(4, "me")
    journal.undo(3, "me")
    assert now(journal) == {}
    with pytest.raises(DataError, match="Row 3 has no answer by me"):
        journal.undo(3, "me")


def test_undo_takes_back_nothing_of_another_author(journal: Journal) -> None:
    journal.label(1, "a", "one")
    journal.label(1, "b", "two")
    journal.undo(1, "two")
    assert now(journal) == {1: "a"}
    with pytest.raises(DataError, match="by two"):
        journal.undo(1, "two")
    journal.label(1, "b", "two")
    journal.undo(1, "one")
    assert now(journal) == {1: "b"}


def test_the_same_answer_again_changes_nothing(journal: Journal) -> None:
    for _ in range(2):
        journal.label(1, "a", "me")
        journal.skip(2, "me")
    assert len(journal.path.read_text().splitlines()) == 3


def test_labels_come_in_the_order_in_which_they_were_given(journal: Journal) -> None:
    for row in (5, 2, 9):
        journal.label(row, "a", "me")
    journal.label(5, "b", "me")
    assert [answer.row for answer in journal.refresh().labelled()] == [2, 9, 5]


def test_a_line_cut_anywhere_is_left_out_and_removed_by_the_next_writer(journal: Journal) -> None:
    journal.label(1, "a", "me")
    whole = journal.path.read_bytes()
    journal.label(2, "é", "me")
    line = journal.path.read_bytes()[len(whole) :]
    for cut in range(len(line)):
        journal.path.write_bytes(whole + line[:cut])
        assert now(journal) == {1: "a"}
        Journal(journal.path).label(3, "c", "me")
        assert now(journal) == {1: "a", 3: "c"}


@pytest.mark.parametrize(
    "bad", ["label,x,a,me,now", "nonsense,1,a,me,now", "label,1,,me,now", "skip,1,a,me,now", "label,1"]
)
def test_a_damaged_line_is_named(journal: Journal, bad: str) -> None:
    journal.path.write_text(f"{HEADER}label,1,a,me,now\n{bad}\n")
    with pytest.raises(ModelError, match="line 3: damaged"):
        Journal(journal.path).refresh()


def test_a_full_disk_leaves_no_half_line(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.label(1, "a", "me")
    before, write = journal.path.read_bytes(), os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 5:
            return write(descriptor, bytes(data[:5]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("headstart.labelling.journal.os.write", full)
        with pytest.raises(ResourceError, match="Disk full"):
            journal.label(2, "bbbbbbbbbb", "me")
    assert journal.path.read_bytes() == before
    journal.label(2, "b", "me")
    assert now(journal) == {1: "a", 2: "b"}


def test_an_answer_is_forced_to_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(
        "headstart.labelling.journal.os.fsync", lambda d: (forced.append(os.fstat(d).st_size), fsync(d))
    )
    journal.label(1, "a", "me")
    assert forced == [journal.path.stat().st_size]


def begin(path: Path, first: int, count: int, by: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", LABELS_ROWS, str(path), str(first), str(count), by]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_processes_that_write_at_once_lose_nothing_of_each_other(journal: Journal) -> None:
    children = [begin(journal.path, 1000 * i, 60, f"tab-{i}") for i in range(4)]
    for child in children:
        child.communicate(timeout=120)
    assert now(journal) == {1000 * i + k: f"label {(1000 * i + k) % 7}" for i in range(4) for k in range(60)}


def test_a_writer_waits_for_its_turn(journal: Journal) -> None:
    with journal.path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        child = begin(journal.path, 1, 1, "tab-1")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.0)
        assert now(journal) == {}
    assert child.communicate(timeout=60)[0] == "1\n"
    assert now(journal) == {1: "label 1"}


def killed(journal: Journal, kills: int, seed: int) -> None:
    """Kill processes that label rows, at random moments: what they had acknowledged is there, and every line is whole."""
    rng, acknowledged = random.Random(seed), set[int]()
    for kill in range(kills):
        child = begin(journal.path, 100_000 * kill, 100_000, f"tab-{kill}")
        assert child.stdout
        first = child.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        child.kill()
        acknowledged |= {
            int(row) for row in [first, *child.stdout.read().splitlines(keepends=True)] if row.endswith("\n")
        }
        child.wait()
        child.stdout.close()
        found = now(journal)
        assert all(found[row] == f"label {row % 7}" for row in acknowledged)
    assert len(acknowledged) > kills
    journal.label(10**9, "last", "me")
    lines = journal.path.read_text().splitlines()
    assert all(line.count(",") == 4 and line.endswith("Z") for line in lines[1:])


def test_kills_lose_no_acknowledged_label(journal: Journal) -> None:
    killed(journal, 6, seed=0)


@pytest.mark.slow
def test_fifty_kills_lose_no_acknowledged_label(journal: Journal) -> None:
    killed(journal, 50, seed=1)
