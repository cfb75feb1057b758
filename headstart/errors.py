"""What a user can put right, and the exit code each kind gets.

Exit codes: 0 done, 1 our bug, 2 usage, 3 data, 4 configuration, 5 model or checkpoint, 6 resources,
7 diverged, 8 run directory busy, 9 network, 10 a study or run that does not
verify, 129/130/143 stopped by a signal with its state saved.

    UserError 2
      DataError 3   ConfigError 4   ModelError 5   ResourceError 6   DivergedError 7   BusyError 8   NetworkError 9
      VerificationError 10
      Stopped 128 + signal
      StepFailed, with the exit code of the command that failed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

LONGEST = 4000  # characters of a message: it quotes names and values of files, which may have any length


class UserError(Exception):
    """A fault that the user can fix. `code` names it for scripts: DATA_EMPTY, RUN_BUSY."""

    exit_code = 2
    code = "USAGE"

    def __init_subclass__(cls, exit_code: int = 2, code: str = "USAGE") -> None:
        cls.exit_code, cls.code = exit_code, code

    def __init__(self, message: str, code: str | None = None) -> None:
        if len(message) > LONGEST:  # where it is and what to do stand at the ends
            left_out = f" [... {len(message) - LONGEST * 3 // 4:,} characters left out ...] "
            message = message[: LONGEST // 2] + left_out + message[-LONGEST // 4 :]
        super().__init__(message)
        if code:
            self.code = code


class DataError(UserError, exit_code=3, code="DATA"):
    """A file of the user's: missing, unreadable, empty, or not what the task needs."""


class ConfigError(UserError, exit_code=4, code="CONFIG"):
    """Settings that are unknown, out of range, or contradict each other."""


class ModelError(UserError, exit_code=5, code="MODEL"):
    """A model, run or checkpoint: missing, damaged, or of the wrong kind."""


class ResourceError(UserError, exit_code=6, code="RESOURCES"):
    """Disk, memory or permissions."""


class DivergedError(UserError, exit_code=7, code="DIVERGED"):
    """Loss, gradients or weights that are not finite."""


class BusyError(UserError, exit_code=8, code="RUN_BUSY"):
    """Another process writes into the folder."""


class NetworkError(UserError, exit_code=9, code="NETWORK"):
    """A download failed."""


class VerificationError(UserError, exit_code=10, code="VERIFY"):
    """A study or a run that is not what its files claim."""


class Stopped(UserError, code="STOPPED"):
    """A signal arrived. `where` it found the work; `then` is what has become of it, and what goes on with it."""

    def __init__(
        self,
        where: str,
        signal_number: int,
        then: str = "everything is saved. Go on with --resume, or with resume=True in Python.",
    ) -> None:
        super().__init__(f"Stopped {where}; {then}")
        self.where, self.signal_number, self.then = where, signal_number, then
        self.exit_code = 128 + signal_number

    def but(self, then: str) -> Stopped:
        """The same, told by someone who goes on in another way."""
        return Stopped(self.where, self.signal_number, then)

    def __reduce__(self) -> tuple[type[Stopped], tuple[str, int, str]]:
        return type(self), (self.where, self.signal_number, self.then)  # so that it comes home from another process


class StepFailed(UserError):
    """A command that was run as part of something larger failed: its own sentence, code and exit code."""

    def __init__(self, message: str, code: str, exit_code: int) -> None:
        super().__init__(message, code)
        self.exit_code = exit_code


def did_you_mean(value: str, known: Iterable[str], also: Mapping[str, str] = MappingProxyType({})) -> str:
    """A hint to append to a message, or nothing; `also` has other words for some that are known.

    >>> did_you_mean("stepz", ["steps", "lr"])
    " Did you mean 'steps'?"
    >>> did_you_mean("learnrate", ["steps", "lr"], also={"learning_rate": "lr"})
    " Did you mean 'lr'?"
    >>> did_you_mean("x", ["steps"])
    ''
    """
    words = {**also, **{name: name for name in known}}
    close = get_close_matches(value, list(words), n=1, cutoff=0.6)
    return f" Did you mean '{words[close[0]]}'?" if close else ""


def first_line(error: BaseException) -> str:
    """What another library says went wrong, as part of a sentence of ours.

    >>> first_line(ValueError("no such file\\nTraceback ..."))
    'no such file'
    >>> first_line(KeyError())
    'KeyError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch on the CPU or torch on another device ran out of memory; torch only says so in words.

    >>> out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"))
    True
    >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in str(error) for w in words))


def shortened(value: str | int | float | None) -> str:
    """`value` as one would write it, in one line at most."""
    try:
        return repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:100]}..."
    except ValueError:  # how Python refuses to write thousands of digits
        return "a number of thousands of digits"
