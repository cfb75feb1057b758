"""What a row has for a model to read: one text, or two that are read together. What tells them apart reads the table.

The text of a row is a string whatever it is made of; `parts` gives the texts in it one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headstart.errors import DataError
from headstart.task import Input
from headstart.text.files import is_blank
from headstart.text.separated import Header
from headstart.text.tables import Wanted, find_column
from headstart.text.text_pair import MARK, PAIR_COLUMNS, TextPair, pair_in, paired

FLAG = "--text-column"


@dataclass(frozen=True)
class InputKind:
    """One kind of input, in code, in words and on pages."""

    name: Input
    kind: type[str]
    columns: tuple[str, ...]  # of a file of ours
    one: str  # a row
    rows: str  # several, of an arm or a model that reads them
    brief: str
    name_columns: str  # what to do where rows are of another kind
    from_line: Callable[[str], str] = str  # one that was typed
    from_texts: Callable[[Sequence[str]], Sequence[str]] = list  # those that were typed one by one
    described: Mapping[str, Any] = field(default_factory=dict)  # a model of it, in its config.json
    # module:function of the features of linear models; a row of one text has the usual ones.
    tfidf: str = ""  # of labelled rows
    vectors: str = ""  # of the vectors of each part
    # On the page of a model.
    page: str = ""
    boxes: tuple[tuple[str, str], ...] = (("text", "Text"),)  # the fields of the page, and what they are for
    line: str = "Text"
    in_table: str = "a text"
    example: Any = "a text to label"

    @property
    def several(self) -> bool:
        """Whether a row has more than one text."""
        return len(self.columns) > 1


INPUTS: dict[Input, InputKind] = {
    kind.name: kind
    for kind in (
        InputKind(
            "text", str, ("text",), "a text", "single texts", "single texts",
            f"Name the column of the text: {FLAG} NAME.", page="sentence",
        ),
        InputKind(
            "pair", TextPair, ("text1", "text2"), "a pair of texts", "pairs of texts", "pairs",
            f"Name two columns: {FLAG} premise,hypothesis.", pair_in, paired, {"paired": True},
            tfidf="headstart.study.pair_features:pair_tfidf_rows", vectors="headstart.study.pair_features:pair_vectors",
            page="pair of texts", boxes=(("text", "First text"), ("second", "Second text")),
            line=f"Both texts, with {MARK.strip()} between them", in_table="both texts", example=[["a text", "another"]],
        ),
    )
}  # fmt: skip


def input_of(texts: Sequence[str]) -> Input:
    """What the rows of a table have, which is the same in all of them.

    >>> input_of([TextPair("It rains.", "It is wet.")]), input_of(["It rains."]), input_of([])
    ('pair', 'text', 'text')
    """
    return _kind_of(type(texts[0])).name if texts else "text"


def _kind_of(text: type[str]) -> InputKind:
    return next((kind for kind in INPUTS.values() if kind.several and issubclass(text, kind.kind)), INPUTS["text"])


def input_with(texts: int) -> InputKind:
    """The kind of input that has so many texts in a row."""
    return next(kind for kind in INPUTS.values() if len(kind.columns) == texts)


def described_input(described: Mapping[str, Any]) -> Input:
    """What a model reads, by what its config.json says of it."""
    kinds = (kind for kind in INPUTS.values() if kind.described)
    return next((kind.name for kind in kinds if all(described.get(k) is v for k, v in kind.described.items())), "text")


def parts(text: str) -> tuple[str, ...]:
    """The texts that a row has."""
    return (text.first, text.second) if isinstance(text, TextPair) else (text,)


def text_of(cells: Sequence[str]) -> str:
    """The text that one or two cells hold."""
    return TextPair(cells[0], cells[1]) if len(cells) == 2 else cells[0]


def named_parts(text: str) -> dict[str, str]:
    """The texts of a row by the names of columns that they are found by."""
    return dict(zip(INPUTS[input_of([text])].columns, parts(text), strict=True))


def lacks_text(text: str) -> bool:
    """Whether a text of a row is blank."""
    return any(map(is_blank, parts(text)))


def singles(texts: Sequence[str]) -> list[str]:
    """The texts of all rows one by one."""
    return [part for text in texts for part in parts(text)]


def together(text: str) -> str:
    """What rows share that must stay on one side of a split: the first text, which several rows often have."""
    return parts(text)[0]


def wanted_texts(header: Header, column: str | None, usual: Sequence[str]) -> list[Wanted]:
    """The columns of the text: as named, or those of a pair, where no column has the name of a text itself."""
    names = header.names
    if column is not None and column not in names and column.count(",") == 1:
        return [(part.strip(), (), FLAG) for part in column.split(",")]
    one: Wanted = (column, usual, FLAG)
    if column is not None or find_column(header, (None, usual[:1], FLAG)):
        return [one]
    for pair in PAIR_COLUMNS:
        both: list[Wanted] = [(None, (name,), FLAG) for name in pair]
        if all(find_column(header, wanted) for wanted in both):
            return both
    return [one]


def must_suit(texts: Sequence[str], reads: Input) -> None:
    """Refuse texts for a model that reads others."""
    strange = [kind for kind in map(_kind_of, set(map(type, texts))) if kind.name != reads]
    if strange:
        told = f"This model reads {INPUTS[reads].rows}, and was given {strange[0].brief}. {INPUTS[reads].name_columns}"
        raise DataError(told, "DATA_COLUMNS")


def in_words(found: set[Input]) -> list[str]:
    """The kinds that were found where there is one too many."""
    return [kind.rows for kind in reversed(INPUTS.values()) if kind.name in found]
