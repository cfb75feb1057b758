"""Cheap ways to predict labels with a base that is not tuned, each cross-validated on the same rows.

A route is one function: it gives the outputs of some rows from a base's features and the labels of the other rows. What a
base makes of the texts is computed once for each mode of reading (plain, prompted, words) and shared by the routes.

Shapes: N rows, C classes, K outputs, D width, R repeats of the cross-validation.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headstart.bases.linear_probe import Probe, best_probe, fit_probes, install, probing_seconds
from headstart.bases.verbalizer import prompted_probe, start_from_words
from headstart.models.heads import POOLS, ClassHead, LanguageHead, Model, head_transform, last_real
from headstart.models.huggingface import KINDS
from headstart.prompts import Prompt
from headstart.runs.model_dir import HeadSpec, Saved, new_head
from headstart.shapes import HuggingFaceConfig, Pool, pools_to_try
from headstart.targets.classes import Classes
from headstart.targets.target import Encoded, Outputs, Target
from headstart.task import Task
from headstart.tasks.classify import EVALUATED_AT_ONCE, pooled_by, rows_of
from headstart.tasks.zero_shot import calibrated, word_scores
from headstart.text.prompted import prompt_tokens, word_tokens
from headstart.text.read import Example
from headstart.text.split import Labelled

FOLDS = 5
FEW = 100  # rows: with fewer, the cross-validation is repeated with other folds
REPEATS = 2

Mode = Literal["plain", "prompted", "words"]
NONE: tuple[Tensor, NDArray[np.int64]] = (
    torch.empty(0),
    np.zeros(0, dtype=np.int64),
)  # validation rows: C is chosen by cross-validation


@dataclass(frozen=True)
class Fold:
    """Rows to learn from and rows to predict, by their numbers."""

    rows: Sequence[Example]
    target: Target
    targets: Encoded  # of all rows
    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @cached_property
    def data(self) -> Labelled:
        """The same as a study's baselines take it."""
        train, test = ([self.rows[i] for i in part] for part in (self.train, self.test))
        return Labelled(train, [], test, list(self.target.names), kind=self.target)

    @property
    def fitted(self) -> Encoded:
        """The encoded labels of the rows to learn from."""
        return np.asarray(self.targets[self.train])


class BaseFeatures:
    """What a base makes of texts, in each mode of reading: computed when first asked for, with the seconds it took."""

    def __init__(
        self,
        saved: Saved,
        texts: Sequence[str],
        labels: Sequence[str],
        prompts: Sequence[Prompt],
        task: Task = "classify",
    ) -> None:
        self.saved, self.texts, self.labels, self.prompts, self.task = saved, texts, labels, prompts, task
        self.seconds: dict[Mode, float] = {}
        self.probes: dict[bytes, Probe] = {}  # by the rows they were fitted to

    def read(self, modes: Sequence[Mode]) -> float:
        """Read the texts in these modes; the seconds that they took, now or before."""
        for mode in modes:
            if mode not in self.seconds:
                began = time.perf_counter()
                getattr(self, mode)
                self.seconds[mode] = time.perf_counter() - began
        return sum(self.seconds[mode] for mode in modes)

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        return pools_to_try(self.saved.config)

    @cached_property
    def plain(self) -> dict[Pool, Tensor]:
        """The texts under each pooling, (N, D)."""
        rows, _, _ = rows_of(self.texts, self.saved.tokenizer, self.saved.model.base, "truncate")
        found = pooled_by([POOLS[pool] for pool in self.pools], self.saved.model, rows, self.saved.tokenizer.pad)
        return dict(zip(self.pools, found, strict=True))

    def probe(self, fold: Fold) -> Probe:
        """The best linear probe on the rows to learn from; fitted once for each fold."""
        key = fold.train.tobytes()
        if key not in self.probes:
            self.probes[key] = best_probe(
                fit_probes(self.new_head, self.pools, lambda pool: ((self.plain[pool][fold.train], fold.fitted), NONE))
            )
        return self.probes[key]

    @cached_property
    def prompted(self) -> Tensor:
        """The texts in the first prompt, at the place of the label word, (N, D)."""
        base, tokenizer = self.saved.model.base, self.saved.tokenizer
        rows, _, _ = rows_of(self.texts, tokenizer, base, "truncate", self.prompts[0])
        return pooled_by([self.word_head.pool], Model(base, self.word_head), rows, tokenizer.pad)[0]

    @cached_property
    def words(self) -> Tensor:
        """Calibrated log-probabilities of the label words, (N, C); the mean over the prompts."""
        found = [self._words(prompt, first=i == 0).log_softmax(1) for i, prompt in enumerate(self.prompts)]
        return torch.stack([calibrated(scores, scores) for scores in found]).mean(0)

    def _words(self, prompt: Prompt, first: bool) -> Tensor:
        tokens = word_tokens(prompt, self.saved.tokenizer)
        if not first or max(map(len, tokens)) > 1:
            return word_scores(self.saved.model, self.saved.tokenizer, self.texts, prompt)
        head, places = self.saved.model.head, [word[0] for word in tokens]
        assert isinstance(head, LanguageHead)
        with torch.inference_mode():  # the prompted state is what the language head reads
            parts = self.prompted.split(EVALUATED_AT_ONCE)
            return torch.cat([F.linear(part, head.weight, head.bias).log_softmax(-1)[:, places] for part in parts])

    @cached_property
    def word_head(self) -> ClassHead:
        """A class head that starts from the label words of the first prompt."""
        saved, prompt = self.saved, self.prompts[0]
        pool = partial(last_real, tail=prompt_tokens(prompt, saved.tokenizer, saved.model.base.causal).tail)
        transform = head_transform(saved.config) if saved.config.head_transform else None
        head = ClassHead(saved.config.width, len(self.labels), pool, transform=transform)
        start_from_words(Model(saved.model.base, head), saved.model, prompt, saved.tokenizer)
        return head

    @cached_property
    def new_head(self) -> ClassHead:
        """A head as fine-tuning makes it for this base."""
        cfg = self.saved.config
        bias = self.task != "classify" or not isinstance(cfg, HuggingFaceConfig) or KINDS[cfg.model_type].class_bias
        return new_head(cfg, HeadSpec("classify", tuple(self.labels), pool=self.pools[0], task=self.task), bias)


def frozen(features: BaseFeatures, fold: Fold) -> Outputs:
    """A linear probe on the frozen base; its pooling and C are chosen on the rows to learn from."""
    probe = features.probe(fold)
    return _outputs(features.new_head, probe, features.plain[probe.pool][fold.test])


def prompted(features: BaseFeatures, fold: Fold) -> Outputs:
    """A linear probe on the prompted text, beside the scores of the label words."""
    probe = prompted_probe(features.word_head, (features.prompted[fold.train], fold.fitted), NONE)
    return np.asarray(features.prompted[fold.test].numpy() @ probe.weight.T + probe.bias)


def zero_shot(features: BaseFeatures, fold: Fold) -> Outputs:
    """How much the language head expects each label word."""
    return features.words[fold.test].double().numpy()


@torch.inference_mode()
def _outputs(head: ClassHead, probe: Probe, states: Tensor) -> Outputs:
    install(head, probe)
    return head.eval().outputs(states).double().numpy()


@dataclass(frozen=True)
class Route:
    """A way to classify with a base, under the name of the arm of a study that does the same."""

    name: str
    predict: Callable[[BaseFeatures, Fold], Outputs]
    reads: tuple[Mode, ...]
    fitted: bool = True  # False: it uses no label
    effort: float = 1.0  # time of its regressions, in those of a linear probe

    @property
    def asks(self) -> bool:
        """Whether it asks a language head for label words."""
        return self.reads != ("plain",)

    def fitting_seconds(self, features: BaseFeatures, rows: int, folds: int, repeats: int) -> float:
        """Approximate time of its regressions."""
        if not self.fitted:
            return 0.0
        width, classes, pools = (
            features.saved.config.width,
            len(features.labels),
            1 if self.asks else len(features.pools),
        )
        return self.effort * pools * folds * repeats * probing_seconds(rows - rows // folds, 0, width, classes)


ROUTES = (
    Route("zero-shot", zero_shot, ("prompted", "words"), fitted=False),
    Route("frozen", frozen, ("plain",)),
    Route("prompt:frozen", prompted, ("prompted",)),
)


@dataclass(frozen=True)
class Rows:
    """Labelled rows and how they are cross-validated."""

    examples: Sequence[Example]
    labels: Sequence[str]  # the names of the outputs
    kind: Target | None = None  # None: one class

    @property
    def target(self) -> Target:
        return self.kind or Classes(tuple(self.labels))

    @cached_property
    def targets(self) -> Encoded:
        return self.target.encode([e.label for e in self.examples])

    @property
    def folds(self) -> int:
        fewest = np.bincount(self.targets).min() if isinstance(self.target, Classes) else len(self.examples) // 2
        return min(FOLDS, int(fewest))

    @property
    def repeats(self) -> int:
        return REPEATS if len(self.examples) < FEW else 1

    def cross_validated(self, predict: Callable[[Fold], Outputs], fitted: bool = True) -> Encoded:
        """What is predicted for each row from the labels of others, (R, N) or (R, N, L); in one pass where no label is used.

        Thresholds of several labels are fitted to all rows, a little too well, but alike for all that are ranked.
        """
        every = np.arange(len(self.examples))
        if not fitted:
            return self._decided(predict(Fold(self.examples, self.target, self.targets, every[:0], every)))[None]
        outputs = np.empty((self.repeats, len(every), len(self.labels)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of slow convergence: this only ranks
            for repeat, fold in self._folds():
                outputs[repeat, fold.test] = predict(fold)
        return np.stack([self._decided(each) for each in outputs])

    def _decided(self, outputs: Outputs) -> Encoded:
        return self.target.fitted(self.targets, outputs).answers(outputs)

    def _folds(self) -> Iterator[tuple[int, Fold]]:
        from sklearn.model_selection import KFold, StratifiedKFold

        kind = StratifiedKFold if isinstance(self.target, Classes) else KFold
        for repeat in range(self.repeats):
            halves = kind(self.folds, shuffle=True, random_state=repeat)
            for train, test in halves.split(self.targets, self.targets):
                yield repeat, Fold(self.examples, self.target, self.targets, train, test)
