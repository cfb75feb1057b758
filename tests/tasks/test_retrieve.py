"""The contrastive loss, recall and the gradient cache against the plain way to compute each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from headstart.models.dual import DualEncoder, Space, TextTower
from headstart.models.heads import mean_real
from headstart.models.transformer import Transformer
from headstart.models.vision import MOBILENET, ImageTransformer, MobileNet, build_encoder
from headstart.shapes import ImageConfig, PatchConfig, SpaceConfig, TransformerConfig
from headstart.tasks import retrieve
from headstart.tasks.canonical import start_canonical
from headstart.tasks.retrieve import (
    RawBatch,
    RetrieveRaw,
    RetrieveSeen,
    SeenBatch,
    chance,
    clustered_share,
    contrastive_loss,
    ranks,
    recalls,
)
from headstart.text.batch import pad


def vectors(*shape: int) -> torch.Tensor:
    return F.normalize(torch.randn(*shape), dim=-1)


def plain_loss(texts: torch.Tensor, images: torch.Tensor, owner: list[int], scale: float) -> float:
    """The definition, one term at a time."""
    logits = (scale * texts @ images.T).tolist()
    terms = []
    for n, own in enumerate(owner):
        finding = -math.log(math.exp(logits[n][own]) / sum(math.exp(x) for x in logits[n]))
        rivals = [n, *(m for m in range(len(owner)) if owner[m] != own)]
        found = -math.log(math.exp(logits[n][own]) / sum(math.exp(logits[m][own]) for m in rivals))
        terms.append((finding + found) / 2)
    return sum(terms) / len(terms)


@pytest.mark.parametrize("owner", [[0, 1, 2], [0, 0, 1, 2, 2, 2]])
def test_captions_of_one_picture_are_no_wrong_answers_to_each_other(owner: list[int]) -> None:
    torch.manual_seed(0)
    texts, images = vectors(len(owner), 8), vectors(3, 8)
    found = contrastive_loss(texts, images, torch.tensor(owner), torch.tensor(5.0))
    assert float(found) == pytest.approx(plain_loss(texts, images, owner, 5.0), rel=1e-5)


def test_with_one_caption_a_picture_the_loss_is_that_of_clip() -> None:
    torch.manual_seed(1)
    texts, images = vectors(6, 8), vectors(6, 8)
    logits = 10 * texts @ images.T
    both = (F.cross_entropy(logits, torch.arange(6)) + F.cross_entropy(logits.T, torch.arange(6))) / 2
    assert_close(contrastive_loss(texts, images, torch.arange(6), torch.tensor(10.0)), both)


def test_recall_is_what_sorting_gives() -> None:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(30), 3)
    scores = rng.normal(size=(90, 30)).astype(np.float32)
    scores[np.arange(90), owner] += 1.5
    found = recalls(scores, owner)
    for k in (1, 5, 10):
        forth = np.mean([own in np.argsort(-row)[:k] for own, row in zip(owner, scores, strict=True)])
        back = np.mean([i in owner[np.argsort(-scores[:, i])[:k]] for i in range(30)])
        for way, value in (("text_to_image", forth), ("image_to_text", back)):
            score = found[way][f"recall@{k}"]
            assert score["value"] == pytest.approx(value)
            assert 0 <= score["interval"][0] <= value <= score["interval"][1] <= 1


@pytest.mark.parametrize("pictures", [3, 5, 10, 30])
def test_the_interval_over_pictures_holds_the_truth_as_often_as_it_says(pictures: int) -> None:
    """Five captions each; pictures differ in how easily they are found."""
    rng = np.random.default_rng(0)
    hits = rng.binomial(5, rng.beta(0.75, 0.75, (500, pictures)))
    intervals = [clustered_share(row.astype(float), np.full(pictures, 5))["interval"] for row in hits]
    assert np.mean([low <= 0.5 <= high for low, high in intervals]) >= 0.93


def test_equal_scores_are_no_success() -> None:
    assert ranks(np.zeros((1, 10), np.float32), np.eye(10, dtype=bool)[:1]).tolist() == [10]


@pytest.mark.parametrize("counts", [[4] * 12, [1] * 11 + [37]])
def test_chance_is_what_random_scores_give(counts: list[int]) -> None:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), counts)
    found = [recalls(rng.normal(size=(48, 12)).astype(np.float32), owner) for _ in range(150)]
    guessed = chance(counts)
    for way, scores in guessed.items():
        for k, value in scores.items():
            assert np.mean([f[way][k]["value"] for f in found]) == pytest.approx(value, abs=0.03)


@pytest.fixture
def dual(tiny: Callable[..., TransformerConfig]) -> DualEncoder:
    torch.manual_seed(0)
    text = TextTower(Transformer(tiny("bert", dropout=0.2)), mean_real)
    image = ImageTransformer(PatchConfig(size=8, patch=4, layers=1, heads=2, width=16))
    return DualEncoder(text, image, Space(16, 16, SpaceConfig(width=8, projection="mlp", hidden=12, dropout=0.2)))


def gradients(model: DualEncoder, batch: RawBatch, at_once: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(retrieve, "AT_ONCE", at_once)
    model.zero_grad()
    torch.manual_seed(3)
    RetrieveRaw().loss(model, batch)[0].backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_a_batch_in_pieces_has_the_gradient_of_the_whole(dual: DualEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a piece that is embedded again drops what it dropped before: with dropout on, the pieces alone decide."""
    ids, mask = pad([[1, 2, 3], [4, 5], [6, 7, 8, 9], [10], [11, 12]])
    batch = RawBatch(ids, mask, torch.randn(5, 3, 8, 8), torch.arange(5))
    whole, pieces = (gradients(dual.eval(), batch, n, monkeypatch) for n in (5, 2))
    for name, gradient in whole.items():
        assert_close(pieces[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
    cached = gradients(dual.train(), batch, 5, monkeypatch)
    monkeypatch.setattr(retrieve, "checkpoint", lambda f, *given, use_reentrant: f(*given))
    plain = gradients(dual, batch, 5, monkeypatch)
    for name, gradient in plain.items():
        assert_close(cached[name], gradient, atol=1e-6, rtol=1e-5, msg=name)


def test_mobilenet_has_the_shapes_of_its_paper_and_keeps_its_counts() -> None:
    model = MobileNet(MOBILENET)
    assert sum(p.numel() for p in model.parameters()) == 2_223_872  # torchvision's, without the classifier
    assert {
        "features.0.0.weight",
        "features.1.conv.0.0.weight",
        "features.18.1.running_var",
    } <= model.state_dict().keys()
    before = model.features[0][1].running_mean.clone()
    assert model.train()(torch.randn(2, 3, 32, 32)).shape == (2, 1280)
    assert torch.equal(model.features[0][1].running_mean, before)


@pytest.mark.parametrize("kind", ["mobilenet-v2", "efficientnet-lite0"])
def test_pixels_with_their_channels_together_give_the_same_faster(kind: Any) -> None:
    torch.manual_seed(0)
    model, pixels = build_encoder(ImageConfig(kind=kind)).train(), torch.randn(2, 3, 64, 64)
    together = []
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(
                lambda _, __, out: together.append(out.is_contiguous(memory_format=torch.channels_last))
            )
    found = model(pixels).detach()
    assert all(together)
    assert_close(found, model.features(pixels).mean((2, 3)).detach(), atol=1e-5 * float(found.abs().max()), rtol=1e-5)


def test_canonical_projections_find_what_pairs_share() -> None:
    """Two towers see the same eight causes, each through noise of its own and mixed its own way."""
    torch.manual_seed(0)
    mixes = torch.randn(8, 40), torch.randn(8, 60)

    def pairs(count: int) -> SeenBatch:
        causes = torch.randn(count, 8)
        texts, images = (causes @ mix + torch.randn(count, mix.size(1)) for mix in mixes)
        return SeenBatch(texts, images, torch.arange(count))

    space = Space(40, 60, SpaceConfig(width=16))
    test, valid = pairs(100), [pairs(50)]
    before = RetrieveSeen().evaluate(space.eval(), [test])
    found = start_canonical(space, pairs(300), valid)
    after = RetrieveSeen().evaluate(space.eval(), [test])
    assert before["recall"] < 0.12
    assert after["recall"] > 0.8
    assert found["recall"] == pytest.approx(RetrieveSeen().evaluate(space, valid)["recall"])
    assert float(space.scale.detach()) == pytest.approx(found["scale"])
