"""The cells of a study become its results: scores with intervals, differences, curves, mistakes, costs. No torch.

Everything is read from the study's folder and from the data; nothing is trained, predicted or written here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from headstart.errors import DataError, ModelError
from headstart.imported import imported
from headstart.quantities import counted
from headstart.runs.record_shapes import StudyState
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.schema import parse, read_toml
from headstart.study.abstention import abstention, calibration
from headstart.study.arms import ArmKind
from headstart.study.by_type import f1_by_type
from headstart.study.compared import compared
from headstart.study.mistakes import disagreements, mistakes
from headstart.study.overlap import overlapping
from headstart.study.parts import Hygiene, Number
from headstart.study.plan import StudyConfig, arms_of, leading_score
from headstart.study.provenance import pretraining_of, receipt_of
from headstart.study.results import (
    Abstention,
    ArmResult,
    Calibration,
    Cost,
    Curves,
    Data,
    Difference,
    Failure,
    Interval,
    LabelsNeeded,
    Needed,
    Repeat,
    Results,
    Score,
    StudyCost,
    Summary,
)
from headstart.study.statistics import (
    FEWEST_SEEDS,
    Estimate,
    Scores,
    difference,
    holm,
    labels_needed,
    mean_interval,
    needed_to_tell,
)
from headstart.study.taken import (
    StudyFile,
    Taken,
    bases_of,
    go_on,
    missing_cells,
    result_of,
    take,
    unfinished,
)
from headstart.study.verdict import verdict
from headstart.targets.class_scores import confusion
from headstart.text.split import Labelled, split_labelled

MOST_POINTS = 300  # of a scatter plot


def opened(out: Path) -> Gathered:
    """The study in `out` with what its finished cells said."""
    if not os.path.lexists(out / "study.json"):
        raise ModelError(f"{out}: this folder is not a study.", "STUDY_MISSING")
    cfg = parse(StudyConfig, read_toml(out / "study.toml"), str(out / "study.toml"))
    state = read_json(out / "study.json", StudyState, "STUDY_DAMAGED")
    data = split_labelled(cfg.data)
    if data.facts(False)["split_sha256"] != state["data"]["split_sha256"]:
        raise DataError(f"{cfg.data.train}: the rows have changed since this study was made of them.", "DATA_CHANGED")
    return Gathered(out, cfg, state, data)


def gather(out: Path) -> Results:
    """The results of the study in `out`."""
    study = opened(out)
    try:
        results = study.results()
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ModelError(f"{out / 'study.json'} is damaged ({place}). Begin a new study.", "STUDY_DAMAGED") from None
    return results.model_copy(update={"verdict": unfinished(out, study.missing) or verdict(results)})


class Gathered:
    def __init__(self, out: Path, cfg: StudyConfig, state: StudyFile, data: Labelled) -> None:
        self.out, self.cfg, self.state, self.data = out, cfg, state, data
        self.every = len(data.train) + len(data.valid)
        self.target, self.truth = data.target, data.target.encode([e.label for e in data.test])
        self.bases = state.get("bases", {})  # none while the study is pretraining them
        self.arms = arms_of(cfg, bases_of(state))
        self.missing = missing_cells(out, cfg, self.arms, state)
        rates = state.get("rates", {})
        counts = (None, *cfg.labels)
        self.taken = [t for n in counts for arm in self.arms if (t := take(out, cfg, arm, n, data, rates))]
        if not self.taken:
            raise ModelError(f"{out}: no cell of this study is finished. {go_on(out)}", "RUN_UNFINISHED")
        self.score = leading_score(data)
        self.heaviest = self.target.heaviest(self.score, self.truth)
        self.last = cfg.labels[-1]

    def results(self) -> Results:
        data, last = self.data, self.at(self.last)
        saying = [t for t in last if not t.arm.row.constant]
        whole = self.state["data"]["hygiene"]["overlapping_rows"]["test"]
        overlap: dict[int | None, list[int]] = {None: []}  # what uses no labels has learned from no rows
        overlap |= {
            n: overlapping(data, whole, n, range(self.cfg.seeds), self.cfg.data.balanced) for n in self.cfg.labels
        }
        name, facts = Path(self.cfg.data.train).name, self.state["data"]
        return Results(
            title=f"Does pretraining help on {name}?",
            task=self.target.task,
            verdict="",
            notices=self._notices(),
            score=self.score,
            data=Data(
                name=name,
                **{key: facts[key] for key in ("rows", "labels", "files", "split_sha256")},
                overlapping_test_rows=len(overlap[self.last]),
            ),
            labels=[n or self.every for n in self.cfg.labels],
            seeds=self.cfg.seeds,
            label_names=data.labels,
            arms=[self._row(t, overlap[t.labels]) for t in self.taken],
            differences=self._differences(),
            labels_needed=self._labels_needed(),
            curves={t.arm.name: self._curves(t) for t in last if t.arm.fine_tuned},
            mistakes={t.arm.name: mistakes(data, self.truth, t) for t in saying},
            disagreements=disagreements(data, self.truth, saying),
            tagged=imported(place)(data, self.truth, saying) if (place := self.target.shown_rows) else [],
            receipts=[receipt_of(t) for t in last if t.arm.fine_tuned],
            pretraining=[p for base, b in self.bases.items() if (p := pretraining_of(base, Path(b["path"])))],
            failures=[Failure(**failure) for failure in self.state.get("failures", [])],
            missing_cells=self.missing,
            hygiene=Hygiene(**facts["hygiene"]),
            cost=self._cost(),
            repeat=self._repeat(),
        )

    def at(self, labels: int) -> list[Taken]:
        """The arms at one label count; those that use no labels are the same at each."""
        return [t for t in self.taken if t.labels in (labels, None)]

    def count(self, t: Taken) -> int:
        """The number of labels that an arm used."""
        return 0 if t.labels is None else t.labels or self.every

    def scores(self, taken: Taken, rows: NDArray[np.int64] | None = None) -> Scores:
        """(S, N) of the leading score."""
        truth, said = (self.truth, taken.said) if rows is None else (self.truth[rows], taken.said[:, rows])
        values = [self.target.row_values(self.score, truth, answers) for answers in said]
        return np.array(values, dtype=np.float64)

    def _summary(self, score: str, t: Taken) -> Summary:
        """Of any score; without an interval where its rows have no values of their own."""
        values = [self.target.row_values(score, self.truth, answers) for answers in t.said]
        if any(v is None for v in values):
            by_seed = [self.target.scores(self.truth, answers)[score] for answers in t.said]
            return Summary(
                mean=float(np.mean(by_seed)), sd=float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else None
            )
        scores = np.array(values, dtype=np.float64)
        return _summary(mean_interval(scores, heaviest=self.target.heaviest(score, self.truth)), scores)

    def _certainty(self, t: Taken) -> tuple[Calibration, Abstention]:
        """Calibration, and the curve of abstaining; empty but for classes."""
        if self.target.task != "classify":
            return Calibration(), Abstention()
        return calibration(t.outputs, self.truth.tolist(), t.results), abstention(t.outputs, self.truth)

    def _confusion(self, t: Taken) -> list[list[Number]]:
        """Summed over seeds."""
        if self.truth.dtype != np.int64:
            return []
        truth, classes = self.truth.tolist(), len(self.data.labels)
        return np.sum([confusion(truth, s, classes) for s in t.said.tolist()], axis=0).tolist()

    def _points(self, t: Taken) -> list[tuple[float, float]]:
        """Numbers with what an arm predicts for them, of evenly spaced test rows; none of other tasks."""
        if not self.target.numeric:
            return []
        rows = np.unique(np.linspace(0, len(self.truth) - 1, MOST_POINTS).astype(int))
        written = np.vectorize(self.target.written)
        return list(zip(written(self.truth[rows]).tolist(), written(t.said[:, rows].mean(0)).tolist(), strict=True))

    def _row(self, t: Taken, overlap: Sequence[int]) -> ArmResult:
        scores = self.scores(t)
        found = mean_interval(scores, heaviest=self.heaviest)
        measures = {score: self._summary(score, t) for score in self.target.measures}
        certainty, curve = self._certainty(t)
        clean = np.setdiff1d(np.arange(len(self.truth)), overlap)
        without = (
            mean_interval(self.scores(t, clean), heaviest=self.target.heaviest(self.score, self.truth[clean]))
            if overlap and len(clean)
            else None
        )
        return ArmResult(
            name=t.arm.name,
            kind=t.arm.kind,
            base=str(t.arm.base.path) if t.arm.base else None,
            labels=self.count(t),
            **dict(_summary(found, scores)),
            over=found.over,
            seeds=len(t.seeds),
            scores=scores.mean(1).tolist(),
            accuracy=measures.get("accuracy"),
            macro_f1=measures.get("macro_f1"),
            measures={score: measure for score, measure in measures.items() if score not in ("accuracy", "macro_f1")},
            calibration=certainty,
            abstention=curve,
            overlapping_test_rows=len(overlap),
            clean=Score(mean=without.value, interval=_interval(without)) if without else None,
            rate=t.rate,
            confusion=self._confusion(t),
            points=self._points(t),
            types=f1_by_type(self.target, self.truth, t),
            cost=self._arm_cost(t),
        )

    def _differences(self) -> list[Difference]:
        """Each arm against scratch and TF-IDF, arms of one kind against each other, and joined arms against their partner; Holm at all labels."""
        found: list[Difference] = []
        for labels in reversed(self.cfg.labels):
            pairs = compared(self.at(labels))
            estimates = [self._difference(a, b) for a, b in pairs]
            adjusted = labels == self.last
            for (a, b), e in zip(pairs, holm(estimates) if adjusted else estimates, strict=True):
                found.append(
                    Difference(
                        a=a.arm.name,
                        b=b.arm.name,
                        labels=labels or self.every,
                        difference=e.value,
                        interval=_interval(e),
                        p=e.p,
                        level=e.level,
                        adjusted=adjusted,
                        clear=e.clear,
                        over=e.over,
                        seeds=e.seeds,
                        needed=None if e.clear else Needed(**vars(needed_to_tell(e))),
                    )
                )
        return found

    def _difference(self, a: Taken, b: Taken) -> Estimate:
        """On the seeds that both have; an arm without chance in it goes with every seed of the other."""
        x, y = self.scores(a), self.scores(b)
        if a.random and b.random:
            both = sorted(set(a.seeds) & set(b.seeds))
            x, y = (s[[t.seeds.index(seed) for seed in both]] for s, t in ((x, a), (y, b)))
        return difference(x, y, heaviest=self.heaviest)

    def _labels_needed(self) -> list[LabelsNeeded]:
        """With how many labels each arm does as well as scratch and TF-IDF with all of them, and as zero-shot with none."""
        if len(self.cfg.labels) == 1:
            return []
        found = []
        for reference in (t for t in self.at(self.last) if t.arm.kind == "scratch" or _is_measure(t.arm.row)):
            for arm in self.arms:
                curve = [t for t in self.taken if t.arm == arm]
                plain = arm.row.constant or arm.kind == "scratch" or not arm.row.labelled
                if arm == reference.arm or plain or len(curve) < 2:
                    continue
                other_shape = arm.base and reference.arm.base and arm.base.shape != reference.arm.base.shape
                if other_shape and reference.arm.kind == "scratch":
                    continue
                counts = [self.count(t) for t in curve]
                needed = labels_needed(counts, [self._difference(t, reference) for t in curve])
                found.append(
                    LabelsNeeded(
                        arm=arm.name,
                        reference=reference.arm.name,
                        score=float(self.scores(reference).mean()),
                        labels=needed.labels,
                        interval=(needed.low, needed.high),
                        at_most=needed.at_most,
                        saved=self.count(reference) - needed.labels
                        if needed.labels and reference.labels is not None
                        else None,
                    )
                )
        return found

    def _curves(self, t: Taken) -> Curves:
        """Losses and accuracy at every evaluation on the validation rows, one list per seed."""
        found: dict[str, list[list[float | None]]] = {"train_loss": [], "valid_loss": [], "valid_accuracy": []}
        steps: list[int] = []
        for path in t.paths:
            records = list(Run(path).read_lines("log.jsonl"))
            looks = [r for r in records if r.get("split") == "valid"]
            steps = [r["step"] for r in looks]
            found["valid_loss"].append([r["loss"] for r in looks])
            score = "accuracy" if self.target.task == "classify" else self.score
            found["valid_accuracy"].append([r.get(score) for r in looks])
            trained = [(r["step"], r["loss"]) for r in records if r.get("split") == "train"]
            if t.arm.kind != "contrastive":  # a loss of another unit
                found["train_loss"].append([*_between(trained, steps)])
        per_epoch = max(1, steps[1] - steps[0]) if len(steps) > 1 else 1
        return Curves.model_validate(
            {"labels": self.count(t), "step": steps, "epoch": [s / per_epoch for s in steps], **found}
        )

    def _arm_cost(self, t: Taken) -> Cost:
        tries = [r for c in self._trials(t) if (r := result_of(c)) is not None]
        return Cost(
            seconds=float(np.mean([r["seconds"] for r in t.results])),
            tokens=int(np.mean([r.get("tokens", 0) for r in t.results])) or None,
            trained_parameters=t.results[0].get("trained_parameters"),
            trials=len(tries),
            trial_seconds=sum(r["seconds"] for r in tries),
        )

    def _trials(self, t: Taken) -> list[Path]:
        stem = t.paths[0].name.rpartition("~")[0]
        return sorted((self.out / "cells").glob(f"{stem}~rate-*"))

    def _cost(self) -> StudyCost:
        done = [r for path in sorted((self.out / "cells").iterdir()) if (r := result_of(path)) is not None]
        own = [b for b in self.bases.values() if (self.out / "bases").absolute() in Path(b["path"]).parents]
        pretraining = [r for b in own if (r := result_of(Path(b["path"]))) is not None]
        spent = sum(r["seconds"] for r in pretraining)
        return StudyCost(seconds=sum(r["seconds"] for r in done), cells=len(done), pretraining_seconds=spent)

    def _notices(self) -> list[str]:
        found = list(self.state["data"]["hygiene"]["warnings"])
        failures = self.state.get("failures", [])
        if failures:
            failed = counted(len(failures), "cell", "failed and is", "failed and are")
            found.append(f"{failed} in no mean; some means are over fewer seeds.")
        if self.cfg.seeds < FEWEST_SEEDS and self.cfg.trained:
            few = counted(self.cfg.seeds, "seed", "is", "are")
            found.append(f"{few} too few for an interval over seeds: intervals are over the test rows only.")
        if self.score == "macro_f1" and self.target.task == "classify":
            found.append("The classes are of very different sizes, so macro-F1 leads and not accuracy.")
        return found

    def _repeat(self) -> Repeat:
        facts = self.state["environment"]
        return Repeat(
            command=shlex.join(["headstart", *facts["command"][1:]]),
            settings=(self.out / "study.toml").read_text("utf-8"),
            **{key: facts[key] for key in ("versions", "started", "platform")},
            threads=facts.get("threads"),
        )


def _is_measure(kind: ArmKind) -> bool:
    return kind.linear or not kind.labelled


def _summary(found: Estimate, scores: Scores) -> Summary:
    by_seed = scores.mean(1)
    sd = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None
    return Summary(mean=found.value, sd=sd, interval=_interval(found))


def _interval(found: Estimate) -> Interval:
    return found.low, found.high


def _between(trained: Sequence[tuple[int, float]], steps: Sequence[int]) -> list[float]:
    """The mean training loss since the look before; at the first look, the first loss there is."""
    edges = [-1, *steps]
    means = [[loss for s, loss in trained if low < s <= high] for low, high in zip(edges, steps, strict=False)]
    first = trained[0][1] if trained else float("nan")
    return [float(np.mean(part)) if part else first for part in means]
