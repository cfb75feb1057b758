"""SHA-256 of texts."""

from __future__ import annotations

import hashlib


def digest(*parts: str) -> str:
    """SHA-256 of some texts."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return found.hexdigest()
