"""Layer by layer: the logit lens of a language model, and linear probes on the states of any base.

Shapes: L layers and the embedding, T tokens, V vocabulary, R rows, D width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headstart.errors import DataError, ModelError
from headstart.models.heads import Model, Pooling
from headstart.runs.watch import Watch
from headstart.show.layers import LayerProbes, LogitLens, Probe
from headstart.targets.class_scores import accuracy_interval
from headstart.text.batch import pad
from headstart.text.tokenizer import Tokenizer, TokenRows

FOLDS = 5
AT_ONCE = 32  # rows in one pass


@torch.inference_mode()
def logit_lens(model: Model, tokenizer: Tokenizer, ids: Sequence[int]) -> LogitLens:
    """What a causal language model would predict after each token if it ended at each layer."""
    if not model.base.causal:
        raise ModelError("The logit lens asks what follows each token; a masked model predicts hidden ones.")
    row = torch.tensor([list(ids)])
    layers = model.look(row, torch.ones_like(row, dtype=torch.bool)).layers
    probabilities = [model.head.logits(model.base.finish(layer[0])).softmax(-1) for layer in layers]  # (T, V) each
    guesses = [
        [(tokenizer.piece(i), q) for q, i in zip(*(x.tolist() for x in p.max(-1)), strict=True)] for p in probabilities
    ]
    right = [[*p[:-1].gather(1, row[0, 1:, None])[:, 0].tolist(), None] for p in probabilities]
    names = [tokenizer.piece(i) for i in ids]
    return LogitLens(names, [*names[1:], ""], guesses, right)


@torch.inference_mode()
def layer_features(model: Model, rows: TokenRows, pad_id: int, pool: Pooling) -> Tensor:
    """What pooling finds in the embedding and each layer, (L + 1, R, D); every row is read once."""
    found = []
    for first in range(0, len(rows), AT_ONCE):
        ids, mask = pad([rows[i] for i in range(first, min(first + AT_ONCE, len(rows)))], pad_id)
        found.append(torch.stack([pool(layer, mask) for layer in model.look(ids, mask).layers]))
    return torch.cat(found, dim=1)


def probe_layers(features: Tensor, labels: Sequence[str], seed: int = 0, watch: Watch | None = None) -> LayerProbes:
    """The accuracy of a logistic regression on the states of each layer, every row held out once."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    counts = Counter(labels)
    if len(counts) < 2 or min(counts.values()) < FOLDS:
        raise DataError(f"A probe needs two labels or more, each with {FOLDS} rows or more.", "DATA_SMALL")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    target, probes = np.array(labels), []
    for n, layer in enumerate(features.numpy()):
        (watch or Watch()).reach(n, f"layer {n}")
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
        right = int((cross_val_predict(classifier, layer, target, cv=folds) == target).sum())
        name = f"layer {n}" if n else "embedding"
        probes.append(Probe(name, right / len(target), accuracy_interval(right, len(target))))
    return LayerProbes(probes, len(target), FOLDS, counts.most_common(1)[0][1] / len(target))
