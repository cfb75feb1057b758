"""Every setting and its default. No torch here.

A run's settings are a PretrainConfig, FinetuneConfig, TranslateConfig or MatchConfig, written to config.toml of the run. What a user leaves out
takes the default written here; what depends on the data (vocabulary, steps of an epoch) is filled in when the job starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headstart.data import CaptionsConfig, CorpusConfig, LabelledConfig, PairsConfig
from headstart.prompts import AUTO, Prompt, must_be_template
from headstart.schema import Frozen, shortest
from headstart.shapes import (
    PRESETS,
    ModelConfig,
    PatchConfig,
    Pool,
    Seq2SeqConfig,
    SpaceConfig,
    TransformerConfig,
    is_external,
    usual_pool,
)

Objective = Literal["causal", "masked", "distill"]
Long = Literal["truncate", "window"]
Gradients = Literal["auto", "ordered", "all-reduce"]
ClassScore = Literal["accuracy", "macro_f1"]
TaskScore = Literal["accuracy", "macro_f1", "f1", "r2", "mae", "rmse", "spearman", "kappa"]
FEW_STEPS = 200  # at least, where labels are so few that ten epochs would be ten steps
PROMPTED_STEPS = 30  # likewise, where the head starts from label words and has little to learn


class TokenizerConfig(Frozen):
    """How text becomes tokens: a kind to train on the corpus, or a tokenizer to load."""

    kind: str = "bpe"  # bpe, unigram, wordpiece, word, char; or a tokenizer.json, .model, run or pack
    # Maximum size, special tokens included; 0: for bpe, what the corpus supports; otherwise 30,000.
    vocab: int = Field(0, ge=0, le=1_000_000)
    lower: bool = False  # lowercase the text; with kind word, also ignore the space before a word
    sample: int = Field(50_000_000, ge=1)  # characters to train on; of more, a random part of about so many


class TrainConfig(Frozen):
    """Optimizer and schedule. Independent of the task."""

    steps: int = Field(2000, ge=0)  # optimizer steps; 0 when fine-tuning: as many as the epochs need
    batch_size: int = Field(32, ge=1)  # examples per forward pass
    accumulate: int = Field(1, ge=1)  # gradient accumulation: micro-batches per step; processes share them
    gradients: Gradients = "auto"  # ordered (same bits on any number of processes), all-reduce; auto: by size
    lr: float = Field(1e-3, ge=0)  # peak; 0 when fine-tuning: the default of the base
    layer_decay: float = Field(1.0, gt=0, le=1)  # of the learning rate, from each layer of a base to the one below it
    final_lr: float = Field(0.1, ge=0, le=1)  # fraction of the peak, at the end of the cosine schedule
    warmup: float = Field(0.05, ge=0, lt=1)  # fraction of the steps
    weight_decay: float = Field(0.1, ge=0)  # on matrices only
    beta2: float = Field(0.99, gt=0, lt=1)
    clip: float = Field(1.0, ge=0)  # maximum gradient norm; 0 turns clipping off
    eval_every: int = Field(0, ge=0)  # steps between evaluations; 0: a tenth of the run, or an epoch
    checkpoint_every: int = Field(0, ge=0)  # steps; 0: with every evaluation
    log_every: int = Field(10, ge=1)
    patience: int = Field(0, ge=0)  # evaluations without a better one before stopping; 0 never stops
    seed: int = Field(0, ge=0, lt=2**63)
    device: str = "cpu"
    precision: Literal["float32", "bf16"] = "float32"  # of matrix products while training; bf16 where the device has it
    checkpoint_layers: bool = False  # compute layers again in the backward pass: less memory, more time, the same bits
    compile: bool = False  # compile the layers with torch.compile
    shard: bool = False  # of several processes, each keeps a part of the weights, gradients and moments (FSDP2)
    threads: int = Field(0, ge=0)  # 0 leaves it to torch
    skip_nonfinite: int = Field(0, ge=0)  # steps with a non-finite loss or gradient to skip before stopping
    tensorboard: bool = True
    keep_checkpoints: bool = False

    @model_validator(mode="after")
    def shards_alone(self) -> Self:
        if self.shard and (self.compile or self.gradients != "auto"):
            raise ValueError(
                "shard cannot be combined with compile, or with a choice of gradients. Leave out one of them."
            )
        return self

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
    """Pretraining of a language model, from scratch or from an existing one."""

    job: Literal["pretrain"] = "pretrain"
    base: str | None = None  # a run or an external model to continue from; it sets objective, tokenizer and model
    allow_pickle: bool = False  # open pickled weights of a base, if they hold nothing but tensors
    context: int = Field(0, ge=0)  # tokens that an external base reads at once; 0: as many as it can
    objective: Objective = "causal"
    teacher: str | None = None  # of the objective distill: a run, or an external model
    # Initial token embeddings: co-occurrence (PPMI-SVD) or random; auto: co-occurrence if the text is long enough.
    start: Literal["auto", "cooccurrence", "random"] = "auto"
    vectors: str | None = None  # pretrained word vectors for up to half of each embedding: .vec, spaCy's, a pack
    mask_rate: float = Field(0.15, gt=0, lt=1)  # fraction of masked tokens, when the objective is masked
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
            if not isinstance(model, Mapping) or is_external(model):
                return given
            model = {"preset": "bert", **model}
            if model["preset"] == "classic":
                model.setdefault("causal", False)
            given = {**given, "model": model}
        return given

    @model_validator(mode="before")
    @classmethod
    def going_on_is_slower(cls, given: Any) -> Any:
        """A base forgets easily (catastrophic forgetting), so continued pretraining has a lower learning rate."""
        train = given.get("train", {}) if isinstance(given, Mapping) else None
        if isinstance(train, TrainConfig):
            train = train.model_dump(exclude_unset=True)
        return {**given, "train": {"lr": 1e-4, **train}} if isinstance(train, Mapping) and given.get("base") else given

    def followed(self) -> dict[str, bool]:
        shape = "model" if self.base else "model.vocab"
        return {shape: True, "train.eval_every": self.train.eval_every == max(1, self.train.steps // 10)}

    @property
    def counted(self) -> bool:
        """Whether token embeddings are initialised from co-occurrence counts, however short the text is."""
        return self.start == "cooccurrence" or bool(self.vectors)

    @model_validator(mode="after")
    def start_steps_and_rate_go_together(self) -> Self:
        if self.vectors and (self.start == "random" or self.base):
            raise ValueError("vectors extend co-occurrence embeddings, so start = random and a base cannot use them")
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
            sight = "causal (left to right)" if self.model.causal else "bidirectional"
            raise ValueError(
                f"objective '{self.objective}' cannot train a {sight} model (preset {preset or 'none'}). "
                "Use gpt or classic for causal, bert or classic for masked"
            )
        return self


class FinetuneConfig(JobConfig):
    """A classifier from labelled text, on a pretrained base or from scratch."""

    job: Literal["finetune"] = "finetune"
    base: str  # a run, or an external model: a folder, a pack, hf:NAME; with init = "scratch" also a preset
    init: Literal["pretrained", "scratch"] = "pretrained"
    allow_pickle: bool = False  # open pickled weights of a base, if they hold nothing but tensors
    context: int = Field(0, ge=0)  # tokens that an external base reads of a text; 0: as many as it can
    scope: str = "full"  # what is trained: full, head, last:K layers, or lora
    # contrastive: the base is trained on pairs of texts of the same and of different classes (SetFit), then the head is
    # fitted to its embeddings by logistic regression.
    objective: Literal["classify", "contrastive"] = "classify"
    lora_rank: int = Field(8, ge=1)  # with scope = "lora"
    # None: the default of the base (usual_pool), or another if a linear probe with it is clearly better on held-out rows.
    pool: Pool | None = None
    long: Long = "truncate"  # texts longer than the context are truncated, or read in windows that are mean-pooled
    prompt: str | None = None  # template with {text}, or auto; the label word follows it, or stands for its {label}
    # Words of the prompt, by label; those not given follow from the names of the labels.
    label_words: dict[str, str] = Field(default_factory=dict)
    # With a prompt and few labels: shift the biases until the classes have the labelled shares among all training texts.
    calibrate: bool = True
    # After training, divide the logits by a temperature that is fitted on the validation rows, if there are 30 or more.
    temperature_scaling: bool = True
    class_weights: bool = False  # balanced: rare classes count as much as frequent ones
    score: TaskScore | None = (
        None  # validation metric that selects the best weights; None: accuracy, or that of the task
    )
    head_dropout: float = Field(0.1, ge=0, lt=1)
    fit_head: bool = True  # linear probing, then fine-tuning (LP-FT): the head starts from a logistic regression
    epochs: int = Field(10, ge=1)
    least_steps: int = Field(0, ge=0)  # minimum, if the epochs need fewer; 0: 200 where no validation rows are left
    # Labels of a base that is a classifier, whose head is trained further; filled in when the run starts.
    head_labels: tuple[str, ...] = ()
    features: str | None = None  # folder that caches the features of the frozen base between runs
    predictions: Literal["texts", "labels", "validation", "none"] = "texts"  # of test rows; validation: of both
    check: bool = True  # look for duplicates among the rows; a study looks once for all its runs
    strict_leakage: bool = False  # reject test rows that are also training rows
    data: LabelledConfig
    tokenizer: TokenizerConfig = TokenizerConfig()  # used only when base is a preset
    model: ModelConfig = Field(default_factory=lambda: TransformerConfig.model_validate({}))
    train: TrainConfig = TrainConfig(steps=0, lr=0.0, batch_size=16, warmup=0.1, weight_decay=0.01, beta2=0.999)

    def usual_steps(self, per_epoch: int, few: bool = False) -> int:
        """Steps for all epochs; at least FEW_STEPS with `few` labels, of which none can be held out for validation."""
        least = PROMPTED_STEPS if self.prompt else FEW_STEPS
        return max(self.least_steps or few * least, self.epochs * per_epoch)

    def usual_rate(self, model: ModelConfig) -> float:
        """External models were pretrained for long and need lower learning rates than ours; a new head alone does not.

        A head that starts from label words knows much already. Pairs of texts: as SetFit has it.
        """
        if not is_external(model):
            return 5e-4
        usual = 1e-5 if self.prompt else 2e-5 if self.objective == "contrastive" else 5e-5
        return {"head": 1e-3, "lora": 3e-4}.get(self.scope, usual)

    @property
    def whole_prompt(self) -> Prompt | None:
        """The prompt, where template and words have been resolved."""
        return Prompt(template=self.prompt, words=self.label_words) if self.prompt else None

    def followed(self) -> dict[str, bool]:
        steps, every = self.train.steps, self.train.eval_every
        drawn = -(-self.data.labels // (self.train.batch_size * self.train.accumulate))  # per epoch, none held out
        few = drawn > 0 and every == max(1, steps // 10) and steps == self.usual_steps(drawn, few=True)
        usual = few or steps == self.usual_steps(every)
        return {
            "model.vocab" if self.base in PRESETS else "model": True,
            "train.steps": usual,
            "train.eval_every": usual,
            "train.lr": self.train.lr == self.usual_rate(self.model),
            "pool": bool(self.head_labels) or self.pool == usual_pool(self.model),
            "head_labels": True,
        }

    @field_validator("scope")
    @classmethod
    def scope_is_known(cls, scope: str) -> str:
        if not re.fullmatch(r"full|head|lora|last:[1-9]\d*", scope):
            raise ValueError("what is trained is full, head, lora or last:K, K being 1 or more")
        return scope

    @field_validator("prompt")
    @classmethod
    def prompt_is_a_template(cls, prompt: str | None) -> str | None:
        if prompt not in (None, AUTO):
            must_be_template(prompt)
        return prompt

    @model_validator(mode="after")
    def settings_go_together(self) -> Self:
        if self.label_words and not self.prompt:
            raise ValueError("label_words belong to a prompt: give --prompt, or --prompt auto")
        if self.prompt and self.pool not in (None, "last"):
            raise ValueError("a prompt is read where its label word stands: leave out pool")
        if self.prompt and self.init == "scratch":
            raise ValueError(
                "a prompt starts from what a pretrained base knows of words: leave it out with init = scratch"
            )
        if self.prompt and self.objective == "contrastive":
            raise ValueError("objective contrastive compares texts as they are: leave out prompt")
        if self.strict_leakage and not self.check:
            raise ValueError("strict_leakage needs check = true, which looks for the rows that it refuses")
        if self.objective == "contrastive" and self.scope == "head":
            raise ValueError(
                "objective contrastive trains the base, which scope = head (--train head) freezes. Use full, last:K or lora"
            )
        if self.objective == "contrastive" and not self.fit_head:
            raise ValueError(
                "objective contrastive always fits its head by logistic regression: leave out fit_head = false"
            )
        if self.context and self.base in PRESETS:
            raise ValueError(f"context is for an external base; that of the preset '{self.base}' is model.context")
        return self

    @model_validator(mode="before")
    @classmethod
    def preset_follows_base(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("model", {}), Mapping):
            return given
        preset = {"preset": given["base"]} if given.get("base") in list(PRESETS) else None
        return {**given, "model": {**preset, **given.get("model", {})}} if preset else given


class TranslateConfig(JobConfig):
    """Training of an encoder-decoder on pairs of texts."""

    job: Literal["translate"] = "translate"
    split: Literal["texts", "words"] = "texts"  # words: a text is translated word by word, at its spaces
    samples: tuple[str, ...] = ()  # texts translated after each evaluation; none: a few of the validation rows
    epochs: int = Field(20, ge=1)
    beam: int = Field(1, ge=1)  # for the final scores; 1 is greedy
    data: PairsConfig
    source: TokenizerConfig = TokenizerConfig(kind="char")
    target: TokenizerConfig = TokenizerConfig(kind="char")  # the same as the source, unless given
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
        """Characters, unless another kind is given for the source, or for the target alone."""
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
    text: str = "minilm"  # the base of the text tower: a run, or an external model, as for fine-tuning
    image: str = "efficientnet-lite0"  # a pack, a folder like one; or transformer: a small one from scratch
    image_size: int = Field(0, ge=0, le=2048)  # pixels per side of the input of the image tower; 0: its default
    scope: Literal["head", "full"] = "head"  # what is trained: the projections, or the towers too
    pool: Pool | None = None  # of the text tower; None: the last real token of a causal base, the mean otherwise
    epochs: int = Field(10, ge=1)  # passes over the training images
    data: CaptionsConfig
    space: SpaceConfig = SpaceConfig()
    patches: PatchConfig = PatchConfig()  # of image = "transformer"
    train: TrainConfig = TrainConfig(steps=0, lr=1e-4, batch_size=256, warmup=0.1, weight_decay=0.1, final_lr=0.01)

    @property
    def canonical(self) -> bool:
        """Whether the projections are initialised by canonical correlation analysis, not at random."""
        return self.space.start == "canonical" and self.space.projection == "linear" and self.image != "transformer"

    def followed(self) -> dict[str, bool]:
        usual = self.train.steps == self.epochs * self.train.eval_every
        return {"train.steps": usual, "train.eval_every": usual}

    @model_validator(mode="after")
    def something_is_learned(self) -> Self:
        if not self.train.lr:
            raise ValueError("train.lr must be above 0")
        if self.train.batch_size < 2:
            raise ValueError("train.batch_size must be 2 or more: a batch of one has no in-batch negatives")
        if self.image == "transformer" and self.scope != "full":
            raise ValueError("image = transformer is trained from scratch: use scope = full (--train full)")
        return self
