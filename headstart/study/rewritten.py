"""The files that a study shows, written again from its cells and held against those that are there. No torch.

Numbers with a decimal point may differ in the last digits, which another processor computes differently; everything else must be
the same. Pages of another version of Headstart, and figures of another version of matplotlib, may be laid out differently: of these
only the verdict and the numbers of the table are looked for, and the rest is reported as not checked.
"""

from __future__ import annotations

import html
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from math import isclose
from pathlib import Path

from headstart.runs.environment import version
from headstart.study.check import Verification
from headstart.study.results import Found

DECIMAL = re.compile(r"(?<![\w.])(-?\d+\.\d+(?:e-?\d+)?)(?![\w.])")
DATA = (".json", ".csv")


def check_written(found: Verification, results: Found, write: Callable[[Path], None], made_by: str) -> None:
    """One check for each kind of file that `write` writes into a folder; `made_by`: the version that wrote them."""
    with tempfile.TemporaryDirectory() as scratch:
        again = Path(scratch)
        write(again)
        names = sorted(str(file.relative_to(again)) for file in again.rglob("*") if file.is_file())
        for name in (name for name in names if Path(name).suffix in DATA):
            found.hold(name, _differences(found.folder, again, [name]), "as recomputed from the cells")
        _check_figures(found, again, [name for name in names if Path(name).suffix in (".svg", ".png")])
        _check_page(found, again, results.shown().verdict, made_by)


def _check_figures(found: Verification, again: Path, names: list[str]) -> None:
    if not names:
        return
    drawn = {_software(found.folder / name) for name in names if name.endswith(".png")} - {None}
    now = {_software(again / name) for name in names if name.endswith(".png")}
    if drawn and drawn != now:
        found.leave("figures", f"drawn by {', '.join(sorted(map(str, drawn)))}, not {', '.join(map(str, now))}")
        return
    found.hold("figures", _differences(found.folder, again, names), f"{len(names)} files as drawn again")


def _check_page(found: Verification, again: Path, verdict: str, made_by: str) -> None:
    """report.html: the figures and tables on it, and the verdict."""
    page, mine = found.folder / "report.html", version("headstart")
    if made_by in ("", mine) or not page.exists():
        found.hold("report.html", _differences(found.folder, again, ["report.html"]), "as written again")
        return
    text = html.unescape(re.sub(r"<[^>]*>", "", page.read_text("utf-8", "replace")))

    def missing() -> Iterator[str]:
        flat = re.sub(r"\s+", " ", text)
        yield from (
            f"'{s}' is not on it" for s in verdict.splitlines() if re.sub(r"^- |\s+", " ", s).strip() not in flat
        )

    found.hold("report.html: verdict", missing())
    found.leave("report.html", f"written by Headstart {made_by}, this is {mine}")


def _differences(folder: Path, again: Path, names: list[str]) -> Iterator[str]:
    for name in names:
        if not (folder / name).is_file():
            yield f"{name} is missing"
        elif (folder / name).read_bytes() == (again / name).read_bytes():
            continue
        elif name.endswith(".png"):
            if not _same_image(folder / name, again / name):
                yield f"{name} shows something else"
        elif told := first_difference(_text(folder / name), _text(again / name)):
            yield f"{name}: {told}"


def _text(file: Path) -> str:
    """A file as text; of JSON, one value per line, however it was laid out."""
    text = file.read_text("utf-8", "replace")
    if file.suffix != ".json":
        return text
    try:
        return json.dumps(json.loads(text), indent=1)
    except ValueError:
        return text


def first_difference(kept: str, again: str) -> str:
    """Where two texts differ by more than the last digits of a number; nothing where they do not.

    >>> first_difference("mean,0.8750000001", "mean,0.875")
    ''
    >>> first_difference("arm a,0.875,2 seeds", "arm a,0.855,2 seeds")
    "'arm a,0.875,2 seeds', not 'arm a,0.855,2 seeds'"
    """
    before, now = DECIMAL.split(kept), DECIMAL.split(again)  # every second piece is a number
    place = 0
    for i, (a, b) in enumerate(zip(before, now, strict=False)):
        if a != b and not (i % 2 and isclose(float(a), float(b), rel_tol=2e-6, abs_tol=2e-6)):
            common = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            there = sum(map(len, now[:i])) + common
            return f"'{_around(kept, place + common)}', not '{_around(again, there)}'"
        place += len(a)
    return "" if len(before) == len(now) else "one is longer than the other"


def _around(text: str, place: int) -> str:
    """The line around a place, shortened."""
    start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    return text[max(start, place - 50) : min(end if end >= 0 else len(text), place + 50)].strip()


def _software(png: Path) -> str | None:
    """What drew a figure, by its own word."""
    from PIL import Image

    try:
        with Image.open(png) as image:
            return str(image.info.get("Software", "")).partition(",")[0] or None
    except (OSError, ValueError):
        return None


def _same_image(one: Path, other: Path) -> bool:
    """Whether two figures show the same; antialiasing may differ by a shade."""
    import numpy as np
    from PIL import Image

    try:
        a, b = (np.asarray(Image.open(file).convert("RGB"), dtype=np.int16) for file in (one, other))
    except (OSError, ValueError):
        return False
    return a.shape == b.shape and int(np.abs(a - b).max()) <= 8
