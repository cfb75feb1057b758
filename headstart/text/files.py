"""One file becomes one text: what may be read, how its bytes are decoded, and where they cannot be.

A text may be a gigabyte in one line, so it is decoded a stretch at a time and not copied without need.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from io import BytesIO, TextIOWrapper
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from headstart.data import ReadConfig
from headstart.errors import DataError, did_you_mean
from headstart.quantities import counted
from headstart.regular_file import open_regular
from headstart.text.compressed import decompressed, is_compressed

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
_OFFICE = {
    ".xlsx": "an Excel workbook (save it as CSV)",
    ".xls": "an Excel workbook (save it as CSV)",
    ".docx": "a Word document (save it as plain text)",
    ".doc": "a Word document (save it as plain text)",
    ".ods": "a spreadsheet (save it as CSV)",
}
# Tabs, line ends and form feeds aside; a few of the others stand in many texts, a thousandth is no text.
_CONTROLS = re.compile(r"[\x01-\x08\x0e-\x1b\x7f]")
FEW_CONTROLS = 10
STRETCH = 1 << 20  # characters


def check_file(path: Path) -> None:
    """Refuse what is not a plain, readable file: a missing one, a pipe, a device, a loop of links."""
    _opened(path).close()


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; a text file is needed here.", "DATA_PATH") from None
    except FileNotFoundError:
        beside = os.listdir(path.parent) if os.access(path.parent, os.R_OK) else []
        raise DataError(f"{path}: no such file.{did_you_mean(path.name, beside)}", "DATA_PATH") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).", "DATA_PATH") from None


class Reading:
    """How files are read, and what had to be changed in them: counted here, so that it can be reported."""

    def __init__(self, how: ReadConfig) -> None:
        self.how = how
        self._replaced: dict[str, int] = {}  # by place: what is read twice is counted once
        self._nuls: dict[str, int] = {}
        self._marked: dict[str, str] = {}  # what a byte-order mark says where it is not UTF-8
        self._blank: dict[str, int] = {}  # rows left out
        self._spelled: dict[str, dict[str, tuple[str, int]]] = {}  # labels, what they became, and in how many rows
        self._notes: dict[str, str] = {}  # other things to report
        self._unpacked: Mapping[Path, bytes] = {}
        self._decompresses = False

    def note(self, place: str, what: str) -> None:
        """Something to report of a place, once."""
        self._notes[place] = what

    def skipped(self, path: str, rows: int) -> None:
        """So many rows of a file were left out, because their text or label is blank."""
        self._blank[path] = rows

    def respelled(self, path: str, labels: dict[str, tuple[str, int]]) -> None:
        """Labels of a file were spelled otherwise, each in so many rows."""
        self._spelled[path] = labels

    def inside(self, files: Mapping[Path, bytes]) -> Reading:
        """The same reading, counted together with this one, of files that are in memory: those of an archive."""
        other = copy(self)  # shares what is counted
        other._unpacked = files
        return other

    def decompressing(self) -> Reading:
        """The same reading, counted together with this one, of files that may be compressed: for who reads in a stream."""
        other = copy(self)
        other._decompresses = True
        return other

    def opened(self, path: Path) -> BinaryIO:
        """The bytes of a file, from their beginning; a DataError for what is not a plain, readable file."""
        if self._decompresses and is_compressed(path):
            return decompressed(path, _opened(path))
        return BytesIO(self._unpacked[path]) if path in self._unpacked else _opened(path)

    def mapped(self, path: Path) -> bytes | mmap:
        """The bytes of a file without reading those that nobody asks for."""
        if path in self._unpacked:
            return self._unpacked[path]
        with _opened(path) as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ) if os.fstat(file.fileno()).st_size else b""

    def facts(self) -> dict[str, int]:
        """How many places could not be decoded, how many NUL characters and rows were left out, how many labels changed."""
        facts = {"replaced": sum(self._replaced.values()), "nuls_removed": sum(self._nuls.values())}
        if self._blank:  # rows are only looked at where that was asked for
            facts["blank_rows_skipped"] = sum(self._blank.values())
        if self._spelled:
            facts["labels_cleaned"] = sum(rows for of in self._spelled.values() for _, rows in of.values())
        return facts

    def notes(self) -> list[str]:
        notes = [
            f"{path} was read as {encoding}, as its byte-order mark says." for path, encoding in self._marked.items()
        ]
        facts = self.facts()
        replaced, nuls = facts["replaced"], facts["nuls_removed"]
        blank, changed = facts.get("blank_rows_skipped", 0), facts.get("labels_cleaned", 0)
        if replaced:
            notes.append(
                f"{counted(replaced, 'place')} that could not be decoded {'was' if replaced == 1 else 'were'} replaced by U+FFFD."
            )
        if nuls:
            notes.append(f"{counted(nuls, 'NUL character', 'was', 'were')} left out.")
        if blank:
            notes.append(f"--skip-blank left out {counted(blank, 'row')} without a text or a label.")
        if changed:
            became = [
                f"{old!r} to {new!r} ({rows})" for of in self._spelled.values() for old, (new, rows) in of.items()
            ]
            more = f" and {len(became) - 10} more" if len(became) > 10 else ""
            notes.append(
                f"--clean-labels changed the label of {counted(changed, 'row')}: {', '.join(became[:10])}{more}."
            )
        return [*notes, *self._notes.values()]

    def decoded(self, path: Path, encoding: str) -> str:
        """The text of a file, line ends made \\n, bad bytes replaced if they are to be."""
        with self.text_file(path, encoding) as file:
            return "".join(iter(lambda: file.read(STRETCH), ""))

    def text_file(self, path: Path, encoding: str) -> TextIOWrapper:
        """A file to read text from, line ends made \\n, bad bytes replaced if they are to be, which are counted first."""
        if encoding in ("utf-16", "utf-32"):  # given by a mark: without one, it is utf-16-le or the like
            self._marked[str(path)] = encoding
        strict = self.how.on_bad_bytes == "fail"
        raw = self.opened(path)
        try:
            file = TextIOWrapper(raw, encoding, "strict" if strict else "replace")
            if not strict and (
                marks := self._marks(path, encoding, "replace")
            ):  # which may also stand in the file itself
                self._replaced[str(path)] = marks - self._marks(path, encoding, "ignore")
        except BaseException:
            raw.close()
            raise
        return file

    def stripped(self, text: str, place: str) -> str:
        """`text` without its NUL characters, if they are to be left out."""
        if not self.how.strip_nul or "\0" not in text:
            return text
        self._nuls[place] = text.count("\0")
        return text.replace("\0", "")

    def _marks(self, path: Path, encoding: str, errors: str) -> int:
        """How often U+FFFD stands in a file that is decoded so."""
        # Not by TextIOWrapper: where bytes are ignored, it asks for gigabytes to get a stretch of characters.
        with self.opened(path) as raw:
            stretches = codecs.iterdecode(iter(lambda: raw.read(STRETCH), b""), encoding, errors)
            return sum(stretch.count("\ufffd") for stretch in stretches)


PLAIN = Reading(ReadConfig())  # changes nothing; for callers that do not ask for notes


def read_text(path: Path, reading: Reading = PLAIN) -> str:
    """The text of one file: byte-order marks obeyed and removed, line ends turned into \\n."""
    encoding = _encoding(path, reading)
    with _decoding(path, reading, encoding):
        text = reading.stripped(reading.decoded(path, encoding), str(path))
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"{path}, line {line}: a NUL character. This is not plain text; if it is UTF-16 without a byte-order "
            "mark, try --encoding utf-16-le. If it is text all the same, --strip-nul leaves them out.",
            "DATA_BINARY",
        )
    _must_be_text(path, sum(1 for _ in _CONTROLS.finditer(text)), len(text), is_blank(text))
    return text


def stream_lines(path: Path, reading: Reading = PLAIN) -> Iterator[str]:
    """The lines of one file as `read_text` has them, one at a time, so that a file larger than the memory can be read.

    What only the whole text shows (a file without text, many control characters) is refused after the last line.
    """
    return _streamed(path, reading, iter)


def stream_text(path: Path, reading: Reading = PLAIN) -> Iterator[str]:
    """The text of one file as `read_text` has it, a stretch at a time; refused like `stream_lines`."""
    return _streamed(path, reading, lambda file: iter(lambda: file.read(STRETCH), ""))


def _streamed(path: Path, reading: Reading, parts: Callable[[TextIOWrapper], Iterator[str]]) -> Iterator[str]:
    encoding, controls, size, blank, number = _encoding(path, reading), 0, 0, True, 1
    with _decoding(path, reading, encoding), reading.text_file(path, encoding) as file:
        for part in parts(file):
            text = reading.stripped(part, f"{path}, line {number}")
            if "\0" in text:
                line = number + text.count("\n", 0, text.index("\0"))
                raise DataError(
                    f"{path}, line {line}: a NUL character. This is not plain text; if it is UTF-16 without a "
                    "byte-order mark, try --encoding utf-16-le. If it is text all the same, --strip-nul leaves them out.",
                    "DATA_BINARY",
                )
            controls += sum(1 for _ in _CONTROLS.finditer(text))
            size, blank, number = size + len(text), blank and is_blank(text), number + part.count("\n")
            yield text
    _must_be_text(path, controls, size, blank)


def _encoding(path: Path, reading: Reading) -> str:
    """The encoding of a file that may be read as text; a DataError for what is not text."""
    with reading.opened(path) as file:
        beginning = file.read(8)
    kind = _OFFICE.get(path.suffix.lower())
    kind = kind or next((what for magic, what in _MAGIC.items() if beginning.startswith(magic)), None)
    if kind:
        raise DataError(f"{path}: this is {kind}, not text.", "DATA_BINARY")
    if reading.how.max_line_bytes:
        _check_lines(path, reading, reading.how.max_line_bytes)
    return next((name for bom, name in _BOMS.items() if beginning.startswith(bom)), reading.how.encoding)


@contextmanager
def _decoding(path: Path, reading: Reading, encoding: str) -> Iterator[None]:
    """One sentence for bytes that cannot be decoded."""
    try:
        yield
    except UnicodeError:
        raise DataError(_undecodable(path, reading, encoding), "DATA_ENCODING") from None
    except (LookupError, ValueError):
        raise DataError(f"Unknown encoding '{encoding}'. Try utf-8, cp1252 or latin-1.", "DATA_ENCODING") from None


def _must_be_text(path: Path, controls: int, size: int, blank: bool) -> None:
    if controls > max(FEW_CONTROLS, size // 1000):
        raise DataError(f"{path}: {controls} control characters in it. This is not plain text.", "DATA_BINARY")
    if blank:
        raise DataError(f"{path}: the file is empty.", "DATA_EMPTY")


def is_blank(text: str) -> bool:
    """Whether there is nothing but white space in it; asked without making a copy, as strip would."""
    return not text or text.isspace()


def lines(text: str) -> Iterator[str]:
    """The lines of `text` with their line ends, one at a time; only \\n ends a line."""
    start = 0
    while end := text.find("\n", start) + 1:
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def file_facts(paths: Sequence[str | Path]) -> list[dict[str, str | int]]:
    """Name, size and SHA-256 of each file: what data.json keeps, so that a changed file is noticed."""
    facts: list[dict[str, str | int]] = []
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts.append({"file": str(path), "bytes": Path(path).stat().st_size, "sha256": digest})
    return facts


def _check_lines(path: Path, reading: Reading, most: int) -> None:
    """Refuse a line of more than `most` bytes."""
    with TextIOWrapper(reading.opened(path), "latin-1") as file:  # in which a character is a byte
        for number in count(1):
            line = file.readline(most + 1)
            if len(line.removesuffix("\n")) > most:
                raise DataError(
                    f"{path}, line {number}: more than {most} bytes in one line, which is what --max-line-bytes allows.",
                    "DATA_LINE",
                )
            if not line:
                return


def _undecodable(path: Path, reading: Reading, encoding: str) -> str:
    from charset_normalizer import from_bytes

    with reading.opened(path) as file:
        data = file.read()
    try:
        data.decode(encoding)  # all at once, so that the error counts from the beginning of the file
    except UnicodeDecodeError as error:
        # utf-8-sig counts behind its mark
        place = error.start + (len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
        line = data.count(b"\n", 0, place) + 1
        guesses = [match.encoding for match in from_bytes(data[max(0, place - 2000) : place + 2000])]
        guess = "cp1252" if "cp1252" in guesses else next(iter(guesses), None)  # by far the most common, where it fits
        hint = f"It may be {guess}: try --encoding {guess}" if guess else "Give its --encoding"
        return (
            f"{path}, line {line}, byte {place}: not valid {error.encoding} (byte 0x{data[place]:02X}). {hint}, or "
            "--on-bad-bytes replace."
        )
    except UnicodeError as error:  # some codecs refuse without saying where
        return f"{path}: cannot be read as {encoding} ({error})."
    raise AssertionError(f"{path} is valid {encoding} after all")
