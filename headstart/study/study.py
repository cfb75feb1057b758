"""A study as an object: run it or open it, then its table, its verdict, its page, its figures."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from headstart.errors import ConfigError, DataError, ModelError
from headstart.quantities import counted
from headstart.runs.disk import write_file
from headstart.runs.record_shapes import StudyResults, StudyState
from headstart.runs.records import read_json
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.study.figures import main_picture
from headstart.study.gather import gather
from headstart.study.grid import Grid
from headstart.study.match import MATCHERS
from headstart.study.plan import StudyConfig
from headstart.study.report import study_html, write_report
from headstart.study.results import Results
from headstart.study.run import Engine
from headstart.study.translate import TRANSLATORS

GRIDS: tuple[Grid[Any, Any], ...] = (TRANSLATORS, MATCHERS)


class Study:
    """A study of classifiers."""

    def __init__(self, folder: Path, results: Results) -> None:
        self.folder, self.results = folder, results

    @classmethod
    def run(
        cls,
        cfg: StudyConfig,
        out: Path,
        jobs: int = 1,
        watch: Watch | None = None,
        expected: Mapping[str, float] | None = None,
        engine: Engine | None = None,
    ) -> Study:
        """Run whatever is missing of a study, and write its report; `expected` are the seconds of each cell."""
        from headstart.study.classify import run_study

        study = cls.open(run_study(cfg, out, jobs, watch, expected, engine))
        study.write()
        return study

    @classmethod
    def open(cls, folder: str | Path) -> Study:
        """A study that was run, gathered from its cells; nothing is written."""
        return cls(Path(folder), gather(Path(folder)))

    def write(self) -> None:
        """results.json, table.csv, figures/ and report.html."""
        self.results.write(self.folder)
        write_report(self.folder, self.results)

    @property
    def verdict(self) -> str:
        return self.results.verdict

    @property
    def table(self) -> list[dict[str, Any]]:
        """One record per arm and label count."""
        shown = {"name", "base", "labels", "mean", "sd", "interval", "over", "seeds", "rate"}
        return [arm.model_dump(mode="json", include=shown) for arm in self.results.arms]

    def to_frame(self) -> Any:
        """The table as a pandas.DataFrame, the ends of the interval as the columns `low` and `high`."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ConfigError("to_frame needs pandas: pip install pandas.", "NOT_INSTALLED") from None
        rows = [dict(row) for row in self.table]
        for row in rows:
            row["low"], row["high"] = row.pop("interval") or (None, None)
        return DataFrame(rows)

    @property
    def page(self) -> Path:
        return self.folder / "report.html"

    def plot(self) -> Any:
        """Score against labels, or the arms beside each other, as a matplotlib figure."""
        picture = main_picture(self.results.shown())
        return picture.figure if picture else None

    def _repr_html_(self) -> str:
        return study_html(self.results)


def grid_in(folder: Path) -> Grid[Any, Any] | None:
    """The kind of grid that a folder holds, if it holds one."""
    return next((grid for grid in GRIDS if os.path.lexists(folder / grid.file)), None)


class StudyRecord(TypedDict):
    """A study in a list of runs; its keys are those of `Run.summary`."""

    run: str
    job: str
    state: Literal["finished", "unfinished", "damaged"]
    problem: str | None
    started: str | None
    seconds: float | None
    verdict: str | None


def studies_in(folder: str | Path) -> list[StudyRecord]:
    """What the studies below a folder are and what they showed, as `Run.summary` tells of runs."""
    return [_summary(path.parent) for path in sorted(Path(folder).rglob("study.json"))]


def _summary(folder: Path) -> StudyRecord:
    found: StudyRecord = {
        "run": str(folder), "job": "compare", "state": "unfinished", "problem": None, "started": None, "seconds": None, "verdict": None
    }  # fmt: skip
    try:
        state = read_json(folder / "study.json", StudyState, "STUDY_DAMAGED")
        results = folder / "results.json"
        made = read_json(results, StudyResults, "STUDY_DAMAGED") if os.path.lexists(results) else None
    except ModelError as error:
        return {**found, "state": "damaged", "problem": str(error)}
    found["started"] = state["environment"]["started"]
    if made is None or made.get("missing_cells"):
        return found
    seconds = sum(made["cost"][key] for key in ("seconds", "pretraining_seconds"))
    return {**found, "state": "finished", "seconds": seconds, "verdict": made["verdict"]}


def compare(
    texts: Sequence[str],
    labels: Sequence[str],
    base: str | Path | Sequence[str | Path] = (),
    arms: Sequence[str] | None = None,
    out: str | Path = "runs/study",
    watch: Watch | None = None,
    jobs: int = 1,
    label_counts: Sequence[int] = (0,),
    **settings: Any,
) -> Study:
    """Compare arms on labelled texts; called again with the same `out`, it runs only what is missing.

    `arms` are majority, tfidf, scratch, frozen and full; with an external causal language model also zero-shot and prompt.
    `label_counts` are the numbers of labels to compare at, training and validation rows together; 0 is all of them.
    `settings` are those of a study, named as in study.toml:

    - prompts=("Review: {text} Sentiment:",): templates of the arms zero-shot and prompt
    - label_words={"neg": "negative", "pos": "positive"}: of the prompts
    - seeds=5: runs of every arm that has chance in it
    - rates=(3e-4, 1e-3): learning rates tried on the validation rows; without it, three that suit each arm
    - least_steps=300: minimum of optimizer steps of every run, however few the labels
    - finetune={"epochs": 2, "pool": "mean", "train": {"batch_size": 16}}: every arm that is trained, as in config.toml
    - pretrain={"data": {"paths": ["corpus.txt"]}, "train": {"steps": 1000}}: pretrain a base as a step of the study
    - objectives=("causal", "masked"): a base for each, with `pretrain`
    - strict_leakage=True: reject test rows that are also training rows
    """
    if len(texts) != len(labels):
        raise DataError(
            f"{counted(len(texts), 'text')} and {counted(len(labels), 'label')}: there must be one label for each text."
        )
    absent = [i for i, label in enumerate(labels) if label is None or label != label]  # NaN is not itself
    if absent:
        raise DataError(f"The label of text {absent[0]} (counted from 0) is {labels[absent[0]]}.", "DATA_LABEL")
    from headstart.study.classify import with_usual_arms
    from headstart.study.which import with_best_base

    out = Path(out).absolute()
    table = io.StringIO()
    csv.writer(table).writerows([("text", "label"), *zip(texts, map(str, labels), strict=True)])
    rows = out.with_name(f"{out.name}-rows.csv")  # beside the study: its folder must be new, or hold this study
    given_rows = table.getvalue().encode()
    if (out / "study.json").exists() and rows.exists() and rows.read_bytes() != given_rows:
        raise DataError(f"{out} is a study of other texts or labels. Choose another out.", "DATA_CHANGED")
    write_file(rows, given_rows)
    bases = [base] if isinstance(base, (str, Path)) else list(base)
    places = tuple(str(Path(b).absolute()) if Path(b).exists() else str(b) for b in bases)
    given = {"data": {"train": str(rows)}, "bases": places, "labels": tuple(label_counts)}
    given |= {"arms": tuple(arms)} if arms is not None else {}
    watch = watch or Watch()
    cfg = with_usual_arms(with_best_base(parse(StudyConfig, {**given, **settings}), out, watch), watch, out)
    return Study.run(cfg, out, jobs, watch)
