"""Planted faults are found, code that means the same survives, and each draw is the same."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tests.nightly.checks import CHECKS
from tests.nightly.mutants import MODULES, ROOT, mutants

TOY = """
from __future__ import annotations
def total(a: int | None, b: int) -> int | None:
    while b > 1:
        return a + b
    return a + b
"""
TEST = "from toy import total\ndef test_total():\n    assert total(2, 3) == 5\n"
JUDGE = """
import sys
from pathlib import Path
from tests.nightly.mutants import judge, tests_pass
copy, code = Path(sys.argv[1]), (Path(sys.argv[1]) / "toy.py").read_text()
assert tests_pass(copy, ["test_toy.py"], 60), (copy / "tests.log").read_text()
changes = [("a + b", "a - b"), ("return a + b", "pass", 1), ("a + b", "b + a"), ("a: int", "a: str"), ("def total", "def tota")]
for number, change in enumerate(changes, start=1):
    print(judge(copy, "toy.py", code.replace(*change), ["test_toy.py"], 3, number))
assert (copy / "toy.py").read_text() == code
"""


def test_a_planted_fault_is_killed_and_code_that_means_the_same_survives(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "test_toy.py").write_text(TEST)
    done = subprocess.run([sys.executable, "-c", JUDGE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["killed", "killed", "survived", "survived", "killed"], (
        done.stderr
    )  # the second hangs


def test_mutants_are_drawn_evenly_and_again_the_same() -> None:
    found = list(mutants(TOY, 4, random.Random(0)))
    assert found == list(mutants(TOY, 4, random.Random(0)))
    assert len({mutant.code for mutant in found}) == 4
    assert len({mutant.line for mutant in found}) > 1
    everything = list(mutants(TOY, 1000, random.Random(0)))
    assert 20 < len({mutant.code for mutant in everything}) == len(everything) < 60
    assert {mutant.line for mutant in everything} == {4, 5, 6}  # none in the annotations of line 3
    assert all("->" in mutant.change for mutant in found)


def test_the_table_of_modules_names_files_that_exist() -> None:
    assert len(MODULES) >= 10
    assert [name for name in MODULES if not (ROOT / "headstart" / name).is_file()] == []
    assert [test for tests in MODULES.values() for test in tests if not (ROOT / "tests" / test).is_file()] == []
    [row] = [check for check in CHECKS if check.name == "mutants"]
    assert "eleven central modules" in row.shows
    assert len(MODULES) == 11
