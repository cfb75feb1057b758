"""One file becomes one text: what may be read, how its bytes are decoded, and where they cannot be."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from headstart.errors import DataError, did_you_mean

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
    kind = _OFFICE.get(path.suffix.lower()) or next((w for magic, w in _MAGIC.items() if data.startswith(magic)), None)
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


def file_facts(paths: Sequence[str | Path]) -> list[dict[str, str | int]]:
    """Name, size and SHA-256 of each file: what data.json keeps, so that a changed file is noticed."""
    facts: list[dict[str, str | int]] = []
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts.append({"file": str(path), "bytes": Path(path).stat().st_size, "sha256": digest})
    return facts


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
