"""Whether a study or a run is what it claims to be: `headstart verify`. Torch is loaded only by what predicts or runs again.

Everything that can be derived is derived again: hashes from files, statistics, tables, figures and the page from the kept predictions,
settings from the plan. One cell, chosen at random, and every baseline that is quickly fitted are run again. Whoever forges all files of a
cell consistently is found only if that cell is run again: `--cell` names it, and `--cell all` runs every one.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import Any

from headstart.config import FinetuneConfig, JobConfig
from headstart.errors import ModelError, UserError, did_you_mean, first_line
from headstart.quantities import counted
from headstart.runs.consistency import log_disagrees, settings_disagree, test_rows_disagree, weights_disagree
from headstart.runs.manifest import NAME
from headstart.runs.record_shapes import StudyState
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import PRESETS
from headstart.strict_json import to_json
from headstart.study.check import Verification
from headstart.study.classify import base_sha256, planned_cells
from headstart.study.gather import Gathered, gather, opened
from headstart.study.grid import Grid, GridState, open_grid, write_grid
from headstart.study.plan import Cell
from headstart.study.report import write_report
from headstart.study.rerun import alike, check_again, planned_run
from headstart.study.rewritten import check_written
from headstart.study.run import Planned
from headstart.study.study import grid_in
from headstart.study.taken import read_predictions
from headstart.text.files import file_facts

QUICK = 60.0  # seconds that the baselines took which are all fitted again
ALL = "all"  # every cell, as a value of --cell
AGAIN = 16  # test rows that kept weights classify again
CLOSE = 1e-3  # of a probability, by the same weights


def verify(
    folder: str | Path,
    cells: Sequence[str] = (),
    rerun: bool = True,
    seed: int | None = None,
    watch: Watch | None = None,
) -> Verification:
    """Check a study or a run; `cells` are those to run again, else `seed` chooses one."""
    folder, watch = Path(folder), watch or Watch()
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    if grid := grid_in(folder):
        found, planned = _verify_grid(grid, folder)
    elif os.path.lexists(folder / "study.json"):
        found, planned = _verify_study(folder)
    elif Run(folder).there:
        found, planned = _verify_run(folder)
    else:
        raise ModelError(f"{folder} is neither a study nor a run.", "RUN_MISSING")
    if not rerun:
        found.leave("run again", "left out by --no-rerun")
    elif not planned:
        found.leave("run again", "no finished cell can be planned again")
    else:
        found.seed = seed
        _run_again(found, planned, cells, seed, watch)
    return found


def _run_again(
    found: Verification, planned: Mapping[str, Planned], names: Sequence[str], seed: int, watch: Watch
) -> None:
    unknown = next((name for name in names if name not in planned and name != ALL), None)
    if unknown:
        raise UserError(f"--cell: no finished cell is called '{unknown}'.{did_you_mean(unknown, planned)}")
    place = {name: found.folder if found.kind == "run" else found.folder / "cells" / name for name in planned}
    trained = [name for name in planned if Run(place[name]).there]
    baselines = [name for name in planned if name not in trained]
    chosen = list(planned) if ALL in names else list(names)
    if not chosen:
        cost = {name: float(Run(place[name]).read_json("result.json").get("seconds") or 0.0) for name in baselines}
        left = QUICK
        for name in sorted(baselines, key=cost.__getitem__):
            left -= cost[name]
            chosen += [name] if left >= 0 else []
        if slow := [name for name in baselines if name not in chosen]:
            found.leave("baselines run again", f"{', '.join(slow)} would take longer than {QUICK:.0f} s; see --cell")
        chosen += [random.Random(seed).choice(trained)] if trained else []
    for name in chosen:
        watch.note(f"Running {name} again ...")
        check_again(found, planned[name], place[name], found.folder if found.kind == "study" else None, watch)


def _verify_run(folder: Path) -> tuple[Verification, dict[str, Planned]]:
    run = Run.open(folder)
    found = Verification(folder, "run")
    _check_runs(found, {"": run})
    _check_files(found, run.read_json("data.json")["files"])
    found.hold("scores from the predictions", test_rows_disagree(run))
    if run.job == "finetune" and (folder / "predictions.jsonl").exists():
        texts = [row.get("text") for row in run.read_lines("predictions.jsonl")][:AGAIN]
        if all(isinstance(text, str) for text in texts):
            found.hold("predictions by the kept weights", _predicted_again(run, [str(text) for text in texts]))
        else:
            found.leave("predictions by the kept weights", "the texts are not kept beside the predictions")
    return found, {folder.resolve().name: planned_run(run)}


def _verify_grid(grid: Grid[Any, Any], folder: Path) -> tuple[Verification, dict[str, Planned]]:
    found = Verification(folder, "grid")
    state = read_json(folder / grid.file, GridState, "STUDY_DAMAGED")
    if state.get("plan") is None:
        found.leave("plan", "the grid was made before plans were kept")
        return found, {}
    cfg = parse(grid.config, state["plan"], str(folder / grid.file))
    planned = {cell.name: cell for cell in grid.plan(cfg) if (folder / "cells" / cell.name / "result.json").exists()}
    try:
        now = {name: [f["sha256"] for f in file_facts(files)] for name, files in grid.data(cfg).items()}
        found.hold("data files", (f"{n} has changed" for n in now if state["data"].get(n) != now[n]))
    except UserError as error:
        found.leave("data files", first_line(error))
    _check_runs(found, {name: Run(folder / "cells" / name) for name in planned})
    found.hold("settings as planned", _unplanned(folder, planned))
    _check_results(found, grid, folder)
    return found, planned


def _check_results(found: Verification, grid: Grid[Any, Any], folder: Path) -> None:
    try:
        results = open_grid(grid, folder)
    except UserError as error:
        found.hold("results.json", [first_line(error)])
        return
    check_written(found, results, lambda again: write_grid(grid, again, results), "")


def _verify_study(folder: Path) -> tuple[Verification, dict[str, Planned]]:
    found = Verification(folder, "study")
    state = read_json(folder / "study.json", StudyState, "STUDY_DAMAGED")
    there = _check_files(found, state["data"]["files"])
    try:
        study = opened(folder)
    except UserError as error:
        if there:  # the data are what they were, so the study is not
            found.hold("statistics", [first_line(error)])
        else:
            found.leave("statistics, table, figures, settings", first_line(error))
        runs = {p.name: Run(p) for p in sorted((folder / "cells").glob("*")) if Run(p).there and Run(p).finished}
        _check_runs(found, runs)
        return found, {}
    found.hold("facts about the rows", _facts_disagree(study), "duplicates, overlaps, label counts")
    _check_bases(found, study)
    every_cell, rates = planned_cells(study.cfg, folder, study.state, study.every)
    done = [(c, p) for c, p in every_cell if (folder / "cells" / p.name / "result.json").exists()]
    planned = {p.name: p for _, p in done}
    found.hold("settings as planned", _unplanned(folder, planned), "seeds, sampled rows, rates")
    kept = study.state.get("rates", {})
    found.hold("learning rates", (f"{k}: {kept.get(k)}, not {v}" for k, v in rates.items() if kept.get(k) != v))
    _check_runs(found, {name: run for name in planned if (run := Run(folder / "cells" / name)).there})
    found.hold("seeds differ", _copies(folder, [c for c, _ in done]))
    final = [c for c, _ in done if not c.trial]
    found.hold("test rows of every cell", _other_rows(study, final))
    found.hold("scores of every cell", _other_scores(study, final))
    _check_kept_weights(found, study, final)
    try:
        results = gather(folder)
    except UserError as error:
        found.hold("results.json", [first_line(error)])
        return found, planned
    made_by = study.state["environment"]["versions"].get("headstart", "")

    def write(again: Path) -> None:
        results.write(again)
        write_report(again, results)

    check_written(found, results, write, made_by)
    return found, planned


def _check_files(found: Verification, files: Sequence[Mapping[str, Any]]) -> bool:
    """The data files by their hashes; whether all of them are there and as they were."""
    missing = [f["file"] for f in files if not Path(f["file"]).is_file()]
    if missing:
        found.leave("data files", f"{', '.join(missing)}: not there")
        return False

    def changed() -> Iterator[str]:
        for before, now in zip(files, file_facts([Path(f["file"]) for f in files]), strict=True):
            if before["sha256"] != now["sha256"]:
                yield f"{before['file']} is not the file that was used (its SHA-256 differs)"

    return found.hold("data files", changed(), counted(len(files), "file"))


def _check_runs(found: Verification, runs: Mapping[str, Run]) -> None:
    """What every run keeps about itself; only some cells of a study keep their weights."""

    def each(check: Any, some: Iterable[str]) -> Iterator[str]:
        for name in some:
            try:
                yield from (f"{name}: {fault}" if name else fault for fault in check(runs[name]))
            except (UserError, OSError) as error:
                yield f"{name}: {first_line(error)}"

    if not runs:
        return
    told = counted(len(runs), "run") if len(runs) > 1 else ""
    found.hold("seeds and settings", each(settings_disagree, runs), told)
    found.hold("logs and results", each(log_disagrees, runs), told)
    models = [name for name, run in runs.items() if (run.path / "model").is_dir()]
    old = [
        name for name in models if not (runs[name].path / "model" / NAME).exists() and not _names_weights(runs[name])
    ]
    if old:
        found.leave("model files", f"{' '.join([*old, 'model/']).strip()} was written before there were manifests")
    models = [name for name in models if name not in old]
    if models:
        found.hold("model files", each(weights_disagree, models), counted(len(models), "model"))


def _names_weights(run: Run) -> bool:
    return bool(run.read_json("result.json").get("weights_sha256"))


def _check_bases(found: Verification, study: Gathered) -> None:
    bases = {name: base for name, base in study.bases.items() if base["shape"] not in PRESETS}
    if missing := [base["path"] for base in bases.values() if not Path(base["path"]).exists()]:
        found.leave("bases", f"{', '.join(missing)}: not there")
    elif bases:
        changed = (n for n, b in bases.items() if base_sha256(Path(b["path"])) != b["sha256"])
        found.hold("bases", (f"the weights of {name} are not those that were used" for name in changed))


def _facts_disagree(study: Gathered) -> Iterator[str]:
    """What study.json says about the rows, found again."""
    facts, kept = json.loads(to_json(study.data.facts())), study.state["data"]
    yield from (f"study.json: {key} is not what the rows give" for key in facts if not alike(facts[key], kept.get(key), 1e-9))  # fmt: skip


def _unplanned(folder: Path, planned: Mapping[str, Planned]) -> Iterator[str]:
    """Runs with other settings than their name stands for; where a cache or the data lie may change."""
    for name, cell in planned.items():
        run = Run(folder / "cells" / name)
        if not isinstance(cell.work, JobConfig):
            if run.there:
                yield f"{name}: a baseline keeps no settings, and this cell does"
            continue
        if not run.there:
            yield f"{name}: env.json is missing"
            continue
        try:
            unlike = run.differences(cell.work)
        except UserError as error:
            yield f"{name}: {first_line(error)}"
            continue
        yield from (f"{name}: {told}" for told in unlike if not told.startswith(("features:", "data.pairs:")))


def _copies(folder: Path, cells: Sequence[Cell]) -> Iterator[str]:
    """Trained cells of one arm whose weights, or whole logs, are the same though their seeds differ."""
    seen: dict[tuple[str, str], str] = {}
    for cell in cells:
        run = Run(folder / "cells" / cell.name)
        if not run.there or not cell.arm.varies(cell.labels):
            continue
        log = [{k: v for k, v in record.items() if k != "wall"} for record in run.read_lines("log.jsonl")]
        for mark in (run.read_json("result.json").get("weights_sha256"), to_json(log) if len(log) > 2 else None):
            if not mark or (cell.arm.kind == "frozen" and cell.labels == 0):
                continue
            other = seen.setdefault((cell.arm.name, mark), cell.name)
            if other != cell.name:
                yield f"{cell.name} is a copy of {other}"
                break


def _other_rows(study: Gathered, cells: Sequence[Cell]) -> Iterator[str]:
    """Cells whose predictions are of other rows, or of other labels, than the test rows of the study."""
    true = [study.target.written(label) for label in study.truth]
    for cell in cells:
        try:
            records = list(Run(study.out / "cells" / cell.name).read_lines("predictions.jsonl"))
        except UserError as error:
            yield f"{cell.name}: {first_line(error)}"
            continue
        if [record.get("row") for record in records] != list(range(len(true))):
            yield f"{cell.name}: its predictions are not of the {len(true)} test rows in their order"
            continue
        unlike = [i for i, record in enumerate(records) if not alike(record.get("label"), true[i], 1e-6)]
        if unlike:
            yield f"{cell.name}: row {unlike[0]} has another label than in the data"


def _other_scores(study: Gathered, cells: Sequence[Cell]) -> Iterator[str]:
    """Cells whose scores are not those of their predictions."""
    for cell in cells:
        path = study.out / "cells" / cell.name
        try:
            said, _ = read_predictions(path, study.target, len(study.truth))
            kept = Run(path).read_json("result.json").get("test") or {}
        except UserError as error:
            yield f"{cell.name}: {first_line(error)}"
            continue
        scores = study.target.scores(study.truth, said)
        wrong = [name for name, value in scores.items() if name in kept and not alike(kept[name], value, 1e-6)]
        if wrong or not kept:
            yield f"{cell.name}: {', '.join(wrong) or 'the test score'} in result.json is not that of its predictions"
        elif study.target.task == "classify":
            yield from (f"{cell.name}: {fault}" for fault in test_rows_disagree(Run(path)))


def _check_kept_weights(found: Verification, study: Gathered, cells: Sequence[Cell]) -> None:
    runs = [run for cell in cells if ((run := Run(study.out / "cells" / cell.name)).path / "model").is_dir()]
    if not runs:
        return
    if study.target.task != "classify" or study.data.reads != "text":
        found.leave("predictions by the kept weights", "only for classes of single texts")
        return
    texts = [example.text for example in study.data.test[:AGAIN]]

    def wrong() -> Iterator[str]:
        for run in runs:
            yield from (f"{run.path.name}: {fault}" for fault in _predicted_again(run, texts))

    found.hold("predictions by the kept weights", wrong(), f"{len(texts)} rows of {counted(len(runs), 'cell')}")


def _predicted_again(run: Run, texts: Sequence[str]) -> Iterator[str]:
    """Some test rows by the weights that are kept, against predictions.jsonl."""
    from headstart.use.predict import LoadedClassifier

    assert isinstance(run.config, FinetuneConfig), "only classifiers have predictions"
    model = LoadedClassifier.load(run.path)
    if model.target.task != "classify":
        return
    for record, row in zip(run.read_lines("predictions.jsonl"), model.probabilities(texts), strict=False):
        kept = record["probabilities"]
        if not all(isclose(kept.get(label, -1), p, abs_tol=CLOSE) for label, p in zip(model.labels, row, strict=True)):
            yield f"row {record.get('row')} of predictions.jsonl is not what the weights in model/ give"
            return
