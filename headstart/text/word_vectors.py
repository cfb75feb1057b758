"""Word vectors that others have made, for the tokens of a vocabulary.

They come as a text file with a word and its numbers in each line, as word2vec, GloVe and fastText write it (.vec, .txt,
also .gz), or as a folder of a spaCy pipeline:

    vocab/
      vectors       a NumPy array, one row a vector
      key2row       msgpack: which row belongs to the 64-bit hash of a word
"""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, first_line
from headstart.text.files import check_file

Found = dict[str, NDArray[np.float32]]
_MULTIPLIER, _WORD = 0xC6A4A7935BD1E995, (1 << 64) - 1


def known_vectors(path: Path, words: Sequence[str]) -> NDArray[np.float32]:
    """The vector of each word, (words, D), made as long as 1; that of its capitalized form if it has none, else zeros."""
    wanted = {form for word in words if word for form in _forms(word)}
    found = _spacy(path, wanted) if path.is_dir() else _listed(path, wanted)
    vectors = [next((found[form] for form in _forms(word) if form in found), None) for word in words]
    width = next((len(vector) for vector in vectors if vector is not None), None)
    if width is None:
        raise DataError(
            f"{path}: no vector for any of the {len(words):,} tokens. Is it of the same language, and the vocabulary one "
            "of words (--tokenizer word or wordpiece)?",
            "DATA_VECTORS",
        )
    table = np.stack([np.zeros(width, np.float32) if vector is None else vector for vector in vectors])
    if not np.isfinite(table).all():
        raise DataError(f"{path}: holds numbers that are not finite.", "DATA_VECTORS")
    length = np.linalg.norm(table, axis=1, keepdims=True)
    table[length[:, 0] > 0] /= length[length > 0][:, None]
    return table


def digest_of(path: Path) -> str:
    """SHA-256 of the file that holds the vectors."""
    with (path / "vocab" / "vectors" if path.is_dir() else path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _forms(word: str) -> tuple[str, str]:
    return word, word.capitalize()


def _listed(path: Path, wanted: set[str]) -> Found:
    """The wanted words of a text file; its first line may be the numbers of words and of dimensions."""
    check_file(path)
    found: Found = {}
    width = 0
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, start=1):
                word, *values = line.rstrip(" \r\n").split(" ")
                if number == 1 and len(values) == 1:
                    continue
                width = width or len(values)
                if len(values) != width or not width:
                    raise DataError(
                        f"{path} line {number} has {len(values)} numbers after the word, expected {width or 'some'}. "
                        "A line must be a word and its numbers, with spaces between them.",
                        "DATA_VECTORS",
                    )
                if word in wanted:
                    found.setdefault(word, np.array(values, np.float32))
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: not UTF-8 text. A binary .bin file must be saved as .vec first.", "DATA_VECTORS"
        ) from None
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as word vectors ({first_line(error)}).", "DATA_VECTORS") from None
    return found


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8", newline="\n")
    return path.open(encoding="utf-8", newline="\n")  # other line ends may be words


def _spacy(folder: Path, wanted: set[str]) -> Found:
    """The wanted words of a spaCy pipeline."""
    import msgpack

    rows_file, table_file = folder / "vocab" / "key2row", folder / "vocab" / "vectors"
    if not (rows_file.is_file() and table_file.is_file()):
        raise DataError(
            f"{folder}: no vocab/key2row and vocab/vectors, as a spaCy pipeline has. Give its folder, or a .vec file.",
            "DATA_VECTORS",
        )
    try:
        with table_file.open("rb") as file:
            table = np.load(file, allow_pickle=False)
        rows = msgpack.unpackb(rows_file.read_bytes(), strict_map_key=False)
        found = {word: rows[key] for word in wanted if (key := spacy_hash(word)) in rows}
        return {word: np.asarray(table[row], np.float32) for word, row in found.items() if 0 <= row < len(table)}
    except (OSError, ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise DataError(f"{folder}: its vectors cannot be read ({first_line(error)}).", "DATA_VECTORS") from None


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
