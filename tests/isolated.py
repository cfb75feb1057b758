"""Cases in processes of their own, with bounded time and memory: a crash or a hang ends one case, and the next goes on."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import torch

MEMORY = 2 << 30


def faults(case: Callable[[int], str], numbers: Sequence[int], work: Path, longest: float) -> list[str]:
    """What went wrong in each case that did: what `case` says, if anything, or how it ended the process."""
    answers, said = work / "answers.jsonl", work / "said.txt"
    left, found = list(numbers), []
    while left:
        answers.write_text("")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a process with threads should not be forked
            child = os.fork()
        if not child:
            _child(case, left, answers, said, longest)
        _, status = os.waitpid(child, 0)
        told = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
        found += [answer for answer in told if answer]
        left = left[len(told) :]
        if left:  # it ended in the middle of a case
            died = said.read_text("utf-8", "replace").partition("Timeout")
            words = (work / "case.txt").read_text("utf-8")
            found.append(f"{words} ended the process ({status:#x}):\n{died[2][:2500] or died[0][-2500:]}")
            left = left[1:]
    return found


def begins(work: Path, words: str) -> None:
    """Told by a case, in case that it ends the process."""
    (work / "case.txt").write_text(words, "utf-8", "backslashreplace")


def _child(case: Callable[[int], str], numbers: list[int], answers: Path, said: Path, longest: float) -> NoReturn:
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
            for number in numbers:
                faulthandler.dump_traceback_later(longest, exit=True, file=log)
                answer = case(number)
                faulthandler.cancel_dump_traceback_later()
                file.write(json.dumps(answer) + "\n")
                file.flush()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(0)
