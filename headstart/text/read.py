"""Whatever a user names becomes texts or labelled examples.

Read here: .txt, tables (tables.py), folders. Not here: splitting into train and test (split.py), tokens
(tokenizer.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.config import Unit
from headstart.errors import DataError
from headstart.text.files import PLAIN, STRETCH, Reading, check_file, is_blank, lines, read_text
from headstart.text.tables import TABLES, first_few, is_table, read_columns
from headstart.text.visible import is_whole

TEXT_COLUMNS = ("text", "sentence", "content", "review", "input", "document", "caption")
LABEL_COLUMNS = ("label", "class", "category", "target", "sentiment")
READABLE = (".txt", *TABLES)

# A sentence ends at . ! ? or an ellipsis, with any closing quotes or brackets, before white space.
_SENTENCE_END = re.compile(r"([.!?…][\"'”’»)\]]*)\s+")


@dataclass(frozen=True)
class Example:
    text: str
    label: str


def read_corpus(
    paths: Sequence[str | Path], unit: Unit, column: str | None = None, reading: Reading = PLAIN
) -> list[str]:
    """The texts of all `paths`, in order; a folder stands for the files in it that can be read.

    A row of a table is one text, unless it is to be cut into sentences.
    """
    texts: list[str] = []
    for path in text_files(paths):
        if is_table(path):
            rows = (row[0] for row in read_columns(path, [(column, TEXT_COLUMNS, "--text-column")], reading))
            texts += (piece for row in rows for piece in cut(row, unit)) if unit == "sentence" else rows
        else:
            texts += cut(read_text(path, reading), unit)
    if all(map(is_blank, texts)):
        raise DataError(f"{', '.join(map(str, paths))}: no text in it.", "DATA_EMPTY")
    return texts


def read_labelled(
    path: str | Path,
    text_column: str | None,
    label_column: str | None,
    reading: Reading = PLAIN,
    keep_blank: bool = False,
) -> list[Example]:
    """Labelled rows of a table, or of a folder with one sub-folder of .txt files for each label.

    A row of which the text or the label is blank is refused, or with `keep_blank` only where there are no others.
    """
    path = Path(path)
    files = _arrow_files(path) or [path]
    if os.path.isdir(files[0]):  # Path.is_dir raises for a name that is too long
        return _read_label_folders(path, reading)
    if not is_table(files[0]):
        read_text(path, reading)  # says so if it is no text at all
        raise DataError(
            f"{path}: labelled text is read from a table ({', '.join(TABLES)}), or from a folder with one sub-folder "
            "for each label.",
            "DATA_FORMAT",
        )
    columns = [(text_column, TEXT_COLUMNS, "--text-column"), (label_column, LABEL_COLUMNS, "--label-column")]
    examples = [Example(text, label) for f in files for text, label in read_columns(f, columns, reading)]
    if keep_blank and not all(is_blank(example.text) or is_blank(example.label) for example in examples):
        return examples
    if blank := [n for n, example in enumerate(examples, start=1) if is_blank(example.label)]:
        raise DataError(f"{path}, row {first_few(blank)}: the label is blank. Every row needs one.", "DATA_LABEL")
    if blank := [n for n, example in enumerate(examples, start=1) if is_blank(example.text)]:
        raise DataError(f"{path}, row {first_few(blank)}: the text is blank. Fill it in, or remove it.", "DATA_BLANK")
    if not examples:
        raise DataError(f"{path}: no rows below the header.", "DATA_EMPTY")
    return examples


def read_lines(path: str | Path, column: str | None = None, reading: Reading = PLAIN) -> list[str]:
    """One text for each line of a file or row of a table, none left out, so that answers line up with them."""
    path = Path(path)
    if is_table(path):
        return read_corpus([path], "line", column, reading)
    return read_text(path, reading).removesuffix("\n").split("\n")


def read_examples(
    path: str | Path, unit: Unit, text_column: str | None, label_column: str | None, reading: Reading = PLAIN
) -> list[Example]:
    """Labelled rows where there is a label column, texts with the empty label elsewhere; blank ones among them too."""
    try:
        return read_labelled(path, text_column, label_column, reading, keep_blank=True)
    except DataError as error:
        if label_column is not None or error.code not in ("DATA_COLUMNS", "DATA_FORMAT", "DATA_EMPTY"):
            raise
        return [Example(text, "") for text in read_corpus([path], unit, text_column, reading)]


def text_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that `paths` stand for, folders opened and sorted by name."""
    files: list[Path] = []
    for path in map(Path, paths):
        if os.path.isdir(path):
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in READABLE and p.is_file())
            if not inside:
                raise DataError(f"{path}: no {', '.join(READABLE)} file in this folder.", "DATA_EMPTY")
            files += inside
        else:
            check_file(path)
            files.append(path)
    for path in files:
        if not is_whole(str(path)):  # it could not be written into the run
            raise DataError(f"{path}: the name of this file is not UTF-8. Rename it.", "DATA_PATH")
    return files


def cut(text: str, unit: Unit) -> list[str]:
    """`text` as lines, sentences or one document; blank ones are left out.

    >>> cut("I hold a dog.  She is here!", "sentence")
    ['I hold a dog.', 'She is here!']
    """
    match unit:
        case "document":
            return [] if is_blank(text) else [text]
        case "line":
            pieces = lines(text)  # not splitlines: form feeds and U+2028 are part of a line
        case "sentence":
            pieces = _sentences(text)
    return [piece for piece in map(squeezed, pieces) if piece]


def squeezed(text: str) -> str:
    """`text` with every run of white space as one space, and none around it."""
    if len(text) <= STRETCH:
        return " ".join(text.split())
    # A long line is taken a stretch at a time: split makes an object of every word, ten times what the word takes.
    stretches = (text[i : i + STRETCH] for i in range(0, len(text), STRETCH))
    found = "".join(" ".join(f".{stretch}.".split())[1:-1] for stretch in stretches)  # dots hold the spaces at its ends
    while "  " in found:  # where two stretches meet
        found = found.replace("  ", " ")
    return found.strip(" ")


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.end(1)]
        start = end.end()
    yield text[start:]


def passed_over(paths: Sequence[str | Path]) -> list[Path]:
    """Files in the folders among `paths` that are not read, hidden ones aside."""
    return sorted(
        p
        for folder in map(Path, paths)
        if os.path.isdir(folder)
        for p in folder.rglob("*")
        if p.is_file() and p.suffix.lower() not in READABLE and not p.name.startswith(".")
    )


def _arrow_files(folder: Path) -> list[Path]:
    """The data of a folder that the datasets library saved; none elsewhere."""
    return sorted(folder.glob("*.arrow")) if os.path.isdir(folder) else []


def _read_label_folders(folder: Path, reading: Reading) -> list[Example]:
    if (folder / "env.json").exists() and (folder / "config.toml").exists():
        raise DataError(f"{folder} is a run, not labelled text. Are DATA and --base swapped?", "DATA_PATH")
    examples = [
        Example(read_text(file, reading), sub.name)
        for sub in sorted(p for p in folder.iterdir() if p.is_dir())
        for file in sorted(sub.glob("*.txt"))
    ]
    if not examples:
        raise DataError(f"{folder}: no LABEL/*.txt files in this folder.", "DATA_EMPTY")
    return examples
