"""Projections without training: regularized canonical correlation.

Of all straight maps of captions and images into one space, those under which pairs agree best (Hotelling, 1936). With
few pairs this is hard to beat, if the covariances are drawn towards round ones far enough (ridges); how far, the
validation images say.

Shapes: N captions, D width of a tower, E width of the shared space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headstart.models.dual import Projection, Space
from headstart.tasks.retrieve import RetrieveSeen, SeenBatch, contrastive_loss

TEXT_RIDGES, IMAGE_RIDGES = (0.3, 1.0, 3.0), (1.0, 3.0, 10.0)  # in mean variances of a direction
SCALES = (3.0, 5.0, 10.0, 20.0, 40.0)
POWER = 0.7  # directions count as their correlation to this power


@torch.no_grad()
def start_canonical(space: Space, pairs: SeenBatch, valid: Sequence[SeenBatch]) -> dict[str, float]:
    """Set the linear projections of `space` from training pairs; ridges and scale are those best on validation pairs."""
    task, sides = RetrieveSeen(), (space.text, space.image)
    vectors = [sides[0].norm(pairs.texts), sides[1].norm(pairs.images)[pairs.owner]]
    means = [each.mean(0) for each in vectors]
    texts, images = (each - mean for each, mean in zip(vectors, means, strict=True))
    roots = [torch.linalg.eigh((each.T @ each / len(each)).double()) for each in (texts, images)]
    crossed = (texts.T @ images / len(texts)).double()
    space.eval()

    def recall(ridges: tuple[float, float]) -> float:
        maps = _maps(roots, crossed, ridges, space.width)
        for side, mean, each, turned in zip(sides, means, (texts, images), maps, strict=True):
            _set(side, turned.float(), mean, each)
        return float(task.evaluate(space, valid)["recall"])

    tried = {(t, i): recall((t, i)) for t in TEXT_RIDGES for i in IMAGE_RIDGES}
    best = max(tried, key=lambda ridges: tried[ridges])
    recall(best)
    found = task.gathered(space, valid)
    losses = {
        s: float(contrastive_loss(found.texts, found.images, found.owner, found.texts.new_tensor(s))) for s in SCALES
    }
    scale = min(losses, key=lambda s: losses[s])
    space.log_scale.fill_(math.log(scale))
    return {"text_ridge": best[0], "image_ridge": best[1], "recall": tried[best], "scale": scale}


def _maps(
    roots: Sequence[tuple[Tensor, Tensor]], crossed: Tensor, ridges: Sequence[float], width: int
) -> tuple[Tensor, Tensor]:
    """Both maps, (D, E) each: whitened as far as the ridge lets them, turned until pairs agree; zeros beyond the rank."""
    white = [v * (e.clamp(min=0) + ridge * e.mean()).rsqrt() @ v.T for (e, v), ridge in zip(roots, ridges, strict=True)]
    u, correlations, v = torch.linalg.svd(white[0] @ crossed @ white[1], full_matrices=False)
    weights = correlations[:width].clamp(min=0) ** POWER
    turned = (white[0] @ u[:, :width] * weights, white[1] @ v[:width].T * weights)
    left, right = (nn.functional.pad(each, (0, width - each.size(1))) for each in turned)
    return left, right


def _set(side: Projection, turned: Tensor, mean: Tensor, centred: Tensor) -> None:
    """Lengths are made about one, so that a learning rate means what it usually does."""
    assert isinstance(side.layers, nn.Linear), "only a straight map can be found so"
    turned = turned / (centred @ turned).norm(dim=1).mean()
    side.layers.weight.copy_(turned.T)
    side.layers.bias.copy_(-mean @ turned)
