"""One writer to a folder. The kernel holds the lock and drops it when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from headstart.errors import BusyError


def lock_folder(folder: Path) -> TextIO:
    """The lock on a folder, held until it is closed; a second process is told who has it."""
    file = (folder / ".lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise BusyError(f"{folder} is in use by {owner}. Wait for it, or choose another --out.") from None
    file.truncate(0)
    file.write(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}")
    file.flush()
    return file
