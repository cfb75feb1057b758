"""Use an .onnx file that `headstart export` wrote, without Headstart. Needs onnxruntime, tokenizers and numpy.

python model.example.py model.onnx "a text" "another text"

A model of pairs takes the texts two by two.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def main(file: str, texts: list[str]) -> None:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    facts, tokenizer = json.loads(metadata["headstart"]), Tokenizer.from_str(metadata["tokenizer"])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # "<mask>" in a text is text

    # A text is start, tokens, end, cut to what the model reads; a causal model has no end token. Or it stands in a prompt.
    before, inside, after = [facts["start"]], texts, [] if facts["causal"] else [facts["end"]]
    if prompt := facts.get("prompt"):
        before, inside, after = prompt["before"], [prompt["space"] + text.strip() for text in texts], prompt["after"]
    most = facts["context"] - len(before) - len(after)
    tokens = [tokenizer.encode(text, add_special_tokens=False).ids for text in inside]
    if separators := facts.get("separators"):  # pairs: end tokens stand between the texts, the longer is cut first
        most, texts = most - separators, [" | ".join(pair) for pair in zip(texts[::2], texts[1::2], strict=True)]
        pairs = list(zip(tokens[::2], tokens[1::2], strict=True))
        for first, second in pairs:
            while len(first) + len(second) > most:
                (first if len(first) > len(second) else second).pop()
        tokens = [[*first, *[facts["end"]] * separators, *second] for first, second in pairs]
    rows = [[*before, *row[: most + (separators or 0)], *after] for row in tokens]
    longest = max(map(len, rows))
    ids = np.array([row + [facts["pad"]] * (longest - len(row)) for row in rows], np.int64)
    mask = np.array([[i < len(row) for i in range(longest)] for row in rows])

    (logits,) = session.run(["logits"], {"ids": ids, "mask": mask})
    for text, row, scores in zip(texts, rows, logits, strict=True):
        if facts.get("task") == "regression":
            print(f"{scores[0]:.4f}\t{text}")
        elif facts.get("task") == "tag":  # of each word, the tag of its first token
            ends = [end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets]
            begins = np.cumsum([0, *(len(word) + 1 for word in text.split(" ")[:-1])])
            starts = np.searchsorted(ends, begins, side="right") + len(before)
            tags = [facts["labels"][int(scores[min(i, len(row) - 1)].argmax())] for i in starts]
            print(" ".join(f"{word}/{tag}" for word, tag in zip(text.split(" "), tags, strict=True)))
        elif facts.get("task") == "multilabel":
            probabilities, least = 1 / (1 + np.exp(-scores)), facts["thresholds"] or [0.5] * len(scores)
            found = zip(facts["labels"], probabilities, least, strict=True)
            print(", ".join(f"{label} {p:.4f}" for label, p, threshold in found if p >= threshold) + f"\t{text}")
        elif facts["labels"]:
            powers = np.exp(scores - scores.max())
            best = int(scores.argmax())
            print(f"{facts['labels'][best]}\t{powers[best] / powers.sum():.4f}\t{text}")
        else:  # a language model: its most probable token in the last place
            print(f"{tokenizer.id_to_token(int(scores[len(row) - 1].argmax()))}\t{text}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
