"""One writer to a folder. The kernel holds the lock and drops it when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from contextlib import suppress
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


def owner_of(folder: Path) -> int | None:
    """The process that holds the lock on a folder; None: nobody on this machine does. The lock itself is not touched."""
    path = folder / ".lock"
    try:
        found = re.match(r"pid (\d+) on (.*) since ", path.read_text("utf-8"))
        pid = int(found[1]) if found and found[2] == socket.gethostname() else None
        if pid is None or not _has_open(pid, path):
            return None
    except (OSError, ValueError):
        return None
    return pid


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has the file open: after a kill, another process may have got its number."""
    opened = Path(f"/proc/{pid}/fd")
    if not opened.is_dir():
        return not Path("/proc/self/fd").is_dir() and _is_alive(pid)
    wanted = path.stat()
    for link in opened.iterdir():
        with suppress(OSError):  # closed in the meantime
            if os.path.samestat(link.stat(), wanted):
                return True
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


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
