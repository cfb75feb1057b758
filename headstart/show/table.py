"""Tables and tokens as plain text, fit for a terminal whatever stands in them."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.text.visible import shown


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table in plain text, columns `right` aligned to the right.

    >>> print(table(["token", "p"], [["dog", "0.5"], ["a", "0.25"]], right=[1]))
    token     p
    -----  ----
    dog     0.5
    a      0.25
    """
    cells = [[shown(cell).replace("\n", "⏎") for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        .rstrip()
        for row in cells
    )  # fmt: skip


def label(token: str) -> str:
    """A token as one can see it: no space around it, and nothing that moves what stands beside it.

    >>> label(" dog"), label(" "), label("\\n"), label("\\u202e")
    ('dog', '␣', '\\\\n', '\\\\u202e')
    """
    return shown(token.replace("\n", "\\n").replace("\t", "\\t").strip(" ")) or "␣"
