"""The engine of every study: what is missing is run, a failure is remembered with its exit code, a stop is passed on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from headstart.errors import BusyError, DivergedError, ResourceError, Stopped
from headstart.runs.lock import lock_folder
from headstart.runs.watch import Watch
from headstart.study.run import Cells, Outcome, Planned, run_cell, study_folder

FAULTS: dict[str, tuple[BaseException, int, str]] = {
    "diverged": (DivergedError("The loss is not finite."), 7, "The loss is not finite."),
    "memory": (MemoryError(), 6, "out of memory"),
    "bug": (KeyError("key"), 1, "KeyError: 'key'. Details: "),
}


def finish(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "result.json").write_text("{}")


def fail(error: BaseException, path: Path) -> None:
    raise error


def count_threads(path: Path) -> None:
    import torch

    finish(path)
    (path / "threads").write_text(str(torch.get_num_threads()))


class Told(Watch):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.reached: list[tuple[int, str]] = []
        self.total = -1

    def start(self, title: str, total: int, done: int = 0) -> None:
        self.total = total

    def reach(self, done: int, state: str, left: float | None = None) -> None:
        self.reached.append((done, state))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_ends_the_study_with_its_exit_code(jobs: int, tmp_path: Path) -> None:
    full = ResourceError("Disk full writing x.", "DISK_FULL")
    planned = [Planned("a", finish), Planned("b", partial(fail, full)), Planned("c", finish)]
    with (
        pytest.raises(ResourceError, match=r"Disk full writing x\. The same command goes on in "),
        Cells(tmp_path, planned, jobs, Told()) as cells,
    ):
        cells.run(planned)
    assert (tmp_path / "cells" / "a" / "result.json").exists()
    assert not (tmp_path / "cells" / "b" / "result.json").exists()


def test_cells_that_are_no_jobs_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # of the tests
    monkeypatch.setattr("headstart.study.run.os.cpu_count", lambda: 2)
    planned = [Planned(name, count_threads) for name in "ab"]
    with Cells(tmp_path, planned, 2, Told()) as cells:
        cells.run(planned)
    assert [file.read_text() for file in tmp_path.glob("cells/*/threads")] == ["1", "1"]


def test_a_cell_that_is_run_here_leaves_the_threads_as_they_were(tmp_path: Path) -> None:
    import torch

    before = torch.get_num_threads()
    assert run_cell(Planned("a", count_threads), tmp_path, threads=before + 1).exit == 0
    assert (tmp_path / "cells" / "a" / "threads").read_text() == str(before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_only_what_is_missing_is_run_under_one_bar(jobs: int, tmp_path: Path) -> None:
    finish(tmp_path / "cells" / "a")
    before, told = (tmp_path / "cells" / "a" / "result.json").stat().st_mtime_ns, Told()
    planned = [Planned(name, finish) for name in "abc"]
    with Cells(tmp_path, planned, jobs, told) as cells:
        cells.run(planned[:2])
        cells.run(planned)
    assert cells.failures == []
    assert sorted(p.parent.name for p in tmp_path.glob("cells/*/result.json")) == ["a", "b", "c"]
    assert (tmp_path / "cells" / "a" / "result.json").stat().st_mtime_ns == before
    assert (told.total, told.reached) == (2, [(0, ""), (1, "b"), (2, "c")])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_remembered_and_the_others_go_on(fault: str, tmp_path: Path) -> None:
    error, code, message = FAULTS[fault]
    planned, told = [Planned("bad", partial(fail, error)), Planned("good", finish)], Told()
    with Cells(tmp_path, planned, 1, told) as cells:
        cells.run(planned)
    (failure,) = cells.failures
    assert (failure.cell, failure.exit) == ("bad", code)
    assert failure.message.startswith(message)
    assert told.notes == [f"bad failed (exit code {code}): {failure.message}"]
    assert (tmp_path / "cells" / "good" / "result.json").exists()
    assert Outcome("good").exit == 0


def test_a_stop_names_the_folder_and_the_way_to_go_on(tmp_path: Path) -> None:
    stop = Planned("a", partial(fail, Stopped("at step 3 of 9", 15)))
    with pytest.raises(Stopped) as stopped, study_folder(tmp_path), Cells(tmp_path, [stop], 1, Watch()) as cells:
        cells.run([stop])
    assert str(stopped.value).endswith(f"saved in {tmp_path}. The same command or call goes on there.")
    assert stopped.value.exit_code == 143


def test_one_process_at_a_time_writes_into_a_study(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(BusyError), study_folder(tmp_path):
        pass
