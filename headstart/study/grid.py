"""A study carried out: every cell a run of its own, what is finished kept, only what is missing run.

    STUDY/
      study.toml    every setting
      study.json    what was found at the start (files, hygiene, bases), chosen rates, failures, machine
      bases/        what the study itself pretrained
      features/     what frozen bases make of the rows; cleared away at the end
      cells/        a run directory a cell; a baseline has result.json and predictions.jsonl only

gather.py makes results.json of it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.config import FinetuneConfig, LabelledConfig, PretrainConfig
from headstart.errors import ConfigError, DataError, ModelError, Stopped, UserError
from headstart.runs.disk import make_folder, write_file
from headstart.runs.environment import environment
from headstart.runs.kinds import kind_of
from headstart.runs.lock import lock_folder
from headstart.runs.manifest import unverified, verifying
from headstart.runs.parent import end_with_parent
from headstart.runs.record_shapes import StudyState
from headstart.runs.records import read_json
from headstart.runs.run import Run, holds_something
from headstart.runs.watch import Watch
from headstart.schema import differences, parse, read_toml, to_toml
from headstart.shapes import PRESETS, HuggingFaceConfig
from headstart.strict_json import to_json
from headstart.study.baselines import BASELINES
from headstart.study.cells import goes_on_when_started_again
from headstart.study.plan import BaseRun, Cell, StudyConfig, arms_of, cells, finetuning, named_bases, trials
from headstart.tasks.metrics import class_scores
from headstart.text.files import file_facts
from headstart.text.hygiene import refuse_leaks
from headstart.text.read import text_files
from headstart.text.split import SELECTED_FROM, Labelled, draw, split_labelled

WEIGHTS = (".safetensors", ".gguf", ".bin")  # files of a model that hold them
MAY_GROW = ("seeds", "arms", "labels", "bases")  # a study can be extended by these: cells do not depend on each other


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cell: str
    exit: int = 0
    message: str = ""


def run_study(
    cfg: StudyConfig, out: Path, jobs: int = 1, watch: Watch | None = None, expected: Mapping[str, float] | None = None
) -> Path:
    """Run whatever of the study is missing in `out`; the folder, ready to be gathered. `expected` are seconds by cell."""
    watch = watch or Watch()
    _refuse_untrained(cfg)
    _check_folder(out, cfg)
    make_folder(out)
    with lock_folder(out), goes_on_when_started_again(out):
        data = split_labelled(cfg.data)
        state = _begin(out, cfg, data, watch)
        bases = named_bases([*_given(cfg), *_pretrained(out, cfg, watch)]) if cfg.trained else []
        _note_bases(state, bases)
        _write(out, state)  # what there is of an interrupted study can be shown
        arms = arms_of(cfg, bases)
        every = len(data.train) + len(data.valid)
        enough = [n for n in cfg.labels if (n or every) >= SELECTED_FROM]
        tried = trials(cfg, arms, enough)
        grid = _Grid(out, cfg, every, jobs, watch, [*tried, *cells(cfg, arms, {})], expected)
        with watch.bar("runs", grid.total):
            grid.tell()
            chosen = _chosen(out, tried, grid)
            grid.run(cells(cfg, arms, chosen))
        state["rates"] = {f"{arm}~{labels or 'all'}": rate for (arm, labels), rate in chosen.items()}
        state["failures"] = [vars(outcome) for outcome in grid.failures]
        _write(out, state)
        shutil.rmtree(out / "features", ignore_errors=True)
    return out


def _check_folder(out: Path, cfg: StudyConfig) -> None:
    """A new folder, or one with this study in it."""
    if (out / "study.toml").exists():
        before = parse(StudyConfig, read_toml(out / "study.toml"), str(out / "study.toml"))
        asked = parse(StudyConfig, tomllib.loads(to_toml(cfg)))  # a file has no tuples
        changed = [d for d in differences(before, asked.model_dump()) if not d.startswith(MAY_GROW)]
        if changed:
            raise ConfigError(
                f"{out} is a study with other settings: {'; '.join(changed)}. Choose another --out. "
                f"Only {', '.join(MAY_GROW)} may be extended."
            )
    elif out.exists() and (not out.is_dir() or holds_something(out)):
        raise UserError(f"{out} already exists and is not a study. Choose another --out.", "RUN_EXISTS")


def _begin(out: Path, cfg: StudyConfig, data: Labelled, watch: Watch) -> dict[str, Any]:
    """study.json as it stands before the first cell; on a second start, insisting that the data are the same."""
    paths = [path for path in (cfg.data.train, cfg.data.valid, cfg.data.test) if path]
    files = file_facts(text_files(paths))
    if (out / "study.json").exists():
        state: dict[str, Any] = read_json(out / "study.json", StudyState, "STUDY_DAMAGED")
        changed = [f["file"] for f, g in zip(files, state["data"]["files"], strict=False) if f != g]
        if changed or len(files) != len(state["data"]["files"]):
            raise DataError(f"{', '.join(map(str, changed))}: changed since this study began.", "DATA_CHANGED")
        write_file(out / "study.toml", to_toml(cfg).encode())
        return state
    watch.note("Looking for copies, contradictions and imbalance among the rows ...")
    facts = data.facts()
    if cfg.strict_leakage:
        refuse_leaks(facts["hygiene"])
    if not data.test:
        raise DataError("There are no test rows to compare on. Give --test, or a test_fraction above 0.", "DATA_SMALL")
    for warning in facts["hygiene"]["warnings"] if facts["hygiene"] else []:
        watch.note(f"Note: {warning}")
    state = {"data": {"files": files, **facts}, "environment": {**environment(), "threads": os.cpu_count()}}
    write_file(out / "study.toml", to_toml(cfg).encode())
    _write(out, state)
    return state


def _write(out: Path, state: Mapping[str, Any]) -> None:
    write_file(out / "study.json", to_json(state, indent=1).encode())


def _given(cfg: StudyConfig) -> list[BaseRun]:
    """The bases by the names they were given under, each with the path where it was found."""
    return [BaseRun(base, Path(base), base) if base in PRESETS else _found(base) for base in cfg.bases]


def _found(base: str) -> BaseRun:
    from headstart.bases.pretrained import find_base

    folder = find_base(base)
    return BaseRun(base, _run_of(folder), _shape(folder), _elsewhere(folder))


def _refuse_untrained(cfg: StudyConfig) -> None:
    """A preset is a shape without weights; from scratch, each run makes its tokenizer of its own training rows."""
    presets, others = [base for base in cfg.bases if base in PRESETS], [arm for arm in cfg.trained if arm != "scratch"]
    if presets and others:
        raise ConfigError(
            f"The preset '{presets[0]}' has no pretrained weights, which {', '.join(others)} would start from. Give --base "
            "a pretrained run or model, or leave only scratch, tfidf and majority in --arms."
        )


def _run_of(folder: Path) -> Path:
    """The run that a model belongs to; a model made elsewhere stands for itself."""
    return (folder.parent if Run(folder.parent).there else folder).absolute()


def _pretrained(out: Path, cfg: StudyConfig, watch: Watch) -> Iterator[BaseRun]:
    """The bases that are pretrained as a step of the study: one for each objective, same text, same budget."""
    for objective in cfg.objectives if cfg.pretrain else ():
        from headstart.jobs.pretrain import pretrain

        path = (out / "bases" / objective).absolute()
        watch.note(f"Pretraining: {objective} ...")
        pretrain(cfg.pretraining(objective), path, resume=Run(path).there, watch=watch)
        name = f"{Path(cfg.pretraining(objective).base or '').name} continued".removeprefix(" continued") or str(path)
        yield BaseRun(name, path, _shape(path / "model"), _elsewhere(path / "model"))


def _shape(folder: Path) -> str:
    """Equal for two models that are the same before training: shape and tokenizer."""
    if Run(folder.parent).there:
        config = Run.open(folder.parent).config
        if not isinstance(config, (PretrainConfig, FinetuneConfig)):
            raise ModelError(f"{folder.parent} holds {kind_of(config).noun}, which is no base of a classifier.")
        shape, tokenizer = config.model, (folder / "tokenizer.json").read_bytes()
    else:
        from headstart.bases.pretrained import read_shape

        shape, made = read_shape(folder)
        tokenizer = made.to_json().encode()
    return hashlib.sha256(tokenizer + shape.model_dump_json().encode()).hexdigest()


def _elsewhere(folder: Path) -> bool:
    return not Run(folder.parent).there or isinstance(
        getattr(Run(folder.parent).config, "model", None), HuggingFaceConfig
    )


def _note_bases(state: dict[str, Any], bases: Sequence[BaseRun]) -> None:
    """Keep the weights' checksums; a base that was trained anew would make the cells incomparable."""
    before = {facts["path"]: facts for facts in state.get("bases", {}).values()}
    state["bases"] = {}
    for base in bases:
        if base.shape in PRESETS:  # without weights to keep
            state["bases"][base.name] = {"path": str(base.path), "shape": base.shape, "elsewhere": False, "sha256": ""}
            continue
        folder = base.path / "model" if Run(base.path).there else base.path
        files = sorted(f for f in folder.rglob("*") if f.suffix in WEIGHTS) if folder.is_dir() else [folder]
        now = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        facts = {"path": str(base.path), "shape": base.shape, "elsewhere": base.elsewhere, "sha256": now}
        state["bases"][base.name] = facts
        if before.get(str(base.path), facts)["sha256"] != now:
            raise ConfigError(f"The base {base.path} has changed since this study began. Begin a new study.")


def _chosen(out: Path, wanted: list[Cell], grid: _Grid) -> dict[tuple[str, int], float]:
    """The learning rate that did best on the validation rows, for each arm and number of labels."""
    grid.run(wanted)
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for cell in wanted:
        run = Run(out / "cells" / cell.name)
        valid = run.read_json("result.json").get("valid") if run.finished else None
        if valid and cell.rate:  # a trial that failed is not chosen
            found.setdefault((cell.arm.name, cell.labels), []).append((valid["accuracy"], -valid["loss"], cell.rate))
    return {key: max(scores)[2] for key, scores in found.items()}


class _Grid:
    """Runs cells, one after the other or several at once, remembers which failed, and tells how far all of them are."""

    def __init__(
        self,
        out: Path,
        cfg: StudyConfig,
        rows: int,
        jobs: int,
        watch: Watch,
        planned: Sequence[Cell],
        expected: Mapping[str, float] | None,
    ) -> None:
        self.out, self.cfg, self.rows, self.jobs, self.watch, self.expected = out, cfg, rows, jobs, watch, expected
        self.failures: list[Outcome] = []
        self.weights = {cell.name: self._weight(cell) for cell in self._missing(planned)}
        if expected:  # of a cell that is not in it, as much as of the others
            usual = sum(expected.values()) / max(1, len(expected))
            self.weights = {name: expected.get(name, usual) for name in self.weights}
        self.total, self.done, self.began, self.spent = len(self.weights), 0, time.monotonic(), 0.0

    def run(self, wanted: Sequence[Cell]) -> None:
        for outcome in self._outcomes(self._missing(wanted)):
            self.done, self.spent = self.done + 1, self.spent + self.weights.get(outcome.cell, 0.0)
            if outcome.exit:
                self.failures.append(outcome)
                self.watch.note(f"{outcome.cell} failed (exit code {outcome.exit}): {outcome.message}")
            self.tell(outcome.cell)

    def tell(self, last: str = "") -> None:
        """How many of all runs are done, and how long the others may take: by those that are, at first as expected."""
        left = sum(self.weights.values()) - self.spent
        first = left / self.jobs if self.expected else None
        seconds = (time.monotonic() - self.began) * left / self.spent if self.spent else first
        self.watch.reach(self.done, last, seconds if left > 0 else None)

    def _missing(self, wanted: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in wanted if not (self.out / "cells" / cell.name / "result.json").exists()]

    def _weight(self, cell: Cell) -> float:
        """About how long a cell takes, next to others: its steps, where the base takes part in them."""
        if cell.arm.kind in ("majority", "tfidf", "frozen"):
            return 10.0
        cfg = finetuning(self.cfg, cell, self.out)
        return float(cfg.usual_steps(round(0.8 * (cell.labels or self.rows) / cfg.train.batch_size)))

    def _outcomes(self, missing: Sequence[Cell]) -> Iterator[Outcome]:
        work = [_Work(self.cfg, cell, self.out, self.jobs, verifying()) for cell in missing]
        if self.jobs == 1:
            yield from map(run_cell, work)
            return
        yield from _in_processes(work, self.jobs)


def _in_processes(work: Sequence[_Work], jobs: int) -> Iterator[Outcome]:
    """How cells end that are run several at once; one whose process is killed gets a second try, the others go on."""
    context, rest = multiprocessing.get_context("spawn"), list(work)
    waiting: dict[Future[Outcome], tuple[_Work, ProcessPoolExecutor, bool]] = {}
    with ExitStack() as pools:

        def start(w: _Work, pool: ProcessPoolExecutor | None = None, again: bool = False) -> None:
            """In `pool`, or in a new one: each has one worker, so that one that is killed takes no other with it."""
            pool = pool or pools.enter_context(ProcessPoolExecutor(1, context, end_with_parent))
            try:
                waiting[pool.submit(run_cell, w)] = w, pool, again
            except BrokenProcessPool:  # killed between two cells
                start(w, again=again)

        for _ in range(min(jobs, len(rest))):
            start(rest.pop(0))
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                w, pool, again = waiting.pop(future)
                broken = isinstance(future.exception(), BrokenProcessPool)
                if broken and not again:  # what it had saved is not done twice
                    start(w, again=True)
                    continue
                yield Outcome(w.cell.name, 137, "its process was killed, twice") if broken else future.result()
                if rest:
                    start(rest.pop(0), None if broken else pool)


@dataclass(frozen=True)
class _Work:
    cfg: StudyConfig
    cell: Cell
    out: Path
    jobs: int
    verify: bool  # another process does not know what this one was told


def run_cell(work: _Work) -> Outcome:
    """Train and test one cell; a fault of its own is its outcome, a stop from outside is passed on."""
    name, path = work.cell.name, work.out / "cells" / work.cell.name
    try:
        if work.cell.arm.base is None:
            _run_baseline(work.cfg.data, work.cell, path)
        else:
            with nullcontext() if work.verify else unverified():
                _run_finetuning(work, path)
    except Stopped:
        raise
    except UserError as error:
        return Outcome(name, error.exit_code, str(error))
    except MemoryError:
        return Outcome(name, 6, "out of memory")
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="headstart-crash-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
        return Outcome(name, 1, f"{type(error).__name__}: {error}. Details: {file.name}")
    return Outcome(name)


def _run_finetuning(work: _Work, path: Path) -> None:
    from headstart.jobs.finetune import finetune

    cfg = finetuning(work.cfg, work.cell, (work.out / "features").absolute())
    if work.jobs > 1 and not cfg.train.threads:
        threads = max(1, (os.cpu_count() or 1) // work.jobs)
        cfg = cfg.model_copy(update={"train": cfg.train.model_copy(update={"threads": threads})})
    finetune(cfg, path, resume=Run(path).there)
    if work.cell.trial or work.cell.labels or work.cell.seed:  # the weights of one seed an arm are enough
        shutil.rmtree(path / "model")


def _run_baseline(cfg: LabelledConfig, cell: Cell, path: Path) -> None:
    whole = split_labelled(cfg)
    data = draw(whole, cell.labels, cell.seed) if cell.labels else whole
    made = BASELINES[cell.arm.kind](data)
    records = [
        {"row": i, "label": example.label, "prediction": said, "probabilities": row}
        for i, (example, said, row) in enumerate(zip(data.test, made.predictions, made.probabilities, strict=True))
    ]
    lines = "".join(to_json(record) + "\n" for record in records)
    write_file(path / "predictions.jsonl", lines.encode())
    truth = [data.labels.index(e.label) for e in data.test]
    scores = class_scores(truth, [data.labels.index(said) for said in made.predictions], len(data.labels))
    result = {"test": scores, "seconds": made.seconds, "rate": made.c, "trained_parameters": made.parameters}
    write_file(path / "result.json", to_json(result).encode())
