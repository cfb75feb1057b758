"""Quantities as a person reads them: points, seconds, bytes, and how many of a thing there are."""

from __future__ import annotations


def points(value: float) -> str:
    """One decimal, or as many as it takes not to round to zero: which side of zero it is on must be seen.

    >>> points(3.14), points(-0.04), points(0.0)
    ('3.1', '-0.04', '0.0')
    """
    decimals = next((d for d in range(1, 4) if round(value, d)), 1 if value == 0 else 4)
    return f"{value + 0.0:.{decimals}f}"


def signed(value: float) -> str:
    """Points with a plus before what is above zero.

    >>> signed(3.14), signed(-0.04)
    ('+3.1', '-0.04')
    """
    return f"{'+' if value > 0 else ''}{points(value)}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.01), duration(0.42), duration(12.34), duration(754), duration(7500)
    ('< 0.1 s', '0.4 s', '12 s', '12 min 34 s', '2 h 5 min')
    """
    if seconds < 0.05:
        return "< 0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def data_size(count: float) -> str:
    """Bytes, in the unit that suits them.

    >>> data_size(300), data_size(5_400_000), data_size(999_999_999), data_size(3_210_000_000)
    ('300 B', '5.4 MB', '1.0 GB', '3.2 GB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.95:  # what would be rounded to 1000.0 takes the next unit
            return f"{count:.1f} {unit}"
    return f"{count / 1000:,.1f} GB"


def counted(count: int, thing: str, one: str = "", many: str = "") -> str:
    """So many of a thing, and what `one` or `many` of them did.

    >>> counted(1, "text"), counted(1200, "text"), counted(0, "test row")
    ('1 text', '1,200 texts', '0 test rows')
    >>> counted(1, "image", "was", "were"), counted(2, "image", "was", "were")
    ('1 image was', '2 images were')
    """
    return f"{count:,} {thing}{'s' * (count != 1)} {one if count == 1 else many}".rstrip()
