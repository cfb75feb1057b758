"""Where the parameters of a model are: as a table, a tree and a treemap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.quantities import data_size
from headstart.show.picture import COLORS, INK, PAPER, brief
from headstart.show.table import table
from headstart.show.view import View

BYTES = {"fp32": 4, "bf16": 2, "int8": 1}  # of one parameter


@dataclass(frozen=True)
class Module:
    """A module with parameters of its own."""

    name: str  # its path: base.layers.0.up
    parameters: int
    formula: str  # the sum of products that gives their number
    trainable: bool


@dataclass(frozen=True)
class Branch:
    """A module and what is inside it."""

    name: str
    parameters: int
    trainable: int
    inside: Sequence[Branch] = ()


@dataclass(frozen=True, repr=False)
class Parameters(View):
    name = "parameters"

    modules: Sequence[Module]
    counts: Mapping[str, int]  # of parts that have a name: layer, base, encoder
    flops: int | None = None  # of one token forward, matrix products only, with `context` tokens read at once
    context: int | None = None
    notes: Sequence[str] = ()

    @property
    def total(self) -> int:
        return sum(m.parameters for m in self.modules)

    @property
    def trainable(self) -> int:
        return sum(m.parameters for m in self.modules if m.trainable)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the weights need."""
        return {kind: size * self.total for kind, size in BYTES.items()}

    def data(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "trainable": self.trainable,
            **self.counts,
            "memory": self.memory,
            "flops_per_token": self.flops,
            "context": self.context,
            "notes": list(self.notes),
            "modules": [
                {"name": m.name, "parameters": m.parameters, "formula": m.formula, "trainable": m.trainable}
                for m in self.modules
            ],
        }

    @property
    def rows(self) -> list[list[str]]:
        return [[m.name, f"{m.parameters:,}", m.formula, "" if m.trainable else "frozen"] for m in self.modules]

    @property
    def summary(self) -> list[str]:
        names = {"layer": "one layer", "layers": "all layers"}
        named = {names.get(name, name): count for name, count in self.counts.items()}
        counts = {**named, "total": self.total, "trainable": self.trainable}
        lines = [
            "   ".join(f"{name} {count:,}" for name, count in counts.items()),
            "memory of the weights: " + ", ".join(f"{kind} {data_size(size)}" for kind, size in self.memory.items()),
        ]
        if self.flops is not None:
            lines.append(
                f"{_count(self.flops)} floating-point operations per token forward, three times that in training (matrix "
                f"products; tokens read at once: {self.context})"
            )
        return [*lines, *self.notes]

    def __str__(self) -> str:
        return "\n".join([table(["module", "parameters", "formula", ""], self.rows, right=(1,)), "", *self.summary])

    def root(self) -> Branch:
        """The tree of modules."""
        return _branch("model", [(m.name.split("."), m) for m in self.modules])

    def tree(self) -> str:
        """The tree of modules as text, each with the sum of what is inside."""
        rows = [[name, f"{b.parameters:,}", _state(b)] for name, b in _lines(self.root(), "")]
        return "\n".join([table(["module", "parameters", ""], rows, right=(1,)), "", *self.summary])

    @property
    def leaves(self) -> list[tuple[Branch, Box]]:
        """The modules with parameters of their own and their boxes in a treemap of 1 by 1."""
        boxes = _boxes(self.root(), (0.0, 0.0, 1.0, 1.0))
        return [(branch, box) for branch, box in boxes if branch.parameters and not branch.inside]

    @property
    def alt(self) -> str:
        told = ", ".join(f"{b.name} {b.parameters:,}" for b in self.root().inside)
        return f"A treemap of {self.total:,} parameters: {told}."

    @property
    def size(self) -> tuple[float, float]:
        return 7.2, 4.2

    def draw(self, figure: Any) -> None:
        from matplotlib.patches import Rectangle

        axis = figure.subplots()
        for branch, (x, y, width, height) in self.leaves:
            color = COLORS[0] if branch.trainable else "#8c8f96"
            axis.add_patch(Rectangle((x, y), width, height, facecolor=color, alpha=0.55, edgecolor=PAPER, linewidth=1))
            if width > 0.07 and height > 0.05:
                told = f"{brief(branch.name, int(width * 85))}\n{_count(branch.parameters)}"
                axis.text(x + width / 2, y + height / 2, told, ha="center", va="center", fontsize=6.5, color=INK)
        axis.set(xlim=(0, 1), ylim=(1, 0), xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        figure.suptitle(self.summary[0] + "   (grey: frozen)", x=0.01, ha="left", fontsize=8.5)


Box = tuple[float, float, float, float]  # left, top, width, height


def _branch(name: str, modules: Sequence[tuple[list[str], Module]]) -> Branch:
    inside: dict[str, list[tuple[list[str], Module]]] = {}
    own: list[Module] = []
    for path, module in modules:
        if path:
            inside.setdefault(path[0], []).append((path[1:], module))
        else:
            own.append(module)
    branches = [_branch(child, found) for child, found in inside.items()]
    if own and branches:  # a module with parameters beside those of its children
        branches = [_branch("its own", [([], m) for m in own]), *branches]
    parts = [(m.parameters, m.parameters if m.trainable else 0) for m in own]
    if branches:
        parts = [(b.parameters, b.trainable) for b in branches]
    return Branch(name, sum(p for p, _ in parts), sum(t for _, t in parts), branches)


def _lines(branch: Branch, indent: str) -> Iterator[tuple[str, Branch]]:
    yield indent + branch.name, branch
    for child in branch.inside:
        yield from _lines(child, indent + "  ")


def _boxes(branch: Branch, box: Box, path: str = "") -> Iterator[tuple[Branch, Box]]:
    """The boxes of a treemap, whose areas are as the parameters: each cut along its longer side."""
    path = f"{path}.{branch.name}" if path else branch.name
    yield Branch(path.removeprefix("model."), branch.parameters, branch.trainable, branch.inside), box
    x, y, width, height = box
    across = width >= height
    for child in branch.inside:
        share = child.parameters / max(1, branch.parameters)
        part = (x, y, width * share, height) if across else (x, y, width, height * share)
        yield from _boxes(child, part, path)
        x, y = (x + part[2], y) if across else (x, y + part[3])


def _state(branch: Branch) -> str:
    if branch.trainable == branch.parameters:
        return ""
    return "frozen" if not branch.trainable else f"{branch.trainable:,} learn"


def _count(number: float) -> str:
    """A large number in short.

    >>> _count(21018401)
    '21.0 million'
    """
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(int(number))
