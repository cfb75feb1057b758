"""What a night does: a closed table, a row a check."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

PYTEST = (sys.executable, "-m", "pytest", "-q", "-m")
DATA = os.environ.get("HEADSTART_LAB_DATA")  # the folder that `make labs` knows as DATA


@dataclass(frozen=True)
class Check:
    """A command, whose exit code is the outcome and whose last line is what it counted; `{out}` is a folder for what it makes."""

    name: str
    shows: str  # in one sentence; {N} is the number
    command: tuple[str, ...]
    minutes: int  # on two idle cores, roughly; a check that takes five times as long is ended
    variable: str = ""  # of the environment, which says how many; whoever sets it wins
    number: int = 0

    @property
    def settings(self) -> dict[str, str]:
        return {self.variable: os.environ.get(self.variable) or str(self.number)} if self.variable else {}


def lab(name: str, minutes: int, packs: bool) -> Check:
    """A lab with the data of its reference, where they are at hand, or on packs that stand in for them; else the quick one."""
    how: tuple[str, ...]
    how, data = (
        ((), "on packs") if packs else (("--quick",), "the quick one, as the data of the reference were not at hand")
    )
    if DATA:
        how, data = ("--data", DATA), "on the data of the reference"
    command = (sys.executable, "-m", "tests.nightly.lab", name, "--out", "{out}", *how)
    return Check(f"lab-{name}", f"The lab {name} measures all that it promises, {data}.", command, minutes)


CHECKS = (
    Check(
        "kills", "{N} runs of all kinds, killed at random and resumed, are bit for bit those that were left alone.",
        (*PYTEST, "", "tests/jobs/test_kills.py"), 60, "HEADSTART_KILLS", 1000,
    ),
    Check(
        "readers", "{N} inputs to each reader of untrusted files end in an answer or in one sentence, soon and in bounded memory.",
        (*PYTEST, "", "-n", "auto", "tests/text/test_fuzz.py"), 150, "HEADSTART_FUZZ", 100_000,
    ),
    Check(
        "mutations", "{N} damaged copies of each kind of file, given to every command that opens it, end in one sentence.",
        (*PYTEST, "", "-n", "auto", "tests/mutations"), 480, "HEADSTART_MUTATIONS_NIGHTLY", 5000,
    ),
    Check(
        "mutants", "{N} small faults in each of eleven central modules: the tests about the module fail.",
        (sys.executable, "-m", "tests.nightly.mutants", "--out", "{out}"), 120, "HEADSTART_MUTANTS", 40,
    ),
    lab("book-reviews", 90, packs=False),
    lab("small-gpt", 60, packs=True),
    lab("pretrained-gpt", 90, packs=True),
    lab("pig-latin", 90, packs=True),
    lab("arithmetic", 60, packs=True),
    lab("captions", 60, packs=False),
    Check(
        "browser", "The studio holds, in Chromium and without, with the slow tests of the server.",
        (*PYTEST, "not network", "-n", "auto", "tests/serve"), 20,
    ),
    Check(
        "load", "{N} s in each setting the server answers every request, and refuses those that are too many.",
        (sys.executable, "-m", "tests.nightly.load", "--out", "{out}"), 10, "HEADSTART_LOAD_SECONDS", 20,
    ),
    Check(
        "slow", "The other tests that take minutes.",
        (*PYTEST, "slow and not network", "tests", "headstart", *(f"--ignore=tests/{name}" for name in ("mutations", "serve", "jobs/test_kills.py"))),
        60,
    ),
    Check("network", "The tests that download: packs against scikit-learn, and the wheel in a clean environment.", (*PYTEST, "network"), 60),
)  # fmt: skip
