"""The two jobs as scikit-learn estimators: LanguageModel().fit(texts), then TextClassifier(base=that).fit(X, y)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from headstart.bases.at_hand import bases_at_hand
from headstart.bases.routes import ROUTES
from headstart.bases.selection import MINUTES, Prompting, try_routes
from headstart.config import FinetuneConfig
from headstart.errors import ConfigError, DataError, Stopped, UserError, shortened
from headstart.jobs.job import run_job
from headstart.jobs.recipe import pretraining
from headstart.models.decode import Sampling
from headstart.prompts import AUTO
from headstart.quantities import counted
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import merge, parse
from headstart.shapes import PRESETS
from headstart.task import Task
from headstart.text.classes import not_classes
from headstart.text.inputs import named_parts, parts, text_of
from headstart.text.read import Example
from headstart.text.split import SELECTED_FROM
from headstart.use import language, predict


class LanguageModel(BaseEstimator):  # type: ignore[misc]
    """A language model from texts. `settings` are those of config.toml, such as {"model": {"size": "nano"}}.

    With objective="auto" the recipe is chosen for the texts; `minutes` trains for as many steps as fit into them here.
    """

    def __init__(
        self,
        base: str | None = None,
        objective: str = "causal",
        steps: int | None = None,  # 2,000, unless minutes or the recipe decide
        batch_size: int = 32,
        unit: str = "document",
        seed: int = 0,
        settings: dict[str, Any] | None = None,
        minutes: float | None = None,
    ) -> None:
        self.base, self.objective, self.steps, self.batch_size = base, objective, steps, batch_size
        self.unit, self.seed, self.settings, self.minutes = unit, seed, settings, minutes

    def fit(self, texts: Sequence[str], y: object = None) -> Self:
        folder = RunFolder()
        given: dict[str, Any] = {
            "base": self.base,
            "objective": self.objective,
            "samples": [],
            "data": {"paths": [folder.rows(texts)], "unit": self.unit},
            "train": {"batch_size": self.batch_size, "seed": self.seed, "tensorboard": False},
        }
        if self.steps is not None:
            given["train"]["steps"] = self.steps
        if self.steps is not None and self.minutes is not None:
            raise UserError("steps and minutes both set the length of the run. Give one of them.")
        with nothing_kept():
            run_job(pretraining(merge(given, self.settings or {}), self.minutes), folder.run, curves=False)
        self.folder_, self.model_ = folder, language.LoadedLanguageModel.load(folder.run)
        return self

    @classmethod
    def load(cls, run: str | Path) -> Self:
        """The language model of a run, or one that `save` wrote."""
        model = cls()
        model.folder_, model.model_ = RunFolder(Path(run)), language.LoadedLanguageModel.load(run)
        return model

    def save(self, folder: str | Path) -> None:
        """The run directory, which the command line takes too."""
        check_is_fitted(self, "model_")
        self.folder_.copy(folder)

    def generate(self, prompt: str, tokens: int = 40, how: Sampling | None = None, top: int = 0) -> language.Generated:
        """Text after `prompt`, with the probability of each new token and the `top` most probable in its place."""
        check_is_fitted(self, "model_")
        return self.model_.generate(prompt, tokens, how or Sampling(), top)

    def evaluate(self, *given: Any, **named: Any) -> language.LanguageEvaluation:
        """Loss on the text of files; see headstart evaluate."""
        check_is_fitted(self, "model_")
        return self.model_.evaluate(*given, **named)


@dataclass(frozen=True)
class Choice:
    """What base="auto" was taken for, and why."""

    base: str
    route: str  # zero-shot, frozen or prompt:frozen, which was best in cross-validation
    train: str  # what is trained then
    prompt: str | None
    score: str  # accuracy, or macro_f1 of imbalanced classes
    scores: dict[str, float]  # of every base and route, cross-validated on the rows


class OnBase(BaseEstimator):  # type: ignore[misc]
    """What estimators on a base share: fitting a run in a folder of their own, saving it, and cloning."""

    def __sklearn_clone__(self) -> Self:
        """A copy that is not fitted, on the same base: what that has learned is a parameter of this."""
        return type(self)(**self.get_params(deep=False))

    def _train(self, folder: RunFolder, rows: str, count: int, task: Task, own: dict[str, Any]) -> None:
        """Fine-tune on `count` rows of a file; `own` are settings that not all estimators have, or that they chose."""
        base = str(self.base.folder_.run) if isinstance(self.base, LanguageModel) else self.base
        few = count if count < SELECTED_FROM else 0
        given: dict[str, Any] = {
            "base": base,
            "scope": self.train,
            "epochs": self.epochs,
            "pool": self.pool,
            "check": False,
            "predictions": "none",
            "data": {"train": rows, "test_fraction": 0.0, "labels": few, "task": task},
            "train": {"lr": self.lr, "batch_size": self.batch_size, "seed": self.seed, "tensorboard": False},
            **own,
        }
        given["init"] = "scratch" if given["base"] in PRESETS else "pretrained"
        with nothing_kept():
            run_job(parse(FinetuneConfig, merge(given, self.settings or {})), folder.run, curves=False)

    def save(self, folder: str | Path) -> None:
        """The run directory, which the command line takes too."""
        check_is_fitted(self, "model_")
        self.folder_.copy(folder)


class TextClassifier(ClassifierMixin, OnBase):  # type: ignore[misc]
    """A classifier from texts and labels, on a base: a LanguageModel, a run, minilm, a folder, hf:NAME, or a preset.

    With base="auto" the best base at hand (packs in the cache, runs below runs/) is chosen by cross-validation on the rows, and whether it
    is prompted; with fewer than 200 rows a base that is not prompted stays frozen. `chosen_` has the choice and the scores.
    """

    def __init__(
        self,
        base: LanguageModel | str = "gpt",
        train: str = "full",
        epochs: int = 10,
        lr: float = 0.0,
        batch_size: int = 16,
        pool: str | None = None,
        class_weights: bool = False,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
        prompt: str | None = None,  # a template with {text}, or auto
        label_words: dict[str, str] | None = None,
    ) -> None:
        self.base, self.train, self.epochs, self.lr, self.batch_size = base, train, epochs, lr, batch_size
        self.pool, self.class_weights, self.seed, self.settings = pool, class_weights, seed, settings
        self.prompt, self.label_words = prompt, label_words

    def fit(self, X: Sequence[str], y: Sequence[Any]) -> Self:
        """Learn from rows; a fifth of them, from 200 on, picks the best epoch."""
        for i, label in enumerate(y):
            if label is None or label != label:  # NaN is not itself
                raise DataError(f"y[{i}] is {label}: every row needs a label.", "DATA_LABEL")
        labels = np.asarray(y).tolist()  # one kind for all: the names in the rows and here have to be the same
        names = {str(label): label for label in labels}
        if why := not_classes(Counter(map(str, labels))):
            raise DataError(f"y: {why}", "DATA_LABEL")
        folder = RunFolder()
        rows = folder.rows(X, labels)
        own: dict[str, Any] = {"prompt": self.prompt, "class_weights": self.class_weights}
        if self.base == AUTO:
            self.chosen_ = self._choose([Example(text, str(label)) for text, label in zip(X, labels, strict=True)])
            own |= {"base": self.chosen_.base, "scope": self.chosen_.train, "prompt": self.chosen_.prompt}
        own["label_words"] = self._words if own["prompt"] or self.base != AUTO else {}
        self._train(folder, rows, len(X), "classify", own)
        self._use(folder, names)
        return self

    @classmethod
    def load(cls, run: str | Path) -> Self:
        """The classifier of a run, or one that `save` wrote; its labels are texts."""
        model = cls()
        folder = RunFolder(Path(run))
        model._use(folder, {label: label for label in predict.LoadedClassifier.load(run).labels})
        return model

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:
        """One row a text, one column a label, in the order of `classes_`."""
        check_is_fitted(self, "model_")
        rows = np.array(self.model_.probabilities(checked(X))).reshape(-1, len(self.classes_))
        return rows[:, self._columns]

    def predict(self, X: Sequence[str]) -> NDArray[Any]:
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    @property
    def _words(self) -> dict[str, str]:
        return {str(label): word for label, word in (self.label_words or {}).items()}

    def _choose(self, rows: Sequence[Example]) -> Choice:
        """The best base at hand and how to train it; with a prompt of one's own, the best that can be prompted."""
        templates = (self.prompt,) if self.prompt and self.prompt != AUTO else ()
        asked = Prompting(templates, self._words)
        routes = tuple(route for route in ROUTES if route.asks) if self.prompt else ROUTES
        found = try_routes(rows, bases_at_hand(), asked, MINUTES, Watch(), routes=routes, must_open=False)
        if not found.tried:
            raise ConfigError(f"base='auto': no base at hand can be used. {' '.join(found.skipped)}")
        best = found.best
        prompted = best.route != "frozen"
        frozen = not prompted and len(rows) < SELECTED_FROM  # nothing is held out that could stop a tuning in time
        return Choice(
            base=str(best.base),
            route=best.route,
            train="head" if frozen else self.train,
            prompt=(self.prompt or AUTO) if prompted else None,
            score=found.score,
            scores={f"{tried.base} {tried.route}": found.score_of(tried) for tried in found.tried},
        )

    def _use(self, folder: RunFolder, names: dict[str, Any]) -> None:
        self.folder_, self.model_ = folder, predict.LoadedClassifier.load(folder.run)
        order = [
            names.get(label, label) for label in self.model_.labels
        ]  # a classifier as base brings labels of its own
        if len({isinstance(label, str) for label in order}) > 1:
            order = list(map(str, order))
        self.classes_ = np.array(sorted(order))
        self._columns = [order.index(label) for label in self.classes_.tolist()]


def checked(texts: Sequence[Any]) -> list[str]:
    """The texts, if that is what they are: a table with gaps has NaN or None where there is none. Rows of two are pairs."""
    if isinstance(texts, str):
        raise DataError("X is one text, not several. Give a list: [text].", "DATA_TEXT")
    if len(texts) and all(isinstance(row, list | tuple | np.ndarray) and len(row) == 2 for row in texts):
        firsts, seconds = (checked([row[side] for row in texts]) for side in (0, 1))
        return list(map(text_of, zip(firsts, seconds, strict=True)))
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"X[{i}] is {shortened(text)}, not a text. Fill the gap, or leave the row out.", "DATA_TEXT"
            )
    return [text if len(parts(text)) > 1 else str(text) for text in texts]


@contextmanager
def nothing_kept() -> Iterator[None]:
    try:
        yield
    except Stopped as stop:  # the folder goes with the object
        raise stop.but("nothing of it is kept. fit begins anew.") from None


class RunFolder:
    """Where a fitted model lives: a run that is there, or a folder that goes with the object."""

    def __init__(self, run: Path | None = None) -> None:
        self.own = Path(tempfile.mkdtemp(prefix="headstart-")) if run is None else None
        if self.own:
            weakref.finalize(self, shutil.rmtree, self.own, ignore_errors=True)
        self.run = self.own / "run" if self.own else Path(str(run))

    def rows(self, texts: Sequence[str], labels: Sequence[Any] | None = None) -> str:
        """A file with the texts; what is not text is refused, as is a length that differs."""
        assert self.own is not None, "rows are written into a folder of one's own"
        texts = checked(texts)
        if labels is not None and len(texts) != len(labels):
            raise UserError(
                f"{counted(len(texts), 'text')} and {counted(len(labels), 'label')}: there must be one label for each text."
            )
        file = self.own / "rows.jsonl"
        records = list(map(named_parts, texts))
        for record, label in zip(records, labels if labels is not None else (), strict=labels is not None):
            record["label"] = str(label)
        file.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return str(file)

    def copy(self, folder: str | Path) -> None:
        if os.path.exists(folder):
            raise UserError(f"{folder} already exists.", "RUN_EXISTS")
        shutil.copytree(Run.open(self.run).path, folder)
