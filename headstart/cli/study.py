"""The verbs that compare many runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from headstart.cli.app import (
    AnyLabels,
    BadBytes,
    Batch,
    ClassWeights,
    CleanLabels,
    Context,
    Debug,
    Encoding,
    Json,
    LabelColumn,
    Long,
    LongestLine,
    NoVerify,
    Quiet,
    Set,
    Size,
    SkipBlank,
    Start,
    StrictLeakage,
    StripNul,
    Teacher,
    TextColumn,
    Vectors,
    Vocab,
    app,
    reading_settings,
    row_settings,
)
from headstart.cli.grids import DryStudy, Jobs, show_grid
from headstart.cli.settings import nested_settings, placed, placed_base, study_settings
from headstart.cli.terminal import Bar, guarded, show, show_json, show_table
from headstart.quantities import counted, data_size, duration
from headstart.show.table import label

if TYPE_CHECKING:
    from headstart.study.estimate import StudyEstimate
    from headstart.study.results import Results
    from headstart.study.study import Study

LONG = 1800.0  # seconds; a study that takes longer is not started without being asked for twice


@app.command()
@guarded
def runs(
    folder: Annotated[str, Argument(metavar="DIR", help="Where to look.")] = "runs",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List what has been trained below DIR, and what studies showed."""
    from headstart.runs.run import runs_in
    from headstart.study.study import studies_in
    from headstart.study.verdict import headline

    records: list[Mapping[str, Any]] = [*(run.summary() for run in runs_in(folder)), *studies_in(folder)]
    if as_json:
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


@app.command()
@guarded
def compare(
    data: Annotated[
        str | None, Argument(help="Labelled rows: .csv, .tsv, .jsonl, .parquet or a folder.", show_default=False)
    ] = None,
    base: Annotated[
        list[str] | None,
        Option(
            help="A pretrained run, a folder, minilm, smollm2, hf:NAME; for scratch alone gpt, bert or classic; may be given several times."
        ),
    ] = None,
    arms: Annotated[
        str | None, Option(help="Out of majority, tfidf, scratch, frozen, last:K, lora, full; with commas.")
    ] = None,
    seeds: Annotated[int | None, Option(help="Runs of every arm that has chance in it.")] = None,
    labels: Annotated[str | None, Option(help="Label counts to compare at: 50,200,800,all.")] = None,
    out: Annotated[str, Option(help="The study's folder; an interrupted study goes on there.")] = "runs/study",
    corpus: Annotated[
        list[str] | None, Option(help="Text to pretrain a base on, as a step of the study; may be given several times.")
    ] = None,
    objective: Annotated[
        str | None, Option(help="For --corpus: causal, masked, distill, or several with a comma.")
    ] = None,
    teacher: Teacher = None,
    start: Start = None,
    vectors: Vectors = None,
    size: Size = None,
    context: Context = None,
    vocab: Vocab = None,
    unit: Annotated[str | None, Option(help="For --corpus: line, sentence or document.")] = None,
    steps: Annotated[int | None, Option(help="For --corpus: updates of the pretraining.")] = None,
    epochs: Annotated[int | None, Option(help="Times through the training rows, for every arm.")] = None,
    rates: Annotated[str | None, Option(help="Learning rates tried on the validation rows, with commas.")] = None,
    pool: Annotated[
        str | None, Option(help="What the head reads: last, cls or mean. [default: what suits the base and the rows]")
    ] = None,
    long: Long = None,
    class_weights: ClassWeights = False,
    batch_size: Batch = None,
    valid: Annotated[str | None, Option(help="Validation rows; held out from DATA if not given.")] = None,
    test: Annotated[str | None, Option(help="Test rows; held out from DATA if not given.")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    skip_blank: SkipBlank = False,
    clean_labels: CleanLabels = False,
    any_labels: AnyLabels = False,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    strict_leakage: StrictLeakage = False,
    jobs: Jobs = 1,
    yes: Annotated[bool, Option("--yes", help="Start even if it will take more than half an hour.")] = False,
    dry_run: DryStudy = False,
    config: Annotated[Path | None, Option(help="Settings from a TOML file; flags win over it.")] = None,
    settings: Set = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare scratch, frozen and tuned bases and baselines on DATA. Over seeds and label counts."""
    from headstart.errors import UserError
    from headstart.schema import merge, parse
    from headstart.shapes import PRESETS
    from headstart.study.plan import StudyConfig

    if data is None and config is None:
        raise UserError("Missing DATA: labelled rows to compare on.")
    fresh = base is not None and all(name in PRESETS for name in base)  # shapes that are trained from scratch
    given: dict[str, Any] = {
        "data.train": placed(data) if data else None,
        "data.valid": placed(valid) if valid else None,
        "data.test": placed(test) if test else None,
        "data.text_column": text_column,
        "data.label_column": label_column,
        "bases": tuple(map(placed_base, base)) if base else None,
        "arms": _listed(arms),
        "seeds": seeds,
        "labels": tuple(_count(word) for word in _listed(labels) or ()) or None,
        "rates": tuple(_number("--rates", word) for word in _listed(rates) or ()) or None,
        "strict_leakage": strict_leakage or None,
        "objectives": _listed(objective),
        "pretrain.data.paths": tuple(map(placed, corpus)) if corpus else None,
        "pretrain.data.unit": unit,
        "pretrain.teacher": placed_base(teacher) if teacher else None,
        "pretrain.start": start,
        "pretrain.vectors": placed_base(vectors) if vectors else None,
        "pretrain.model.size": None if fresh else size,
        "pretrain.model.context": None if fresh else context,
        "pretrain.tokenizer.vocab": None if fresh else vocab,
        "pretrain.train.steps": steps,
        "finetune.model.size": size if fresh else None,
        "finetune.model.context": context if fresh else None,
        "finetune.tokenizer.vocab": vocab if fresh else None,
        "finetune.epochs": epochs,
        "finetune.pool": pool,
        "finetune.long": long,
        "finetune.class_weights": class_weights or None,
        "finetune.train.batch_size": batch_size,
    }
    given |= row_settings(skip_blank, clean_labels, any_labels)
    given |= reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    nested = merge(study_settings(config) if config else {}, nested_settings(given, settings))
    study_config = parse(StudyConfig, nested, str(config) if config else "the settings")
    expected: dict[str, float] | None = None
    if dry_run or not (yes or (Path(out) / "study.json").exists()):
        from headstart.study.estimate import study_estimate

        cost, expected = study_estimate(study_config, jobs)
        if dry_run and as_json:
            show_json(cost)
        elif dry_run or not quiet:
            _show_cost(cost, dry_run)
        if dry_run:
            return
        if cost["seconds"] > LONG and not _agreed():
            raise UserError("This takes more than half an hour. Start it with --yes.")
    from headstart.study.study import Study

    study = Study.run(study_config, Path(out), jobs, Bar(quiet), expected)
    if as_json:
        show_json(study.results.plain())
        return
    _show_study(study)


@app.command()
@guarded
def report(
    study: Annotated[str, Argument(metavar="STUDY", help="The folder of a study.", show_default=False)],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build the page of STUDY again from its runs. With its table and its figures."""
    from headstart.study.grid import open_grid, write_grid
    from headstart.study.study import Study, grid_in

    folder = Path(study)
    grid = grid_in(folder)
    if grid:
        results = open_grid(grid, folder)
        write_grid(grid, folder, results)
        show_json(results.plain()) if as_json else show_grid(grid, folder, results)
        return
    built = Study.open(folder)
    built.write()
    if as_json:
        show_json(built.results.plain())
        return
    _show_study(built)


def _show_cost(cost: StudyEstimate, asked: bool) -> None:
    sentence = (
        f"{counted(cost['cells'], 'cell')}, about {duration(cost['seconds'])} with {cost['jobs']} at once "
        f"({duration(cost['pretraining_seconds'])} of that pretraining); {data_size(cost['memory_bytes'])} of memory"
    )
    show(sentence) if asked else sys.stderr.write(sentence + "\n")


def _agreed() -> bool:
    """Whether someone at the terminal says so; where there is none, no."""
    return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm("Start?", err=True)


def _show_study(study: Study) -> None:
    _show_arms(study.results)
    show()
    show(study.verdict)
    for failure in study.results.failures:
        show(f"! {failure.cell} failed with exit code {failure.exit}: {failure.message}")
    show(f"the whole page: {study.page}")


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


def _listed(words: str | None) -> tuple[str, ...] | None:
    return tuple(word.strip() for word in words.split(",")) if words else None


def _count(word: str) -> int:
    from headstart.errors import UserError

    if word != "all" and not word.isdecimal():
        raise UserError(f"--labels: '{word}' is neither a whole number nor all.")
    return 0 if word == "all" else int(word)


def _number(flag: str, word: str) -> float:
    from headstart.errors import UserError

    try:
        return float(word)
    except ValueError:
        raise UserError(f"{flag}: '{word}' is not a number.") from None


@app.command()
@guarded
def demo(
    out: Annotated[str, Option(help="Where the runs and the page go.")] = "runs/demo",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the main job on public film reviews. Pretrains, fine-tunes, compares, concludes: about four minutes."""
    from headstart.study.demo import run_demo

    made = run_demo(Path(out), Bar(quiet))
    study = made.study
    if as_json:
        also = {"predictions": made.predictions, "generated": made.generated, "page": str(study.page)}
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
