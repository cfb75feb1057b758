"""The shapes of models: what each preset, size and kind is made of. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from headstart.schema import Frozen

Preset = Literal["classic", "gpt", "bert"]
Size = Literal["nano", "micro", "mini", "small", "medium"]
Pool = Literal["last", "cls", "mean"]

IGNORE = -100  # a target that does not count, as in torch's cross_entropy
MOST_LAYERS = 1000  # more would be built for hours before they are too many

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
    "classic": {  # torch's nn.TransformerEncoder with a causal mask
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
    layers: int = Field(ge=1, le=MOST_LAYERS)
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


Translator = Literal["gru", "lstm", "gru-additive", "lstm-additive", "attention", "transformer"]
TRANSLATORS: tuple[str, ...] = get_args(Translator)


class Seq2SeqConfig(Frozen):
    """The shape of an encoder and a decoder. `kind` fills in whatever is not given beside it."""

    kind: Translator = "transformer"
    vocab: int = Field(0, ge=0)  # source tokens; 0 until the tokenizer is known
    target_vocab: int = Field(0, ge=0)
    hidden: int = Field(64, ge=1)
    layers: int = Field(ge=1, le=MOST_LAYERS)  # of the encoder, and of the decoder
    heads: int = Field(ge=1)
    ff: int = Field(ge=1)  # width of the feed-forward layers
    dropout: float = Field(0.1, ge=0, lt=1)
    context: int = Field(256, ge=2)  # most tokens of a source or a target
    longest: int = Field(0, ge=0)  # most tokens of a translation; 0 until the training targets are known
    positions: bool  # sinusoidal positions in the transformer
    causal: bool = True  # a target token sees only those before it; False shows why: nothing is left to predict
    cell: Literal["fused", "written", "reset-before"] = "fused"  # of a GRU; the last two are written out, and slower
    two_way: bool = False  # a bidirectional recurrent encoder, half as wide per direction

    @property
    def recurrent(self) -> bool:
        return self.kind not in ("attention", "transformer")

    @property
    def additive(self) -> bool:
        return self.kind.endswith("additive")

    @model_validator(mode="before")
    @classmethod
    def fill_from_kind(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        hidden = given.get("hidden", cls.model_fields["hidden"].default)
        shape = {"ff": 4 * hidden if isinstance(hidden, int) else 1}
        match given.get("kind", cls.model_fields["kind"].default):
            case "transformer":
                return {"layers": 3, "heads": 4, "positions": True, **shape, **given}
            case "attention":
                return {"layers": 3, "heads": 1, "positions": False, **shape, **given}
            case _:
                return {"layers": 1, "heads": 1, "positions": False, **shape, **given}

    @model_validator(mode="after")
    def parts_fit(self) -> Self:
        if not self.recurrent and self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        if self.hidden % 2 and (self.positions or self.two_way):
            raise ValueError(f"hidden ({self.hidden}) must be even for positions and for two_way")
        if self.cell != "fused" and (not self.kind.startswith("gru") or self.two_way):
            raise ValueError(f"the written-out cell ('{self.cell}') is a GRU that reads one way")
        if self.recurrent and (self.positions or self.heads > 1 or not self.causal):
            raise ValueError(f"positions, heads and causal belong to attention; kind '{self.kind}' is recurrent")
        if self.two_way and not self.recurrent:
            raise ValueError("two_way is for recurrent encoders; attention encoders are always bidirectional")
        return self


class HuggingFaceConfig(Frozen):
    """The shape of a model of Hugging Face transformers: theirs, and what the rest of Headstart needs to know of it."""

    model_type: str  # one of those in models/huggingface.py
    settings: dict[str, Any]  # of transformers' own configuration
    off: tuple[str, ...] = ()  # those that are null, where theirs by default are not; TOML has no null
    vocab: int = Field(ge=1)  # tokens
    context: int = Field(ge=2)  # most tokens a text may have
    layers: int = Field(ge=1, le=MOST_LAYERS)
    heads: int = Field(ge=1)
    width: int = Field(ge=1)
    causal: bool
    tied: bool  # as in TransformerConfig; with the four below, its language-model head
    head_bias: bool
    head_transform: bool
    activation: Literal["relu", "gelu", "gelu_tanh"]
    norm_eps: float
    pool: Pool | None = None  # that it was trained with, where its folder names one: sentence encoders
    separator: int | None = None  # the token after which the second text of a pair begins, which has another token type

    @property
    def theirs(self) -> dict[str, Any]:
        """transformers' own configuration, with what is turned off."""
        return {**self.settings, **dict.fromkeys(self.off)}


class UniversalConfig(Frozen):
    """The shape of a Universal Sentence Encoder without attention: n-grams of tokens, then a deep averaging network."""

    kind: Literal["universal"] = "universal"
    vocab: int = Field(ge=1)  # tokens
    context: int = Field(512, ge=2)  # most tokens a text may have
    width: int = Field(ge=1)  # of tokens and of texts
    ngrams: tuple[int, ...] = (2, 3, 5)  # tokens per n-gram, one branch each
    branch: int = Field(ge=1)  # width of a branch
    hidden: int = Field(ge=1)  # width of the averaging network
    norm_eps: float = Field(gt=0)

    # As in TransformerConfig. The language head would be new, as nothing trained one.
    layers: ClassVar[int] = 2  # the n-grams and the averaging network
    causal: ClassVar[bool] = False
    tied: ClassVar[bool] = True
    head_bias: ClassVar[bool] = True
    head_transform: ClassVar[bool] = False
    activation: ClassVar[Literal["relu"]] = "relu"


def _tag(given: Any) -> str:
    match given:
        case UniversalConfig() | {"kind": "universal"}:
            return "universal"
        case _ if isinstance(given, HuggingFaceConfig) or (isinstance(given, Mapping) and "model_type" in given):
            return "theirs"
        case _:
            return "ours"


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("ours")]
    | Annotated[HuggingFaceConfig, Tag("theirs")]
    | Annotated[UniversalConfig, Tag("universal")],
    Discriminator(_tag),
]


def is_external(given: Any) -> bool:
    """Whether a shape is that of a model which others have pretrained."""
    return _tag(given) != "ours"


def shape_class(given: Any) -> type[TransformerConfig | HuggingFaceConfig | UniversalConfig]:
    """The class of the shape that these settings describe."""
    match _tag(given):
        case "universal":
            return UniversalConfig
        case "theirs":
            return HuggingFaceConfig
        case _:
            return TransformerConfig


def usual_pool(model: ModelConfig) -> Pool:
    """The pooling that the model was trained with; failing that, what suits its kind.

    A causal model has read the whole text only at its last token. Nothing has taught the [CLS] token of an encoder of
    ours; that of an external one usually had an objective of its own.
    """
    match model:
        case UniversalConfig():
            return "cls"
        case HuggingFaceConfig():
            return model.pool or ("last" if model.causal else "cls")
        case _:
            return "last" if model.causal else "mean"


def pools_to_try(model: ModelConfig) -> tuple[Pool, ...]:
    """The usual one first."""
    usual = usual_pool(model)
    if isinstance(model, UniversalConfig):  # the first token is the text; the others were made to be averaged
        return (usual,)
    kinds: tuple[Pool, ...] = ("last" if model.causal else "cls", "mean")
    return (usual, *(pool for pool in kinds if pool != usual))


Spread = Annotated[float, Field(gt=0)]


class PixelsConfig(Frozen):
    """How an image is resized, cropped and normalised for a model; the defaults are ImageNet's."""

    size: int = Field(224, ge=1, le=2048)  # pixels per side of the square input
    edge: int = Field(
        256, ge=0, le=2048
    )  # resize the shorter side to this, then centre crop; 0: squeeze the whole image
    resample: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[Spread, Spread, Spread] = (0.229, 0.224, 0.225)


class PatchConfig(Frozen):
    """The shape of an image transformer."""

    size: int = Field(64, ge=1)  # pixels per side of the image
    patch: int = Field(8, ge=1)  # pixels per side of a patch
    layers: int = Field(4, ge=1, le=MOST_LAYERS)
    heads: int = Field(4, ge=1)
    width: int = Field(128, ge=1)

    @model_validator(mode="after")
    def parts_fit(self) -> Self:
        if self.size % self.patch or self.width % self.heads:
            raise ValueError(
                f"size ({self.size}) must be a multiple of patch ({self.patch}), width ({self.width}) of heads ({self.heads})"
            )
        return self


class ImageConfig(Frozen):
    """The shape of an image encoder."""

    kind: Literal["mobilenet-v2", "efficientnet-lite0", "transformer"]
    pixels: PixelsConfig = PixelsConfig()
    patches: PatchConfig = PatchConfig()  # of the transformer


class SpaceConfig(Frozen):
    """The embedding space that captions and images share, and the projections into it."""

    width: int = Field(256, ge=1)
    projection: Literal["linear", "mlp"] = "linear"
    start: Literal["canonical", "random"] = "canonical"  # where linear projections begin; an mlp begins at random
    hidden: int = Field(512, ge=1)  # of the mlp
    dropout: float = Field(0.3, ge=0, lt=1)


class DualConfig(Frozen):
    """The shape of two towers and the space that they share."""

    text: ModelConfig
    pool: Literal["last", "cls", "mean"]
    image: ImageConfig
    space: SpaceConfig
