"""A classifier out of an .onnx file that `headstart export` wrote. No torch.

The file is whole: its metadata hold the labels, the tokenizer and how texts become rows, and it ends with its own SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ModelError, UserError, first_line
from headstart.imported import subclass_at
from headstart.runs.manifest import verifying
from headstart.targets.tasks import TARGETS
from headstart.task import Task
from headstart.text.files import check_file
from headstart.text.inputs import input_with, must_suit
from headstart.text.prompted import PromptTokens, prompted_rows
from headstart.text.protobuf import Bytes, fields
from headstart.text.tokenizer import Tokenizer, rows_to_read
from headstart.use.labels import LabelledText, labelled

AT_ONCE = 64  # texts
LONGEST_CONTEXT = 1_000_000  # tokens
# The entry of the metadata that comes last, as a protocol buffer writes it; the hexadecimal digits of the hash follow.
_SEAL = b"\x72\x54\x0a\x10headstart_sha256\x12\x40"
_DIGITS = 64
# Where tensors may be in an ONNX model, by the numbers of the fields of each message.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "elsewhere"},
}
MOST_FIELDS = 5_000_000


class OnnxFacts(TypedDict):
    """The metadata of the file."""

    labels: list[str]
    causal: bool
    context: int  # tokens
    prompt: PromptTokens | None  # that every text is put into
    task: Task
    thresholds: list[float]  # of several labels
    separators: int  # between the two texts of a pair; 0: it reads single texts


class OnnxClassifier:
    def __init__(self, session: Any, tokenizer: Tokenizer, facts: OnnxFacts, file: str | Path = "") -> None:
        self.session, self.tokenizer, self.facts, self.file = session, tokenizer, facts, file
        self.labels: tuple[str, ...] = tuple(facts["labels"])
        self.reads = input_with(2 if facts["separators"] else 1).name
        self.target = TARGETS[facts["task"]].of_model(self.labels, facts["thresholds"])

    @classmethod
    def load(cls, file: str | Path, threads: int = 0) -> OnnxClassifier:
        try:
            import onnxruntime
        except ImportError:
            raise UserError(
                "An .onnx file needs onnxruntime: pip install 'headstart[onnx]'.", "NOT_INSTALLED"
            ) from None
        check_file(Path(file))
        data = Path(file).read_bytes()
        _must_be_whole(data, file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # errors are reported by us
        try:
            _must_be_alone(memoryview(data))
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            metadata = session.get_modelmeta().custom_metadata_map
            facts, tokenizer = _checked(json.loads(metadata["headstart"]), session), _tokenizer(metadata["tokenizer"])
        except KeyError:
            raise ModelError(f"{file}: not a file that headstart export wrote (its metadata are missing).") from None
        except UserError as error:
            raise ModelError(f"{file}: {str(error)[:1].lower()}{str(error)[1:]}") from None
        except Exception as error:  # onnxruntime raises kinds of its own, one for each way in which a file is broken
            raise ModelError(f"{file}: not an ONNX model that can be read ({first_line(error)}).") from None
        if not facts["labels"]:
            raise ModelError(f"{file} holds a language model, which has no labels.")
        return subclass_at(TARGETS[facts["task"]].onnx, cls)(session, tokenizer, facts, file)

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        """One row per text, one column per label."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts; for one text give [text]")
        if not texts:
            return []
        must_suit(texts, self.reads)
        if self.facts["prompt"]:
            rows, _, _ = prompted_rows(texts, self.tokenizer, self.facts["prompt"], self.facts["context"], "truncate")
        else:
            facts = self.facts
            rows, _ = rows_to_read(texts, self.tokenizer, facts["causal"], facts["context"], facts["separators"])
        order = np.argsort(rows.lengths, kind="stable")
        found = np.empty((len(texts), len(self.labels)))
        for i in range(0, len(order), AT_ONCE):
            part = order[i : i + AT_ONCE]
            found[part] = self._logits([rows[int(n)] for n in part])
        return self.target.outputs_of(found).tolist()

    def predict(self, texts: Sequence[str]) -> list[LabelledText]:
        """The label of each text and the probability of every label, most probable first."""
        return labelled(self.target, texts, self.probabilities(texts))

    def _logits(self, rows: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self.tokenizer.pad, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        mask = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
        try:
            logits = self.session.run(["logits"], {"ids": ids, "mask": mask})[0]
        except Exception as error:  # such as an id that the model has no row for
            raise ModelError(f"{self.file}: the model and its metadata do not fit ({first_line(error)}).") from None
        per_token = (longest,) if self.target.by_word else ()
        if np.shape(logits) != (len(rows), *per_token, len(self.labels)) or not np.isfinite(logits).all():
            raise ModelError(f"{self.file}: the model does not give one finite number for each of its labels.")
        return logits


def sealed(data: bytes) -> bytes:
    """A model with its own SHA-256 as the last entry of its metadata: the end of a protocol buffer can be added to."""
    return data + _SEAL + hashlib.sha256(data).hexdigest().encode()


def _must_be_whole(data: bytes, file: str | Path) -> None:
    """Refuse a file that is not as it was written; one without a hash is older than these, or external."""
    end = len(data) - len(_SEAL) - _DIGITS
    if not verifying() or end < 0 or not data.startswith(_SEAL, end):
        return
    if hashlib.sha256(memoryview(data)[:end]).hexdigest().encode() != data[-_DIGITS:]:
        raise ModelError(
            f"{file} is damaged, or was changed by hand. Copy it again from where it came, or export it again; --no-verify takes "
            "it as it is."
        )


def _must_be_alone(model: Bytes) -> None:
    """Refuse a model that has tensors in other files, which could be any file."""
    left: list[tuple[str, Bytes]] = [("model", model)]
    seen = 0
    while left:
        kind, message = left.pop()
        for number, value in fields(message):
            seen += 1
            inside = _INSIDE[kind].get(number)
            if inside == "elsewhere":
                raise ModelError("It keeps tensors in other files, which is not supported. Export it as one file.")
            if seen > MOST_FIELDS:
                raise ModelError(f"It has more than {MOST_FIELDS:,} fields, which no model of ours has.")
            if inside and isinstance(value, bytes | memoryview):
                left.append((inside, value))


def _tokenizer(text: str) -> Tokenizer:
    try:
        return Tokenizer.from_json(text)
    except ValueError as error:
        raise ModelError(f"Its tokenizer cannot be used ({error}).") from None


def _checked(facts: Any, session: Any) -> OnnxFacts:
    """The facts of the metadata, held against their kinds and against the model."""
    damaged = ModelError("Its metadata are damaged. Export it again.")
    if not isinstance(facts, dict):
        raise damaged
    labels, causal, context = facts["labels"], facts["causal"], facts["context"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise damaged
    if len(set(labels)) != len(labels) or not isinstance(causal, bool):
        raise damaged
    if type(context) is not int or not 2 <= context <= LONGEST_CONTEXT:
        raise damaged
    outputs = {output.name: output.shape for output in session.get_outputs()}
    if {given.name for given in session.get_inputs()} != {"ids", "mask"} or "logits" not in outputs:
        raise ModelError("It is not a model that headstart export wrote: it does not make logits of ids and mask.")
    last = outputs["logits"][-1] if outputs["logits"] else None
    if labels and isinstance(last, int) and last != len(labels):
        raise ModelError(f"It has {len(labels)} labels, and gives {last} numbers. Export it again.")
    prompt = facts.get("prompt")
    if prompt is not None and not _is_prompt(prompt):
        raise damaged
    found = PromptTokens(tuple(prompt["before"]), prompt["space"], tuple(prompt["after"]), 0) if prompt else None
    task, thresholds = facts.get("task", "classify"), facts.get("thresholds", [])
    if task not in TARGETS or not isinstance(thresholds, list) or not all(type(t) is float for t in thresholds):
        raise damaged
    separators = facts.get("separators", 0)
    if len(thresholds) not in (0, len(labels)) or type(separators) is not int or not 0 <= separators <= 2:
        raise damaged
    return {
        "labels": labels,
        "causal": causal,
        "context": context,
        "prompt": found,
        "task": task,
        "thresholds": thresholds,
        "separators": separators,
    }


def _is_prompt(prompt: Any) -> bool:
    return (
        isinstance(prompt, dict)
        and prompt.get("space") in ("", " ")
        and all(isinstance(ids := prompt.get(key), list) and len(ids) <= LONGEST_CONTEXT for key in ("before", "after"))
        and all(type(i) is int and 0 <= i < 2**31 for key in ("before", "after") for i in prompt[key])
    )
