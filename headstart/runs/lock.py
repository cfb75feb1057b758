"""One writer to a folder. The kernel holds the lock and drops it when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from headstart.errors import BusyError, ResourceError
from headstart.runs.disk import attempt, make_folder


def lock_folder(folder: Path) -> TextIO:
    """The lock on a folder, held until it is closed; a second process is told who has it."""
    path = folder / ".lock"
    file = _locked(path)
    while not _is_there(file, path):  # its owner has just removed the folder: this was the lock of nothing
        file.close()
        file = _locked(path)
    file.truncate(0)
    file.write(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}")
    file.flush()
    return file


def _locked(path: Path) -> TextIO:
    make_folder(path.parent)
    file = attempt(path, lambda: path.open("a+", encoding="utf-8"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise BusyError(f"{path.parent} is in use by {owner}. Wait for it, or choose another --out.") from None
    except OSError as error:
        file.close()
        raise ResourceError(
            f"{path} cannot be locked ({error.strerror}). Choose an --out on another disk.", "DISK_DENIED"
        ) from None
    return file


def _is_there(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
