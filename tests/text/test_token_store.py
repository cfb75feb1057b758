"""A corpus that is streamed from its files: the same texts, split, tokenizer, rows and batches as in memory."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch

from headstart.config import PretrainConfig, TokenizerConfig
from headstart.data import CorpusConfig
from headstart.errors import DataError
from headstart.hub.cache import cache_folder
from headstart.jobs.job import Kept
from headstart.jobs.pretrain import Pretraining
from headstart.runs.watch import Watch
from headstart.text import compressed, corpus_stream, token_store, tokenizer
from headstart.text.batch import windows
from headstart.text.cooccurrence import SAME_TEXT, token_vectors
from headstart.text.read import text_files
from headstart.text.split import Corpus, split_corpus
from headstart.text.stretches import StreamedTexts, stretches_of
from headstart.text.token_store import token_rows
from headstart.text.tokenizer import Tokenizer, TokenRows

WORDS = [f"{a}{b}" for a in ["so", "it", "goes", "then", "été", "文字", "over"] for b in ("", "s", "ing", "ed")]
IN_MEMORY, STREAMED = {"stream_above": 10**9}, {"stream_above": 0}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three text files, a table and lines of JSON; some lines occur twice, some are blank, one is long."""
    rng = random.Random(0)

    def line() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randrange(1, 25))).capitalize() + ". "

    folder = tmp_path / "shards"
    folder.mkdir()
    for name in "abc":
        lines = [line() for _ in range(60)]
        text = "\n".join([*lines, "", " \t", lines[0], line() * 30, *lines[:3]])
        (folder / f"{name}.txt").write_text(text, newline="\r\n" if name == "b" else "\n")
    (folder / "d.csv").write_text("id,text\n" + "".join(f'{i},"{line()}"\n' for i in range(30)))
    (folder / "e.jsonl").write_text("".join(json.dumps({"text": line()}) + "\n" for i in range(30)))
    return folder


def corpus(folder: Path, **data: Any) -> Corpus:
    return split_corpus(CorpusConfig(paths=(str(folder),), **data))


def whole(texts: Any) -> list[str]:
    return ["".join(stretches_of(text)) for text in texts]


@pytest.mark.parametrize("unit", ["document", "line", "sentence"])
@pytest.mark.parametrize("part", [{"valid_fraction": 0}, {"valid_fraction": 0.1}, {"valid_most": 300}])
def test_texts_and_split_are_those_of_memory(unit, part, shards, monkeypatch):
    monkeypatch.setattr(corpus_stream, "SPARE", 1)  # so that more than one pass may be needed
    one, other = corpus(shards, unit=unit, **part, **IN_MEMORY), corpus(shards, unit=unit, **part, **STREAMED)
    assert isinstance(other.train, StreamedTexts)
    assert whole(other.train) == one.train
    assert other.valid == one.valid
    assert other.train.characters == sum(map(len, one.train))
    assert other.train.tail(1000) == "\n".join(one.train).encode()[-1000:]


def test_the_ends_of_few_documents_are_those_of_memory(shards):
    for path in (shards / "d.csv", shards / "e.jsonl"):
        path.unlink()
    one, other = (corpus(shards, unit="document", valid_fraction=0.1, **how) for how in (IN_MEMORY, STREAMED))
    assert (whole(other.train), other.valid) == (one.train, one.valid)
    assert len(one.valid) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "causal"},
        {"objective": "masked", "start": "cooccurrence"},
        {"objective": "masked", "data": {"unit": "line"}},
        {"objective": "causal", "data": {"unit": "sentence"}, "tokenizer": {"kind": "char"}},
        {"objective": "causal", "tokenizer": {"kind": "bpe", "sample": 5000}},
    ],
    ids=["documents", "masked, counted", "lines", "sentences", "sampled"],
)
def test_batches_are_those_of_memory_to_the_last_bit(settings, shards, monkeypatch):
    monkeypatch.setattr(tokenizer, "CHARACTERS_AT_ONCE", 3000)  # many batches and stretches, as of a large corpus
    monkeypatch.setattr(tokenizer, "TOKENS_AT_ONCE", 777)
    monkeypatch.setattr("headstart.text.cooccurrence.TOKENS_AT_ONCE", 777)
    found = []
    for how in (IN_MEMORY, STREAMED):
        data = {"paths": [str(shards)], **settings.get("data", {}), **how}
        cfg = PretrainConfig.model_validate({**settings, "data": data, "model": {"size": "nano", "context": 16}})
        found.append(Pretraining.prepare(cfg, Kept(), Watch()))
    one, other = found
    assert one.tokenizer.sha256 == other.tokenizer.sha256
    assert (one.tokenizer.sampled is None) == ("sample" not in settings.get("tokenizer", {}))
    assert isinstance(other.text.rows.ids, token_store.TokenFile)
    assert np.array_equal(one.text.rows.ids, other.text.rows.ids[:])
    assert one.facts({}) == other.facts({})
    for step in range(2 * one.batches.per_epoch):
        for a, b in zip(vars(one.batches(step)).values(), vars(other.batches(step)).values(), strict=True):
            assert torch.equal(a, b)
    for a, b in zip(one.text.measured(), other.text.measured(), strict=True):
        assert torch.equal(a.ids, b.ids)
        assert torch.equal(a.target, b.target)
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


def encoded(shards: Path, **data: Any) -> tuple[StreamedTexts, Tokenizer]:
    texts = corpus(shards, unit="line", **data, **STREAMED).train
    assert isinstance(texts, StreamedTexts)
    return texts, Tokenizer.train(texts, TokenizerConfig(kind="bpe", vocab=300))


def test_tokens_are_made_once_for_the_same_texts_and_tokenizer(shards, monkeypatch):
    texts, bpe = encoded(shards)
    made: list[int] = []
    write = token_store._write
    monkeypatch.setattr(token_store, "_write", lambda *given: (made.append(1), write(*given)))
    first = token_rows(texts, bpe, True)
    assert np.array_equal(first.ids[:], token_rows(texts, bpe, True).ids[:])
    assert len(made) == 1
    token_rows(texts, bpe, False)
    token_rows(texts, Tokenizer.train(texts, TokenizerConfig(kind="bpe", vocab=301)), True)
    assert len(made) == 3
    (shards / "a.txt").write_text("another text\n" * 9)
    token_rows(encoded(shards)[0], bpe, True)
    assert len(made) == 4


def test_a_tokenizer_is_trained_once_for_the_same_texts(shards):
    texts, cfg = (
        corpus(shards, unit="line", **STREAMED).train,
        TokenizerConfig(kind="wordpiece", vocab=200, sample=4000),
    )
    made = [token_store.trained_once(texts, cfg, seed) for seed in (0, 0, 0, 1)]
    assert len({tokenizer.sha256 for tokenizer in made}) == 2  # ties are broken anew at each training
    assert made[0].sampled == made[1].sampled != made[3].sampled


def test_damaged_tokens_are_made_again(shards):
    texts, bpe = encoded(shards)
    rows = token_rows(texts, bpe, True)
    path, expected = rows.ids.path, rows.ids[:]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert np.array_equal(token_rows(texts, bpe, True).ids[:], expected)


KILLED = """
import sys
from pathlib import Path
from headstart.data import CorpusConfig
from headstart.text import token_store, tokenizer
from headstart.text.split import split_corpus
tokenizer.CHARACTERS_AT_ONCE, token_store.BATCHES = 1000, 2
learned = tokenizer.Tokenizer.load(sys.argv[2])
put, left = token_store._put, [{records}]
def killed(path, record):
    put(path, record)
    left[0] -= 1
    if not left[0]:
        token_store.os.kill(token_store.os.getpid(), 9)
token_store._put = killed
texts = split_corpus(CorpusConfig(paths=(sys.argv[1],), unit="line", stream_above=0)).train
token_store.token_rows(texts, learned, True)
"""


@pytest.mark.parametrize("torn", [b"", b"half a record"], ids=["whole", "torn"])
def test_killed_while_tokenizing_it_goes_on_where_it_was(torn, shards, tmp_path, monkeypatch):
    texts, bpe = encoded(shards)
    bpe.backend.save(str(tmp_path / "tokenizer.json"))
    command = [sys.executable, "-c", KILLED.format(records=3), str(shards), str(tmp_path / "tokenizer.json")]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    [folder] = (cache_folder() / "tokens").iterdir()
    with open(folder / "ids", "ab") as file:
        file.write(torn)  # what was written behind the last record
    done = json.loads((folder / "progress.json").read_text())
    assert 0 < done["pieces"] < 250

    skipped = []
    stream = Tokenizer.encode_stream
    monkeypatch.setattr(tokenizer, "CHARACTERS_AT_ONCE", 1000)
    monkeypatch.setattr(
        Tokenizer,
        "encode_stream",
        lambda self, *given, skip=0: (skipped.append(skip), stream(self, *given, skip=skip))[1],
    )
    rows = token_rows(texts, bpe, True)
    assert skipped == [done["pieces"]]
    expected = bpe.encode(whole(texts))
    assert np.array_equal(rows.ids[:], expected.ids)
    assert np.array_equal(rows.starts, expected.starts)
    assert [path.name for path in (cache_folder() / "tokens").iterdir()] == [folder.name]
    assert not (folder / "progress.json").exists()


def test_compressed_shards_are_read_as_what_they_hold(shards, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in shards.iterdir():
        if path.suffix == ".jsonl":
            with pyarrow.CompressedOutputStream(str(packed / f"{path.name}.zst"), "zstd") as file:
                file.write(path.read_bytes())
        else:
            (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for unit in ("document", "line", "sentence"):
        one, other = corpus(shards, unit=unit, **IN_MEMORY), corpus(packed, unit=unit)
        assert (whole(other.train), other.valid) == (one.train, one.valid)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_a_damaged_file_is_refused_in_one_sentence(suffix, damage, tmp_path):
    path, text = tmp_path / f"a.txt{suffix}", os.urandom(5000).hex().encode()
    with pyarrow.CompressedOutputStream(str(path), "gzip" if suffix == ".gz" else "zstd") as file:
        file.write(text)
    path.write_bytes(path.read_bytes()[:2000] if damage == "cut" else text)
    with pytest.raises(DataError, match=f"a.txt{suffix}: not a readable {suffix} file"):
        split_corpus(CorpusConfig(paths=(str(path),)))


def test_packed_text_of_another_encoding_is_refused_with_the_line(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("So it goes.\nLà-bas.\n".encode("latin-1")))
    with pytest.raises(DataError, match=r"a\.txt\.gz, line 2, byte 13: not valid utf-8 \(byte 0xE0\)\. It may be"):
        split_corpus(CorpusConfig(paths=(str(tmp_path / "a.txt.gz"),)))


def test_a_file_that_unpacks_to_far_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "MANY_BYTES", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"so it goes\n" * 1_000_000))
    with pytest.raises(DataError, match="unpacks to more than 2 MB"):
        split_corpus(CorpusConfig(paths=(str(tmp_path / "a.txt.gz"),)))


def test_a_pattern_stands_for_the_files_that_match_it(shards):
    assert [path.name for path in text_files([str(shards / "*.txt")])] == ["a.txt", "b.txt", "c.txt"]
    assert [path.name for path in text_files([str(shards.parent / "**" / "[de].*")])] == ["d.csv", "e.jsonl"]
    (shards / "[a].txt").write_text("a name that looks like a pattern")
    assert text_files([shards / "[a].txt"]) == [shards / "[a].txt"]
    with pytest.raises(DataError, match=r"\*\.tsv"):
        text_files([str(shards / "*.tsv")])


def test_of_many_tokens_an_even_sample_is_counted(shards, monkeypatch):
    texts, bpe = encoded(shards)
    rows = token_rows(texts, bpe, True)
    pieces = windows(rows, SAME_TEXT, 0)
    half = token_vectors(TokenRows.of(pieces[i] for i in range(0, len(pieces), 2)), bpe.size, 8)
    monkeypatch.setattr("headstart.text.cooccurrence.MOST_COUNTED", (len(rows.ids) + 1) // 2)
    assert np.array_equal(token_vectors(rows, bpe.size, 8), half)
