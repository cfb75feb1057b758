"""The cage in which files are tried holds whatever a reader does."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path

import pytest

from headstart.errors import DataError
from tests import isolated
from tests.text.test_fuzz import faults


def test_a_case_that_crashes_hangs_or_fills_the_memory_ends_alone(tmp_path: Path) -> None:
    def case(number: int) -> str:
        isolated.begins(tmp_path, f"case {number}")
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3:
            time.sleep(60)
        if number == 4:
            raise KeyError("a slip")
        if number == 5:
            bytearray(3 << 30)
        return f"{number} is wrong" if number in (1, 6) else ""

    found = isolated.faults(case, range(8), tmp_path, longest=1)
    assert [fault.splitlines()[0] for fault in found] == [
        "1 is wrong",
        "case 2 ended the process (0x9):",
        "case 3 ended the process (0x100):",
        "case 4 ended the process (0x0):",
        "case 5 ended the process (0x0):",
        "6 is wrong",
    ]
    assert "in case" in found[2]
    assert "KeyError: 'a slip'" in found[3]
    assert "MemoryError" in found[4]


def test_a_reader_may_answer_or_refuse_in_a_sentence_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", None)  # put back at the end

    def refuses(message: str) -> None:
        raise DataError(message)

    def leaves_a_file_open() -> None:
        open(os.devnull)  # noqa: SIM115

    assert list(faults(lambda: 3)) == list(faults(lambda: refuses("a.csv: empty."))) == []
    assert list(faults(lambda: refuses(""))) == ["a sentence of 0 characters: "]
    assert "ZeroDivisionError" in next(faults(lambda: 1 / 0))
    assert "UserWarning: odd" in next(faults(lambda: warnings.warn("odd", stacklevel=1)))
    assert "unclosed file" in next(faults(leaves_a_file_open))
