"""Every knob on one page. No torch here.

A run's settings are a PretrainConfig, FinetuneConfig, TranslateConfig or MatchConfig, written to config.toml of the run. What a user leaves out
takes the default written here; what depends on the data (vocabulary, steps of an epoch) is filled in when the job starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headstart.schema import Frozen, shortest
from headstart.shapes import (
    PRESETS,
    HuggingFaceConfig,
    ModelConfig,
    PatchConfig,
    Pool,
    Seq2SeqConfig,
    SpaceConfig,
    TransformerConfig,
    is_theirs,
    usual_pool,
)

Objective = Literal["causal", "masked", "distill"]
Unit = Literal["line", "sentence", "document"]
Long = Literal["truncate", "window"]
ClassScore = Literal["accuracy", "macro_f1"]
FEW_STEPS = 200  # updates at least, where labels are so few that ten epochs would be ten updates


class TokenizerConfig(Frozen):
    """How text becomes tokens: a kind to train on the corpus, or a tokenizer to load."""

    kind: str = "bpe"  # bpe, unigram, wordpiece, word, char; or the path of a tokenizer.json, .model or run
    # Most entries, special tokens included; 0: bpe, what the corpus can feed; else 30,000.
    vocab: int = Field(0, ge=0, le=1_000_000)
    lower: bool = False  # a word is the same wherever it stands: no capitals, and of kind word no space before it


class ReadConfig(Frozen):
    """How the bytes of a text file become text."""

    encoding: str = "utf-8"  # a byte-order mark wins over it
    on_bad_bytes: Literal["fail", "replace"] = "fail"  # replace: by U+FFFD, and counted
    strip_nul: bool = False  # NUL characters are left out and counted, not refused
    max_line_bytes: int = Field(0, ge=0)  # a longer line is refused before it is in memory; 0: any length


class CorpusConfig(ReadConfig):
    """Unlabelled text to pretrain on."""

    paths: tuple[str, ...]
    unit: Unit = "document"  # what one text is; documents are packed into blocks, the others are padded
    valid_fraction: float = Field(0.1, ge=0, lt=1)  # held out, but no more than valid_most
    valid_most: int = Field(500_000, ge=1)  # characters, about: more would be measured again and again for nothing
    boundaries: bool = True  # wrap each text in the start and end tokens
    text_column: str | None = None  # for CSV and TSV


class LabelledConfig(ReadConfig):
    """Labelled text to fine-tune on."""

    train: str
    valid: str | None = None  # made from train when not given
    test: str | None = None
    text_column: str | None = None
    label_column: str | None = None
    skip_blank: bool = False  # rows without a text or a label are left out and counted, not refused
    clean_labels: bool = False  # labels that differ only by white space or case become one, and are counted
    any_labels: bool = False  # labels that look like numbers, ids or lists are taken for classes, not refused
    valid_fraction: float = Field(0.2, gt=0, lt=1)  # of what is not test
    test_fraction: float = Field(0.2, ge=0, lt=1)
    split_seed: int = 0
    labels: int = Field(0, ge=0)  # learn from this many rows only, validation rows among them; 0 = all
    draw: int = 0  # which ones: every number draws others, and more labels contain fewer


class PairsConfig(ReadConfig):
    """Texts and their translations. Each part is one table of pairs, or two files that go line by line."""

    pairs: tuple[str, ...] = Field(min_length=1, max_length=2)
    valid: tuple[str, ...] = Field((), max_length=2)  # made from pairs when not given
    test: tuple[str, ...] = Field((), max_length=2)
    source_column: str | None = None
    target_column: str | None = None
    valid_fraction: float = Field(0.1, gt=0, lt=1)  # of what is not test
    test_fraction: float = Field(0.1, ge=0, lt=1)
    split_seed: int = 0
    hold_out: tuple[str, ...] = ()  # sources that are never learned from


class CaptionsConfig(ReadConfig):
    """Pictures and what is said of them."""

    pairs: str  # a table with a picture's file and a caption in each row; or a folder with pairs.csv and images/
    images: str | None = None  # the folder of the files; None: images/ beside the table, or the folder of the table
    file_column: str | None = None
    caption_column: str | None = None
    group_column: str | None = None  # pictures of one group stand on the same side of a split
    valid_fraction: float = Field(0.1, gt=0, lt=1)  # of the pictures that are not test
    test_fraction: float = Field(0.1, ge=0, lt=1)
    split_seed: int = 0
    strict: bool = False  # refuse to begin when a picture cannot be used, instead of leaving it out


class TrainConfig(Frozen):
    """How long and how fast to learn. Independent of what is learned."""

    steps: int = Field(2000, ge=0)  # optimizer updates; 0 when fine-tuning: as many as the epochs need
    batch_size: int = Field(32, ge=1)  # examples in one forward pass
    accumulate: int = Field(1, ge=1)  # forward passes in one update
    lr: float = Field(1e-3, ge=0)  # peak; 0 when fine-tuning: what suits the base
    layer_decay: float = Field(1.0, gt=0, le=1)  # of the rate, from each layer of a base to the one below it
    final_lr: float = Field(0.1, ge=0, le=1)  # of the peak, at the end of the cosine
    warmup: float = Field(0.05, ge=0, lt=1)  # part of the steps until the peak
    weight_decay: float = Field(0.1, ge=0)  # on matrices only
    beta2: float = Field(0.99, gt=0, lt=1)
    clip: float = Field(1.0, ge=0)  # largest gradient norm; 0 turns clipping off
    eval_every: int = Field(0, ge=0)  # updates between looks at the validation rows; 0: a tenth of the run, or an epoch
    checkpoint_every: int = Field(0, ge=0)  # updates; 0: with every evaluation
    log_every: int = Field(10, ge=1)
    patience: int = Field(0, ge=0)  # evaluations without a better one before stopping; 0 never stops
    seed: int = Field(0, ge=0, lt=2**63)
    device: str = "cpu"
    threads: int = Field(0, ge=0)  # 0 leaves it to torch
    skip_nonfinite: int = Field(0, ge=0)  # updates of which loss or gradient is not finite left out before giving up
    tensorboard: bool = True
    keep_checkpoints: bool = False

    def scheduled(self, steps: int, eval_every: int) -> TrainConfig:
        """These settings with every 0 that means "depends" filled in."""
        every = self.eval_every or max(1, eval_every)
        filled = {"steps": self.steps or steps, "eval_every": every, "checkpoint_every": self.checkpoint_every or every}
        return self.model_copy(update=filled)


class JobConfig(Frozen):
    """The settings of one run; `job` names its kind in runs/kinds.py."""

    job: str
    train: TrainConfig = TrainConfig()

    def asked_settings(self, left_open: Iterable[str] = ()) -> dict[str, Any]:
        """The settings of a run without those that followed from its data and its other settings, or were `left_open`."""
        repeated = {"train.checkpoint_every": self.train.checkpoint_every == self.train.eval_every}
        followed = [name for name, follows in {**repeated, **self.followed()}.items() if follows]
        return shortest(self, [*left_open, *followed])

    def followed(self) -> dict[str, bool]:
        """Of each setting that the job may have filled in, whether it did; every kind of run has its own."""
        return {}

    @model_validator(mode="before")
    @classmethod
    def own_training_defaults(cls, given: Any) -> Any:
        """Training settings that are not given are those of the kind of run, not those of TrainConfig."""
        default = cls.model_fields["train"].default
        if not isinstance(given, Mapping) or default == TrainConfig():
            return given
        train = given.get("train")
        if isinstance(train, TrainConfig):
            train = train.model_dump(exclude_unset=True)
        return {**given, "train": {**default.model_dump(), **train}} if isinstance(train, Mapping) else given


class PretrainConfig(JobConfig):
    """A language model from text, from nothing or from one that is there."""

    job: Literal["pretrain"] = "pretrain"
    base: str | None = None  # goes on from a run or a model made elsewhere; it settles objective, tokenizer and model
    allow_pickle: bool = False  # open weights of a base that are pickled; only what holds nothing but tensors
    context: int = Field(0, ge=0)  # tokens that a base made elsewhere reads at once; 0: as many as it can
    objective: Objective = "causal"
    teacher: str | None = None  # of the objective distill: a run, or a model made elsewhere
    # Token vectors before the first update: counted, or random; auto: counted where the text is long enough.
    start: Literal["auto", "cooccurrence", "random"] = "auto"
    vectors: str | None = None  # word vectors made elsewhere, for up to half of each counted one: .vec, spaCy's, a pack
    mask_rate: float = Field(0.15, gt=0, lt=1)  # tokens hidden, when the objective is masked
    samples: tuple[str, ...] = ("",)  # prompts continued after each evaluation, when the objective is causal
    data: CorpusConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = Field(default_factory=lambda: TransformerConfig.model_validate({}))
    train: TrainConfig = TrainConfig()

    @model_validator(mode="before")
    @classmethod
    def preset_follows_objective(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("objective") in ("masked", "distill"):
            model = given.get("model", {})
            if not isinstance(model, Mapping) or is_theirs(model):
                return given
            model = {"preset": "bert", **model}
            if model["preset"] == "classic":
                model.setdefault("causal", False)
            given = {**given, "model": model}
        return given

    @model_validator(mode="before")
    @classmethod
    def going_on_is_slower(cls, given: Any) -> Any:
        """What a base has learned is easily forgotten."""
        train = given.get("train", {}) if isinstance(given, Mapping) else None
        if isinstance(train, TrainConfig):
            train = train.model_dump(exclude_unset=True)
        return {**given, "train": {"lr": 1e-4, **train}} if isinstance(train, Mapping) and given.get("base") else given

    def followed(self) -> dict[str, bool]:
        shape = "model" if self.base else "model.vocab"
        return {shape: True, "train.eval_every": self.train.eval_every == max(1, self.train.steps // 10)}

    @property
    def counted(self) -> bool:
        """Whether token vectors are counted before the first update, however short the text is."""
        return self.start == "cooccurrence" or bool(self.vectors)

    @model_validator(mode="after")
    def start_steps_and_rate_go_together(self) -> Self:
        if self.vectors and (self.start == "random" or self.base):
            raise ValueError("vectors stand beside counted ones, so start = random and a base cannot have them")
        if not self.train.steps and not self.counted:
            raise ValueError("train.steps must be 1 or more; 0 needs start = cooccurrence, or vectors")
        if not self.train.lr:
            raise ValueError("train.lr must be above 0")
        return self

    @model_validator(mode="after")
    def distilling_has_a_teacher(self) -> Self:
        if (self.objective == "distill") != bool(self.teacher):
            raise ValueError("objective distill needs a teacher, such as minilm; a teacher needs objective distill")
        return self

    @model_validator(mode="after")
    def objective_fits_the_model(self) -> Self:
        preset = getattr(self.model, "preset", None)
        unmasked = self.objective == "causal" and preset is not None and PRESETS[preset]["causal"]
        fits = self.objective == "distill" or self.model.causal == (self.objective == "causal")
        if not fits and not unmasked:
            sight = "causal (left to right)" if self.model.causal else "two-way"
            raise ValueError(
                f"objective '{self.objective}' cannot train a {sight} model (preset {preset or 'none'}). "
                "Use gpt or classic for causal, bert or classic for masked"
            )
        return self


class FinetuneConfig(JobConfig):
    """A classifier from labelled text, on a pretrained base or from scratch."""

    job: Literal["finetune"] = "finetune"
    base: str  # a run, or a model made elsewhere: a folder, a pack, hf:NAME; with init = "scratch" also a preset
    init: Literal["pretrained", "scratch"] = "pretrained"
    allow_pickle: bool = False  # open weights of a base that are pickled; only what holds nothing but tensors
    context: int = Field(0, ge=0)  # tokens that a base made elsewhere reads of a text; 0: as many as it can
    scope: str = "full"  # what is trained: full, head, last:K layers, or lora
    lora_rank: int = Field(8, ge=1)  # of the matrices that learn with scope = "lora"
    # None: what suits the base (usual_pool), or another where a linear probe on held-out rows is clearly better with it.
    pool: Pool | None = None
    long: Long = "truncate"  # texts longer than the context are cut, or read in windows of which the head gets the mean
    class_weights: bool = False  # rare classes count as much as common ones
    score: ClassScore | None = None  # of the validation rows, by which the best weights are kept; None: accuracy
    head_dropout: float = Field(0.1, ge=0, lt=1)
    fit_head: bool = True  # a pretrained base gets the head that fits it (logistic regression), not a random one
    epochs: int = Field(10, ge=1)
    least_steps: int = Field(0, ge=0)  # updates, should the epochs be fewer; 0: 200 where no row is left to choose on
    features: str | None = None  # folder where what the base makes of the rows, as it is, is kept between runs
    predictions: Literal["texts", "labels", "none"] = "texts"  # kept of the test rows; none: they are not opened
    check: bool = True  # look for copies among the rows; a study looks once for all its runs
    strict_leakage: bool = False  # refuse test rows that also stand among the rows learned from
    data: LabelledConfig
    tokenizer: TokenizerConfig = TokenizerConfig()  # used only when base is a preset
    model: ModelConfig = Field(default_factory=lambda: TransformerConfig.model_validate({}))
    train: TrainConfig = TrainConfig(steps=0, lr=0.0, batch_size=16, warmup=0.1, weight_decay=0.01, beta2=0.999)

    def usual_steps(self, per_epoch: int, few: bool = False) -> int:
        """Updates for all epochs; `few` labels, of which none can be held out to choose on, get FEW_STEPS at least."""
        return max(self.least_steps or few * FEW_STEPS, self.epochs * per_epoch)

    def followed(self) -> dict[str, bool]:
        steps, every = self.train.steps, self.train.eval_every
        drawn = -(-self.data.labels // (self.train.batch_size * self.train.accumulate))  # per epoch, none held out
        few = drawn > 0 and every == max(1, steps // 10) and steps == self.usual_steps(drawn, few=True)
        usual = few or steps == self.usual_steps(every)
        return {
            "model.vocab" if self.base in PRESETS else "model": True,
            "train.steps": usual,
            "train.eval_every": usual,
            "train.lr": self.train.lr == usual_rate(self.model, self.scope),
            "pool": self.pool == usual_pool(self.model),
        }

    @field_validator("scope")
    @classmethod
    def scope_is_known(cls, scope: str) -> str:
        if not re.fullmatch(r"full|head|lora|last:[1-9]\d*", scope):
            raise ValueError("what is trained is full, head, lora or last:K, K being 1 or more")
        return scope

    @model_validator(mode="after")
    def settings_go_together(self) -> Self:
        if self.strict_leakage and not self.check:
            raise ValueError("strict_leakage needs check = true, which looks for the rows that it refuses")
        if self.context and self.base in PRESETS:
            raise ValueError(f"context is for a base made elsewhere; that of the preset '{self.base}' is model.context")
        return self

    @model_validator(mode="before")
    @classmethod
    def preset_follows_base(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("model", {}), Mapping):
            return given
        preset = {"preset": given["base"]} if given.get("base") in list(PRESETS) else None
        return {**given, "model": {**preset, **given.get("model", {})}} if preset else given


def usual_rate(model: ModelConfig, scope: str) -> float:
    """Models made elsewhere have learned for long, and forget at rates that suit ours; a new head alone does not mind."""
    if not isinstance(model, HuggingFaceConfig):
        return 5e-4
    return {"head": 1e-3, "lora": 3e-4}.get(scope, 5e-5)


class TranslateConfig(JobConfig):
    """A model that writes one text after reading another."""

    job: Literal["translate"] = "translate"
    split: Literal["texts", "words"] = "texts"  # words: a text is translated word by word, at its spaces
    samples: tuple[str, ...] = ()  # texts translated after each evaluation; none: a few of the validation rows
    epochs: int = Field(20, ge=1)
    beam: int = Field(1, ge=1)  # of the scores at the end; 1 is greedy
    data: PairsConfig
    source: TokenizerConfig = TokenizerConfig(kind="char")
    target: TokenizerConfig = TokenizerConfig(kind="char")  # as the source, if nothing is said of it
    model: Seq2SeqConfig = Field(default_factory=lambda: Seq2SeqConfig.model_validate({}))
    train: TrainConfig = TrainConfig(steps=0, lr=5e-3, batch_size=64, weight_decay=0.01, final_lr=0.01)

    def followed(self) -> dict[str, bool]:
        usual = self.train.steps == self.epochs * self.train.eval_every
        sizes = dict.fromkeys(("model.vocab", "model.target_vocab", "model.longest"), True)
        return {**sizes, "target": self.target == self.source, "train.steps": usual, "train.eval_every": usual}

    @model_validator(mode="after")
    def rate_is_given(self) -> Self:
        if not self.train.lr:
            raise ValueError("train.lr must be above 0")
        return self

    @model_validator(mode="before")
    @classmethod
    def target_follows_source(cls, given: Any) -> Any:
        """Characters, unless something else is said of the source, or of the target alone."""
        if not isinstance(given, Mapping):
            return given
        levels: dict[str, Any] = {}
        kind = cls.model_fields["source"].default.kind
        for side in ("source", "target"):
            asked = given.get(side, levels.get("source", {}))
            levels[side] = {"kind": kind, **asked} if isinstance(asked, Mapping) else asked
            kind = levels[side]["kind"] if isinstance(levels[side], Mapping) else getattr(asked, "kind", kind)
        return {**given, **levels}


class MatchConfig(JobConfig):
    """A text tower and an image tower, trained to agree on what belongs together."""

    job: Literal["match"] = "match"
    text: str = "minilm"  # the base of the text tower: a run, or a model made elsewhere, as for fine-tuning
    image: str = "efficientnet-lite0"  # a pack, a folder like one; or transformer: a small one from nothing
    image_size: int = Field(0, ge=0, le=2048)  # pixels of a side that the image tower reads; 0: what it comes with
    scope: Literal["head", "full"] = "head"  # what is trained: the projections, or the towers too
    pool: Pool | None = None  # of the text tower; None: the last real token of a causal base, the mean otherwise
    epochs: int = Field(10, ge=1)  # times through the training pictures
    data: CaptionsConfig
    space: SpaceConfig = SpaceConfig()
    patches: PatchConfig = PatchConfig()  # of image = "transformer"
    train: TrainConfig = TrainConfig(steps=0, lr=1e-4, batch_size=256, warmup=0.1, weight_decay=0.1, final_lr=0.01)

    @property
    def canonical(self) -> bool:
        """Whether the projections begin where pairs agree best, and not at random."""
        return self.space.start == "canonical" and self.space.projection == "linear" and self.image != "transformer"

    def followed(self) -> dict[str, bool]:
        usual = self.train.steps == self.epochs * self.train.eval_every
        return {"train.steps": usual, "train.eval_every": usual}

    @model_validator(mode="after")
    def something_is_learned(self) -> Self:
        if not self.train.lr:
            raise ValueError("train.lr must be above 0")
        if self.train.batch_size < 2:
            raise ValueError("train.batch_size must be 2 or more: an image alone has no wrong captions to be told from")
        if self.image == "transformer" and self.scope != "full":
            raise ValueError("image = transformer starts from nothing and must learn: scope = full (--train full)")
        return self
