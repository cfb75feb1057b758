"""Every knob on one page. No torch here.

A run's settings are a PretrainConfig or a FinetuneConfig. What a user leaves out takes the default written
here; what depends on the data (vocabulary, steps of an epoch) is filled in when the job starts, and the
whole is written to config.toml of the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError, field_validator, model_validator

from headstart.errors import ConfigError
from headstart.schema import Frozen, explain, read_toml

Preset = Literal["classic", "gpt", "bert"]
Size = Literal["nano", "micro", "mini", "small", "medium"]
Objective = Literal["causal", "masked"]
Unit = Literal["line", "sentence", "document"]
Pool = Literal["last", "cls", "mean"]
Long = Literal["truncate", "window"]

# layers, heads, width, context
SIZES: dict[str, tuple[int, int, int, int]] = {
    "nano": (3, 3, 48, 128),
    "micro": (4, 4, 128, 128),
    "mini": (6, 6, 192, 256),
    "small": (6, 6, 384, 256),
    "medium": (12, 12, 768, 512),
}

# What makes a preset what it is, apart from its size.
PRESETS: dict[str, dict[str, Any]] = {
    "classic": {  # torch's nn.TransformerEncoder under a square mask
        "causal": True, "positions": "sinusoidal", "norm": "post", "norm_eps": 1e-5, "activation": "relu",
        "dropout": 0.2, "ff_dropout": 0.2, "scale_embedding": True, "tied": False, "head_bias": True,
    },
    "gpt": {  # as GPT-2
        "causal": True, "positions": "learned", "norm": "pre", "norm_eps": 1e-5, "activation": "gelu_tanh",
        "dropout": 0.1, "tied": True, "head_bias": False,
    },
    "bert": {  # as BERT
        "causal": False, "positions": "learned", "norm": "post", "norm_eps": 1e-12, "activation": "gelu",
        "dropout": 0.1, "embedding_norm": True, "head_transform": True, "tied": True, "head_bias": True,
    },
}  # fmt: skip
CLASSIC_SIZE = {"layers": 4, "heads": 2, "width": 200, "ff": 200, "context": 256}


class TransformerConfig(Frozen):
    """The shape of our own transformer. `preset` and `size` fill in whatever is not given beside them."""

    preset: Preset = "gpt"
    size: Size | None = None  # one dial for layers, heads, width and context
    vocab: int = Field(0, ge=0)  # tokens; 0 until the tokenizer is known
    context: int = Field(ge=2)  # most tokens a text may have
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    width: int = Field(ge=1)
    ff: int = Field(ge=1)  # width of the feed-forward layer
    dropout: float = Field(ge=0, lt=1)
    ff_dropout: float = Field(0.0, ge=0, lt=1)  # between the two feed-forward matrices
    causal: bool  # a position sees only itself and what stands before it
    positions: Literal["learned", "sinusoidal", "none"]
    norm: Literal["pre", "post"]  # layer norm before or after each sublayer
    norm_eps: float
    activation: Literal["relu", "gelu", "gelu_tanh"]
    embedding_norm: bool = False
    scale_embedding: bool = False  # times sqrt(width), as in "Attention is all you need"
    tied: bool  # the output head uses the embedding matrix
    head_bias: bool
    head_transform: bool = False  # BERT's dense layer in front of the output matrix

    @model_validator(mode="before")
    @classmethod
    def fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        preset, size = str(given.get("preset", "gpt")), given.get("size")
        shape: dict[str, Any]
        if preset == "classic" and size is None:
            shape = dict(CLASSIC_SIZE)
        else:  # an unknown preset or size is filled in too, so that it alone is complained of
            layers, heads, width, context = SIZES.get(str(size), SIZES["micro"])
            width = given.get("width", width)
            shape = {"layers": layers, "heads": heads, "width": width, "context": context}
            shape["ff"] = 4 * width if isinstance(width, int) else 1
        return {**PRESETS.get(preset, PRESETS["gpt"]), **shape, **given}

    @model_validator(mode="after")
    def heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width ({self.width}) must be a multiple of heads ({self.heads})")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        return self


class HuggingFaceConfig(Frozen):
    """The shape of a model of Hugging Face transformers: theirs, and what the rest of Headstart needs to know of it."""

    model_type: str  # one of those in models/huggingface.py
    settings: dict[str, Any]  # of transformers' own configuration
    vocab: int = Field(ge=1)  # tokens
    context: int = Field(ge=2)  # most tokens a text may have
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    width: int = Field(ge=1)
    causal: bool
    tied: bool  # as in TransformerConfig; with the four below, its language-model head
    head_bias: bool
    head_transform: bool
    activation: Literal["relu", "gelu", "gelu_tanh"]
    norm_eps: float


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("ours")] | Annotated[HuggingFaceConfig, Tag("theirs")],
    Discriminator(lambda given: "theirs" if _is_theirs(given) else "ours"),
]


def _is_theirs(given: Any) -> bool:
    return isinstance(given, HuggingFaceConfig) or (isinstance(given, Mapping) and "model_type" in given)


class TokenizerConfig(Frozen):
    """How text becomes tokens: a kind to train on the corpus, or a tokenizer to load."""

    kind: str = "bpe"  # bpe, unigram, wordpiece, word, char; or the path of a tokenizer.json, .model or run
    vocab: int = Field(0, ge=0)  # most entries, special tokens included; 0: bpe, what the corpus can feed; else 30,000


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
    valid_fraction: float = Field(0.2, gt=0, lt=1)  # of what is not test
    test_fraction: float = Field(0.2, ge=0, lt=1)
    split_seed: int = 0
    labels: int = Field(0, ge=0)  # learn from this many rows only, validation rows among them; 0 = all
    draw: int = 0  # which ones: every number draws others, and more labels contain fewer


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
        filled = {
            "steps": self.steps or steps,
            "eval_every": every,
            "checkpoint_every": self.checkpoint_every or every,
        }
        return self.model_copy(update=filled)


class PretrainConfig(Frozen):
    """A language model from text, from nothing or from one that is there."""

    job: Literal["pretrain"] = "pretrain"
    base: str | None = None  # goes on from a run or a model made elsewhere; it settles objective, tokenizer and model
    allow_pickle: bool = False  # open weights of a base that are pickled; only what holds nothing but tensors
    context: int = Field(0, ge=0)  # tokens that a base made elsewhere reads at once; 0: as many as it can
    objective: Objective = "causal"
    mask_rate: float = Field(0.15, gt=0, lt=1)  # tokens hidden, when the objective is masked
    samples: tuple[str, ...] = ("",)  # prompts continued after each evaluation, when the objective is causal
    data: CorpusConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = Field(default_factory=lambda: TransformerConfig.model_validate({}))
    train: TrainConfig = TrainConfig()

    @model_validator(mode="before")
    @classmethod
    def preset_follows_objective(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("objective") == "masked":
            model = given.get("model", {})
            if not isinstance(model, Mapping) or _is_theirs(model):
                return given
            model = {"preset": "bert", **model}
            if model["preset"] == "classic":
                model.setdefault("causal", False)
            return {**given, "model": model}
        return given

    @model_validator(mode="before")
    @classmethod
    def going_on_is_slower(cls, given: Any) -> Any:
        """What a base has learned is easily forgotten."""
        train = given.get("train", {}) if isinstance(given, Mapping) else None
        if isinstance(train, TrainConfig):
            train = train.model_dump(exclude_unset=True)
        return {**given, "train": {"lr": 1e-4, **train}} if isinstance(train, Mapping) and given.get("base") else given

    @model_validator(mode="after")
    def steps_and_rate_are_given(self) -> Self:
        if not self.train.steps:
            raise ValueError("train.steps must be 1 or more")
        if not self.train.lr:
            raise ValueError("train.lr must be above 0")
        return self

    @model_validator(mode="after")
    def objective_fits_the_model(self) -> Self:
        if self.model.causal != (self.objective == "causal"):
            sight = "causal (left to right)" if self.model.causal else "two-way"
            preset = getattr(self.model, "preset", "none")
            raise ValueError(
                f"objective '{self.objective}' cannot train a {sight} model (preset {preset}). "
                "Use gpt or classic for causal, bert or classic for masked"
            )
        return self


class FinetuneConfig(Frozen):
    """A classifier from labelled text, on a pretrained base or from scratch."""

    job: Literal["finetune"] = "finetune"
    base: str  # a run, or a model made elsewhere: a folder, a pack, hf:NAME; with init = "scratch" also a preset
    init: Literal["pretrained", "scratch"] = "pretrained"
    allow_pickle: bool = False  # open weights of a base that are pickled; only what holds nothing but tensors
    context: int = Field(0, ge=0)  # tokens that a base made elsewhere reads of a text; 0: as many as it can
    scope: str = "full"  # what is trained: full, head, last:K layers, or lora
    lora_rank: int = Field(8, ge=1)  # of the matrices that learn with scope = "lora"
    pool: Pool | None = None  # None: the last real token of a causal base, [CLS] otherwise
    long: Long = "truncate"  # texts longer than the context are cut, or read in windows of which the head gets the mean
    class_weights: bool = False  # rare classes count as much as common ones
    head_dropout: float = Field(0.1, ge=0, lt=1)
    epochs: int = Field(10, ge=1)
    least_steps: int = Field(0, ge=0)  # updates, should the epochs be fewer
    features: str | None = None  # folder where what a frozen base makes of the rows is kept between runs
    predictions: Literal["texts", "labels", "none"] = "texts"  # kept of the test rows; none: they are not opened
    check: bool = True  # look for copies among the rows; a study looks once for all its runs
    strict_leakage: bool = False  # refuse test rows that also stand among the rows learned from
    data: LabelledConfig
    tokenizer: TokenizerConfig = TokenizerConfig()  # used only when base is a preset
    model: ModelConfig = Field(default_factory=lambda: TransformerConfig.model_validate({}))
    train: TrainConfig = TrainConfig(steps=0, lr=0.0, batch_size=16, warmup=0.1, weight_decay=0.01, beta2=0.999)

    @field_validator("scope")
    @classmethod
    def scope_is_known(cls, scope: str) -> str:
        if not re.fullmatch(r"full|head|lora|last:[1-9]\d*", scope):
            raise ValueError("what is trained is full, head, lora or last:K, K being 1 or more")
        return scope

    @model_validator(mode="after")
    def leaks_are_looked_for(self) -> Self:
        if self.strict_leakage and not self.check:
            raise ValueError("strict_leakage needs check = true, which looks for the rows that it refuses")
        return self

    @model_validator(mode="before")
    @classmethod
    def preset_follows_base(cls, given: Any) -> Any:
        if (
            isinstance(given, Mapping)
            and given.get("base") in list(PRESETS)
            and isinstance(given.get("model", {}), Mapping)
        ):
            return {**given, "model": {"preset": given["base"], **given.get("model", {})}}
        return given

    @model_validator(mode="before")
    @classmethod
    def own_training_defaults(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        train, default = given.get("train"), cls.model_fields["train"].default
        if isinstance(train, TrainConfig):
            train = train.model_dump(exclude_unset=True)
        return {**given, "train": {**default.model_dump(), **train}} if isinstance(train, Mapping) else given


def usual_rate(model: ModelConfig, scope: str) -> float:
    """Models made elsewhere have learned for long, and forget at rates that suit ours; a new head alone does not mind."""
    if not isinstance(model, HuggingFaceConfig):
        return 5e-4
    return {"head": 1e-3, "lora": 3e-4}.get(scope, 5e-5)


RunConfig = Annotated[Union[PretrainConfig, FinetuneConfig], Field(discriminator="job")]
_RUN_CONFIG: TypeAdapter[PretrainConfig | FinetuneConfig] = TypeAdapter(RunConfig)


def load_run_config(path: Path) -> PretrainConfig | FinetuneConfig:
    return parse_run_config(read_toml(path), str(path))


def parse_run_config(settings: Any, source: str) -> PretrainConfig | FinetuneConfig:
    """Settings of either job; their key `job` says which."""
    try:
        return _RUN_CONFIG.validate_python(settings)
    except ValidationError as error:
        raise ConfigError(explain(error, [PretrainConfig, FinetuneConfig], source, tag="job")) from None
