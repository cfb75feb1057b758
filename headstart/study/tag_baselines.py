"""What a tagger has to beat: the most frequent tag of each word, and a conditional random field. No torch.

The field is a linear chain (Lafferty, McCallum and Pereira, 2001) over each word, its ends and shape, and the words beside it,
as crfsuite fits it.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.study.baseline import Baseline
from headstart.targets.tags import Tags
from headstart.targets.target import Outputs, Target
from headstart.text.read import Example
from headstart.text.split import Labelled

STEPS = 100  # of L-BFGS
PENALTIES = (0.01, 0.1, 1.0)  # c2 of crfsuite: L2; the usual one is in the middle
L1 = 0.01  # c1: leaves out most features

Features = list[str]


def most_frequent_tag(data: Labelled) -> Baseline:
    """The most frequent tag of each word among the training rows; of a word that is new, the most frequent of all."""
    began = time.perf_counter()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in data.train:
        for word, tag in zip(example.text.split(" "), example.label.split(" "), strict=True):
            counts[word][tag] += 1
    usual = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
    known = {word: max(sorted(tags), key=tags.__getitem__) for word, tags in counts.items()}
    said = [[known.get(word, usual) for word in example.text.split(" ")] for example in data.test]
    seconds = time.perf_counter() - began
    return Baseline("most-frequent-tag", data.target, _encoded(data.target, said), seconds, None, len(known))


def crf(data: Labelled) -> Baseline:
    """A linear-chain conditional random field; its penalty is chosen on the validation rows."""
    began = time.perf_counter()
    assert isinstance(data.target, Tags)
    usual, score = PENALTIES[1], data.target.leading([])
    train, valid, test = ([features(e.text.split(" ")) for e in rows] for rows in data.parts().values())
    with tempfile.TemporaryDirectory() as folder:
        models = {c: _fit(train, data.train, c, Path(folder) / f"{c}.crf") for c in (PENALTIES if valid else (usual,))}
        scored = {c: _score(data, model.tag, valid, score) if valid else 0.0 for c, model in models.items()}
        chosen = max(scored, key=lambda c: (scored[c], c == usual))
        said = [models[chosen].tag(row) for row in test]
        info = models[chosen].info()
    size = len(info.state_features) + len(info.transitions)
    return Baseline("crf", data.target, _encoded(data.target, said), time.perf_counter() - began, chosen, size)


def _fit(rows: Sequence[Sequence[Features]], examples: Sequence[Example], penalty: float, file: Path) -> Any:
    import pycrfsuite

    trainer = pycrfsuite.Trainer(
        algorithm="lbfgs",
        params={"c1": L1, "c2": penalty, "max_iterations": STEPS, "feature.possible_transitions": True},
        verbose=False,
    )
    for row, example in zip(rows, examples, strict=True):
        trainer.append(row, example.label.split(" "))
    trainer.train(str(file))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(file))
    return tagger


def _score(
    data: Labelled, tag: Callable[[Sequence[Features]], list[str]], rows: Sequence[Sequence[Features]], score: str
) -> float:
    target = data.target
    found = target.answers(_encoded(target, [tag(row) for row in rows]))
    return float(target.scores(target.encode([e.label for e in data.valid]), found)[score])


def _encoded(target: Target, said: Sequence[Sequence[str]]) -> Outputs:
    assert isinstance(target, Tags)
    return target.encode([" ".join(row) for row in said]).astype(np.float64)


def features(words: Sequence[str]) -> list[Features]:
    """What the field knows of each word: the word, its ends and its shape, and the words beside it.

    >>> features(["Ada", "wrote"])[0][:4]
    ['bias', 'word=ada', 'end3=ada', 'end2=da']
    """
    lower = [word.lower() for word in words]
    own = [
        [
            "bias",
            f"word={small}",
            f"end3={small[-3:]}",
            f"end2={small[-2:]}",
            f"begin3={small[:3]}",
            f"shape={shape(word)}",
        ]
        for word, small in zip(words, lower, strict=True)
    ]
    for i, row in enumerate(own):
        for step in (-2, -1, 1, 2):
            there = 0 <= i + step < len(words)
            row.append(f"{step}:word={lower[i + step]}" if there else f"{step}:none")
            if there and abs(step) == 1:
                row.append(f"{step}:shape={shape(words[i + step])}")
    return own


def shape(word: str) -> str:
    """Capitals, small letters and digits of a word, each run once.

    >>> shape("McDonald's"), shape("1815")
    ("AaAa'a", '9')
    """
    found = "".join(
        "A" if c.isupper() else "a" if c.isalpha() else "9" if c.isdigit() else "." if c.isspace() else c for c in word
    )
    return re.sub(r"(.)\1+", r"\1", found)
