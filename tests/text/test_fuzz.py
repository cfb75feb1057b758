"""Whatever a file holds, its reader answers, or refuses it in one sentence: soon, without a warning, in bounded memory.

Each input is a function of the seed, the reader and its number: HEADSTART_FUZZ_SEED=7 makes others, HEADSTART_FUZZ=100000 more.
The files of a failed case are kept. tests/mutations does the same with whole commands, and with runs and models.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headstart.bases.gguf import parameters_of, read_gguf
from headstart.data import CaptionsConfig, CorpusConfig, LabelledConfig, PairsConfig
from headstart.errors import UserError
from headstart.images.captions import read_captions, split_captions
from headstart.images.read import read_image
from headstart.labs.lab import open_lab
from headstart.runs.kinds import KINDS
from headstart.runs.manifest import must_be_whole
from headstart.runs.run import Run
from headstart.schema import parse, read_toml
from headstart.study.plan import StudyConfig
from headstart.text.archive import read_archive
from headstart.text.columns import Table
from headstart.text.files import Reading
from headstart.text.pairs import split_pairs
from headstart.text.split import split_corpus, split_labelled
from headstart.text.tokenizer import Tokenizer
from headstart.text.word_vectors import known_vectors
from tests import isolated
from tests.mutator import mutated
from tests.text import specimens

SEED = os.environ.get("HEADSTART_FUZZ_SEED", "0")
INPUTS = int(os.environ.get("HEADSTART_FUZZ", 100))
LONGEST = 20.0  # seconds for one input, on a busy machine too
LONGEST_SENTENCE = 5000
INSERTED = [
    b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\r", b"\x1a", b'"', b"'''", b'"""',
    b"9" * 5000, b"1e999", b"-1", b"nan", b"[" * 20_000, b"{" * 2000, b'{"a":' * 2000, b"a." * 3000, b"(" * 300, b"\n" * 3000, b"\\ud800",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80" * 12, b"\x1f\x8b\x08", b"PAR1", b"<script>", b"x" * 70_000,
]  # fmt: skip
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-be", "utf-32", "latin-1", "utf-7")


def how(rng: random.Random) -> dict[str, Any]:
    """Settings of a reader, mostly the usual ones."""
    other = {"on_bad_bytes": "replace", "strip_nul": True, "encoding": "latin-1", "max_line_bytes": 500}
    return {key: value for key, value in other.items() if rng.random() < 0.15}


def labelled(path: Path, rng: random.Random) -> None:
    switches = {key: True for key in ("skip_blank", "clean_labels", "any_labels") if rng.random() < 0.3}
    split_labelled(LabelledConfig(train=str(path), **switches, **how(rng)))


def table(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.7:
        labelled(path, rng)
    else:
        for _ in Table.open(path, reading=Reading(CorpusConfig(paths=(), **how(rng)))).parts(5):
            pass


def text(path: Path, rng: random.Random) -> None:
    unit = rng.choice(("document", "line", "sentence"))
    whole = rng.random() < 0.5 and not path.suffix.endswith(("gz", "zst"))
    corpus = split_corpus(CorpusConfig(paths=(str(path),), unit=unit, stream_above=10**9 if whole else 0, **how(rng)))
    for some in (corpus.train, corpus.valid):
        for _ in some:
            pass


def pairs(path: Path, rng: random.Random) -> None:
    files = [path.with_suffix(".en"), path.with_suffix(".fr")] if path.stem == "a" else [path]
    split_pairs(PairsConfig(pairs=tuple(map(str, files)), **how(rng)))


def archive(path: Path, rng: random.Random) -> None:
    read_archive(path, Reading(CorpusConfig(paths=(), **how(rng))))


def vectors(path: Path, rng: random.Random) -> None:
    known_vectors(str(path.parents[1] if path.parent.name == "vocab" else path), specimens.WORDS)


def tokenizer(path: Path, rng: random.Random) -> None:
    made = Tokenizer.load(path)
    made.decode(made.encode([*specimens.TEXTS[:2], "\0 😀" * 9])[0])


def gguf(path: Path, rng: random.Random) -> None:
    read_gguf(path)
    parameters_of(path)


def captions(path: Path, rng: random.Random) -> None:
    cfg = CaptionsConfig(pairs=str(path), **how(rng))
    found = read_captions(cfg)
    split_captions(found, {file: file for file in found.captions}, cfg)


def settings(path: Path, rng: random.Random) -> None:
    kind = StudyConfig if path.stem == "study" else KINDS[path.stem].config
    parse(kind, read_toml(path), str(path))


def run(path: Path, rng: random.Random) -> None:
    folder = next(parent for parent in path.parents if parent.name == "run")
    found = Run.open(folder)
    found.summary()
    for name in ("env.json", "data.json", "result.json"):
        found.read_json(name)
    for _ in found.read_lines("log.jsonl"):
        pass
    found.asked(type(found.config))
    for step in (folder / "checkpoints").iterdir():
        must_be_whole(step)


@dataclass(frozen=True)
class Reader:
    read: Callable[[Path, random.Random], object]
    files: str  # a pattern below the specimens


READERS = {
    "csv": Reader(table, "tables/*.[ct]*[sa][vb]"),
    "json": Reader(table, "tables/*.json*"),
    "parquet": Reader(table, "tables/*.parquet"),
    "arrow": Reader(table, "tables/*.arrow"),
    "tagged": Reader(labelled, "tagged/*"),
    "text": Reader(text, "text/*"),
    "packed": Reader(text, "packed/*"),
    "archives": Reader(archive, "archives/*"),
    "pairs": Reader(pairs, "pairs/*"),
    "vectors": Reader(vectors, "vectors/*.*"),
    "spacy": Reader(vectors, "vectors/spacy/vocab/*"),
    "tokenizer": Reader(tokenizer, "tokenizers/*/*"),
    "sentencepiece": Reader(tokenizer, "tokenizers/*.model"),
    "gguf": Reader(gguf, "gguf/*"),
    "images": Reader(lambda path, _: read_image(path), "images/*"),
    "captions": Reader(captions, "captions/*"),
    "settings": Reader(settings, "settings/*"),
    "labs": Reader(lambda path, _: open_lab(str(path)), "labs/*"),
    "run": Reader(run, "run/**/*.[jt]*"),
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specimens")
    specimens.make(folder)
    return folder


@pytest.mark.timeout(max(300, INPUTS))
@pytest.mark.parametrize("name", READERS)
def test_whatever_a_file_holds_is_read_or_refused(name: str, shelf: Path, tmp_path: Path) -> None:
    reader = READERS[name]
    whole = {path: path.read_bytes() for path in sorted(shelf.glob(reader.files)) if path.is_file()}
    for path in whole:
        reader.read(path, Usual())  # what that loads, the children find loaded

    def case(number: int) -> str:
        rng = random.Random(f"{SEED} {name} {number}")
        for path, data in whole.items():
            replace(path, data)
        path = rng.choice(list(whole))
        data = damaged(path, whole, rng)
        replace(path, data)
        told = f"{name} {number}: {path.name}, {len(data):,} bytes"
        isolated.begins(tmp_path, told)
        fault = "".join(faults(lambda: reader.read(path, rng)))
        if fault:
            (tmp_path / f"{number}-{path.name}").write_bytes(data)
        return f"{told}, kept in {tmp_path}\n{fault}" if fault else ""

    found = isolated.faults(case, range(INPUTS), tmp_path, LONGEST)
    assert not found, f"seed {SEED}, {len(found)} of {INPUTS}:\n\n" + "\n\n".join(found[:10])


class Usual(random.Random):
    """Draws no chance: the usual settings."""

    def random(self) -> float:
        return 0.5


def replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)  # what still maps the one before must not see another
    path.write_bytes(data)


def damaged(path: Path, whole: dict[Path, bytes], rng: random.Random) -> bytes:
    data, chance = whole[path], rng.random()
    if chance < 0.08:
        return data[: rng.choice((0, 0, 4, 12, 100))] + rng.randbytes(rng.choice((0, 1, 2, 7, 64, 1000, 20_000)))
    if chance < 0.16:  # the beginning of one and the end of another
        other = rng.choice(list(whole.values()))
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    elif chance < 0.24:
        data = data.decode("utf-8", "replace").encode(rng.choice(ENCODINGS), "replace")
    elif chance < 0.4:
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.choice((0, len(data), rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
            data = data[:at] + rng.choice(INSERTED) + data[at:]
        return data
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = mutated(data, path.suffix, rng.random() < 0.55, rng)
    return data


def faults(read: Callable[[], object]) -> Iterator[str]:
    """What a reader may not do."""
    unraisable: list[str] = []
    sys.unraisablehook = lambda told: unraisable.append(f"{told.exc_value!r} in {told.object!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            read()
        except UserError as error:
            if not 0 < len(str(error)) < LONGEST_SENTENCE:
                yield f"a sentence of {len(str(error)):,} characters: {str(error)[:500]}"
        except BaseException:  # of Rust too
            yield traceback.format_exc()[-3000:]
    yield from unraisable
