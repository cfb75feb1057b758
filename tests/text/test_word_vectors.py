"""Vectors of words that others have made: found whatever file they come in, and refused in one sentence."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from contextlib import suppress
from pathlib import Path

import msgpack
import numpy as np
import pytest

from headstart.errors import DataError, ResourceError
from headstart.text import word_vectors
from headstart.text.word_vectors import known_vectors, spacy_hash

WORDS = ["", "chat", "paris", "zzz", "été"]
NUMBERS = {"chat": [3, 4], "Paris": [0, 2], "paris,": [9, 9], "été": [-1, 0], "autre": [1, 1]}
EXPECTED = [[0, 0], [0.6, 0.8], [0, 1], [0, 0], [-1, 0]]


def listed(head: str = "") -> str:
    return head + "".join(f"{word} {a} {b}\n" for word, (a, b) in NUMBERS.items())


def spacy(folder: Path) -> Path:
    """A folder as spaCy writes it; two words may share a row, and a word may have lost its own (-1)."""
    (folder / "vocab").mkdir(parents=True)
    rows = {spacy_hash(word): row for row, word in enumerate(NUMBERS)} | {spacy_hash("zzz"): -1}
    (folder / "vocab" / "key2row").write_bytes(msgpack.packb(rows))
    with (folder / "vocab" / "vectors").open("wb") as file:
        np.save(file, np.array(list(NUMBERS.values()), np.float32))
    return folder


def written(kind: str, folder: Path) -> Path:
    if kind == "spacy":
        return spacy(folder / "pipeline")
    path = folder / kind
    text = listed("5 2\n" if "head" in kind else "").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("kind", ["plain.txt", "head.vec", "head.vec.gz", "spacy"])
def test_each_word_gets_its_vector_or_that_of_its_capitalized_form(kind: str, tmp_path: Path) -> None:
    found = known_vectors(str(written(kind, tmp_path)), WORDS)
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx(np.array(EXPECTED), abs=1e-6)


def test_vectors_that_are_all_zero_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_text("5 2\nchat 0 0\nautre 1 2\n")
    with pytest.raises(DataError, match=r"a\.vec: every vector of a token of this vocabulary is zero"):
        known_vectors(str(tmp_path / "a.vec"), WORDS)


def test_the_form_that_is_asked_for_comes_first(tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_text("Rose 1 0\nrose 0 1\nrose 1 1\n. . . 0 -1\nrouge -1 0\n")
    found = known_vectors(str(tmp_path / "a.vec"), ["rose", "Rose", ". . .", "Rouge"])
    assert found.tolist() == [[0, 1], [1, 0], [0, -1], [-1, 0]]


@pytest.mark.parametrize("word", ["", "a", "seventy", "eighteen", "eighteen-and-one", "œuvre", "🦋"])
def test_words_of_all_lengths_have_the_number_that_spacy_gives_them(word: str) -> None:
    """spaCy's own number of "coffee" stands in the doctest; here other lengths, against integers that wrap by themselves."""
    assert spacy_hash(word) == _with_numpy(word.encode())


def _with_numpy(data: bytes) -> int:
    with np.errstate(over="ignore"):
        m, r = np.uint64(0xC6A4A7935BD1E995), np.uint64(47)
        h = np.uint64(1) ^ np.uint64(len(data)) * m
        blocks = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
        for k in blocks:
            k = np.uint64(k) * m
            h = (h ^ (k ^ k >> r) * m) * m
        tail = data[len(blocks) * 8 :]
        for place in reversed(range(len(tail))):
            h ^= np.uint64(tail[place]) << np.uint64(8 * place)
        if tail:
            h *= m
        h = (h ^ h >> r) * m
        return int(h ^ h >> r)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chat 1 2\nchien 1\n", "line 2 has 1 numbers after the word, expected 2"),
        ("chat\nchien\n", "line 1 has 0 numbers after the word, expected some"),
        ("chat un deux\n", "cannot be read as word vectors"),
        ("chat nan 1\n", "not finite"),
        ("Hund 1 2\n", "no vector for any of the 5 tokens"),
        ("", "no vector for any of the 5 tokens"),
    ],
)
def test_what_is_no_list_of_vectors_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_text(text)
    with pytest.raises(DataError, match=says):
        known_vectors(str(tmp_path / "a.vec"), WORDS)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.bin",
            b"5 2\nchat \xff\xfe\x00\x01",
            "not UTF-8 text. A .zip must be unpacked, and a binary .bin file saved as .vec",
        ),
        ("a.vec.gz", b"no gzip", "cannot be read as word vectors"),
        ("a.vec.gz", gzip.compress(listed().encode(), mtime=0)[:-12], "cannot be read as word vectors"),
        ("a.vec.gz", gzip.compress(listed().encode(), mtime=0)[:10] + b"\xff" * 40, "cannot be read as word vectors"),
    ],
    ids=["binary", "no gzip", "cut off", "damaged"],
)
def test_other_bytes_are_refused(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says):
        known_vectors(str(tmp_path / name), WORDS)


def test_what_is_not_there_and_a_folder_that_is_no_pipeline_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"french-vector: no such file, and no such pack. Did you mean 'french-vectors'"
    ):
        known_vectors("french-vector", WORDS)
    with pytest.raises(DataError, match=r"no vocab/key2row and vocab/vectors, as a spaCy pipeline has"):
        known_vectors(str(tmp_path), WORDS)


@pytest.mark.parametrize("damage", [b"\x93\x01\x02\x03", b"", b"\xc1", b"\x81"])
def test_a_damaged_pipeline_is_refused(damage: bytes, tmp_path: Path) -> None:
    folder = spacy(tmp_path / "pipeline")
    (folder / "vocab" / "key2row").write_bytes(damage)
    with pytest.raises(DataError, match=r"its vectors cannot be read"):
        known_vectors(str(folder), WORDS)


def test_a_pipeline_without_vectors_is_told_from_one_of_another_language(tmp_path: Path) -> None:
    folder = spacy(tmp_path / "pipeline")
    with (folder / "vocab" / "vectors").open("wb") as file:
        np.save(file, np.zeros((0, 0), np.float32))
    with pytest.raises(DataError, match=r"this pipeline has no vectors. Small ones \(_sm\) have none"):
        known_vectors(str(folder), WORDS)


def test_pickled_vectors_are_not_opened(tmp_path: Path) -> None:
    folder = spacy(tmp_path / "pipeline")
    with (folder / "vocab" / "vectors").open("wb") as file:
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"its vectors cannot be read"):
        known_vectors(str(folder), WORDS)


def test_a_gz_that_unpacks_to_far_more_than_it_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_vectors, "MANY_BYTES", 100_000)
    (tmp_path / "a.vec.gz").write_bytes(gzip.compress(b"mot 0 0\n" * 1_000_000))
    with pytest.raises(ResourceError, match=r"more than [\d,]+ bytes would come out of a file of [\d,]+"):
        known_vectors(str(tmp_path / "a.vec.gz"), WORDS)


@pytest.mark.parametrize("name", ["a.vec", "a.vec.gz", "a.bin"])
def test_a_line_without_end_is_refused_and_not_kept(name: str, tmp_path: Path) -> None:
    data = b"1000000000 1000000000\n" + b"a" * 30_000_000
    (tmp_path / name).write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    del data
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a line of more than [\d,]+ bytes"):
            known_vectors(str(tmp_path / name), WORDS)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_vectors_wider_than_any_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_text("chat" + " 0" * 5000 + "\n")
    with pytest.raises(DataError, match=r"vectors of 5,000 numbers; more than 4,096 are not read"):
        known_vectors(str(tmp_path / "a.vec"), WORDS)


def test_numbers_of_which_the_length_is_not_finite_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_text("chat 3e38 3e38\n")
    with pytest.raises(DataError, match="holds numbers that are too large"):
        known_vectors(str(tmp_path / "a.vec"), WORDS)


@pytest.mark.parametrize(
    "array",
    [np.zeros(5, np.float32), np.zeros((5, 2, 2), np.float32), np.array([["a", "b"]] * 5), np.zeros((5, 2), complex)],
    ids=["flat", "deep", "texts", "complex"],
)
def test_an_array_of_another_shape_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    folder = spacy(tmp_path / "pipeline")
    with (folder / "vocab" / "vectors").open("wb") as file:
        np.save(file, array)
    with pytest.raises(DataError, match="its vectors cannot be read"):
        known_vectors(str(folder), WORDS)


def test_an_array_that_claims_to_be_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    folder = spacy(tmp_path / "pipeline")
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 300)}
    with (folder / "vocab" / "vectors").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DataError, match="its vectors cannot be read"):
        known_vectors(str(folder), WORDS)


@pytest.mark.parametrize("kind", ["plain.txt", "head.vec", "head.vec.gz", "spacy"])
def test_whatever_is_changed_in_a_file_it_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    files = [path] if path.is_file() else sorted((path / "vocab").iterdir())
    whole = {file: file.read_bytes() for file in files}
    for seed in range(100):
        rng = random.Random(seed)
        file = rng.choice(files)
        data = bytearray(whole[file])
        for _ in range(rng.randint(1, 5)):
            place = rng.randrange(len(data))
            data[place : place + rng.randrange(3)] = rng.choice([b"", b"9" * 30, b" ", b"\n", b"nan", rng.randbytes(2)])
        for each in files:
            each.write_bytes(data if each == file else whole[each])
        with suppress(DataError):  # nothing else is raised
            known_vectors(str(path), WORDS)


@pytest.mark.network
def test_the_english_pack_has_vectors_of_english_words() -> None:
    """300 numbers for each word, those of related words near; spaCy's key of "don't" is two tokens."""
    film, movie, rate, negation = known_vectors("english-vectors", ["film", "movie", "inflation", "n't"])
    assert film.shape == (300,)
    assert film @ movie > 0.5 > film @ rate
    assert negation.any()
