"""The verbs that train: pretrain and finetune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from headstart.cli.app import (
    AnyLabels,
    BadBytes,
    BaseToGoOn,
    Batch,
    ClassWeights,
    CleanLabels,
    Config,
    Context,
    Debug,
    Device,
    DryRun,
    Encoding,
    Json,
    LabelColumn,
    Long,
    LongestLine,
    NoVerify,
    Out,
    Pickle,
    Quiet,
    Rate,
    Resume,
    Seed,
    Set,
    Size,
    SkipBlank,
    Start,
    StrictLeakage,
    StripNul,
    Teacher,
    TextColumn,
    Threads,
    Tokenizer,
    Vectors,
    Vocab,
    app,
    job_config,
    reading_settings,
    row_settings,
    training_settings,
)
from headstart.cli.complete import runs
from headstart.cli.settings import file_settings, has, nested_settings, placed, placed_base
from headstart.cli.terminal import Bar, accuracy_line, guarded, show, show_json, show_notes, show_table
from headstart.quantities import counted, data_size, duration


@app.command()
@guarded
def pretrain(
    corpus: Annotated[
        list[str] | None, Argument(metavar="CORPUS", help="Text: .txt, .csv, .tsv, .jsonl, .parquet, or folders.")
    ] = None,
    base: BaseToGoOn = None,
    out: Out = "runs/pretrained",
    objective: Annotated[
        str | None,
        Option(help="causal (left to right), masked (two-way), distill (from --teacher), or auto. [default: causal]"),
    ] = None,
    teacher: Teacher = None,
    start: Start = None,
    vectors: Vectors = None,
    preset: Annotated[
        str | None, Option(help="gpt, bert or classic. [default: gpt; bert when masked or distilled]")
    ] = None,
    size: Size = None,
    context: Context = None,
    allow_pickle: Pickle = False,
    unit: Annotated[
        str | None, Option(help="What one text is: line, sentence or document. [default: document]")
    ] = None,
    tokenizer: Tokenizer = None,
    vocab: Vocab = None,
    steps: Annotated[int | None, Option(help="Optimizer updates. [default: 2000]")] = None,
    minutes: Annotated[
        float | None, Option(min=0, help="As many updates as fit into this time here, instead of --steps.")
    ] = None,
    batch_size: Annotated[int | None, Option(help="Examples in one forward pass. [default: 32]")] = None,
    lr: Annotated[float | None, Option(help="Peak learning rate. [default: 0.001]")] = None,
    sample: Annotated[
        list[str] | None,
        Option(help="Text to continue after each evaluation; may be given several times. [default: '']"),
    ] = None,
    text_column: TextColumn = None,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = None,
    file: Config = None,
    settings: Set = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a tokenizer and a language model on CORPUS. Or go on with one."""
    from headstart.config import PretrainConfig
    from headstart.errors import UserError

    settled = {"--objective": objective, "--preset": preset, "--size": size, "--tokenizer": tokenizer, "--vocab": vocab,
               "--start": start, "--teacher": teacher}  # fmt: skip
    given: dict[str, Any] = {
        "base": placed_base(base) if base else None,
        "allow_pickle": allow_pickle or None,
        "context": context if base else None,
        "objective": objective,
        "teacher": placed_base(teacher) if teacher else None,
        "start": start,
        "vectors": placed_base(vectors) if vectors else None,
        "samples": tuple(sample) if sample else None,
        "data.paths": tuple(map(placed, corpus)) if corpus else None,
        "data.unit": unit,
        "data.text_column": text_column,
        "tokenizer.kind": tokenizer,
        "tokenizer.vocab": vocab,
        "model.preset": preset,
        "model.size": size,
        "model.context": None if base else context,
        "train.steps": steps,
    }
    given |= reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    given |= training_settings(batch_size, lr, seed, device, threads)
    if objective == "auto":
        named = nested_settings(given, settings, file_settings(PretrainConfig, file) if file else None)
        causal = has(named, "model.preset") and named["model"]["preset"] != "bert"
        given["objective"] = "distill" if has(named, "teacher") else "causal" if causal else "masked"
    needs = {"data.paths": "a CORPUS: files or folders of text"}
    config = job_config(PretrainConfig, given, settings, file, out, resume, needs)
    if config.base and not resume:
        _refuse(settled, base or config.base)
    if minutes is not None and has(nested_settings(given, settings), "train.steps"):
        raise UserError("--minutes and --steps are two ways to say how long. Give one of them.")
    if objective == "auto" and not resume:
        from headstart.jobs.recipe import MINUTES, recipe_for

        own_tokenizer = has(named, "tokenizer.kind")  # which then has entries and capitals of its own
        chosen = {
            k: choice
            for k, choice in recipe_for(config).items()
            if k == "objective" or not (has(named, k) or (own_tokenizer and k.startswith("tokenizer.")))
        }
        given |= {key: choice.value for key, choice in chosen.items()}
        config = job_config(PretrainConfig, given, settings, file, out, resume, needs)
        minutes = MINUTES if minutes is None and not has(named, "train.steps") else minutes
        if not quiet:
            show_notes([f"Chosen: {'; '.join(choice.why for choice in chosen.values())}."])
    if minutes is not None and resume:
        if not quiet:
            show_notes(["A resumed run keeps its own number of updates, whatever --minutes says."])
    elif minutes is not None:
        from headstart.jobs.estimate import within_minutes
        from headstart.runs.run import Run

        if not dry_run:
            Run(Path(out)).must_be_free()
        if not quiet:
            show_notes([f"Preparing everything once, to see how many updates fit into {minutes:g} minutes ..."])
        config = within_minutes(config, minutes)
    if dry_run:
        show_estimate(config, resume, as_json)
        return
    from headstart.jobs.pretrain import pretrain as job

    result = job(config, out, resume, Bar(quiet))
    if as_json:
        show_json(result)
        return
    valid, train = result["valid"], result["train"]
    show(
        f"{result['run']}: {counted(result['steps'], 'step')}, {result['tokens_per_second']:,.0f} tokens/s, {duration(result['seconds'])}"
    )
    if config.teacher:
        near = f"; mean cosine with its vectors of the validation text {valid['similarity']:.3f}" if valid else ""
        show(f"distilled from {config.teacher}{near}")
        return
    if valid:
        bits = f", {valid['bits_per_byte']:.3f} bits a byte" if valid["bits_per_byte"] else ""
        show(f"validation loss {valid['loss']:.4f} nats a token (perplexity {valid['perplexity']:.2f}{bits})")
    if result["beside"]:
        beside = result["beside"]
        show(
            f"beside it: the same model before its first update {beside['untrained']:.3f} bits a byte, xz {beside['xz']:.3f}"
        )
    floor = f"; no model can be below {train['entropy']:.4f}, the text's own entropy" if "entropy" in train else ""
    show(f"training loss {train['loss']:.4f}{floor}")


@app.command()
@guarded
def finetune(
    data: Annotated[
        str | None, Argument(metavar="DATA", help="Labelled rows: .csv, .tsv, .jsonl, .parquet or a folder.")
    ] = None,
    base: Annotated[
        str | None,
        Option(
            help="A pretrained run; a model made elsewhere: a folder, minilm, smollm2, hf:NAME; a preset with --init scratch.",
            autocompletion=runs,
        ),
    ] = None,
    out: Out = "runs/finetuned",
    init: Annotated[str | None, Option(help="pretrained or scratch. [default: pretrained]")] = None,
    allow_pickle: Pickle = False,
    train: Annotated[
        str | None, Option(help="What learns: full, head, last:K layers, or lora. [default: full]")
    ] = None,
    pool: Annotated[
        str | None,
        Option(help="What the head reads: last, cls or mean. [default: what suits the base and the rows]"),
    ] = None,
    long: Long = None,
    epochs: Annotated[int | None, Option(help="Times through the training rows. [default: 10]")] = None,
    labels: Annotated[
        int | None,
        Option(help="Learn from this many rows only; below 200, none are held out for validation. [default: all]"),
    ] = None,
    valid: Annotated[str | None, Option(help="Validation rows. [default: held out from DATA]")] = None,
    test: Annotated[str | None, Option(help="Test rows. [default: held out from DATA]")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    skip_blank: SkipBlank = False,
    clean_labels: CleanLabels = False,
    any_labels: AnyLabels = False,
    class_weights: ClassWeights = False,
    strict_leakage: StrictLeakage = False,
    size: Size = None,
    context: Context = None,
    tokenizer: Tokenizer = None,
    vocab: Vocab = None,
    batch_size: Batch = None,
    lr: Rate = None,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = None,
    file: Config = None,
    settings: Set = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Swap the head of a base for a classifier and train it on DATA."""
    from headstart.config import FinetuneConfig
    from headstart.shapes import PRESETS

    given: dict[str, Any] = {
        "base": placed_base(base) if base else None,
        "init": init,
        "allow_pickle": allow_pickle or None,
        "context": None if base in PRESETS else context,
        "scope": train,
        "pool": pool,
        "long": long,
        "epochs": epochs,
        "class_weights": class_weights or None,
        "strict_leakage": strict_leakage or None,
        "data.train": placed(data) if data else None,
        "data.valid": placed(valid) if valid else None,
        "data.test": placed(test) if test else None,
        "data.labels": labels,
        "data.text_column": text_column,
        "data.label_column": label_column,
        "tokenizer.kind": tokenizer,
        "tokenizer.vocab": vocab,
        "model.preset": base if base in PRESETS else None,
        "model.size": size,
        "model.context": context if base in PRESETS else None,
    }
    given |= row_settings(skip_blank, clean_labels, any_labels)
    given |= reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    given |= training_settings(batch_size, lr, seed, device, threads)
    config = job_config(
        FinetuneConfig,
        given,
        settings,
        file,
        out,
        resume,
        needs={"data.train": "DATA", "base": "--base (a run of headstart pretrain, or gpt with --init scratch)"},
    )
    if config.base not in PRESETS and not resume:
        _refuse({"--size": size, "--tokenizer": tokenizer, "--vocab": vocab}, base or config.base)
    if dry_run:
        show_estimate(config, resume, as_json)
        return
    from headstart.jobs.finetune import finetune as job

    result = job(config, out, resume, Bar(quiet))
    from headstart.runs.run import Run
    from headstart.study.plots import plot_curves

    plot_curves(Run.open(out), Path(out) / "curves.png")
    if as_json:
        show_json(result)
        return
    show(
        f"{result['run']}: {result['trained_parameters']:,} of {result['parameters']:,} parameters trained, {duration(result['seconds'])}"
    )
    if result["valid"]:
        valid_scores = result["valid"]
        show(
            f"validation accuracy {valid_scores['accuracy']:.4f}, loss {valid_scores['loss']:.4f} (step {result['best_step']})"
        )
    if result["valid"] and result["best_step"] == 0:
        show("! training did not improve the validation score: these are the weights it began with")
    if result["test"]:
        show(accuracy_line("test accuracy", result["test"]) + f", macro-F1 {result['test']['macro_f1']:.4f}")
    common = result["commonest"]
    told = ", ".join(f"{name} {common[name]:.4f}" for name in ("valid", "test") if name in common)
    if told:
        show(f"always saying '{common['label']}': {told}")
    if result["overlapping_test_rows"]:
        rest = result["test"]["without_overlap"]
        show(
            f"! {result['overlapping_test_rows']} of the {result['test']['rows']} test rows also stand among the rows learned from"
        )
        show("  " + (accuracy_line("without them", rest) if rest else "without them, there are none"))
    show(f"learning curves: {Path(out) / 'curves.png'}")


def _refuse(settled: dict[str, str | int | None], base: str) -> None:
    """What a base has settled cannot be asked for."""
    from headstart.errors import ConfigError

    refused = [flag for flag, value in settled.items() if value is not None]
    if refused:
        raise ConfigError(f"{', '.join(refused)}: the base {base} settles this. Leave it out.")


def show_estimate(config: Any, resume: bool, as_json: bool) -> None:
    """What a run with these settings would cost."""
    from headstart.errors import UserError

    if resume:
        raise UserError("--dry-run estimates a whole run. Leave out --resume.")
    from headstart.jobs.estimate import estimate

    cost = estimate(config)
    if as_json:
        show_json(cost)
        return
    frozen = cost["parameters"] - cost["trained_parameters"]
    based = f"from {counted(cost['timed_updates'], 'update')} timed here with {counted(cost['threads'], 'thread')}"
    rows = [
        ["parameters", f"{cost['parameters']:,}" + (f", {frozen:,} of them frozen" if frozen else "")],
        ["training text", f"{cost['training_tokens']:,} tokens in {cost['texts']:,} texts; vocabulary {cost['vocabulary']:,}"],
        ["steps", f"{cost['steps']:,}: {cost['tokens']:,} tokens, {cost['epochs']:g} times through the text"],
        ["time", f"{duration(cost['seconds'])}, and {duration(cost['preparing_seconds'])} to prepare; {based}"],
        ["", f"{1000 * cost['update_seconds']:.0f} ms an update, {duration(cost['evaluation_seconds'])} for each of {cost['evaluations']} evaluations"],
        ["memory", f"{data_size(cost['memory_bytes'])} at its peak"],
        ["disk", f"{data_size(cost['disk_bytes'])} while it runs, {data_size(cost['disk_bytes_after'])} afterwards"],
    ]  # fmt: skip
    show_table(["", "about"], rows)
