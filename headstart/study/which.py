"""Which base and which route are worth a full study? Ranked on the training rows, in minutes. Torch is loaded when it runs.

Test rows are never read. The score of a pair of base and route is its cross-validated one; the interval is over rows. Every
pair is compared with the best on the same rows, and the differences are adjusted for their number (Holm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.bases.span import in_span
from headstart.data import LabelledConfig
from headstart.errors import ConfigError, DataError
from headstart.hub.packs import get_pack, pack_folder
from headstart.prompts import AUTO
from headstart.quantities import duration, signed
from headstart.runs.watch import Watch
from headstart.schema import Frozen, merge, parse, read_toml
from headstart.study.baselines import fit_parts, lexicon, static, tfidf_rows
from headstart.study.joined import fit_hybrid
from headstart.study.lexicon import polarities
from headstart.study.plan import StudyConfig
from headstart.study.statistics import Scores, difference, holm, mean_interval
from headstart.targets.target import Outputs, Target
from headstart.targets.tasks import TARGETS
from headstart.task import Task
from headstart.text.split import Labelled, draw, split_labelled

if TYPE_CHECKING:
    from headstart.bases.routes import BaseFeatures, Fold
    from headstart.bases.selection import BaselineRoute, Trials, Tried

WORDS = {  # by cost
    "lexicon": "a sentiment lexicon (VADER)",
    "tfidf": "TF-IDF with logistic regression",
    "static": "averaged word vectors with logistic regression",
    "zero-shot": "zero-shot",
    "frozen": "a linear probe (frozen)",
    "prompt:frozen": "a linear probe on the prompted text (prompt:frozen)",
    "hybrid": "TF-IDF beside its features (hybrid)",
}
HYBRID_EFFORT = 2.0  # in the time of a linear probe
# The arms of a study that follow up a route: the same with all labels, and its fine-tuning.
FOLLOW_UP = {
    "zero-shot": ("zero-shot", "prompt"),
    "frozen": ("frozen", "full"),
    "hybrid": ("frozen", "full", "hybrid"),
    "prompt:frozen": ("zero-shot", "prompt:frozen", "prompt"),
}
SESSION = 3600.0  # seconds that a study may take whose base nobody named
COMPARED_WITH = ("majority", "tfidf", "scratch")
RANKED: tuple[Task, ...] = ("classify", "multilabel", "regression", "ordinal")


class Ranked(Frozen):
    """A pair of base and route; `base` is None for a baseline."""

    base: str | None
    route: str
    score: float
    interval: tuple[float, float]
    difference: float  # from the best, which has 0
    difference_interval: tuple[float, float]
    significant: bool  # whether the difference from the best is
    seconds: float  # to read the sample and to fit
    megabytes: float  # of the base's weights

    @property
    def name(self) -> str:
        route = WORDS.get(self.route, self.route)
        return f"{self.base} with {route}" if self.base else route

    @property
    def cost(self) -> tuple[float, int]:
        """A smaller base first; with the same base, what needs less to be fitted."""
        return self.megabytes, list(WORDS).index(self.route) if self.route in WORDS else len(WORDS)


class Ranking(Frozen):
    """The pairs, the best first, and what they were ranked on."""

    task: Task
    score: str
    rows: int
    available: int  # labelled training rows, of which those are a sample
    classes: int
    folds: int
    repeats: int
    pairs: tuple[Ranked, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def best(self) -> Ranked:
        return self.pairs[0]

    @property
    def best_with_base(self) -> Ranked:
        return next(pair for pair in self.pairs if pair.base)

    @property
    def cheaper(self) -> Ranked | None:
        """The cheapest pair that costs less than the best one without a significant difference from it."""
        close = [p for p in self.pairs[1:] if not p.significant and p.cost < self.best.cost]
        return min(close, key=lambda p: p.cost, default=None)

    @property
    def score_name(self) -> str:
        return TARGETS[self.task].titles[self.score]

    @property
    def verdict(self) -> str:
        """Which pair is worth a full study, and which cheaper one is not significantly worse."""
        return self._verdict().replace("logistic regression", TARGETS[self.task].linear)

    def _verdict(self) -> str:
        best, (low, high), close = self.best, self.best.interval, "no significant difference"
        sampled = f"{self.rows:,} of {self.available:,}" if self.rows < self.available else f"{self.rows:,}"
        found = (
            f"{self.score_name} {best.score:.3f} [{low:.3f}, {high:.3f}], cross-validated on {sampled} training rows"
        )
        if not best.base:
            near = self.best_with_base
            told = "" if near.significant else f", with {close}"
            return f"{best.name} scores highest: {found}; of the bases, {near.name} comes closest{told} ({_gap(near)})."
        sentence = f"{best.name} is worth a full study: {found}"
        if self.cheaper:
            return f"{sentence}; {self.cheaper.name} costs less and shows {close} ({_gap(self.cheaper)})."
        return f"{sentence}; everything that costs less is significantly worse."

    def study(self, data: LabelledConfig, settings: Mapping[str, Any]) -> StudyConfig:
        """The full study of the best base: the route that won, its fine-tuning, and what they are compared with."""
        winner = self.best_with_base
        compared_with = COMPARED_WITH if self.task == "classify" else ("constant", *COMPARED_WITH[1:])
        own = {
            "data": {**data.model_dump(), "labels": 0},
            "labels": (data.labels,),
            "bases": (placed(str(winner.base)),),
            "arms": (*compared_with, *FOLLOW_UP.get(winner.route, FOLLOW_UP["frozen"])),
            "chosen": self.verdict,
        }
        return parse(StudyConfig, merge(own, settings))


def _gap(pair: Ranked) -> str:
    low, high = (signed(100 * end) for end in pair.difference_interval)
    return f"{signed(100 * pair.difference)} points [{low}, {high}]"


def get_missing_packs(watch: Watch) -> None:
    """Download the packs of models that are not in the cache, after naming their sizes."""
    from headstart.bases.at_hand import missing_packs

    missing = missing_packs()
    if missing:
        watch.note("Downloading " + ", ".join(f"{name} ({size})" for name, size in missing.items()) + " ...")
    for name in missing:
        get_pack(name)


def training_rows(cfg: LabelledConfig, tasks: Sequence[Task] = RANKED) -> Labelled:
    """The training and validation rows; test rows that are given are not opened, those held out are left out."""
    fraction = 0.0 if cfg.test else cfg.test_fraction
    try:
        whole = split_labelled(cfg.model_copy(update={"test": None, "test_fraction": fraction}))
    except DataError as error:
        if error.code == "DATA_COLUMNS":
            raise DataError(f"{error} Without labels no route can be scored, zero-shot neither.", error.code) from None
        raise
    if whole.target.task not in tasks:
        raise ConfigError(
            f"{cfg.train}: the task of these labels is {whole.target.task}; this command takes "
            f"{', '.join(tasks[:-1])} and {tasks[-1]} only. headstart compare takes any task."
        )
    data = draw(whole, cfg.labels, cfg.draw, cfg.balanced) if cfg.labels else whole
    return replace(data, train=[*data.train, *data.valid], valid=[], test=[])


def rank(
    data: LabelledConfig,
    bases: Sequence[str] = (),
    templates: Sequence[str] = (),
    words: Mapping[str, str] | None = None,
    minutes: float | None = None,
    watch: Watch | None = None,
) -> Ranking:
    """Every base (those at hand, if none are named) with every cheap route, ranked on the training rows of `data`."""
    from headstart.bases.at_hand import bases_at_hand, must_have_weights
    from headstart.bases.routes import ROUTES, Route
    from headstart.bases.selection import MINUTES, Prompting, try_routes

    must_have_weights(bases)
    names, rows = list(dict.fromkeys(bases)) or bases_at_hand(), training_rows(data)
    prompting, limit = Prompting(tuple(templates), dict(words or {})), MINUTES if minutes is None else minutes
    word_rows = WordRows()
    baselines = baseline_routes(rows.target, prompting.words, word_rows)
    routes = (*ROUTES, Route("hybrid", partial(_hybrid, word_rows), ("plain",), effort=HYBRID_EFFORT))
    must_open, watch = bool(bases), watch or Watch()
    return ranked(try_routes(rows.train, names, prompting, limit, watch, baselines, routes, must_open, rows.target))


def with_best_base(cfg: StudyConfig, out: Path, watch: Watch) -> StudyConfig:
    """`cfg` with the best base at hand in place of auto; a study in `out` keeps the one that was chosen when it began."""
    file = out / "study.toml"
    before = parse(StudyConfig, read_toml(file), str(file)) if file.exists() else None
    if before and before.chosen:
        bases = before.bases if AUTO in cfg.bases else cfg.bases
        return cfg.model_copy(update={"bases": bases, "chosen": before.chosen})
    if AUTO not in cfg.bases:
        return cfg
    base, why = best_base(cfg, watch)
    watch.note(f"--base auto is {base}. {why}")
    bases = tuple(dict.fromkeys(base if name == AUTO else name for name in cfg.bases))
    return cfg.model_copy(update={"bases": bases, "chosen": why})


def best_base(cfg: StudyConfig, watch: Watch) -> tuple[str, str]:
    """The best base at hand for the rows of a study, and why; the first pack of a model is downloaded if there is none."""
    from headstart.bases.at_hand import found_bases, missing_packs
    from headstart.bases.pretrained import MODELS

    found = found_bases()
    if not found:
        first = MODELS[0]
        watch.note(f"There is no base at hand. Downloading {first} ({missing_packs()[first]}) ...")
        get_pack(first)
        return first, "There was no other base at hand."
    if len(found) == 1:
        return placed(found[0]), "There is no other base at hand."
    most = 0 if 0 in cfg.labels else max(cfg.labels)  # labels that the study withholds choose no base
    ranking = rank(cfg.data.model_copy(update={"labels": most}), (), cfg.prompts, cfg.label_words, watch=watch)
    base, too_long = _affordable(ranking, cfg)
    return base, f"{ranking.verdict} {too_long}".rstrip()


def _affordable(ranking: Ranking, cfg: StudyConfig) -> tuple[str, str]:
    """The best base whose study fits the time of a session, else the one that takes least; and what was passed over."""
    from headstart.study.classify import with_usual_arms
    from headstart.study.estimate import study_estimate

    ranked_bases = [placed(name) for name in dict.fromkeys(pair.base for pair in ranking.pairs if pair.base)]
    seconds: dict[str, float] = {}
    for base in ranked_bases:
        bases = tuple(base if name == AUTO else name for name in cfg.bases)
        study = with_usual_arms(cfg.model_copy(update={"bases": bases}), Watch())
        seconds[base] = study_estimate(study)[0]["seconds"]
        if seconds[base] <= SESSION:
            break
    taken = min(seconds, key=lambda base: (seconds[base] > SESSION, seconds[base]))
    passed = [
        f"with {base} about {duration(seconds[base])}" for base in ranked_bases if base in seconds and base != taken
    ]
    if not passed:
        return taken, ""
    return taken, f"The study would take {' and '.join(passed)}; with {taken} it takes {duration(seconds[taken])}."


def placed(base: str) -> str:
    """A run by its whole path; a pack by its name."""
    return str(Path(base).absolute()) if Path(base).exists() else base


class WordRows:
    """The TF-IDF vectors of each fold, made once for all that use them."""

    def __init__(self) -> None:
        self._made: dict[tuple[bytes, int], Mapping[str, Any]] = {}

    def __call__(self, fold: Fold) -> Mapping[str, Any]:
        key = fold.train.tobytes(), len(fold.rows)
        if key not in self._made:
            self._made[key] = in_span(tfidf_rows(fold.data))
        return self._made[key]


def baseline_routes(target: Target, words: Mapping[str, str], word_rows: WordRows) -> list[BaselineRoute]:
    """The routes without a base: those whose packs are in the cache, and that have a use for the labels."""
    from headstart.bases.selection import BaselineRoute

    def tfidf(fold: Fold) -> Outputs:
        rows = word_rows(fold)
        return fit_parts(fold.data, rows, cs=()).outputs(rows["test"], fold.target)

    found = [BaselineRoute("tfidf", tfidf)]
    if pack_folder("english-vectors").exists():
        found.append(BaselineRoute("static", lambda fold: static(fold.data, "english-vectors").outputs))
    if target.task != "classify":
        return found
    with suppress(ConfigError):  # other labels than negative and positive
        polarities(target.names, words)
        if pack_folder("vader").exists():
            found.append(BaselineRoute("lexicon", lambda fold: lexicon(fold.data, words).outputs, fitted=False))
    return found


def _hybrid(words: WordRows, features: BaseFeatures, fold: Fold) -> Outputs:
    """TF-IDF beside the frozen base's features, under the pooling of its linear probe, with the usual C and share."""
    vectors = features.plain[features.probe(fold).pool]
    states = {"train": vectors[fold.train].numpy(), "test": vectors[fold.test].numpy()}
    even = dict.fromkeys(range(len(fold.target.names)), 1.0)
    _, found, rows = fit_hybrid(fold.data, words(fold), states, even, cs=())
    return found.outputs(rows["test"], fold.target)


def ranked(trials: Trials) -> Ranking:
    """Scores and differences with their intervals."""
    rows = trials.rows
    heaviest = rows.target.heaviest(trials.score, rows.targets)
    order = sorted(trials.tried, key=lambda t: (-round(trials.score_of(t), 9), t.weight_bytes))
    scores = [_scores(trials, tried) for tried in order]
    gaps = holm([difference(scores[0], other, heaviest=heaviest) for other in scores[1:]])
    pairs = []
    for i, (tried, values) in enumerate(zip(order, scores, strict=True)):
        mean, gap = mean_interval(values, heaviest=heaviest), gaps[i - 1] if i else None
        pairs.append(
            Ranked(
                base=tried.base,
                route=tried.route,
                score=trials.score_of(tried),
                interval=(mean.low, mean.high),
                difference=0.0 - gap.value if gap else 0.0,
                difference_interval=(-gap.high, -gap.low) if gap else (0.0, 0.0),
                significant=bool(gap and gap.clear),
                seconds=tried.seconds,
                megabytes=tried.weight_bytes / 1e6,
            )
        )
    return Ranking(
        task=rows.target.task,
        score=trials.score,
        rows=len(rows.targets),
        available=trials.available,
        classes=len(rows.labels),
        folds=rows.folds,
        repeats=rows.repeats,
        pairs=tuple(pairs),
        skipped=trials.skipped,
        notes=trials.notes,
        seconds=trials.seconds,
    )


def _scores(trials: Trials, tried: Tried) -> Scores:
    """(R, N): what each row does to the score."""
    rows = trials.rows
    return np.array([rows.target.row_values(trials.score, rows.targets, said) for said in tried.said])
