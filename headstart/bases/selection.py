"""Model selection: every base and every cheap route, cross-validated on one sample of rows within a time limit.

All pairs of base and route see the same rows, so that they can be compared in pairs, and learn from equally many labels. A
first batch is timed for each base. If the whole would take too long, the sample shrinks; where it would become too small, the
slowest base is skipped. Both are reported.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headstart.bases.at_hand import knows_words, must_have_weights
from headstart.bases.pretrained import open_base
from headstart.bases.routes import FOLDS, ROUTES, BaseFeatures, Fold, Route, Rows
from headstart.errors import ConfigError, DataError, UserError, first_line
from headstart.prompts import Prompt, prompts_for
from headstart.quantities import counted, duration
from headstart.runs.checkpoint import weight_bytes
from headstart.runs.model_dir import Saved
from headstart.runs.watch import Watch
from headstart.targets.classes import Classes
from headstart.targets.target import Encoded, Outputs, Target
from headstart.task import Task
from headstart.text.digests import digest
from headstart.text.duplicates import normal
from headstart.text.read import Example

MINUTES = 5.0  # time limit, where none is given
MOST_ROWS = 1000  # that are ranked on
FEWEST_ROWS = 100  # with fewer, hardly any difference is significant: a base is skipped instead
MOST_TOKENS = 192  # of a text that a base reads here
TIMED = 16  # texts of the batch that is timed
SHARE = 0.8  # of the time that is left, to plan for: estimates are rough


@dataclass(frozen=True)
class Prompting:
    """How a language head is asked: templates and words as given; those of the labels' family for the rest."""

    templates: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    def prompts(self, labels: Sequence[str], causal: bool) -> tuple[Prompt, ...]:
        """All templates that were given; otherwise the first of the family, as every other takes one more pass."""
        found = prompts_for(labels, causal, self.templates, self.words)
        return found if self.templates else found[:1]


@dataclass(frozen=True)
class BaselineRoute:
    """A way to classify without a base, under the name of the arm of a study that does the same."""

    name: str
    predict: Callable[[Fold], Outputs]
    fitted: bool = True  # False: it uses no label


@dataclass(frozen=True)
class Tried:
    """A pair of base and route on the sample."""

    base: str | None
    route: str
    said: Encoded  # (R, N) or (R, N, L)
    seconds: float
    weight_bytes: int  # of the base


@dataclass(frozen=True)
class Trials:
    rows: Rows
    available: int  # labelled rows, of which those are a sample
    tried: tuple[Tried, ...]
    skipped: tuple[str, ...]  # bases and routes, and why
    notes: tuple[str, ...]
    seconds: float

    @property
    def score(self) -> str:
        """The leading one of the rows."""
        return self.rows.target.leading([e.label for e in self.rows.examples])

    @property
    def best(self) -> Tried:
        """The pair with the highest score; of equal ones, the smaller base."""
        return max(self.tried, key=lambda tried: (round(self.score_of(tried), 9), -tried.weight_bytes))

    def score_of(self, tried: Tried) -> float:
        """The mean over the repeats."""
        return float(np.mean([self.rows.target.scores(self.rows.targets, said)[self.score] for said in tried.said]))


@dataclass
class Candidate:
    """A base, opened; and what was timed of it."""

    name: str
    saved: Saved
    prompts: tuple[Prompt, ...]
    routes: tuple[Route, ...]
    row_seconds: float = 0.0  # to read one text in all modes

    def features(self, rows: Rows) -> BaseFeatures:
        texts = [e.text for e in rows.examples]
        return BaseFeatures(self.saved, texts, rows.labels, self.prompts, rows.target.task)

    def time_a_batch(self, rows: Rows) -> None:
        modes = tuple(dict.fromkeys(mode for route in self.routes for mode in route.reads))
        lengths = np.minimum([len(e.text) for e in rows.examples], 4 * MOST_TOKENS)
        usual = np.abs(lengths - lengths.mean()).argsort(kind="stable")[
            :TIMED
        ]  # rows are read by length, hardly padded
        batch = [rows.examples[i] for i in usual]
        for texts in (batch[:2], batch):  # the first call of torch is slow
            self.row_seconds = self.features(Rows(texts, rows.labels, rows.kind)).read(modes) / len(texts)

    def seconds(self, rows: int, all_rows: Rows) -> float:
        features = self.features(all_rows)
        fitting = sum(r.fitting_seconds(features, rows, all_rows.folds, all_rows.repeats) for r in self.routes)
        return rows * self.row_seconds + fitting


def try_routes(
    examples: Sequence[Example],
    bases: Sequence[str],
    prompting: Prompting,
    minutes: float,
    watch: Watch,
    baselines: Sequence[BaselineRoute] = (),
    routes: Sequence[Route] = ROUTES,
    must_open: bool = True,
    kind: Target | None = None,
) -> Trials:
    """Every route on every base, cross-validated; with `must_open` a base that cannot be opened is an error, not skipped.

    `kind` is the target of the rows; None: one class.
    """
    began, skipped, notes = time.monotonic(), list[str](), list[str]()
    must_have_weights(bases)
    kept = _usable(examples, notes, by_class=isinstance(kind, Classes | None))
    target = type(kind or Classes(())).of([e.label for e in kept], getattr(kind, "separator", ""))
    rows = Rows(sample(kept, MOST_ROWS, target), list(target.names), target)
    if prompting.words or prompting.templates:  # what was asked for is refused, not skipped
        if target.task != "classify":
            raise ConfigError(f"--prompt is for rows with one class each; the task here is {target.task}.")
        prompting.prompts(rows.labels, causal=True)

    def left() -> float:
        return SHARE * (60 * minutes - (time.monotonic() - began))

    candidates: list[Candidate] = []
    for name in bases:
        if candidates and left() < 30 * minutes * SHARE:
            skipped.append(f"{name}: half of --minutes had passed before it was opened.")
            continue
        watch.note(f"Opening {name} ...")
        candidate = opened(name, rows.labels, prompting, routes, skipped, must_open, target.task)
        if candidate:
            candidate.time_a_batch(rows)
            candidates.append(candidate)
    if not candidates:
        raise ConfigError(f"No base could be opened. {' '.join(skipped)}")
    rows = _affordable(kept, rows, candidates, left, minutes, skipped)
    tried = []
    with watch.bar("Ranking", len(baselines) + sum(len(c.routes) for c in candidates)):
        for one in _each(rows, baselines, candidates):
            tried.append(one)
            watch.reach(len(tried), f"{one.base or ''} {one.route}".strip())
    return Trials(rows, len(examples), tuple(tried), tuple(skipped), tuple(notes), time.monotonic() - began)


def _each(rows: Rows, baselines: Sequence[BaselineRoute], candidates: Sequence[Candidate]) -> Iterator[Tried]:
    for baseline in baselines:
        began = time.perf_counter()
        said = rows.cross_validated(baseline.predict, baseline.fitted)
        yield Tried(None, baseline.name, said, time.perf_counter() - began, 0)
    for candidate in candidates:
        features = candidate.features(rows)
        size = weight_bytes(candidate.saved.model)
        for route in candidate.routes:
            reading, began = features.read(route.reads), time.perf_counter()
            said = rows.cross_validated(lambda fold, f=features, r=route: r.predict(f, fold), route.fitted)  # type: ignore[misc]
            yield Tried(candidate.name, route.name, said, reading + time.perf_counter() - began, size)


def _usable(examples: Sequence[Example], notes: list[str], by_class: bool) -> list[Example]:
    """The rows without duplicates, which would be on both sides of a fold, and without classes of a single row."""
    unique = list({normal(e.text): e for e in reversed(examples)}.values())[::-1]
    if len(unique) < len(examples):
        notes.append(
            f"{counted(len(examples) - len(unique), 'duplicate')} left out, which would be on both sides of a fold."
        )
    if not by_class:
        if len(unique) < 2 * FOLDS:
            raise DataError(f"Ranking needs {2 * FOLDS} different rows, to cross-validate on.", "DATA_SMALL")
        return unique
    counts = Counter(e.label for e in unique)
    if single := sorted(label for label, count in counts.items() if count < 2):
        notes.append(
            f"Labels with one row only are left out, as they cannot be cross-validated: {', '.join(single[:10])}."
        )
    kept = [e for e in unique if counts[e.label] > 1]
    if len({e.label for e in kept}) < 2:
        raise DataError("Ranking needs two labels with two different rows each, to cross-validate on.", "DATA_SMALL")
    return kept


def sample(examples: Sequence[Example], most: int, target: Target | None = None) -> list[Example]:
    """At most so many rows in the shares of the classes, but FOLDS rows of each if it has them; nested, by a hash of the text.

    Where there are no classes, the strata of the target stand for them.
    """
    classes: dict[Any, list[Example]] = defaultdict(list)
    strata = target.strata([e.label for e in examples]) if target else [e.label for e in examples]
    order = [digest("which", e.label, e.text) for e in examples]
    for i in sorted(range(len(examples)), key=order.__getitem__):
        classes[strata[i]].append(examples[i])
    ranked = sorted(
        (
            (0.0 if i < FOLDS else (i + 0.5) / len(rows), i, stratum, example)
            for stratum, rows in classes.items()
            for i, example in enumerate(rows)
        ),
        key=lambda ranked: ranked[:3],
    )
    most = max(most, sum(min(FOLDS, len(rows)) for rows in classes.values()))
    return [example for _, _, _, example in ranked[:most]]


def opened(
    name: str,
    labels: Sequence[str],
    prompting: Prompting,
    routes: Sequence[Route],
    skipped: list[str],
    must_open: bool,
    task: Task = "classify",
) -> Candidate | None:
    """A base with the routes that it has; None, and why, where it cannot be opened."""
    try:
        saved = open_base(name)
    except UserError as error:
        if must_open:
            raise
        skipped.append(f"{name}: {first_line(error)}")
        return None
    saved.model.base.max_len = min(saved.model.base.max_len, MOST_TOKENS)
    prompts: tuple[Prompt, ...] = ()
    if task != "classify":  # there are no label words to ask for
        return Candidate(name, saved, prompts, tuple(r for r in routes if not r.asks))
    if not knows_words(saved, name):
        skipped.append(f"{name}, zero-shot and prompt:frozen: it has no language head.")
    else:
        try:
            prompts = prompting.prompts(labels, saved.config.causal)
            BaseFeatures(saved, ["a text"], labels, prompts).read(("prompted", "words"))
        except ConfigError as error:
            prompts = ()
            skipped.append(f"{name}, zero-shot and prompt:frozen: {first_line(error)}")
    return Candidate(name, saved, prompts, tuple(r for r in routes if prompts or not r.asks))


def _affordable(
    kept: Sequence[Example],
    rows: Rows,
    candidates: list[Candidate],
    left: Callable[[], float],
    minutes: float,
    skipped: list[str],
) -> Rows:
    """As many rows as fit into the time that is left; below FEWEST_ROWS, without the slowest base."""
    fewest = min(FEWEST_ROWS, len(rows.examples))
    while candidates:
        costs = {c.name: c.seconds(fewest, rows) for c in candidates}
        if sum(costs.values()) <= left():
            break
        slowest = max(candidates, key=lambda c: costs[c.name])
        if len(candidates) == 1:
            needed = 60 * minutes + (costs[slowest.name] - left()) / SHARE
            raise UserError(
                f"--minutes {minutes:g}: not enough for any base. {slowest.name}, the quickest, needs about {duration(needed)} for "
                f"{fewest} rows. Give --minutes {np.ceil(needed / 6) / 10:g}."
            )
        skipped.append(
            f"{slowest.name}: {fewest} rows would take about {duration(costs[slowest.name])}. Give more --minutes."
        )
        candidates.remove(slowest)
    most = len(rows.examples)
    while most > fewest and sum(c.seconds(most, rows) for c in candidates) > left():
        most = max(fewest, int(0.9 * most))
    return Rows(sample(kept, most, rows.target), rows.labels, rows.kind)
