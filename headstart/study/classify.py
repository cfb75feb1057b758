"""A study of classifiers: its settings and data checked, its bases found or pretrained, its cells planned and run.

    STUDY/
      study.toml    every setting
      study.json    what was found at the start (files, hygiene, bases), the score that chooses, chosen rates, failures, machine
      bases/        what the study itself pretrained
      features/     what frozen bases make of the rows; cleared away at the end
      cells/        a run directory per cell; a baseline has result.json and predictions.jsonl only

plan.py lists the cells, run.py runs them, gather.py makes results.json of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ConfigError, DataError, ModelError, UserError
from headstart.prompts import prompts_for
from headstart.runs.disk import write_file
from headstart.runs.environment import environment
from headstart.runs.kinds import kind_of
from headstart.runs.record_shapes import StudyState
from headstart.runs.records import read_json
from headstart.runs.run import Run, holds_something
from headstart.runs.watch import Watch
from headstart.schema import differences, parse, read_toml, to_toml
from headstart.shapes import PRESETS, is_external
from headstart.strict_json import to_json
from headstart.study.arms import ARMS
from headstart.study.asked import refuse_without_language_head, with_language_heads
from headstart.study.baselines import refuse_impossible
from headstart.study.measured import Measured
from headstart.study.plan import (
    Arm,
    BaseRun,
    Cell,
    StudyConfig,
    arms_of,
    cells,
    finetuning,
    leading_score,
    named_bases,
    trials,
    usual_arms,
)
from headstart.study.run import Cells, Engine, Planned, study_folder
from headstart.study.taken import BaseFacts, StudyFile, bases_of
from headstart.study.which import with_best_base
from headstart.text.files import file_facts
from headstart.text.hygiene import refuse_leaks
from headstart.text.read import text_files
from headstart.text.split import Labelled, split_labelled

WEIGHTS = (".safetensors", ".gguf", ".bin")  # files of a model that hold them
MAY_GROW = ("seeds", "arms", "labels", "bases")  # a study can be extended by these: cells do not depend on each other


def run_study(
    cfg: StudyConfig,
    out: Path,
    jobs: int = 1,
    watch: Watch | None = None,
    expected: Mapping[str, float] | None = None,
    engine: Engine | None = None,
) -> Path:
    """Run whatever of the study is missing in `out`; the folder, ready to be gathered. `expected` are seconds by cell.

    `engine` runs the cells elsewhere; without one they are run here, `jobs` at once.
    """
    watch = watch or Watch()
    engine = engine or (lambda planned: Cells(out, planned, jobs, watch, expected))
    cfg = with_best_base(cfg, out, watch)
    with _begun(cfg, out, watch) as (state, arms, every):
        _run_cells(cfg, out, state, arms, every, engine)
        _finish(out, state)
    return out


def prepare_study(cfg: StudyConfig, out: Path, watch: Watch) -> None:
    """Everything before the first cell: checks, hygiene, and bases that the study pretrains. Workers do the rest."""
    with _begun(with_best_base(cfg, out, watch), out, watch):
        pass


def work_on_study(out: Path, engine: Engine, watch: Watch) -> Callable[[], None]:
    """Run the cells of a study that is prepared, beside other workers; what is left to do once, by one of them."""
    cfg = parse(StudyConfig, read_toml(out / "study.toml"), str(out / "study.toml"))
    if "bases" not in read_json(out / "study.json", StudyState, "STUDY_DAMAGED"):
        raise ConfigError(
            f"{out} is not prepared yet. Let headstart compare ... --prepare --out {out} come to its end."
        )
    state, arms, every = _planned_from(cfg, out, watch)
    _run_cells(cfg, out, state, arms, every, engine)
    return partial(_finish, out, state)


@contextmanager
def _begun(cfg: StudyConfig, out: Path, watch: Watch) -> Iterator[tuple[StudyFile, list[Arm], int]]:
    """The folder of the study, locked, with what is known before the first cell."""
    refuse_untrained(cfg)
    _check_folder(out, cfg)
    with study_folder(out):
        state, arms, every = _planned_from(cfg, out, watch)
        _write(out, state)  # what there is of an interrupted study can be shown
        yield state, arms, every


def _planned_from(cfg: StudyConfig, out: Path, watch: Watch) -> tuple[StudyFile, list[Arm], int]:
    """study.json before the first cell, the arms, and the number of rows to learn from."""
    data = split_labelled(cfg.data)
    every = len(data.train) + len(data.valid)
    if max(cfg.labels) > every:
        raise ConfigError(f"--labels {max(cfg.labels):,}: there are {every:,} training and validation rows.")
    refuse_impossible(cfg, data)
    state = _begin(out, cfg, data, watch)
    bases = named_bases([*_given(cfg), *_pretrained(out, cfg, watch)]) if cfg.trained else []
    bases = with_language_heads(cfg, bases)
    refuse_without_language_head(cfg, bases, watch)
    _note_bases(state, bases)
    return state, arms_of(cfg, bases), every


def _run_cells(cfg: StudyConfig, out: Path, state: StudyFile, arms: list[Arm], every: int, engine: Engine) -> None:
    """Run what is missing; `state` gets the rates that were chosen, and what failed."""
    # A study that began before scores were kept chose by accuracy, and goes on so.
    score = state.get("score", "accuracy")
    plan = partial(_planned, cfg, out, every, score)
    tried = trials(cfg, arms, every)
    first, final = [plan(cell) for cell in tried], [plan(cell) for cell in cells(cfg, arms, {})]
    with engine([*first, *final]) as running:
        running.run(first)
        chosen = _chosen(out, tried, score)
        final_cells = cells(cfg, arms, chosen)
        for later in (False, True):  # those of stack take the scores of others
            running.run([plan(cell) for cell in final_cells if bool(cell.arm.row.after) == later])
    state["rates"] = {f"{arm}~{labels or 'all'}": rate for (arm, labels), rate in chosen.items()}
    state["failures"] = [vars(outcome) for outcome in running.failures]


def planned_cells(
    cfg: StudyConfig, out: Path, state: StudyFile, every: int
) -> tuple[list[tuple[Cell, Planned]], dict[str, float]]:
    """Every cell of a study that was run, trials first, and the rates that its trials choose, as study.json has them."""
    arms, score = arms_of(cfg, bases_of(state)), state.get("score", "accuracy")
    tried = trials(cfg, arms, every)
    chosen = _chosen(out, tried, score)
    every_cell = [*tried, *cells(cfg, arms, chosen)]
    rates = {f"{arm}~{labels or 'all'}": rate for (arm, labels), rate in chosen.items()}
    return [(cell, _planned(cfg, out, every, score, cell)) for cell in every_cell], rates


def _finish(out: Path, state: StudyFile) -> None:
    _write(out, state)
    shutil.rmtree(out / "features", ignore_errors=True)


def with_usual_arms(cfg: StudyConfig, watch: Watch, out: Path | None = None) -> StudyConfig:
    """`cfg` with the arms of a prompt too, where arms are not given and every base with a language head is an external causal model.

    A task other than classify has no majority class, but a constant answer, and no prompt; tags and pairs of texts have baselines of their own.
    The study in `out` goes on with the arms that it has.
    """
    if "arms" in cfg.model_fields_set:
        return cfg
    if out and (out / "study.toml").exists():
        before = parse(StudyConfig, read_toml(out / "study.toml"), str(out / "study.toml"))
        return cfg.model_copy(update={"arms": before.arms})
    data = split_labelled(cfg.data)
    based = bool(cfg.bases or cfg.pretrain)
    cfg = cfg.model_copy(update={"arms": usual_arms(data.target.task, data.reads, based)})
    prompted = data.target.task == ARMS["prompt"].only and data.reads == ARMS["prompt"].reads
    if not prompted or not _prompts_by_default(cfg):
        return cfg
    added = ("zero-shot", "prompt", "ensemble")[: 2 + (len(cfg.bases) > 1)]
    try:
        prompts_for(data.labels, True, cfg.prompts, cfg.label_words)
    except ConfigError as error:
        watch.note(f"Note: the arms {' and '.join(added)} are left out. {error}")
        return cfg
    return cfg.model_copy(update={"arms": (*cfg.arms, *added)})


def _prompts_by_default(cfg: StudyConfig) -> bool:
    """Whether label words are asked for where nobody says: of all bases that have a language head, or of none."""
    well = [base for base in cfg.bases if _asks_well(base)]
    if not well:
        return False
    from headstart.bases.at_hand import has_language_head

    others, trusted = [base for base in cfg.bases if base not in well], bool(cfg.finetune.get("allow_pickle"))
    return not any(base in PRESETS or has_language_head(base, trusted) for base in others)


def _asks_well(base: str) -> bool:
    from headstart.bases.pretrained import find_base, is_ours, made_elsewhere, read_shape

    if base in PRESETS or not made_elsewhere(base):
        return False
    folder = find_base(base)
    return not is_ours(folder) and read_shape(folder)[0].causal


def _planned(cfg: StudyConfig, out: Path, every: int, score: str, cell: Cell) -> Planned:
    """A cell as work; its weight are its steps, where the base takes part in them. `every`: all rows to learn from."""
    if cell.arm.base is None or cell.labels is None or not cell.arm.fine_tuned:
        asked = cell.arm.base is not None and cell.labels is None  # in words, over all test rows
        return Planned(cell.name, Measured(cfg, cell, out.absolute()), weight=50.0 if asked else 10.0)
    job = finetuning(cfg, cell, (out / "features").absolute(), score)
    steps = float(job.usual_steps(round(0.8 * (cell.labels or every) / job.train.batch_size)))
    steps *= 2 if cell.arm.kind == "contrastive" else 1  # of pairs
    first = (
        not (cell.trial or cell.seed) and cell.labels == cfg.labels[-1]
    )  # the weights of one seed per arm are enough
    return Planned(cell.name, job, keep_weights=first, weight=10.0 if job.scope == "head" else steps)


def _chosen(out: Path, wanted: Sequence[Cell], score: str) -> dict[tuple[str, int], float]:
    """The learning rate with the best score on the validation rows, for each arm and number of labels."""
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for cell in wanted:
        run = Run(out / "cells" / cell.name)
        valid = run.read_json("result.json").get("valid") if run.finished else None
        if valid and cell.rate and cell.labels is not None:  # a trial that failed is not chosen
            found.setdefault((cell.arm.name, cell.labels), []).append((valid[score], -valid["loss"], cell.rate))
    return {key: max(scores)[2] for key, scores in found.items()}


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


def _begin(out: Path, cfg: StudyConfig, data: Labelled, watch: Watch) -> StudyFile:
    """study.json as it stands before the first cell; on a second start, insisting that the data are the same."""
    paths = [path for path in (cfg.data.train, cfg.data.valid, cfg.data.test) if path]
    files = file_facts(text_files(paths))
    if (out / "study.json").exists():
        state: StudyFile = read_json(out / "study.json", StudyState, "STUDY_DAMAGED")
        changed = [f["file"] for f, g in zip(files, state["data"]["files"], strict=False) if f != g]
        if changed or len(files) != len(state["data"]["files"]):
            raise DataError(f"{', '.join(map(str, changed))}: changed since this study began.", "DATA_CHANGED")
        write_file(out / "study.toml", to_toml(cfg).encode())
        return state
    watch.note("Looking for duplicates, contradictions and imbalance among the rows ...")
    facts = data.facts()
    if cfg.strict_leakage:
        refuse_leaks(facts["hygiene"])
    if not data.test:
        raise DataError("There are no test rows to compare on. Give --test, or a test_fraction above 0.", "DATA_SMALL")
    for warning in facts["hygiene"]["warnings"] if facts["hygiene"] else ():
        watch.note(f"Note: {warning}")
    state = {
        "data": {"files": files, **facts},
        "score": leading_score(data),
        "environment": {**environment(), "threads": os.cpu_count()},
    }
    if cfg.chosen:
        state["chosen"] = cfg.chosen
    write_file(out / "study.toml", to_toml(cfg).encode())
    _write(out, state)
    return state


def _write(out: Path, state: StudyFile) -> None:
    write_file(out / "study.json", to_json(state, indent=1).encode())


def _given(cfg: StudyConfig) -> list[BaseRun]:
    """The bases by the names they were given under, each with the path where it was found."""
    return [BaseRun(base, Path(base), base) if base in PRESETS else _found(base) for base in cfg.bases]


def _found(base: str) -> BaseRun:
    from headstart.bases.pretrained import find_base

    folder = find_base(base)
    return BaseRun(base, _run_of(folder), _shape(folder), _elsewhere(folder))


def refuse_untrained(cfg: StudyConfig) -> None:
    """A preset is a shape without weights; from scratch, each run makes its tokenizer of its own training rows."""
    presets, others = [base for base in cfg.bases if base in PRESETS], [arm for arm in cfg.trained if arm != "scratch"]
    if presets and others:
        raise ConfigError(
            f"The preset '{presets[0]}' has no pretrained weights, which {', '.join(others)} would start from. Give --base "
            "a pretrained run or model, or leave only scratch, tfidf and majority in --arms."
        )


def _run_of(folder: Path) -> Path:
    """The run that a model belongs to; an external model is its own."""
    return (folder.parent if Run(folder.parent).there else folder).absolute()


def _pretrained(out: Path, cfg: StudyConfig, watch: Watch) -> Iterator[BaseRun]:
    """The bases that are pretrained as a step of the study: one for each objective, same text, same budget."""
    for objective in cfg.objectives if cfg.pretrain else ():
        from headstart.jobs.pretrain import pretrain

        path = (out / "bases" / objective).absolute()
        watch.note(f"Pretraining: {objective} ...")
        if not Run(path).finished:  # a worker finds it so
            pretrain(cfg.pretraining(objective), path, resume=Run(path).there, watch=watch)
        name = f"{Path(cfg.pretraining(objective).base or '').name} continued".removeprefix(" continued") or str(path)
        yield BaseRun(name, path, _shape(path / "model"), _elsewhere(path / "model"))


def _shape(folder: Path) -> str:
    """Equal for two models that are the same before training: shape and tokenizer."""
    if Run(folder.parent).there:
        config = Run.open(folder.parent).config
        if isinstance(config, FinetuneConfig):
            raise ConfigError(
                f"{folder.parent} is a classifier already, and has seen its own rows. Give the pretrained run it was made from as --base."
            )
        if not isinstance(config, PretrainConfig):
            raise ModelError(f"{folder.parent} holds {kind_of(config).noun}, which is no base of a classifier.")
        shape, tokenizer = config.model, (folder / "tokenizer.json").read_bytes()
    else:
        from headstart.bases.pretrained import read_shape

        shape, made = read_shape(folder)
        tokenizer = made.to_json().encode()
    return hashlib.sha256(tokenizer + shape.model_dump_json().encode()).hexdigest()


def _elsewhere(folder: Path) -> bool:
    return not Run(folder.parent).there or is_external(getattr(Run(folder.parent).config, "model", None))


def _note_bases(state: StudyFile, bases: Sequence[BaseRun]) -> None:
    """Keep the weights' checksums; a base that was trained anew would make the cells incomparable."""
    before = {facts["path"]: facts for facts in state.get("bases", {}).values()}
    state["bases"] = {}
    for base in bases:
        if base.shape in PRESETS:  # without weights to keep
            state["bases"][base.name] = {"path": str(base.path), "shape": base.shape, "elsewhere": False, "sha256": ""}
            continue
        now = base_sha256(base.path)
        facts: BaseFacts = {"path": str(base.path), "shape": base.shape, "elsewhere": base.elsewhere, "sha256": now}
        if not base.language_head:
            facts["language_head"] = False
        state["bases"][base.name] = facts
        if before.get(str(base.path), facts)["sha256"] != now:
            raise ConfigError(f"The base {base.path} has changed since this study began. Begin a new study.")


def base_sha256(path: Path) -> str:
    """Of the weights of a base: a run, a folder or a file."""
    folder = path / "model" if Run(path).there else path
    files = sorted(f for f in folder.rglob("*") if f.suffix in WEIGHTS) if folder.is_dir() else [folder]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
