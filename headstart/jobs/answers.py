"""What each job adds to data.json (facts) and to result.json (scores)."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from headstart.images.captions import CaptionFacts
from headstart.jobs.probability_calibration import CalibrationAnswer
from headstart.tasks.distill import DistillScores
from headstart.tasks.metrics import LanguageScores
from headstart.tasks.retrieve import MatchScores
from headstart.tasks.translation_scores import Failures, PairScores
from headstart.text.pairs import PairFacts
from headstart.text.split import LabelledFacts

Parts = dict[str, int]  # by part: train, valid, test


class PretrainFacts(TypedDict):
    unit: str
    counted_vectors: bool  # whether the embeddings start from co-occurrence counts
    known_tokens: int  # that have an external word vector
    reading: dict[str, int]
    rows: Parts
    tokens: Parts
    unknown: Parts
    tokenizer_sha256: str
    tokenizer_sample: NotRequired[int]  # characters that it was trained on, where not on all
    vocabulary: int


class PretrainAnswer(TypedDict):
    train: dict[str, float]  # final training loss, and the entropy of the text
    curve: list[dict[str, float]]
    valid: LanguageScores | DistillScores | None
    beside: dict[str, float]  # bits per byte of the untrained model and of xz
    fresh: list[str]


class FinetuneFacts(LabelledFacts):
    truncated: Parts
    tokenizer_sha256: str


class FinetuneAnswer(TypedDict):
    task: NotRequired[str]  # other than classify
    valid: Any  # the best evaluation
    test: dict[str, Any] | None  # under their usual names; without_overlap: of rows that are not training rows
    commonest: dict[str, str | float]  # what the majority class scores
    overlapping_test_rows: int | None
    calibration: CalibrationAnswer


class TranslateFacts(PairFacts):
    left_out: Parts
    unknown: Parts
    tokens: Parts
    vocabulary: dict[str, int]
    tokenizer_sha256: str


class TestPairScores(PairScores):
    fails: Failures


class TranslateAnswer(TypedDict):
    kind: str
    hidden: int
    overlapping: dict[str, int]
    valid: Any  # the best evaluation and PairScores
    test: TestPairScores | None
    samples: dict[str, str]


class MatchFacts(CaptionFacts):
    pictures_sha256: str
    folder: str
    blank_rows: int
    bad_images: dict[str, str]
    reading: dict[str, int]
    tokenizer_sha256: str


class MatchAnswer(TypedDict):
    text: str
    image: str
    start: dict[str, float] | None
    valid: Any  # the best evaluation and MatchScores
    test: MatchScores | None
    bad_images: int
