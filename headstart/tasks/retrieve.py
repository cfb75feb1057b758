"""Find the image of a caption, and the caption of an image: the contrastive loss, its batches, and recall.

Shapes: N captions, M images, E width of the shared space. `owner` (N,) is the image of each caption; captions of
one image are never wrong answers to each other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headstart.images.captions import Captions
from headstart.images.pixels import pixels_of
from headstart.images.read import read_image
from headstart.models.dual import DualEncoder, Space
from headstart.shapes import PixelsConfig
from headstart.tasks.metrics import Estimate
from headstart.text.batch import Batches, Lazy, Numbers, Rng, each, pad
from headstart.text.tokenizer import Tokenizer, rows_to_read

DEPTHS = (1, 5, 10)  # recall is measured at these
AT_ONCE = 32  # captions or images in one piece of the gradient cache
MEASURED_AT_ONCE = 256  # images, with all their captions
Floats = NDArray[np.float32]


def contrastive_loss(texts: Tensor, images: Tensor, owner: Tensor, scale: Tensor) -> Tensor:
    """Symmetric contrastive loss (InfoNCE), in nats: the mean over both directions.

    From image to caption, the other captions of the same image are masked out: they are not negatives.
    """
    logits = scale * texts @ images.T  # (N, M)
    finding = F.cross_entropy(logits, owner)
    own = logits.gather(1, owner[:, None]).squeeze(1)  # (N,)
    others = logits.T.masked_fill(owner[None] == torch.arange(len(images), device=owner.device)[:, None], -torch.inf)
    rest = others.logsumexp(1)[owner]  # (N,): all captions of other images, as this caption's image sees them
    found = (torch.logaddexp(own, rest) - own).mean()
    return (finding + found) / 2


@dataclass(frozen=True)
class SeenBatch:
    """What frozen towers made of captions and images."""

    texts: Tensor  # (N, D)
    images: Tensor  # (M, D)
    owner: Tensor  # (N,)

    @property
    def tokens(self) -> int:
        return len(self.texts)  # captions, for the rate

    def to(self, device: str) -> SeenBatch:
        return SeenBatch(self.texts.to(device), self.images.to(device), self.owner.to(device))


@dataclass(frozen=True)
class RawBatch:
    """Captions and images themselves, for towers that learn."""

    ids: Tensor  # (N, T)
    mask: Tensor  # (N, T)
    images: Tensor  # pixels: (M, 3, S, S)
    owner: Tensor  # (N,)

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())

    def to(self, device: str) -> RawBatch:
        return RawBatch(*(each.to(device) for each in (self.ids, self.mask, self.images, self.owner)))


M = TypeVar("M", Space, DualEncoder)
B = TypeVar("B", SeenBatch, RawBatch)


class Recalls(TypedDict):
    """Recall at each depth, `recall@1` and so on, in each direction."""

    text_to_image: dict[str, Estimate]
    image_to_text: dict[str, Estimate]


class Chance(TypedDict):
    """What guessing would score."""

    text_to_image: dict[str, float]
    image_to_text: dict[str, float]


class MatchScores(Recalls):
    images: int
    captions: int
    chance: Chance


class RetrievalScores(TypedDict):
    loss: float
    recall: float  # the mean over both directions and all depths
    captions: int


class Retrieve(ABC, Generic[M, B]):
    @abstractmethod
    def embedded(self, model: M, batch: B) -> tuple[Tensor, Tensor]:
        """Captions (N, E) and images (M, E) of a batch in the shared space."""

    def loss(self, model: M, batch: B) -> tuple[Tensor, float]:
        captions = len(batch.owner)
        return contrastive_loss(*self.embedded(model, batch), batch.owner, model.scale) * captions, captions

    def evaluate(self, model: M, batches: Iterable[B]) -> RetrievalScores:
        found = self.gathered(model, batches)
        loss = contrastive_loss(found.texts, found.images, found.owner, model.scale.detach())
        recalls = found.recalls()
        ways = (recalls["text_to_image"], recalls["image_to_text"])
        values = [score["value"] for way in ways for score in way.values()]
        return {"loss": float(loss), "recall": float(np.mean(values)), "captions": len(found.texts)}

    def rank(self, scores: Mapping[str, Any]) -> tuple[float, ...]:
        return (scores["recall"], -scores["loss"])

    @torch.no_grad()
    def gathered(self, model: M, batches: Iterable[B]) -> Embedded:
        """All batches as if they were one: each image is wrong for the captions of all others."""
        parts, before = [], 0
        for texts, images, owner in each(lambda batch: (*self.embedded(model, batch), batch.owner), batches):
            parts.append((texts, images, owner + before))
            before += len(images)
        return Embedded(*(torch.cat(each) for each in zip(*parts, strict=True)))


class RetrieveSeen(Retrieve[Space, SeenBatch]):
    """Learns the projections alone."""

    def embedded(self, model: Space, batch: SeenBatch) -> tuple[Tensor, Tensor]:
        return model.text(batch.texts), model.image(batch.images)


class RetrieveRaw(Retrieve[DualEncoder, RawBatch]):
    """Learns the towers too.

    A batch has as many wrong answers as it is large, and seldom fits into memory with all that its gradient needs. So
    a piece at a time is embedded without that, and once more when its gradient is due (GradCache, Gao et al., 2021).
    """

    def embedded(self, model: DualEncoder, batch: RawBatch) -> tuple[Tensor, Tensor]:
        def embed_images(pixels: Tensor) -> Tensor:
            return model.embed_seen(model.see(pixels))

        pieces = zip(batch.ids.split(AT_ONCE), batch.mask.split(AT_ONCE), strict=True)
        texts = [checkpoint(model.embed_texts, *piece, use_reentrant=False) for piece in pieces]
        images = [checkpoint(embed_images, piece, use_reentrant=False) for piece in batch.images.split(AT_ONCE)]
        return torch.cat(texts), torch.cat(images)


class Pairs(ABC, Generic[B]):
    """Captions and images that batches are made of."""

    @abstractmethod
    def batch(self, files: Sequence[str], texts: Sequence[str], owner: Sequence[int]) -> B:
        """These images and captions; `owner` is the image of each caption."""

    def batches(self, part: Captions, batch_size: int, seed: int) -> ImageBatches[B]:
        return ImageBatches(part, batch_size, self.batch, seed)

    def measured(self, part: Captions) -> Sequence[B]:
        """Every image once, with all its captions."""
        parts = [list(part)[i : i + MEASURED_AT_ONCE] for i in range(0, len(part), MEASURED_AT_ONCE)]
        return Lazy(len(parts), lambda i: self.whole({file: part[file] for file in parts[i]}))

    def whole(self, part: Captions) -> B:
        """All of it in one batch."""
        texts = [(n, text) for n, file in enumerate(part) for text in part[file]]
        return self.batch(list(part), [text for _, text in texts], [n for n, _ in texts])


class SeenPairs(Pairs[SeenBatch]):
    """What frozen towers made of all captions and images."""

    def __init__(self, texts: Sequence[str], text_vectors: Tensor, files: Sequence[str], image_vectors: Tensor) -> None:
        self.text_vectors, self.image_vectors = text_vectors, image_vectors
        self.texts, self.files = ({name: i for i, name in enumerate(names)} for names in (texts, files))

    def batch(self, files: Sequence[str], texts: Sequence[str], owner: Sequence[int]) -> SeenBatch:
        captions, images = [self.texts[text] for text in texts], [self.files[file] for file in files]
        return SeenBatch(self.text_vectors[captions], self.image_vectors[images], torch.tensor(owner))


class RawPairs(Pairs[RawBatch]):
    """Captions as tokens, and images that are read from their files whenever they are needed."""

    def __init__(self, tokenizer: Tokenizer, causal: bool, context: int, folder: Path, pixels: PixelsConfig) -> None:
        self.tokenizer, self.causal, self.context, self.folder, self.pixels = tokenizer, causal, context, folder, pixels

    def batch(self, files: Sequence[str], texts: Sequence[str], owner: Sequence[int]) -> RawBatch:
        rows, _ = rows_to_read(texts, self.tokenizer, self.causal, self.context)
        ids, mask = pad([rows[i] for i in range(len(rows))], self.tokenizer.pad)
        images = [torch.from_numpy(pixels_of(read_image(self.folder / file), self.pixels)) for file in files]
        return RawBatch(ids, mask, torch.stack(images), torch.tensor(owner))


class ImageBatches(Batches[B]):
    """Images in a new order every epoch, in batches of nearly equal size, each with one of its captions."""

    made_of = "images"

    def __init__(
        self,
        part: Captions,
        batch_size: int,
        batch: Callable[[Sequence[str], Sequence[str], Sequence[int]], B],
        seed: int,
    ) -> None:
        super().__init__(seed)
        self.files, self.captions = list(part), list(part.values())
        self._batch: Callable[[Sequence[str], Sequence[str], Sequence[int]], B] = batch
        self.per_epoch = max(1, len(part) // batch_size)  # a short batch would have few in-batch negatives

    def plan(self, rng: Rng) -> Sequence[Numbers]:
        return np.array_split(rng.permutation(len(self.files)), self.per_epoch)

    def collate(self, part: Numbers, rng: Rng) -> B:
        texts = [self.captions[i][rng.integers(len(self.captions[i]))] for i in part.tolist()]
        return self._batch([self.files[i] for i in part.tolist()], texts, range(len(texts)))


class Retrieved(TypedDict):
    """A line of predictions.jsonl"""

    caption: str
    file: str
    rank: int  # of its own image, 1 = first
    best: str


@dataclass(frozen=True)
class Embedded:
    """Captions and images in the shared space."""

    texts: Tensor  # (N, E)
    images: Tensor  # (M, E)
    owner: Tensor  # (N,)

    @property
    def scores(self) -> Floats:
        """The cosine of every caption with every image, (N, M)."""
        return (self.texts @ self.images.T).cpu().numpy()

    @property
    def counts(self) -> list[int]:
        """The captions of each image."""
        return torch.bincount(self.owner, minlength=len(self.images)).tolist()

    def recalls(self) -> Recalls:
        return recalls(self.scores, self.owner.cpu().numpy())

    def match_scores(self) -> MatchScores:
        """Recall both ways, and what chance would score."""
        counts = {"images": len(self.images), "captions": len(self.texts)}
        return {**counts, **self.recalls(), "chance": chance(self.counts)}  # type: ignore[typeddict-item]

    def retrieved(self, part: Captions) -> list[Retrieved]:
        """What is found for each caption of `part`, which these are the vectors of."""
        files, owner, scores = list(part), self.owner.cpu().numpy(), self.scores
        texts = [text for texts in part.values() for text in texts]
        places = ranks(scores, owner[:, None] == range(len(files)))
        return [
            {"caption": text, "file": files[own], "rank": int(place), "best": files[int(row.argmax())]}
            for text, own, place, row in zip(texts, owner, places, scores, strict=True)
        ]


def ranks(scores: Floats, right: NDArray[np.bool_]) -> Numbers:
    """The place of the best right answer in each row, 1 = first; of equal scores the right one comes last.

    >>> ranks(np.array([[0.1, 0.9, 0.5]]), np.array([[True, False, True]])).tolist()
    [2]
    """
    best = np.where(right, scores, -np.inf).max(1, keepdims=True)
    return 1 + ((scores >= best) & ~right).sum(1)


def recalls(scores: Floats, owner: Numbers) -> Recalls:
    """How often the right answer is among the first k, from captions to images and back, each with its interval.

    `scores` are (N, M). Captions of one image are not independent, so the interval of the first way is over images.
    """
    right = owner[:, None] == np.arange(scores.shape[1])
    counts = right.sum(0)
    forth, back = ranks(scores, right), ranks(scores.T[counts > 0], right.T[counts > 0])

    def text_to_image(k: int) -> Estimate:
        hits = np.bincount(owner, weights=forth <= k, minlength=len(counts))
        return clustered_share(hits[counts > 0], counts[counts > 0])

    def image_to_text(k: int) -> Estimate:
        return clustered_share(back <= k, np.ones(len(back)))

    return {
        "text_to_image": {f"recall@{k}": text_to_image(k) for k in DEPTHS},
        "image_to_text": {f"recall@{k}": image_to_text(k) for k in DEPTHS},
    }


def clustered_share(hits: NDArray[Any], of: NDArray[Any]) -> Estimate:
    """The share of hits over clusters of rows, with Wilson's interval for as many independent rows as they amount to.

    >>> clustered_share(np.array([3.0, 3.0, 0.0, 0.0]), np.array([3, 3, 3, 3]))["value"]
    0.5
    >>> [round(x, 2) for x in clustered_share(np.array([2.0, 2.0, 2.0]), np.array([2, 2, 2]))["interval"]]
    [0.44, 1.0]
    """
    from scipy.special import stdtrit  # loads slowly, and a search needs none of it

    share, clusters = float(hits.sum() / of.sum()), len(of)
    effective, z = float(clusters), 1.959964  # rows that stand alone, and where nothing varies
    if clusters > 1 and of.max() > 1 and 0 < share < 1:
        variance = float(np.var(hits - share * of, ddof=1)) / clusters / float(of.mean()) ** 2
        effective = min(float(of.sum()), share * (1 - share) / variance) if variance else float(of.sum())
        z = float(stdtrit(clusters - 1, 0.975))  # of a few clusters, the variance is itself uncertain
    middle = (share + z * z / (2 * effective)) / (1 + z * z / effective)
    half = z * (share * (1 - share) / effective + (z / (2 * effective)) ** 2) ** 0.5 / (1 + z * z / effective)
    return {"value": share, "interval": [max(0.0, middle - half), min(1.0, middle + half)]}


def chance(counts: Sequence[int]) -> Chance:
    """What guessing would score; `counts` are the captions of each image.

    >>> chance([5] * 100)["text_to_image"]["recall@5"]
    0.05
    >>> chance([3, 1])["image_to_text"]["recall@1"]
    0.5
    """
    images, captions = len(counts), sum(counts)

    def found(own: int, k: int) -> float:
        """How often one of `own` captions is among the first k."""
        k = min(k, captions)
        return 1 - math.comb(captions - own, k) / math.comb(captions, k)

    return {
        "text_to_image": {f"recall@{k}": min(1.0, k / images) for k in DEPTHS},
        "image_to_text": {f"recall@{k}": mean(found(own, k) for own in counts if own) for k in DEPTHS},
    }
