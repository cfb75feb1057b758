"""A finished run as one HTML page that runs offline in any browser: tokenizer, forward pass and weights inside.

For our own presets with a tokenizer that Headstart trains. The scripts of page/ are the tokenizer, the forward pass and what the page
shows; the page names their hash and may run nothing else, nor ask for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from headstart.errors import ModelError, UserError
from headstart.runs.checkpoint import load_weights, weights
from headstart.runs.disk import write_file
from headstart.runs.environment import version
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.shapes import TransformerConfig
from headstart.show.page import script_json, templates
from headstart.tasks.classify import predicted
from headstart.text.batch import pad
from headstart.text.tokenizer import Tokenizer
from headstart.text.visible import shown
from headstart.text.vocabulary import KINDS, learn
from headstart.use.export import refuse_windows
from headstart.use.language import refuse_distilled

SCRIPTS = ("tokenizer.js", "model.js", "page.js")
ALLOWED = 1e-4  # of a probability, by rounding the weights to 16 bits; where it is more on the texts checked, they are kept in 32
MOST_PARAMETERS = 60_000_000  # a page of about 160 MB
CHECKED = 16  # texts of the run, and as many of random tokens
SAMPLE = "the film was fine"  # where the run keeps no texts
PARTS = ("normalizer", "pre_tokenizer", "decoder")  # of a tokenizer.json, beside its model


class HtmlExport(TypedDict):
    out: str
    bytes: int
    bits: int  # of a weight
    largest_difference: float  # of a probability, by rounding


class Described(TypedDict):
    """A tokenizer as tokenizer.js reads it."""

    kind: str
    lower: bool
    spaced: bool  # a token carries the space before it
    tokens: list[str]
    merges: list[list[str]]
    scores: list[float]
    start: int
    end: int
    unk: int | None
    special: list[int]
    suppressed: list[int]


def export_html(run: str | Path, out: str | Path) -> HtmlExport:
    """One page with the model in it; what was written, and how far rounding moves a probability."""
    opened, file = Run.open(run), Path(out)
    saved = read_model(opened.path / "model")
    if file.suffix not in (".html", ".htm"):
        raise UserError(f"--out {file}: the name of a page ends in .html.")
    if os.path.exists(file):
        raise UserError(f"{file} already exists. Choose another --out.", "RUN_EXISTS")
    refuse_distilled(opened, run)
    refuse_windows(saved, str(run))
    tokenizer = _tokenizer(saved.tokenizer, str(run))
    cfg = _supported(saved, str(run))
    example, texts = _texts(opened, saved.tokenizer)
    exact = _probabilities(saved, texts)
    every = {name: t.clone() for name, t in weights(saved.model).items()}  # rounding writes into the model
    full = {name: t for name, t in every.items() if not (cfg.tied and name == "head.weight")}
    load_weights(saved.model, {name: t.half().float() for name, t in every.items()})
    difference = float(np.abs(_probabilities(saved, texts) - exact).max())
    bits = 16 if difference <= ALLOWED else 32
    described = {
        "labels": list(saved.head.labels),
        "bits": bits,
        "tensors": [[name, t.numel()] for name, t in full.items()],
        "tokenizer": tokenizer,
        "model": {
            **{name: getattr(cfg, name) for name in ("layers", "heads", "width", "context", "causal", "norm", "activation", "embedding_norm", "positions")},
            "eps": cfg.norm_eps,
            "scale": cfg.width**0.5 if cfg.scale_embedding else 1.0,
            "pool": saved.head.pool,
        },
    }  # fmt: skip
    page = _page(opened, described, _packed(full, bits), example)
    write_file(file, page.encode())
    return {
        "out": str(file), "bytes": len(page.encode()), "bits": bits,
        "largest_difference": difference if bits == 16 else 0.0,
    }  # fmt: skip


def _supported(saved: Saved, run: str) -> TransformerConfig:
    """The shape of a model that the page can compute; for the others, one sentence."""
    cfg, head = saved.config, saved.head
    reason = ""
    if not isinstance(cfg, TransformerConfig):
        reason = "is a model of transformers"
    elif head.labels and (head.task != "classify" or head.reads != "text" or head.prompt):
        reason = "reads pairs or a prompt, or predicts something other than one label per text"
    elif not head.labels and not cfg.causal:
        reason = "is a masked language model, which does not generate"
    elif not head.labels and cfg.head_transform:
        reason = "has BERT's transform in front of its output matrix"
    elif sum(p.numel() for p in saved.model.parameters()) > MOST_PARAMETERS:
        reason = f"has more than {MOST_PARAMETERS:,} parameters"
    if reason or not isinstance(cfg, TransformerConfig):
        raise ModelError(
            f"{run} {reason}. --to html takes classifiers and causal language models of the presets gpt, bert and classic; "
            "try --to onnx."
        )
    return cfg


def _tokenizer(tokenizer: Tokenizer, run: str) -> Described:
    """What tokenizer.js needs: which of our kinds it is, and its entries."""
    found = json.loads(tokenizer.to_json())
    kind, lower = next(((k, low) for k in KINDS for low in (False, True) if _built_alike(found, k, low)), ("", False))
    if not kind:
        raise ModelError(
            f"{run} has a tokenizer from elsewhere. --to html takes those that Headstart trains ({', '.join(KINDS)}); try --to onnx."
        )
    model = found["model"]
    size = tokenizer.largest + 1
    tokens = [tokenizer.backend.id_to_token(i) or "" for i in range(size)]
    special = {tokenizer.pad, tokenizer.unk, tokenizer.start, tokenizer.end, tokenizer.mask} - {None}
    return {
        "kind": kind,
        "lower": lower,
        "spaced": (found["decoder"] or {}).get("type") == "Metaspace",
        "tokens": tokens,
        "merges": [pair.split(" ") if isinstance(pair, str) else pair for pair in model.get("merges", [])],
        "scores": [score for _, score in model["vocab"]] if kind == "unigram" else [],
        "start": tokenizer.start,
        "end": tokenizer.end,
        "unk": tokenizer.unk,
        "special": sorted(i for i in special if i is not None),
        "suppressed": tokenizer.suppressed,
    }


def _built_alike(found: dict[str, Any], kind: str, lower: bool) -> bool:
    """Whether a tokenizer is put together as ours of that kind."""
    ours = json.loads(learn(kind, ["a"], 1, 300, lower).to_str())
    return all(found.get(part) == ours.get(part) for part in PARTS) and found["model"]["type"] == ours["model"]["type"]


def _texts(run: Run, tokenizer: Tokenizer) -> tuple[str, list[str]]:
    """An example, and the texts to check on: test rows, where the run keeps them, the empty text and random tokens."""
    rows = list(run.read_lines("predictions.jsonl")) if (run.path / "predictions.jsonl").exists() else []
    known = [row["text"] for row in rows if isinstance(row.get("text"), str)][:CHECKED] or [SAMPLE]
    draws = np.random.default_rng(0).integers(0, tokenizer.largest + 1, (CHECKED, 12)).tolist()
    return known[0], [*known, "", *(tokenizer.decode(ids) for ids in draws)]


@torch.inference_mode()
def _probabilities(saved: Saved, texts: Sequence[str]) -> np.ndarray[Any, Any]:
    if saved.head.labels:
        return predicted(saved.model, texts, saved.tokenizer, saved.head.long, None)
    rows = saved.tokenizer.encode(texts, end=False)
    ids, mask = pad([rows[i][: saved.model.base.max_len] for i in range(len(rows))], saved.tokenizer.pad)
    found: Tensor = saved.model.eval()(ids, mask).softmax(-1)
    return found[mask.bool()].numpy()


def _packed(tensors: dict[str, Tensor], bits: int) -> str:
    kind = np.float16 if bits == 16 else np.float32
    return base64.b64encode(b"".join(t.cpu().numpy().astype(kind).tobytes() for t in tensors.values())).decode()


def _page(run: Run, described: dict[str, Any], packed: str, example: str) -> str:
    folder = files("headstart.use").joinpath("page")
    script = "\n".join(folder.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    parameters = run.read_json("result.json").get("parameters")
    made = templates("use/page")
    made.filters["shown"] = shown
    return made.get_template("model.html.j2").render(
        title=run.path.resolve().name, labels=described["labels"], example=example, version=version("headstart"),
        about=f"{parameters:,} parameters, {described['bits']}-bit weights." if parameters else "",
        described=script_json(described), weights=packed, script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip
