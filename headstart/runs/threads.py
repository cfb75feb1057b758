"""How many threads torch takes, where it is loaded. This file does not load it."""

from __future__ import annotations

import sys


def torch_threads() -> int:
    """The threads of torch; 0 where it is not loaded."""
    return int(sys.modules["torch"].get_num_threads()) if "torch" in sys.modules else 0
