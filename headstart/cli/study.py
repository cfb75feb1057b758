"""The verbs that compare many runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headstart.cli.app import app, verb
from headstart.cli.flags import Given
from headstart.cli.grids import engine, must_run, show_grid, show_prepared
from headstart.cli.settings import nested_settings, study_settings
from headstart.cli.terminal import Bar, show, show_json, show_table
from headstart.errors import UserError
from headstart.quantities import counted, data_size, duration
from headstart.show.table import label

if TYPE_CHECKING:
    from headstart.study.against import Against
    from headstart.study.estimate import StudyEstimate
    from headstart.study.plan import StudyConfig
    from headstart.study.results import Results
    from headstart.study.study import Study

LONG = 1800.0  # seconds; a study that takes longer is not started without being asked for twice


@verb(app, "runs")
def runs(given: Given) -> None:
    """List what has been trained below DIR, and what studies showed."""
    from headstart.runs.run import runs_in
    from headstart.study.study import studies_in
    from headstart.study.verdict import headline

    records: list[Mapping[str, Any]] = [*(run.summary() for run in runs_in(given["DIR"])), *studies_in(given["DIR"])]
    if given["--json"]:
        show_json(records)
        return
    names = {"valid_loss": "validation loss", "valid_accuracy": "accuracy", "test_accuracy": "test accuracy"}
    if any(r.get("valid_recall@5") is not None for r in records):
        names |= {"valid_recall@5": "recall@5", "test_recall@5": "test recall@5"}
    rows = [
        [r["run"], r["job"] or "?", r["state"], *("" if r.get(n) is None else f"{r[n]:.4f}" for n in names),
         "" if r["seconds"] is None else duration(r["seconds"])]
        for r in records
    ]  # fmt: skip
    header = ["run", "job", "state", *names.values(), "time"]
    show_table(header, rows, right=range(3, len(header)))
    for record in records:
        if record["problem"]:
            show(f"! {record['problem']}")
    for record in records:
        if record.get("verdict"):
            show(f"\n{record['run']}: {headline(record['verdict'])}")


@verb(app, "compare")
def compare(given: Given) -> None:
    """Compare scratch, frozen and tuned bases and baselines on DATA. Over seeds and label counts."""
    other = given["--against"]
    if other:
        must_be_study(Path(other))
    run_study(study_config(given), Path(given["--out"]), given, other)


def run_study(config: StudyConfig, out: Path, given: Given, other: str | None = None) -> None:
    """Run a study, or estimate it, and show it; one that takes long only if that is agreed to."""
    from headstart.study.at_once import runs_at_once
    from headstart.study.classify import with_usual_arms
    from headstart.study.which import with_best_base

    must_run(given)
    dry_run = given["--dry-run"]
    config = with_best_base(config, out, Bar(given["--quiet"]))
    config = with_usual_arms(config, Bar(given["--quiet"]), out)
    if given.values.get("--prepare"):
        from headstart.study.classify import prepare_study

        prepare_study(config, out, Bar(given["--quiet"]))
        show_prepared(out, given)
        return
    jobs = given["--jobs"] or (1 if given.values.get("--on") else runs_at_once(config))
    if jobs > 1 and not given["--jobs"] and not dry_run:
        Bar(given["--quiet"]).note(f"{jobs} runs at once, as the base is small. --jobs 1 runs one with all threads.")
    expected: dict[str, float] | None = None
    if dry_run or not (given["--yes"] or (out / "study.json").exists()):
        from headstart.study.estimate import study_estimate

        cost, expected = study_estimate(config, jobs)
        if dry_run and given["--json"]:
            show_json(cost)
        elif dry_run or not given["--quiet"]:
            _show_cost(cost, dry_run)
        if dry_run:
            return
        if cost["seconds"] > LONG and not _agreed():
            raise UserError("This takes more than half an hour. Start it with --yes.")
    from headstart.study.study import Study

    with engine(given, out, expected) as elsewhere:
        study = Study.run(config, out, jobs, Bar(given["--quiet"]), expected, elsewhere)
    _show_study(study, given["--json"], other)


def study_config(given: Given) -> StudyConfig:
    """The settings of a study. A flag that a job has too is for the study's pretraining or for its fine-tuning."""
    from headstart.schema import merge, parse
    from headstart.shapes import PRESETS
    from headstart.study.plan import StudyConfig

    file, bases = given["--config"], given["--base"]
    if given["DATA"] is None and file is None:
        raise UserError("Missing DATA: labelled rows to compare on.")
    shape = "finetune" if bases and all(base in PRESETS for base in bases) else "pretrain"  # where a shape is trained
    jobs = {"model": shape, "tokenizer": shape, **dict.fromkeys(("teacher", "start", "vectors"), "pretrain")}
    base_settings = study_settings(file) if file else {}
    pretrains = bool(given["--corpus"] or base_settings.get("pretrain"))
    settings = {}
    for name, value in given.settings().items():
        if pretrains and name in ("train.device", "train.threads"):
            settings[f"pretrain.{name}"] = value
        if name == "model.context" and shape == "pretrain" and not given["--corpus"]:
            name = "context"  # of a base that is there
        table = name.partition(".")[0]
        settings[name if table in StudyConfig.model_fields else f"{jobs.get(table, 'finetune')}.{name}"] = value
    nested = merge(base_settings, nested_settings(settings, given["--set"]))
    return parse(StudyConfig, nested, str(file) if file else "the settings")


@verb(app, "work")
def work(given: Given) -> None:
    """Run cells of a STUDY that was prepared. Any number of workers may, on machines that share its folder."""
    from headstart.study.grid import open_grid
    from headstart.study.study import Study, grid_in
    from headstart.study.work import work as work_on

    folder, as_json = Path(given["STUDY"]), given["--json"]
    work_on(folder, Bar(given["--quiet"]), given["--beat"])
    if grid := grid_in(folder):
        results = open_grid(grid, folder)
        show_json(results.plain()) if as_json else show_grid(grid, folder, results)
        return
    _show_study(Study.open(folder), as_json)


@verb(app, "report")
def report(given: Given) -> None:
    """Build the page of STUDY again from its runs. With its table and its figures."""
    from headstart.study.grid import open_grid, write_grid
    from headstart.study.study import Study, grid_in

    folder, as_json = Path(given["STUDY"]), given["--json"]
    if grid := grid_in(folder):
        results = open_grid(grid, folder)
        write_grid(grid, folder, results)
        show_json(results.plain()) if as_json else show_grid(grid, folder, results)
        return
    study = Study.open(folder)
    study.write()
    _show_study(study, as_json, given["--against"])


def must_be_study(folder: Path) -> None:
    """Refuse, before anything is run, a folder to compare with that holds no study."""
    from headstart.study.gather import opened

    opened(folder)


def _show_against(found: Against, page: Path) -> None:
    from headstart.study.against import table_of

    table = table_of(found)
    show(f"\n{found.here} beside {found.there}:")
    show_table(list(table.columns), [list(row) for row in table.rows], right=table.right)
    show(f"\n{found.verdict}")
    show(f"the page of both: {page}")


def _show_cost(cost: StudyEstimate, asked: bool) -> None:
    sentence = (
        f"{counted(cost['cells'], 'cell')}, about {duration(cost['seconds'])} with {cost['jobs']} at once "
        f"({duration(cost['pretraining_seconds'])} of that pretraining); {data_size(cost['memory_bytes'])} of memory"
    )
    show(sentence) if asked else sys.stderr.write(sentence + "\n")


def _agreed() -> bool:
    """Whether someone at the terminal says so; where there is none, no."""
    return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm("Start?", err=True)


def _show_study(study: Study, as_json: bool, other: str | None = None) -> None:
    from headstart.study.against import against, record_of, write_against

    found = against(study.folder, Path(other)) if other else None
    page = write_against(found) if found else None
    if as_json:
        beside = {"against": record_of(found)} if found else {}
        show_json({**study.results.plain(), **beside})
        return
    _show_arms(study.results)
    show()
    show(study.verdict)
    for failure in study.results.failures:
        show(f"! {failure.cell} failed with exit code {failure.exit}: {failure.message}")
    show(f"the whole page: {study.page}")
    if found and page:
        _show_against(found, page)


def _show_arms(results: Results) -> None:
    for notice in results.notices:
        show(f"! {notice}")
    rows = [
        [
            str(arm.labels),
            arm.name,
            "" if arm.mean is None else f"{arm.mean:.3f}",
            "{:.3f} to {:.3f}".format(*arm.interval) if arm.interval else "",
            "" if arm.sd is None else f"{arm.sd:.3f}",
            str(arm.seeds),
            duration(arm.cost.seconds or 0.0),
        ]
        for arm in results.arms
    ]
    header = ["labels", "arm", f"test {results.score_name}", "95 % interval", "sd", "seeds", "time"]
    show_table(header, rows, right=(0, 2, 4, 5, 6))


@verb(app, "demo")
def demo(given: Given) -> None:
    """Run the main job on public film reviews. Pretrains, fine-tunes, compares, concludes: about five minutes."""
    from headstart.study.demo import run_demo

    out = given["--out"] or ("runs/demo-quick" if given["--quick"] else "runs/demo")
    made = run_demo(Path(out), Bar(given["--quiet"]), given["--packs"], given["--quick"])
    study = made.study
    if given["--json"]:
        asked = made.asked.results.plain() if made.asked else None
        also = {"predictions": made.predictions, "generated": made.generated, "page": str(study.page), "asked": asked}
        show_json({**study.results.plain(), **also})
        return
    _show_arms(study.results)
    show()
    for record in made.predictions:
        show(f"{record['label']:>8} {max(record['probabilities'].values()):.2f}  {record['text']}")
    show()
    show("generated: " + " ".join(f"{label(t['token'])}[{t['probability']:.2f}]" for t in made.generated["tokens"]))
    show()
    show(study.verdict)
    show(f"the whole page: {study.page}")
    if made.asked:
        show("\nA pretrained language model on the same rows, asked in words:\n")
        _show_study(made.asked, as_json=False)
