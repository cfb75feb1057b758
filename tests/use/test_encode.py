"""Embeddings: those of sentence-transformers, whatever the batch; and files that keep every column, whole or not at all."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from pyarrow.parquet import read_table
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, DataError, UserError
from headstart.hub.packs import located
from headstart.text.columns import Table
from headstart.use import encode
from headstart.use.encode import LoadedEncoder
from headstart.use.predict import LoadedClassifier
from headstart.use.vectors import write_vectors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "was", "lovely", "awful", "cold", "warm", "the", "end"]
TEXTS = ["the film was lovely", "cold", "the end was cold the film was awful", "the film was warm the end"]


def sentence_transformer(folder: Path, pool: str, normalize: bool, context: int | None = None) -> Path:
    """A tiny BERT with random weights, saved by sentence-transformers."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    bert = folder / "bert"
    bert.mkdir(parents=True)
    (bert / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(bert / "vocab.txt")).save_pretrained(bert)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=32, max_position_embeddings=24)  # fmt: skip
    model = transformers.BertModel(config)
    with torch.no_grad():  # away from where they begin, so that texts differ
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    model.save_pretrained(bert)
    reader = Transformer(str(bert), **({"max_seq_length": context} if context else {}))
    modules = [reader, Pooling(16, pooling_mode=pool), *([Normalize()] if normalize else [])]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


def theirs(folder: Path | str, texts: list[str]) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(texts)


@pytest.mark.parametrize(("pool", "normalize"), [("mean", True), ("cls", False), ("lasttoken", True)])
def test_the_vectors_are_those_of_sentence_transformers(tmp_path: Path, pool: str, normalize: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = sentence_transformer(tmp_path, pool, normalize)
        expected = theirs(folder, TEXTS)
    encoder = LoadedEncoder.load(folder)
    assert encoder.normalized == normalize
    assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0.1  # of other texts, other vectors


def test_a_declared_maximum_length_truncates_as_theirs_does(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = sentence_transformer(tmp_path, "mean", True, context=6)
        expected = theirs(folder, TEXTS)
    encoder = LoadedEncoder.load(folder)
    assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert encoder.truncated == 2


@pytest.mark.network
def test_minilm_embeds_as_sentence_transformers_does() -> None:
    texts = ["The film was a joy.", "I loved this movie.", "Interest rates rose again in March.", "no", "a " * 60]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("sentence_transformers")
        expected = theirs(located("minilm"), texts)
    assert_allclose(LoadedEncoder.load("minilm").encode(texts), expected, atol=1e-4)


@pytest.mark.parametrize("run", ["lm", "mlm", "full"])
def test_a_vector_depends_on_its_own_text_only(
    runs: dict[str, Path], run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"film {i} was {word} from end to end" for i in range(3) for word in ("lovely", "cold")]
    encoder = LoadedEncoder.load(runs[run])
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    monkeypatch.setattr(encode, "AT_ONCE", 4)
    assert_allclose(encoder.encode(texts), alone, atol=1e-5)
    assert encoder.encode([]).shape == (0, 16)


def test_a_classifier_embeds_what_its_head_reads(runs: dict[str, Path]) -> None:
    texts = ["film 1 was lovely from end to end", "film 2 was awful"]
    classifier = LoadedClassifier.load(runs["full"])
    vectors = torch.from_numpy(LoadedEncoder.load(runs["full"]).encode(texts))
    probabilities = classifier.saved.model.head.logits(vectors).softmax(-1)
    assert_allclose(probabilities.detach().numpy(), classifier.probabilities(texts), atol=1e-6)


def test_normalizing_can_be_asked_for(runs: dict[str, Path]) -> None:
    plain, unit = (LoadedEncoder.load(runs["mlm"], normalize).encode(["film 1"]) for normalize in (None, True))
    assert_allclose(unit, plain / np.linalg.norm(plain), atol=1e-6)
    assert abs(np.linalg.norm(plain) - 1) > 0.1


def test_a_preset_has_no_vectors() -> None:
    with pytest.raises(ConfigError, match="'gpt' has no pretrained weights"):
        LoadedEncoder.load("gpt")


# --- files


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text("id,text\n" + "".join(f"{i},film {i} was cold\n" for i in range(7)))
    return tmp_path / "in.csv"


def embedded(run: Path, table: Path, out: Path, *flags: str) -> Any:
    return CliRunner().invoke(app, ["embed", str(run), "--file", str(table), "--out", str(out), *flags])


@pytest.mark.parametrize("end", ["parquet", "npy", "jsonl"])
def test_every_kind_of_file_holds_the_same_vectors_and_the_columns(
    runs: dict[str, Path], table: Path, tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = LoadedEncoder.load(runs["mlm"]).encode([f"film {i} was cold" for i in range(7)])
    monkeypatch.setattr("headstart.use.vectors.AT_ONCE", 3)  # several parts
    done = embedded(runs["mlm"], table, tmp_path / f"out.{end}", "--json")
    assert json.loads(done.stdout) == {"file": str(tmp_path / f"out.{end}"), "rows": 7, "width": 16, "pool": "mean",
                                       "normalized": False, "truncated": 0, "blank": 0}  # fmt: skip
    if end == "npy":
        found = np.load(tmp_path / "out.npy")
        assert found.dtype == np.float32
    else:
        file = tmp_path / f"out.{end}"
        rows = read_table(file).to_pylist() if end == "parquet" else [*map(json.loads, file.read_text().splitlines())]
        assert [row["id"] for row in rows] == [str(i) for i in range(7)]
        assert rows[3]["text"] == "film 3 was cold"
        found = np.array([row["embedding"] for row in rows])
    assert_allclose(found, expected, atol=1e-5)


def test_a_file_that_is_there_is_kept_unless_asked(runs: dict[str, Path], table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    out.write_text("mine")
    done = embedded(runs["mlm"], table, out)
    assert (done.exit_code, out.read_text()) == (2, "mine")
    assert "already exists" in done.stderr
    assert embedded(runs["mlm"], table, out, "--overwrite").exit_code == 0
    assert np.load(out).shape == (7, 16)


def test_when_it_stops_halfway_nothing_is_left(runs: dict[str, Path], table: Path, tmp_path: Path) -> None:
    class Stops(LoadedEncoder):
        def encode(self, texts: Any, watch: Any = None) -> Any:
            raise KeyboardInterrupt

    (tmp_path / "out.parquet").write_text("mine")
    loaded = LoadedEncoder.load(runs["mlm"])
    with pytest.raises(KeyboardInterrupt):
        write_vectors(tmp_path / "out.parquet", Table.open(table), Stops(**vars(loaded)))
    assert (tmp_path / "out.parquet").read_text() == "mine"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.csv", "out.parquet"]


def test_bad_requests_name_the_remedy(runs: dict[str, Path], table: Path, tmp_path: Path) -> None:
    encoder = LoadedEncoder.load(runs["mlm"])
    with pytest.raises(UserError, match=r"ends with \.parquet, \.npy, \.jsonl, not"):
        write_vectors(tmp_path / "out.xlsx", Table.open(table), encoder)
    (tmp_path / "twice.csv").write_text("text,embedding\na,b\n")
    with pytest.raises(DataError, match=r"a column 'embedding' already\. Rename it"):
        write_vectors(tmp_path / "out.jsonl", Table.open(tmp_path / "twice.csv"), encoder)
    assert "Missing --file" in CliRunner().invoke(app, ["embed", str(runs["mlm"])]).stderr
    assert "takes another file than those that are read" in embedded(runs["mlm"], table, table, "--overwrite").stderr
    assert "--normalize takes yes or no, not 'l2'" in embedded(
        runs["mlm"], table, tmp_path / "o.npy", "--normalize", "l2"
    ).stderr  # fmt: skip
