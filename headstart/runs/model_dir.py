"""model/: a trained model in Hugging Face's layout, written and read.

model/
  config.json        what transformers needs to know, and ours under the key `headstart`
  model.safetensors  tensors under the names that transformers uses (layout.py)
  tokenizer.json
  README.md          the model card
  MANIFEST.json      size and SHA-256 of the others, the card aside (manifest.py)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, assert_never

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from headstart.config import Long
from headstart.errors import ConfigError, ModelError
from headstart.models.base import Base
from headstart.models.heads import (
    HEADS,
    POOLS,
    ClassHead,
    LanguageHead,
    Model,
    OrderedHead,
    Pooling,
    head_transform,
    last_real,
)
from headstart.models.huggingface import KINDS, HuggingFaceBase
from headstart.models.layout import counterpart, from_disk, to_disk
from headstart.models.transformer import Transformer
from headstart.models.unfilled import Unfilled, shapes_alone
from headstart.models.universal import UniversalEncoder
from headstart.prompts import Prompt
from headstart.regular_file import read_regular
from headstart.runs import manifest
from headstart.runs.checkpoint import Tensors, load_weights, must_fit, weights
from headstart.runs.disk import write_file
from headstart.runs.weight_file import read_weights
from headstart.schema import parse
from headstart.shapes import (
    HuggingFaceConfig,
    ModelConfig,
    Pool,
    TransformerConfig,
    UniversalConfig,
    is_external,
    shape_class,
)
from headstart.strict_json import to_json
from headstart.targets.target import Target
from headstart.targets.tasks import TARGETS
from headstart.task import Input, Task
from headstart.text.inputs import INPUTS, described_input
from headstart.text.prompted import prompt_tokens
from headstart.text.tokenizer import Tokenizer

HeadKind = Literal["language", "classify"]


@dataclass(frozen=True)
class HeadSpec:
    """What stands on the base."""

    kind: HeadKind
    labels: tuple[str, ...] = ()
    pool: Pool = "last"
    dropout: float = 0.0
    long: Long = "truncate"
    prompt: Prompt | None = None  # that every text is put into
    tail: int = 0  # tokens of the prompt that follow the position which is read
    biased: bool = False  # the class head has a bias, also where that of transformers has none
    task: Task = "classify"
    thresholds: tuple[float, ...] = ()  # of several labels
    temperature: float | None = None  # that the weights of the class head were divided by, once they were trained
    reads: Input = "text"

    @property
    def pooling(self) -> Pooling:
        return partial(last_real, tail=self.tail) if self.prompt else POOLS[self.pool]

    @property
    def by_token(self) -> bool:
        """Whether there are logits of every token, and not of the text."""
        return self.kind == "language" or TARGETS[self.task].by_word

    @property
    def target(self) -> Target:
        """What the outputs of the head are."""
        return TARGETS[self.task].of_model(self.labels, self.thresholds)


@dataclass(frozen=True)
class Saved:
    """A model with everything that its use needs."""

    model: Model
    tokenizer: Tokenizer
    config: ModelConfig
    head: HeadSpec
    fresh: tuple[str, ...] = ()  # tensors that an external model did not have: of its language head alone
    unused: tuple[str, ...] = ()  # tensors that it had besides


def build_base(cfg: ModelConfig) -> Base:
    """A base with fresh weights."""
    match cfg:
        case HuggingFaceConfig():
            return HuggingFaceBase(cfg)
        case UniversalConfig():
            return UniversalEncoder(cfg)
        case TransformerConfig():
            return Transformer(cfg)
        case _:
            assert_never(cfg)


def build_model(cfg: ModelConfig, spec: HeadSpec) -> Model:
    """A model with fresh weights."""
    base = build_base(cfg)
    if spec.kind == "language":
        return Model(base, LanguageHead(cfg, base.embedding))
    bias = spec.biased or not isinstance(cfg, HuggingFaceConfig) or KINDS[cfg.model_type].class_bias
    return Model(base, new_head(cfg, spec, bias))


def new_head(cfg: ModelConfig, spec: HeadSpec, bias: bool) -> ClassHead:
    """The head of a task with fresh weights."""
    transform = head_transform(cfg) if spec.prompt and cfg.head_transform else None
    if spec.task == "ordinal":
        return OrderedHead(cfg.width, len(spec.labels), spec.pooling, spec.dropout)
    return HEADS[spec.task](cfg.width, len(spec.labels), spec.pooling, spec.dropout, bias, transform)


def write_model(folder: Path, saved: Saved, card: str) -> None:
    """Everything but the tokenizer, which a run writes when it begins; the weights last."""
    write_parts(folder, describe_model(saved), card, to_disk(weights(saved.model), saved.config))


def write_parts(folder: Path, described: Mapping[str, Any], card: str, tensors: Mapping[str, Tensor]) -> None:
    """config.json, the card, the weights and, last, the manifest, of the tokenizers too."""
    write_file(folder / "README.md", card.encode())
    on_disk = {name: t.cpu().contiguous() for name, t in tensors.items()}
    files = {
        "config.json": to_json(described, indent=2).encode(),
        "model.safetensors": save(on_disk, {"format": "pt"}),
    }
    for name, data in files.items():
        write_file(folder / name, data)
    tokenizers = {file.name: file.read_bytes() for file in sorted(folder.glob("*tokenizer.json"))}
    write_file(folder / manifest.NAME, manifest.manifest_of({**files, **tokenizers}))


def read_model(folder: Path) -> Saved:
    """The model of a run's model/ folder."""
    with complaints(folder):
        described = read_description(folder)
        if described["head"] == "translate":
            raise ModelError(
                f"{folder.parent} is a translator, which this verb does not take. Use headstart translate apply, or translate evaluate."
            )
        if described["head"] == "match":
            raise ModelError(f"{folder.parent} matches captions and images. Use headstart search, or match evaluate.")
        tensors = read_tensors(folder)
        shape = described["model"]
        cfg: ModelConfig = parse(shape_class(shape), shape, str(folder / "config.json"))
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    must_agree(tokenizer, cfg, folder)
    with complaints(folder):
        spec = _head_of(described, tokenizer, cfg.causal, str(folder / "config.json"))
        must_hold(tensors, cfg.layers, folder)
        state = from_disk(tensors, cfg)
        with shapes_alone():
            must_fit(build_model(cfg, spec), state)
    with Unfilled():
        model = build_model(cfg, spec)
    load_weights(model, state)
    return Saved(model.eval(), tokenizer, cfg, spec)


def _head_of(described: Mapping[str, Any], tokenizer: Tokenizer, causal: bool, source: str) -> HeadSpec:
    prompt = parse(Prompt, described["prompt"], source) if "prompt" in described else None
    labels, pool = tuple(described["labels"]), described["pool"]
    if not all(isinstance(name, str) for name in labels) or len(set(labels)) < len(labels):
        raise ValueError("its labels are damaged")
    if pool not in POOLS:
        raise KeyError(pool)
    return HeadSpec(
        described["head"],
        labels,
        pool,
        long=described.get("long", "truncate"),
        prompt=prompt,
        tail=prompt_tokens(prompt, tokenizer, causal).tail if prompt else 0,
        biased=described.get("biased") is True,
        task=_task_of(described),
        thresholds=tuple(map(float, described.get("thresholds", ()))),
        temperature=described.get("temperature"),
        reads=described_input(described),
    )


def _task_of(described: Mapping[str, Any]) -> Task:
    task: Task = described.get("task", "classify")
    if task not in TARGETS or len(described.get("thresholds", ())) not in (0, len(described["labels"])):
        raise ValueError("its task is damaged")
    if task == "ordinal" and len(described["labels"]) < 2:
        raise ValueError("its labels are damaged")
    return task


def read_description(folder: Path) -> dict[str, Any]:
    """What config.json says to us, of a folder that is as it was written."""
    manifest.must_be_whole(folder)
    described: dict[str, Any] = json.loads(read_regular(folder / "config.json"))["headstart"]
    return described


def read_tensors(folder: Path) -> Tensors:
    tensors = read_weights(folder / "model.safetensors")
    must_be_finite(tensors, folder)
    return tensors


@contextmanager
def complaints(folder: Path) -> Iterator[None]:
    """One sentence for whatever is missing or damaged in a model/ folder."""
    try:
        yield
    except FileNotFoundError as error:
        run = folder.parent
        if not folder.exists() and (run / "result.json").exists() and (run.parent.parent / "study.json").exists():
            raise ModelError(
                f"{run} has scores but no weights: a study keeps those of one seed per arm, with the most labels. "
                f"headstart finetune --config {run / 'config.toml'} --out RUN trains this one again."
            ) from None
        raise ModelError(f"{folder}: {Path(error.filename).name} is missing.") from None
    except OSError as error:
        raise ModelError(f"{error.filename or folder}: cannot be read ({error.strerror or error}).") from None
    except (ConfigError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{folder}: not a model that Headstart wrote ({error}).") from None


def must_hold(tensors: Tensors, layers: int, folder: Path) -> None:
    """Refuse settings of more layers than there are tensors, before anything is made of them."""
    if layers > len(tensors):
        raise ModelError(f"{folder}: its settings speak of {layers} layers; it holds {len(tensors)} tensors.")


def must_be_finite(tensors: Tensors, folder: Path) -> None:
    """Refuse weights with a NaN or an infinity, of which every answer would be made."""
    for name, t in tensors.items():
        if not bool(t.sum().isfinite()) and not bool(t.isfinite().all()):  # a sum is fast, and large ones overflow
            raise ModelError(
                f"{folder}: the tensor {name} holds numbers that are not finite. Its training failed, or the file is "
                "damaged: take another copy, or train it again."
            )


def must_agree(tokenizer: Tokenizer, cfg: ModelConfig, folder: Path) -> None:
    """Reject a tokenizer that is not the model's; external models often have spare embedding rows."""
    spare = is_external(cfg) and tokenizer.size < cfg.vocab
    if tokenizer.size != cfg.vocab and not spare:
        raise ModelError(f"{folder}: the tokenizer has {tokenizer.size} entries, the model {cfg.vocab}.")
    if tokenizer.largest >= cfg.vocab:
        raise ModelError(f"{folder}: the tokenizer has ids up to {tokenizer.largest}, the model {cfg.vocab} entries.")


def _ours(cfg: ModelConfig, spec: HeadSpec) -> Mapping[str, Any]:
    """What we need to know."""
    return {
        "model": cfg.model_dump(exclude_none=True),
        "head": spec.kind,
        "labels": list(spec.labels),
        "pool": spec.pool,
        "long": spec.long,
        **({"prompt": spec.prompt.model_dump()} if spec.prompt else {}),
        **({"biased": spec.biased} if spec.prompt or spec.task != "classify" else {}),
        **({"task": spec.task} if spec.task != "classify" else {}),
        **({"thresholds": list(spec.thresholds)} if spec.thresholds else {}),
        **({"temperature": spec.temperature} if spec.temperature is not None else {}),
        **INPUTS[spec.reads].described,
    }


def describe_model(saved: Saved) -> dict[str, Any]:
    """config.json: what transformers needs to know of the model, and what we do."""
    cfg, spec, tokenizer = saved.config, saved.head, saved.tokenizer
    shared: dict[str, Any] = {
        "vocab_size": cfg.vocab,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
        "tie_word_embeddings": cfg.tied,
        "torch_dtype": "float32",
    }
    if spec.kind == "classify":
        shared["id2label"] = {str(i): label for i, label in enumerate(spec.labels)}
        shared["label2id"] = {label: i for i, label in enumerate(spec.labels)}
    if isinstance(cfg, HuggingFaceConfig):
        return {**shared, "model_type": cfg.model_type, **cfg.theirs, "headstart": _ours(cfg, spec)}
    if isinstance(cfg, UniversalConfig):  # transformers has no class for it
        return {**shared, "model_type": f"headstart_{cfg.kind}", "headstart": _ours(cfg, spec)}
    match counterpart(cfg):
        case "gpt2":
            theirs = {
                "model_type": "gpt2",
                "architectures": ["GPT2LMHeadModel"] if spec.kind == "language" else [],
                "n_positions": cfg.context,
                "n_embd": cfg.width,
                "n_layer": cfg.layers,
                "n_head": cfg.heads,
                "n_inner": cfg.ff,
                "activation_function": "gelu_new",
                "layer_norm_epsilon": cfg.norm_eps,
                "resid_pdrop": cfg.dropout,
                "embd_pdrop": cfg.dropout,
                "attn_pdrop": cfg.dropout,
            }
        case "bert":
            theirs = {
                "model_type": "bert",
                "architectures": ["BertForMaskedLM"] if spec.kind == "language" else [],
                "hidden_size": cfg.width,
                "num_hidden_layers": cfg.layers,
                "num_attention_heads": cfg.heads,
                "intermediate_size": cfg.ff,
                "hidden_act": "gelu",
                "max_position_embeddings": cfg.context,
                "type_vocab_size": 2,
                "layer_norm_eps": cfg.norm_eps,
                "hidden_dropout_prob": cfg.dropout,
                "attention_probs_dropout_prob": cfg.dropout,
            }
        case _:
            theirs = {"model_type": f"headstart_{cfg.preset}"}
    return {**theirs, **shared, "headstart": _ours(cfg, spec)}
