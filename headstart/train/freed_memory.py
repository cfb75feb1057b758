"""Memory that one step frees stays with the process, for the next one.

glibc gives freed memory back to the system when some megabytes of it have gathered, and the next step asks for it again: the system fills
every page with zeros, which takes longer than much of what is computed in it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
KEPT = 256 << 20  # bytes that may lie unused
LARGEST = 32 << 20  # bytes of a block; glibc takes no more, and maps larger ones from the system each time
ASKED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Whether it is kept: not where there is another C library, or where the environment says what malloc is to do."""
    if sys.platform != "linux" or any(name in os.environ for name in ASKED):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, KEPT))
