"""Pretrained word vectors for the tokens of a vocabulary.

They come as a text file with a word and its numbers in each line, as word2vec, GloVe and fastText write it (.vec, .txt,
also .gz), or as a folder of a spaCy pipeline:

    vocab/
      vectors       a NumPy array, one row a vector
      key2row       msgpack: which row belongs to the 64-bit hash of a word
"""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from tokenize import TokenError  # what numpy raises for some damaged headers
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, ResourceError, did_you_mean, first_line
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import located
from headstart.regular_file import open_regular, read_regular
from headstart.text.files import check_file

Found = dict[str, NDArray[np.float32]]
WIDEST = 4096  # numbers of a vector
LONGEST_LINE = 64 * WIDEST  # bytes
MANY_BYTES, RATIO = 256 * 2**20, 20  # that a .gz may unpack to; a larger one, to that many times its own bytes
_MULTIPLIER, _WORD = 0xC6A4A7935BD1E995, (1 << 64) - 1


def vector_files(name: str) -> list[Path]:
    """The files that a path or the name of a pack stands for: a list of vectors, or the two of a spaCy pipeline."""
    path = Path(located(name))
    if path.is_dir():
        files = [path / "vocab" / file for file in ("vectors", "key2row")]
        if not all(file.is_file() for file in files):
            raise DataError(
                f"{path}: no vocab/key2row and vocab/vectors, as a spaCy pipeline has. Give its folder, or a .vec file.",
                "DATA_VECTORS",
            )
        return files
    if not os.path.lexists(path):
        packs = [pack for pack, facts in PACKS.items() if facts.kind == "vectors"]
        raise DataError(
            f"{path}: no such file, and no such pack.{did_you_mean(name, packs)} Packs of vectors: {', '.join(packs)}.",
            "DATA_PATH",
        )
    check_file(path)
    return [path]


def known_vectors(name: str, words: Sequence[str]) -> NDArray[np.float32]:
    """The vector of each word, (words, D), made as long as 1; zeros where there is none.

    If a word has none, that of its capitalized form will do, or of its small letters.
    """
    files = vector_files(name)
    wanted = {form for word in words if word for form in _forms(word)}
    found = _spacy(files[0], files[1], wanted) if len(files) == 2 else _listed(files[0], wanted)
    vectors = [next((found[form] for form in _forms(word) if form in found), None) for word in words]
    width = next((len(vector) for vector in vectors if vector is not None), None)
    if width is None:
        raise DataError(
            f"{name}: no vector for any of the {len(words):,} tokens. Is it of the same language, and the vocabulary one "
            "of words (--tokenizer word or wordpiece)?",
            "DATA_VECTORS",
        )
    table = np.stack([np.zeros(width, np.float32) if vector is None else vector for vector in vectors])
    if not np.isfinite(table).all():
        raise DataError(f"{name}: holds numbers that are not finite.", "DATA_VECTORS")
    if not table.any():
        raise DataError(f"{name}: every vector of a token of this vocabulary is zero.", "DATA_VECTORS")
    with np.errstate(over="ignore"):
        length = np.linalg.norm(table, axis=1, keepdims=True)
    if not np.isfinite(length).all():
        raise DataError(f"{name}: holds numbers that are too large.", "DATA_VECTORS")
    table[length[:, 0] > 0] /= length[length > 0][:, None]
    return table


def _forms(word: str) -> tuple[str, str, str]:
    return word, word.capitalize(), word.lower()


def _listed(path: Path, wanted: set[str]) -> Found:
    """The wanted words of a text file; its first line may be the numbers of words and of dimensions."""
    found: Found = {}
    width = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(_lines(path, file), start=1):
                parts = line.rstrip(" \r\n").split(" ")
                if number == 1 and len(parts) == 2:
                    continue
                width = width or len(parts) - 1
                if not 0 < width < len(parts):
                    raise DataError(
                        f"{path} line {number} has {len(parts) - 1} numbers after the word, expected {width or 'some'}. "
                        "A line must be a word and its numbers, with spaces between them.",
                        "DATA_VECTORS",
                    )
                _must_be_narrow(path, width)
                word = " ".join(parts[:-width])  # GloVe has words with spaces in them
                if word in wanted:
                    found.setdefault(word, np.array(parts[-width:], np.float32))
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: not UTF-8 text. A .zip must be unpacked, and a binary .bin file saved as .vec.", "DATA_VECTORS"
        ) from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as word vectors ({first_line(error)}).", "DATA_VECTORS") from None
    return found


def _opened(path: Path) -> gzip.GzipFile | BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else open_regular(path)


def _lines(path: Path, file: gzip.GzipFile | BinaryIO) -> Iterator[str]:
    """The lines of a file, as long as they are those of vectors and not far more than a packed file should hold."""
    most = max(MANY_BYTES, RATIO * path.stat().st_size)
    while line := file.readline(LONGEST_LINE + 1):  # only \n ends a line: others may be words
        if len(line) > LONGEST_LINE:
            raise DataError(
                f"{path}: a line of more than {LONGEST_LINE:,} bytes; these are no vectors.", "DATA_VECTORS"
            )
        if file.tell() > most:
            raise ResourceError(
                f"{path}: more than {most:,} bytes would come out of a file of {path.stat().st_size:,}, as if it were made "
                "to fill the memory. If it is not, unpack it.",
                "TABLE_LARGE",
            )
        yield line.decode()


def _must_be_narrow(path: Path, width: int) -> None:
    if width > WIDEST:
        raise DataError(f"{path}: vectors of {width:,} numbers; more than {WIDEST:,} are not read.", "DATA_VECTORS")


def _spacy(table_file: Path, rows_file: Path, wanted: set[str]) -> Found:
    """The wanted words of a spaCy pipeline."""
    import msgpack

    folder = table_file.parent.parent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a header that numpy finds old
            table = np.lib.format.open_memmap(table_file, "r")  # never more than the file has
        if table.ndim != 2 or table.dtype.kind not in "fiu":
            raise ValueError(f"an array of {table.ndim} dimensions and type {table.dtype}")
        _must_be_narrow(table_file, table.shape[1])
        rows = dict(msgpack.unpackb(read_regular(rows_file), strict_map_key=False))
        found = {word: rows[key] for word in wanted if (key := spacy_hash(word)) in rows}
        if any(type(row) is not int for row in found.values()):
            raise ValueError("a row number that is none")
        known = {word: np.array(table[row], np.float32) for word, row in found.items() if 0 <= row < len(table)}
    except (OSError, ValueError, TypeError, IndexError, SyntaxError, TokenError, msgpack.UnpackException) as error:
        raise DataError(f"{folder}: its vectors cannot be read ({first_line(error)}).", "DATA_VECTORS") from None
    if not table.size:
        raise DataError(
            f"{folder}: this pipeline has no vectors. Small ones (_sm) have none; take one with _md or _lg in its name.",
            "DATA_VECTORS",
        )
    return known


def spacy_hash(word: str) -> int:
    """The number by which spaCy knows a word: MurmurHash64A (Austin Appleby) of its bytes, seed 1.

    >>> spacy_hash("coffee")
    3197928453018144401
    """
    data = word.encode()
    whole = len(data) - len(data) % 8
    found = 1 ^ (len(data) * _MULTIPLIER & _WORD)
    for start in range(0, whole, 8):
        part = int.from_bytes(data[start : start + 8], "little") * _MULTIPLIER & _WORD
        found = (found ^ ((part ^ part >> 47) * _MULTIPLIER & _WORD)) * _MULTIPLIER & _WORD
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    found = (found ^ found >> 47) * _MULTIPLIER & _WORD
    return found ^ found >> 47
