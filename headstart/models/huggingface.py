"""Models of Hugging Face transformers as bases.

Only their computation is theirs. Which class computes is looked up here by `model_type` and never follows from a
name in a file; configuration and weights are read by bases/pretrained.py, as data.

Shapes: B examples, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from headstart.errors import ModelError, UserError, did_you_mean
from headstart.models.base import Base, Cache, States
from headstart.models.dropout import use_fast_dropout
from headstart.models.products import use_fast_products
from headstart.schema import parse
from headstart.shapes import HuggingFaceConfig


@dataclass(frozen=True)
class Kind:
    """What has to be known of a `model_type`; names are those of transformers."""

    classes: str  # what the names of its classes begin with
    prefix: str  # of the base's tensors, in a file that holds a head too
    blocks: str
    head: Mapping[str, str]  # our name of a head's module or tensor, and theirs
    causal: bool = False
    norm: str = ""  # the one after the last block, where it is not part of it
    options: Mapping[str, Any] | None = None  # for the base's constructor
    offset_positions: bool = False  # positions are counted from the padding id on
    padding: int | None = None  # the padding id that its code has, whatever the settings say
    fused: bool = True  # whether it can compute attention by torch's fused kernel
    relative_bias: bool = False  # a bias for distances beside the blocks, which all of them read
    class_bias: bool = True  # whether its class head has one, or a norm that can carry it
    separators: int = 1  # between the two texts of a pair
    token_types: bool = False  # whether the tokens of the second text have another type

    @property
    def masked_head(self) -> bool:
        """Whether its language head has a dense layer in front, and a bias."""
        return "head.transform.0" in self.head

    def first_position(self, config: Any) -> int:
        """The position of a text's first token."""
        if not self.offset_positions:
            return 0
        return (int(config.pad_token_id) if self.padding is None else self.padding) + 1


_NO_POOLER = {"add_pooling_layer": False}
_BERT = {
    "head.transform.0": "cls.predictions.transform.dense",
    "head.transform.2": "cls.predictions.transform.LayerNorm",
    "head.bias": "cls.predictions.bias",
    "head.weight": "cls.predictions.decoder.weight",
    "head.linear": "classifier",
}
_ROBERTA = {
    "head.transform.0": "lm_head.dense",
    "head.transform.2": "lm_head.layer_norm",
    "head.bias": "lm_head.bias",
    "head.weight": "lm_head.decoder.weight",
    "head.linear": "classifier.out_proj",
}
_DISTILBERT = {
    "head.transform.0": "vocab_transform",
    "head.transform.2": "vocab_layer_norm",
    "head.bias": "vocab_projector.bias",
    "head.weight": "vocab_projector.weight",
    "head.linear": "classifier",
}
_DECODER = {"head.weight": "lm_head.weight", "head.linear": "score"}

KINDS = {
    "bert": Kind("Bert", "bert.", "encoder.layer", _BERT, options=_NO_POOLER, token_types=True),
    "roberta": Kind(
        "Roberta", "roberta.", "encoder.layer", _ROBERTA, options=_NO_POOLER, offset_positions=True, separators=2
    ),
    "camembert": Kind(
        "Camembert", "roberta.", "encoder.layer", _ROBERTA, options=_NO_POOLER, offset_positions=True, separators=2
    ),
    "xlm-roberta": Kind(
        "XLMRoberta", "roberta.", "encoder.layer", _ROBERTA, options=_NO_POOLER, offset_positions=True, separators=2
    ),
    "mpnet": Kind(
        "MPNet",
        "mpnet.",
        "encoder.layer",
        _ROBERTA,
        options=_NO_POOLER,
        offset_positions=True,
        padding=1,
        fused=False,
        relative_bias=True,
        separators=2,
    ),
    "distilbert": Kind("DistilBert", "distilbert.", "transformer.layer", _DISTILBERT),
    "gpt2": Kind("GPT2", "transformer.", "h", _DECODER, causal=True, norm="ln_f"),
    "llama": Kind("Llama", "model.", "layers", _DECODER, causal=True, norm="norm", class_bias=False),
    "mistral": Kind("Mistral", "model.", "layers", _DECODER, causal=True, norm="norm", class_bias=False),
    "qwen2": Kind("Qwen2", "model.", "layers", _DECODER, causal=True, norm="norm", class_bias=False),
}
# Settings of transformers that say nothing of what a base computes.
_IDLE = {"bos_token_id", "eos_token_id", "use_cache", "classifier_dropout", "seq_classif_dropout", "qa_dropout"}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


@dataclass
class TheirCache(Cache):
    theirs: Any = None  # transformers' own


class HuggingFaceBase(Base):
    def __init__(self, cfg: HuggingFaceConfig) -> None:
        super().__init__()
        kind, self.width, self.max_len, self.causal = KINDS[cfg.model_type], cfg.width, cfg.context, cfg.causal
        self.separators, self._separator = kind.separators, cfg.separator
        config = _their_config(cfg.model_type, cfg.theirs)
        if config.num_hidden_layers != cfg.layers:
            raise ModelError(f"The model has {cfg.layers} layers, its settings speak of {config.num_hidden_layers}.")
        config._attn_implementation = self._attention = "sdpa" if kind.fused else "eager"
        self.inner = getattr(transformers(), f"{kind.classes}Model")(config, **(kind.options or {}))
        use_fast_products(self.inner)
        use_fast_dropout(self.inner)
        self._blocks, self._norm = kind.blocks, kind.norm
        self._first = kind.first_position(config)
        if kind.relative_bias:  # it stands before the blocks, as in the computation: freezing goes by this order
            parent, _, last = kind.blocks.rpartition(".")
            holder = self.inner.get_submodule(parent)
            holder.add_module(last, holder._modules.pop(last))

    @property
    def blocks(self) -> nn.ModuleList:
        return cast(nn.ModuleList, self.inner.get_submodule(self._blocks))

    @property
    def embedding(self) -> nn.Embedding:
        return cast(nn.Embedding, self.inner.get_input_embeddings())

    def forward(self, ids: Tensor, mask: Tensor, look: bool = False) -> States:
        assert ids.size(1) <= self.max_len, f"{ids.size(1)} tokens do not fit into a context of {self.max_len}"
        # Padding stands on the right, so no real token of a causal model can see it, and its faster mask will do.
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": None if self.causal else mask.long()}
        if self._first:
            given["position_ids"] = torch.arange(self._first, self._first + ids.size(1), device=ids.device)[None]
        if self._separator is not None:
            given["token_type_ids"] = token_types(ids, self._separator)
        if not look:
            return States(self.inner(**given, **self._no_cache).last_hidden_state)
        with self._slow_attention(), _outputs(self.blocks) as layers:
            found = self.inner(**given, **self._no_cache, output_attentions=True)
        return States(found.last_hidden_state, tuple(layers), tuple(found.attentions))

    def finish(self, hidden: Tensor) -> Tensor:
        return self.inner.get_submodule(self._norm)(hidden) if self._norm else hidden

    def new_cache(self, batch: int) -> Cache:
        if not self.causal:
            return super().new_cache(batch)
        return TheirCache([], theirs=transformers().DynamicCache(config=self.inner.config))

    def step(self, ids: Tensor, cache: Cache) -> States:
        assert isinstance(cache, TheirCache), "a cache comes from new_cache"
        assert cache.length + ids.size(1) <= self.max_len, f"the context has {self.max_len} places"
        found = self.inner(input_ids=ids, past_key_values=cache.theirs, use_cache=True)
        cache.length += ids.size(1)
        return States(found.last_hidden_state)

    def rewind(self, cache: Cache, length: int) -> None:
        assert isinstance(cache, TheirCache), "a cache comes from new_cache"
        cache.theirs.crop(length - cache.length)  # a negative number: the tokens to remove
        super().rewind(cache, length)

    @property
    def _no_cache(self) -> dict[str, bool]:
        return {"use_cache": False} if self.causal else {}

    @contextmanager
    def _slow_attention(self) -> Iterator[None]:
        """The same numbers the slow way, because the fused kernel keeps no weights."""
        self.inner.config._attn_implementation = "eager"
        try:
            yield
        finally:
            self.inner.config._attn_implementation = self._attention


def token_types(ids: Tensor, separator: int) -> Tensor:
    """0 up to the first separator of each row, 1 behind it.

    >>> token_types(torch.tensor([[1, 5, 2, 6, 2], [1, 5, 5, 2, 0]]), separator=2).tolist()
    [[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]
    """
    ends = (ids == separator).long()
    return (ends.cumsum(1) - ends > 0).long()


@contextmanager
def _outputs(blocks: nn.ModuleList) -> Iterator[list[Tensor]]:
    """What enters the first block and what each one gives, (B, T, D), of all that is computed meanwhile."""
    found: list[Tensor] = []

    def keep(block: nn.Module, given: tuple[Any, ...], made: Any) -> None:
        found.extend([given[0]] if not found else [])
        found.append(made[0] if isinstance(made, tuple) else made)

    hooks = [block.register_forward_hook(keep) for block in blocks]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def shape_of(described: Mapping[str, Any], source: str) -> HuggingFaceConfig:
    """The shape that a config.json of transformers describes; what it says of code to run is passed over."""
    model_type = str(described.get("model_type", "none"))
    if model_type not in KINDS:
        raise ModelError(
            f"{source}: models of the kind '{model_type}' are not supported.{did_you_mean(model_type, KINDS)} "
            f"Supported: {', '.join(KINDS)}."
        )
    kind = KINDS[model_type]
    for key, usual in (("is_decoder", False), ("add_cross_attention", False), ("position_embedding_type", "absolute"),
                       ("relative_attention_num_buckets", 32)):  # fmt: skip
        if described.get(key, usual) not in (usual, None):
            raise ModelError(f"{source}: a {model_type} model with {key} = {described[key]} is not supported.")
    theirs = _their_config(model_type, described, source)
    made: Any = type(theirs)
    own = own_settings(made) - _IDLE
    if not kind.offset_positions or kind.padding is not None:
        own -= {"pad_token_id"}  # padding is masked; the embedding of whatever token stands there learns as any other
    found, usual = theirs.to_dict(), made().to_dict()
    settings = _without_none({key: found[key] for key in found if key in own})
    act = next((getattr(theirs, name) for name in ("hidden_act", "activation_function", "activation") if hasattr(theirs, name)), "")  # fmt: skip
    if kind.masked_head and act not in ACTIVATIONS:
        raise ModelError(f"{source}: a {model_type} model with the activation '{act}' is not supported.")
    with usable(model_type, source):
        positions = int(theirs.max_position_embeddings)
        shape = {
            "model_type": model_type,
            "settings": settings,
            "off": [key for key in found if key in own and found[key] is None and usual[key] is not None],
            "vocab": int(theirs.vocab_size),
            "context": positions - kind.first_position(theirs),
            "layers": int(theirs.num_hidden_layers),
            "heads": int(theirs.num_attention_heads),
            "width": int(theirs.hidden_size),
            "causal": kind.causal,
            "tied": bool(theirs.tie_word_embeddings),
            "head_bias": kind.masked_head,
            "head_transform": kind.masked_head,
            "activation": ACTIVATIONS[act] if kind.masked_head else "gelu",
            "norm_eps": float(getattr(theirs, "layer_norm_eps", 1e-12)),
        }
        return parse(HuggingFaceConfig, shape)


def _their_config(model_type: str, settings: Mapping[str, Any], source: str = "The model") -> Any:
    kind = getattr(transformers(), f"{KINDS[model_type].classes}Config")
    understood = own_settings(kind) | {"rope_theta", "rope_scaling", *kind.attribute_map}  # older names too
    known = {key: value for key, value in settings.items() if key in understood}
    with usable(model_type, source):
        return kind(**known)


@contextmanager
def usable(model_type: str, source: str) -> Iterator[None]:
    """One sentence for settings that no model can be made of."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # the library raises kinds of its own for a value that it does not take
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"{source}: its settings are not those of a {model_type} model ({lines[-1].strip()})."
        ) from None


@cache
def own_settings(kind: Any) -> frozenset[str]:
    """The settings of a kind of configuration that not every kind has."""
    return frozenset(kind().to_dict().keys() - transformers().PreTrainedConfig().to_dict().keys())


def _without_none(value: Any) -> Any:
    """TOML has no null, and null is what transformers takes for a setting that is not there."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value


def transformers() -> ModuleType:
    try:
        import transformers
    except ImportError:
        raise UserError(
            "A model of Hugging Face needs the library transformers: pip install 'headstart[hf]'.", "NOT_INSTALLED"
        ) from None
    return transformers
