"""Files become texts and labelled examples; whatever is wrong with a file is said with its place in it.

Read here: .txt, folders, .csv, .tsv. Not here: splitting into train and test (split.py), tokens (tokenizer.py).
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.config import Unit
from headstart.errors import DataError, did_you_mean

TEXT_COLUMNS = ("text", "sentence", "content", "review", "input", "document")
LABEL_COLUMNS = ("label", "class", "category", "target", "sentiment")
LONGEST_FIELD = 10_000_000  # characters; the csv module stops at 131,072 unless told
SEPARATORS = {".csv": ",", ".tsv": "\t"}

_BOMS = {  # UTF-32 first: its little-endian mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_MAGIC = {
    b"\x7fELF": "a program",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PK\x03\x04": "a zip archive (unpack it first)",
    b"\x1f\x8b": "a gzip archive (decompress it first)",
    b"%PDF": "a PDF document (convert it to text first)",
}
# A sentence ends at . ! ? or an ellipsis, with any closing quotes or brackets, before white space.
_SENTENCE_END = re.compile(r"([.!?…][\"'”’»)\]]*)\s+")
# Tabs, line ends and form feeds aside; a few of the others stand in many texts, a thousandth is no text.
_CONTROLS = re.compile(r"[\x01-\x08\x0e-\x1b\x7f]")
FEW_CONTROLS = 10


@dataclass(frozen=True)
class Example:
    text: str
    label: str


def read_corpus(
    paths: Sequence[str | Path], unit: Unit, encoding: str = "utf-8", column: str | None = None
) -> list[str]:
    """The texts of all `paths`, in order; a folder stands for the .txt, .csv and .tsv files in it."""
    texts: list[str] = []
    for path in text_files(paths):
        if path.suffix.lower() in SEPARATORS:
            texts += (row[0] for row in read_columns(path, [(column, TEXT_COLUMNS, "--text-column")], encoding))
        else:
            texts += cut(read_text(path, encoding), unit)
    if not any(text.strip() for text in texts):
        raise DataError(f"{', '.join(map(str, paths))}: no text in it.", "DATA_EMPTY")
    return texts


def read_labelled(
    path: str | Path, text_column: str | None, label_column: str | None, encoding: str = "utf-8"
) -> list[Example]:
    """Labelled rows of a CSV or TSV file, or of a folder with one sub-folder of .txt files for each label."""
    path = Path(path)
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        return _read_label_folders(path, encoding)
    if path.suffix.lower() not in SEPARATORS:
        check_file(path)
        raise DataError(
            f"{path}: labelled text is read from .csv or .tsv (with a header line), or from a folder with one "
            "sub-folder for each label.",
            "DATA_FORMAT",
        )
    columns = [(text_column, TEXT_COLUMNS, "--text-column"), (label_column, LABEL_COLUMNS, "--label-column")]
    examples = []
    for number, (text, label) in enumerate(read_columns(path, columns, encoding), start=1):
        if not label.strip():
            raise DataError(f"{path}, row {number}: the label is blank. Every row needs one.", "DATA_LABEL")
        if not text.strip():
            raise DataError(f"{path}, row {number}: the text is blank. Remove the row or fill it in.", "DATA_BLANK")
        examples.append(Example(text, label))
    if not examples:
        raise DataError(f"{path}: no rows below the header.", "DATA_EMPTY")
    return examples


def text_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that `paths` stand for, folders opened and sorted by name."""
    files: list[Path] = []
    for path in map(Path, paths):
        if os.path.isdir(path):
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in (".txt", *SEPARATORS) and p.is_file())
            if not inside:
                raise DataError(f"{path}: no .txt, .csv or .tsv file in this folder.", "DATA_EMPTY")
            files += inside
        else:
            check_file(path)
            files.append(path)
    return files


def check_file(path: Path) -> None:
    """Refuse what is not a plain, readable file: a missing one, a pipe, a device, a loop of links."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "not a regular file (a pipe, socket or device)"
            raise DataError(f"{path}: this is {what}; a text file is needed here.", "DATA_PATH")
        with path.open("rb"):
            pass
    except FileNotFoundError:
        beside = os.listdir(path.parent) if os.access(path.parent, os.R_OK) else []
        raise DataError(f"{path}: no such file.{did_you_mean(path.name, beside)}", "DATA_PATH") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).", "DATA_PATH") from None


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of one file: byte-order marks obeyed and removed, line ends turned into \\n."""
    check_file(path)
    data = path.read_bytes()
    kind = next((what for magic, what in _MAGIC.items() if data.startswith(magic)), None)
    if kind:
        raise DataError(f"{path}: this is {kind}, not text.", "DATA_BINARY")
    encoding = next((name for bom, name in _BOMS.items() if data.startswith(bom)), encoding)
    try:
        text = data.decode(encoding)
    except LookupError:
        raise DataError(f"Unknown encoding '{encoding}'. Try utf-8, cp1252 or latin-1.", "DATA_ENCODING") from None
    except UnicodeDecodeError as error:
        raise DataError(_undecodable(path, data, error), "DATA_ENCODING") from None
    except UnicodeError as error:  # some codecs refuse without saying where
        raise DataError(f"{path}: cannot be read as {encoding} ({error}).", "DATA_ENCODING") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise DataError(
            f"{path}, line {line}: a NUL character. This is not plain text; if it is UTF-16 without a byte-order "
            "mark, try --encoding utf-16-le.",
            "DATA_BINARY",
        )
    controls = len(_CONTROLS.findall(text))
    if controls > max(FEW_CONTROLS, len(text) // 1000):
        raise DataError(f"{path}: {controls} control characters in it. This is not plain text.", "DATA_BINARY")
    if not text.strip():
        raise DataError(f"{path}: the file is empty.", "DATA_EMPTY")
    return text


def cut(text: str, unit: Unit) -> list[str]:
    """`text` as lines, sentences or one document; blank ones are left out.

    >>> cut("I hold a dog.  She is here!", "sentence")
    ['I hold a dog.', 'She is here!']
    """
    match unit:
        case "document":
            pieces = [text]
        case "line":
            pieces = text.split("\n")  # not splitlines: form feeds and U+2028 are part of a line
        case "sentence":
            pieces = _SENTENCE_END.sub(r"\1\n", text.replace("\n", " ")).split("\n")
    stripped = (piece if unit == "document" else " ".join(piece.split()) for piece in pieces)
    return [piece for piece in stripped if piece.strip()]


def read_columns(
    path: Path, wanted: Sequence[tuple[str | None, Sequence[str], str]], encoding: str
) -> Iterator[list[str]]:
    """The wanted columns of every row; each is (name or None, usual names, the flag that names it)."""
    rows = _rows(path, encoding)
    _, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    places = [_column(path, header, *column) for column in wanted]
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(
                f"{path}, line {line}: {len(row)} columns where the header has {len(header)} "
                f"({', '.join(header)}). Is the separator right, and is every quote closed?",
                "DATA_COLUMNS",
            )
        yield [row[place] for place in places]


def file_facts(paths: Sequence[str | Path]) -> list[dict[str, str | int]]:
    """Name, size and SHA-256 of each file: what data.json keeps, so that a changed file is noticed."""
    facts: list[dict[str, str | int]] = []
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts.append({"file": str(path), "bytes": Path(path).stat().st_size, "sha256": digest})
    return facts


def _read_label_folders(folder: Path, encoding: str) -> list[Example]:
    examples = [
        Example(read_text(file, encoding), sub.name)
        for sub in sorted(p for p in folder.iterdir() if p.is_dir())
        for file in sorted(sub.glob("*.txt"))
    ]
    if not examples:
        raise DataError(f"{folder}: no LABEL/*.txt files in this folder.", "DATA_EMPTY")
    return examples


def _rows(path: Path, encoding: str) -> Iterator[tuple[int, list[str]]]:
    text = read_text(path, encoding)
    csv.field_size_limit(LONGEST_FIELD)
    if path.suffix.lower() == ".tsv":  # tabs need no quoting, and quotes in such files are part of the text
        reader = csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(io.StringIO(text), strict=True)
    first = 1  # the line on which the row in hand begins
    try:
        for row in reader:
            if row:  # a blank line has none
                yield first, row
            first = reader.line_num + 1
    except csv.Error as error:
        if "field larger" in str(error):
            cause = f"a field of more than {LONGEST_FIELD:,} characters. Is every quote closed?"
        elif "unexpected end of data" in str(error):
            cause = "a quote is opened in this row and never closed. A quote inside a quoted field is written twice."
        else:
            cause = f"{error}. Is a quote not closed? A quote inside a quoted field is written twice."
        raise DataError(f"{path}, line {first}: {cause}", "DATA_QUOTE") from None


def _column(path: Path, header: list[str], name: str | None, usual: Sequence[str], flag: str) -> int:
    found = [name] if name is not None else [u for u in usual if u in header]
    if found and header.count(found[0]) == 1:
        return header.index(found[0])
    if found and header.count(found[0]) > 1:
        raise DataError(f"{path}: two columns are called '{found[0]}'. Rename one.", "DATA_COLUMNS")
    missing = f"no column '{name}'" if name is not None else f"no column called {', '.join(usual)}"
    hint = did_you_mean(name, header) if name else ""
    raise DataError(
        f"{path}: {missing}; the header has {', '.join(header)}.{hint} Name the column with {flag}.", "DATA_COLUMNS"
    )


def _undecodable(path: Path, data: bytes, error: UnicodeDecodeError) -> str:
    from charset_normalizer import from_bytes

    place = error.start + (
        len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    )  # utf-8-sig counts behind it
    line = data.count(b"\n", 0, place) + 1
    guesses = [match.encoding for match in from_bytes(data[max(0, place - 2000) : place + 2000])]
    guess = "cp1252" if "cp1252" in guesses else next(iter(guesses), None)  # by far the most common, where it fits
    hint = f" It may be {guess}: try --encoding {guess}." if guess else " Give its --encoding."
    return f"{path}, line {line}, byte {place}: not valid {error.encoding} (byte 0x{data[place]:02X}).{hint}"
