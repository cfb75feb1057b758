"""Word vectors that others have made, for the tokens of a vocabulary.

They come as a text file with a word and its numbers in each line, as word2vec, GloVe and fastText write it (.vec, .txt,
also .gz), or as a folder of a spaCy pipeline:

    vocab/
      vectors       a NumPy array, one row a vector
      key2row       msgpack: which row belongs to the 64-bit hash of a word
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, did_you_mean, first_line
from headstart.text.files import check_file
from headstart.text.pack_contents import PACKS
from headstart.text.packs import located

Found = dict[str, NDArray[np.float32]]
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
    length = np.linalg.norm(table, axis=1, keepdims=True)
    table[length[:, 0] > 0] /= length[length > 0][:, None]
    return table


def _forms(word: str) -> tuple[str, str, str]:
    return word, word.capitalize(), word.lower()


def _listed(path: Path, wanted: set[str]) -> Found:
    """The wanted words of a text file; its first line may be the numbers of words and of dimensions."""
    found: Found = {}
    width = 0
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, start=1):
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


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8", newline="\n")
    return path.open(encoding="utf-8", newline="\n")  # other line ends may be words


def _spacy(table_file: Path, rows_file: Path, wanted: set[str]) -> Found:
    """The wanted words of a spaCy pipeline."""
    import msgpack

    folder = table_file.parent.parent
    try:
        with table_file.open("rb") as file:
            table = np.load(file, allow_pickle=False)
        rows = dict(msgpack.unpackb(rows_file.read_bytes(), strict_map_key=False))
        found = {word: rows[key] for word in wanted if (key := spacy_hash(word)) in rows}
        known = {word: np.asarray(table[row], np.float32) for word, row in found.items() if 0 <= row < len(table)}
    except (OSError, ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
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
