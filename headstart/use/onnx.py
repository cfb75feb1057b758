"""A classifier out of an .onnx file that `headstart export` wrote. No torch.

The file is whole: its metadata hold the labels, the tokenizer and how texts become rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ModelError, UserError, first_line
from headstart.text.files import check_file
from headstart.text.tokenizer import Tokenizer, rows_to_read
from headstart.use.labels import labelled

AT_ONCE = 64  # texts


class OnnxClassifier:
    def __init__(self, session: Any, tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
        self.session, self.tokenizer, self.facts = session, tokenizer, facts
        self.labels: tuple[str, ...] = tuple(facts["labels"])

    @classmethod
    def load(cls, file: str | Path, threads: int = 0) -> OnnxClassifier:
        try:
            import onnxruntime
        except ImportError:
            raise UserError("An .onnx file needs onnxruntime: pip install 'headstart[onnx]'.", "EXTRA") from None
        check_file(Path(file))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            told = session.get_modelmeta().custom_metadata_map
            facts, tokenizer = json.loads(told["headstart"]), Tokenizer.from_json(told["tokenizer"])
        except KeyError:
            raise ModelError(f"{file}: not a file that headstart export wrote (its metadata are missing).") from None
        except Exception as error:  # onnxruntime raises kinds of its own, one for each way in which a file is broken
            raise ModelError(f"{file}: not an ONNX model that can be read ({first_line(error)}).") from None
        if not facts["labels"]:
            raise ModelError(f"{file} holds a language model, which has no labels.")
        return cls(session, tokenizer, facts)

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        """One row a text, one column a label."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts; for one text give [text]")
        if not texts:
            return []
        rows, _ = rows_to_read(texts, self.tokenizer, self.facts["causal"], self.facts["context"])
        order = np.argsort(rows.lengths, kind="stable")
        found = np.empty((len(texts), len(self.labels)))
        for i in range(0, len(order), AT_ONCE):
            part = order[i : i + AT_ONCE]
            found[part] = self._logits([rows[int(n)] for n in part])
        powers = np.exp(found - found.max(1, keepdims=True))
        return (powers / powers.sum(1, keepdims=True)).tolist()

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The label of each text and the probability of every label, most probable first."""
        return labelled(self.labels, texts, self.probabilities(texts))

    def _logits(self, rows: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self.tokenizer.pad, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        mask = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
        return self.session.run(["logits"], {"ids": ids, "mask": mask})[0]
