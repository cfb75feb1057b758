"""What a study compares: its settings, its arms, and the cells that have to be run. No torch.

A cell is one arm, trained on one number of labels with one seed. Arms differ in where their weights start and in what
is trained, and in nothing else: same rows, same number of steps, same number of learning rates tried. Only the arm
contrastive has another loss too, and reads two texts where the others read one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from headstart.config import PROMPTED_STEPS, FinetuneConfig, Objective, PretrainConfig
from headstart.data import LabelledConfig
from headstart.errors import ConfigError
from headstart.prompts import AUTO, must_be_template
from headstart.schema import Frozen, merge, parse
from headstart.study.arms import ARM, ARMS, BASELINES, ArmKind, arm_kind
from headstart.targets.tasks import TARGETS
from headstart.task import Input, Task
from headstart.text.split import SELECTED_FROM, Labelled

PROMPTED: dict[str, Any] = {
    "epochs": 5,
    "train": {"batch_size": 8},
}  # a head that starts from label words has little to learn
CHECKPOINT_EVERY = 2000  # steps: most cells are done sooner, and a killed one is run again
TRIAL_SEED = 1000  # of the runs that only choose a rate: no seed that is compared later


def usual_arms(task: Task, reads: Input, based: bool = True) -> tuple[str, ...]:
    """The arms of a study that names none, without those of a prompt; `based`: there is a base.

    >>> usual_arms("tag", "text")
    ('most-frequent-tag', 'crf', 'scratch', 'frozen', 'full')
    """
    own = [
        name
        for name, kind in ARMS.items()
        if kind.usual and (kind.reads is None or (kind.reads == reads and (based or not kind.based)))
    ]
    return tuple(sorted([*TARGETS[task].baselines, *own], key=list(ARMS).index))


USUAL = usual_arms("classify", "text")  # where none is named


class StudyConfig(Frozen):
    """Arms x seeds x label counts on one split: what is compared with what."""

    data: LabelledConfig
    bases: tuple[
        str, ...
    ] = ()  # runs or external models, or auto, the default without a corpus; those pretrained by the study itself come after them
    arms: tuple[str, ...] = USUAL  # or others of ARMS
    seeds: int = Field(5, ge=1)
    labels: tuple[int, ...] = (0,)  # training rows, validation rows included; 0 = all
    prompts: tuple[
        str, ...
    ] = ()  # templates with {text}; zero-shot averages them, prompt tunes the first; empty: by the labels
    label_words: dict[str, str] = Field(default_factory=dict)  # of the prompts, by label
    chosen: str = ""  # why this base, where it was chosen on the training rows (--base auto)
    rates: tuple[float, ...] = ()  # learning rates tried on the validation rows; empty: three that suit the arm
    least_steps: int = Field(300, ge=1)  # at least, however few the labels
    strict_leakage: bool = False  # reject test rows that are also training rows
    static_vectors: str = "english-vectors"  # of the arm static: a pack, a .vec file or the folder of a spaCy pipeline
    objectives: tuple[Objective, ...] = ("causal",)  # each gives a base, when there is a corpus to pretrain on
    pretrain: dict[str, Any] = Field(
        default_factory=dict
    )  # settings of that pretraining, as in its config.toml; its data.paths is the corpus
    finetune: dict[str, Any] = Field(
        default_factory=dict
    )  # settings of every arm that is trained, as in its config.toml

    @model_validator(mode="before")
    @classmethod
    def base_is_chosen(cls, given: Any) -> Any:
        """Arms that need a base have the best at hand, if neither a base nor a corpus is given."""
        if not isinstance(given, Mapping) or given.get("bases") or given.get("pretrain"):
            return given
        needed = any(arm not in BASELINES for arm in given.get("arms") or USUAL)
        return {**given, "bases": (AUTO,)} if needed else given

    @field_validator("arms")
    @classmethod
    def arms_are_known(cls, arms: tuple[str, ...]) -> tuple[str, ...]:
        strange = [arm for arm in arms if not re.fullmatch(ARM, arm)]
        if strange or not arms:
            raise ValueError(
                f"unknown arm '{', '.join(strange)}'; an arm is {', '.join([*ARMS][:-1])} or {[*ARMS][-1]}"
            )
        return tuple(dict.fromkeys(arms))

    @field_validator("labels")
    @classmethod
    def labels_are_ordered(cls, labels: tuple[int, ...]) -> tuple[int, ...]:
        if not labels or min(labels) < 0:
            raise ValueError("label counts are whole numbers above 0, or 'all'")
        return tuple(sorted(set(labels), key=lambda n: n or float("inf")))  # 0, all of them, comes last

    @model_validator(mode="after")
    def jobs_can_be_made(self) -> Self:
        """Faults of the two inner tables are found now, not when their turn comes."""
        if self.pretrain and not self.pretrain.get("data", {}).get("paths"):
            raise ValueError("settings of a pretraining without a corpus: give --corpus, or leave them out")
        for objective in self.objectives if self.pretrain else ():
            self.pretraining(objective)
        if self.finetune.get("score"):
            raise ValueError("finetune.score has no effect here: a study takes the score that suits its classes")
        if self.finetune.get("objective"):
            raise ValueError("finetune.objective has no effect here: add the arm contrastive to --arms")
        if self.finetune.get("prompt") or self.finetune.get("label_words"):
            raise ValueError(
                "prompts and label_words are settings of the study: the arms zero-shot and prompt use them"
            )
        self.finetuning({"base": "gpt", "context": 0})  # a context is for some bases and not for others
        if "stack" in self.arms and "full" not in self.arms:
            raise ValueError("the arm stack joins the scores of the arm full with TF-IDF: add full to the arms")
        if "ensemble" in self.arms and "zero-shot" not in self.arms:
            raise ValueError("the arm ensemble joins a linear probe and the arm zero-shot: add zero-shot to the arms")
        return self

    @field_validator("prompts")
    @classmethod
    def prompts_are_templates(cls, prompts: tuple[str, ...]) -> tuple[str, ...]:
        for prompt in prompts:
            must_be_template(prompt)
        return prompts

    @property
    def trained(self) -> list[str]:
        """The arms that have a base."""
        return [arm for arm in self.arms if arm not in BASELINES]

    def pretraining(self, objective: Objective) -> PretrainConfig:
        """Of one objective; a teacher is for those who distill."""
        kept = {key: value for key, value in self.pretrain.items() if key != "teacher" or objective == "distill"}
        return parse(PretrainConfig, {**kept, "objective": objective}, "pretrain")

    def finetuning(self, settings: Mapping[str, Any]) -> FinetuneConfig:
        train = {"tensorboard": False, "checkpoint_every": CHECKPOINT_EVERY}
        own = {"data": self.data.model_dump(), "least_steps": self.least_steps, "train": train}
        return parse(FinetuneConfig, merge(merge(own, self.finetune), settings), "finetune")


@dataclass(frozen=True)
class BaseRun:
    """A pretrained run, or an external model, that arms use."""

    name: str
    path: Path
    shape: str  # equal for two bases whose untrained models are the same
    elsewhere: bool = False  # a model of Hugging Face, as it came or trained further
    language_head: bool = True  # a language head, which can be asked for label words


@dataclass(frozen=True)
class Arm:
    name: str
    kind: str  # one of ARMS
    base: BaseRun | None = None
    asked: BaseRun | None = None  # the base that is asked in words beside it

    @property
    def row(self) -> ArmKind:
        return arm_kind(self.kind)

    @property
    def fine_tuned(self) -> bool:
        """Whether its cells are runs, with a learning rate, a log and a receipt."""
        return self.base is not None and self.row.run

    def varies(self, labels: int | None) -> bool:
        """Whether another seed could give another result: it draws the labels, and starts the weights that are trained."""
        computed = bool(self.row.made) and not (self.row.after and arm_kind(self.row.after).run)
        return labels is not None and (labels > 0 or not computed)

    @property
    def rates(self) -> tuple[float, ...]:
        if self.base is None or not self.fine_tuned:
            return ()
        return self.row.rates_elsewhere if self.base.elsewhere else self.row.rates


@dataclass(frozen=True)
class Cell:
    arm: Arm
    labels: int | None  # 0 = all; None: of an arm that uses none
    seed: int
    rate: float | None = None  # None for an arm that is not fine-tuned
    trial: bool = False  # only to choose a rate: never shown the test rows

    @property
    def name(self) -> str:
        base = [self.arm.base.name] if self.arm.base else []
        words = [_plain("-".join([self.arm.kind, *base])), "none" if self.labels is None else str(self.labels or "all")]
        return "~".join([*words, f"rate-{self.rate:g}" if self.trial else str(self.seed)])


def arms_of(cfg: StudyConfig, bases: list[BaseRun]) -> list[Arm]:
    """Baselines once, the others once for each base that they can use; training from scratch once for each shape."""
    arms: list[Arm] = [Arm(kind, kind) for kind in cfg.arms if kind in BASELINES]
    for kind in cfg.trained:
        untrained: set[str] = set()
        for base in bases:
            row, asked = arm_kind(kind), None
            if (kind == "scratch" and base.shape in untrained) or (row.asks and not base.language_head):
                continue
            if row.pools_zero_shot:
                asked = next((other for other in bases if other.language_head), None)
                if asked is None or (asked == base and len(bases) > 1):
                    continue
            untrained.add(base.shape)
            arms.append(Arm(f"{kind} {base.name}" if len(bases) > 1 else kind, kind, base, asked))
    return arms


def named_bases(bases: Sequence[BaseRun]) -> list[BaseRun]:
    """The bases under the ends of their names that tell them apart, the shortest possible.

    >>> [b.name for b in named_bases([BaseRun(name, Path(), "") for name in ("a/x", "b/x", "b/y")])]
    ['a/x', 'b/x', 'y']
    """
    parts = [Path(base.name).parts for base in bases]

    def end(i: int, length: int) -> str:
        return "/".join(parts[i][-length:])

    names = []
    for i in range(len(bases)):
        others = [k for k in range(len(bases)) if parts[k] != parts[i]]
        length = 1
        while length < len(parts[i]) and any(_plain(end(k, length)) == _plain(end(i, length)) for k in others):
            length += 1
        names.append(end(i, length))
    if len({_plain(name) for name in names}) < len(names):
        raise ConfigError(f"Two bases have indistinguishable names: {', '.join(names)}. Rename or leave out one.")
    return [replace(base, name=name) for base, name in zip(bases, names, strict=True)]


def _plain(name: str) -> str:
    """`name` as it stands in the names of folders."""
    return re.sub(r"[^\w.-]+", "-", name)


def trials(cfg: StudyConfig, arms: list[Arm], every: int) -> list[Cell]:
    """The runs that choose a learning rate, for each arm and each label count, of `every` row, that is enough to choose on."""
    return [
        Cell(arm, labels, TRIAL_SEED, rate, trial=True)
        for labels in cfg.labels
        if (labels or every) >= SELECTED_FROM
        for arm in arms
        if arm.fine_tuned and len(cfg.rates or arm.rates) > 1
        for rate in cfg.rates or arm.rates
    ]


def cells(cfg: StudyConfig, arms: list[Arm], rates: Mapping[tuple[str, int], float]) -> list[Cell]:
    """The runs that are compared; `rates` are those that were chosen, by arm and labels."""
    found = [Cell(arm, None, 0) for arm in arms if not arm.row.labelled]
    for labels in cfg.labels:
        for arm in arms:
            if not arm.row.labelled:
                continue
            tried = cfg.rates or arm.rates
            usual = tried[len(tried) // 2] if arm.fine_tuned else None
            seeds = cfg.seeds if arm.varies(labels) else 1
            found += [Cell(arm, labels, seed, rates.get((arm.name, labels), usual)) for seed in range(seeds)]
    return found


def finetuning(cfg: StudyConfig, cell: Cell, features: Path, score: str) -> FinetuneConfig:
    """The settings of the run behind a cell; `score` keeps its best weights."""
    arm = cell.arm
    assert arm.base is not None, "a baseline is not fine-tuned"
    prompted: dict[str, Any] = {}
    if arm.row.prompted:
        template = cfg.prompts[0] if cfg.prompts else AUTO
        own = merge({"least_steps": PROMPTED_STEPS, **PROMPTED}, cfg.finetune)
        prompted = {**own, "prompt": template, "label_words": cfg.label_words, "pool": None}
    settings = merge(
        prompted,
        {
            "base": str(arm.base.path),
            "init": "scratch" if arm.kind == "scratch" else "pretrained",
            "scope": arm.row.scope or arm.kind,
            "objective": "contrastive" if arm.kind == "contrastive" else "classify",
            "features": None if arm.kind == "scratch" else str(features),
            "check": False,
            "score": None if score == "accuracy" else score,
            # The texts stand in the data, once for all cells; stack takes the scores of validation rows.
            "predictions": "none" if cell.trial else "validation" if arm.kind == "full" else "labels",
            "data": {"labels": cell.labels, "draw": cell.seed},
            "train": {"seed": cell.seed, "lr": cell.rate},
        },
    )
    return cfg.finetuning(settings)


def leading_score(data: Labelled) -> str:
    """The score that a study is told in, chooses learning rates by, and keeps weights by."""
    return data.target.leading([e.label for e in data.train])
