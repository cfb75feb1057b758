"""A finished run as one .onnx file, checked against the run and, in int8, scored beside it; with an example of its use."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch

from headstart.errors import ModelError, UserError
from headstart.runs.disk import write_file
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.targets.class_scores import ClassScores, class_scores
from headstart.targets.classes import Classes
from headstart.text.batch import pad
from headstart.text.inputs import INPUTS
from headstart.text.prompted import prompt_tokens
from headstart.text.read import Example, read_labelled
from headstart.text.tokenizer import Tokenizer
from headstart.use.export import refuse_windows
from headstart.use.labels import known_rows
from headstart.use.language import refuse_distilled
from headstart.use.onnx import OnnxClassifier, sealed

EXAMPLE = Path(__file__).with_name("onnx_example.py")
ALLOWED = 1e-3  # difference of a logit; what is larger is a fault of ours, and nothing is left behind


class QuantizedScores(TypedDict):
    bytes: int
    single: ClassScores  # single precision
    int8: ClassScores


class QuantizedExport(QuantizedScores):
    out: str


class OnnxExport(TypedDict):
    out: str
    example: str
    bytes: int
    largest_difference: float  # of a logit, from the run
    int8: NotRequired[QuantizedExport]


def export_onnx(run: str | Path, out: str | Path, examples: list[Example] | None = None) -> OnnxExport:
    """One .onnx file with the model, its tokenizer and its labels; what was written and how it was checked.

    A program beside it shows its use without Headstart. With labelled rows, there is a second one beside it with its matrices in 8 bits, and the accuracy of both on them.
    """
    opened, file = Run.open(run), Path(out)
    small, example = file.with_suffix(".int8.onnx"), file.with_suffix(".example.py")
    saved = read_model(opened.path / "model")
    for place in (file, example, small) if examples else (file, example):
        if os.path.exists(place):
            raise UserError(f"{place} already exists. Choose another --out.", "RUN_EXISTS")
    if file.suffix != ".onnx":
        raise UserError(f"--out {file}: the name of an ONNX file ends in .onnx.")
    refuse_distilled(opened, run)
    refuse_windows(saved, str(run))
    if saved.head.task != "classify" and examples:
        raise UserError(f"--int8 is scored by accuracy; the task of {run} is {saved.head.task}.")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".export-") as folder:
        draft, draft_small = Path(folder) / "model.onnx", Path(folder) / "small.onnx"
        write_onnx(draft, saved)
        result: OnnxExport = {
            "out": str(file),
            "example": str(example),
            "bytes": draft.stat().st_size,
            "largest_difference": _difference(draft, saved),
        }
        if examples:
            result["int8"] = {"out": str(small), **_int8(draft, draft_small, examples)}
        for made in filter(Path.exists, (draft, draft_small)):
            write_file(made, sealed(made.read_bytes()))
        write_file(example, EXAMPLE.read_bytes())
        if examples:
            os.replace(draft_small, small)
        os.replace(draft, file)  # atomic: a reader sees all of it or none
    return result


def rows_to_score(
    run: str | Path, data: str | Path, text_column: str | None, label_column: str | None
) -> list[Example]:
    """Labelled rows for 8 bits, refused before anything is written if the model in `run` cannot know them."""
    head = read_model(Run.open(run).path / "model").head
    labels = head.labels
    if not labels:
        raise UserError("--int8 is scored on labelled rows, so it is for classifiers.")
    if head.target.by_word:
        raise UserError(f"--int8 is scored by accuracy; the task of {run} is {head.task}.")
    return known_rows(read_labelled(data, text_column, label_column), Classes(labels), data)


def _int8(file: Path, small: Path, examples: list[Example]) -> QuantizedScores:
    """Write the same model with its matrices in 8 bits; its size, and the accuracy of both on labelled rows."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _silent():
        quantize_dynamic(str(file), str(small), weight_type=QuantType.QInt8)
    return {
        "bytes": small.stat().st_size,
        "single": _scored(OnnxClassifier.load(file), examples),
        "int8": _scored(OnnxClassifier.load(small), examples),
    }


def _scored(model: OnnxClassifier, examples: list[Example]) -> ClassScores:
    rows = model.probabilities([e.text for e in examples])
    target = [model.labels.index(e.label) for e in examples]
    return class_scores(target, [int(np.argmax(row)) for row in rows], len(model.labels))


def write_onnx(file: Path, saved: Saved) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch needs it, and says so at length)
    except ImportError:
        raise UserError(
            "export --to onnx needs the extra onnx: pip install 'headstart[onnx]'.", "NOT_INSTALLED"
        ) from None
    ids, mask = _rows(saved)
    both = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens", max=saved.config.context)}
    with _silent():
        torch.onnx.export(
            saved.model.eval(), (ids, mask), file, input_names=["ids", "mask"], output_names=["logits"],
            dynamic_shapes=(both, both), external_data=False, verbose=False,
        )  # fmt: skip
    made = onnx.load(file)
    del made.graph.value_info[:]  # shapes in the middle, which the quantizer finds to contradict its own
    head, cfg = saved.head, saved.config
    facts = metadata(saved.tokenizer, head.labels, cfg.causal, cfg.context)
    if head.prompt:
        facts["prompt"] = vars(prompt_tokens(head.prompt, saved.tokenizer, cfg.causal))
    if head.task != "classify":
        facts |= {"task": head.task, "thresholds": list(head.thresholds)}
    if INPUTS[head.reads].several:
        facts["separators"] = saved.model.base.separators
    put_metadata(made, saved.tokenizer, facts)
    onnx.save(made, file)


def metadata(tokenizer: Tokenizer, labels: Sequence[str], causal: bool, context: int) -> dict[str, object]:
    """What the use of any model needs to know, with or without Headstart."""
    roles = {role: getattr(tokenizer, role) for role in ("start", "end", "pad")}
    return {"labels": list(labels), "causal": causal, "context": context, **roles}


def put_metadata(model: Any, tokenizer: Tokenizer, facts: Mapping[str, Any]) -> None:
    import onnx

    onnx.helper.set_model_props(model, {"headstart": json.dumps(facts), "tokenizer": tokenizer.to_json()})


@contextmanager
def _silent() -> Iterator[None]:
    """Without the warnings of the exporter and the quantizer about their own parts."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _rows(saved: Saved) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of three lengths, padded together."""
    random, most = torch.Generator().manual_seed(0), min(saved.config.context, 32)
    lengths = (most, max(1, most // 2), 1)
    return pad(
        [torch.randint(saved.tokenizer.size, (n,), generator=random).tolist() for n in lengths], saved.tokenizer.pad
    )


@torch.inference_mode()
def _difference(file: Path, saved: Saved) -> float:
    """The largest difference of a logit between the model here and the file opened by onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    largest = 0.0
    for ids, mask in (_rows(saved), tuple(t[1:2, :2] for t in _rows(saved))):  # other numbers of texts and tokens
        found = session.run(["logits"], {"ids": ids.numpy(), "mask": mask.numpy()})[0]
        counted = mask if saved.head.by_token else slice(None)
        largest = max(largest, float((saved.model(ids, mask)[counted] - torch.from_numpy(found)[counted]).abs().max()))
    if largest > ALLOWED:
        raise ModelError(f"The exported file gives other logits (by {largest:.2g}). Please report this.")
    return largest
