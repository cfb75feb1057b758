"""What the shell offers when TAB is pressed, beside verbs and flags. Quick, and silent when there is nothing."""

from __future__ import annotations

import os
from pathlib import Path


def runs(incomplete: str) -> list[str]:
    """Run directories in the folder that is being typed, and one folder below it."""
    folder = Path(os.path.dirname(incomplete))
    found = [path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/env.json")]
    return sorted(str(path) for path in found if str(path).startswith(incomplete))


def packs(incomplete: str) -> list[str]:
    from headstart.hub.pack_contents import PACKS

    return [name for name in PACKS if name.startswith(incomplete)]
