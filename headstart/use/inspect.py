"""Look inside a finished model: one text through it, and plain data that shows itself out of it.

Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.bases.pretrained import made_elsewhere, open_base
from headstart.config import PretrainConfig, TranslateConfig
from headstart.errors import ConfigError, DataError, ModelError
from headstart.imported import subclass_at
from headstart.models.decode import LanguageStep, Sampling, generate
from headstart.models.heads import POOLS, ClassHead, Model, NumberHead
from headstart.quantities import counted
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.show.attention import AttentionMaps, causal_mask
from headstart.show.attribution import ClassAttribution
from headstart.show.labels import LabelProbabilities
from headstart.show.probabilities import Belief, Place, TokenProbabilities
from headstart.show.view import Inspection, View
from headstart.targets.labels import Labels
from headstart.targets.tasks import TARGETS
from headstart.tasks.classify import rows_of
from headstart.text.inputs import INPUTS
from headstart.text.prompted import prompt_tokens
from headstart.text.read import Example
from headstart.text.split import must_be_readable
from headstart.text.tokenizer import Tokenizer, rows_to_read, truncated
from headstart.use.attribution import attribute, class_evidence
from headstart.use.change import compare
from headstart.use.labels import separated_as
from headstart.use.layers import FOLDS, layer_features, logit_lens, probe_layers

TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # what a page can be switched to
VIEWS = {"language": ("probabilities", "attention"), "classify": ("labels", "attribution", "attention")}
MORE = {"language": ("lens",), "classify": ()}  # only if asked for
ROW_VIEWS = {"language": ("probes",), "classify": ("classes", "probes")}
MOST_LABELS = 3  # that are attributed, of several that a text has


class Inspector:
    """A finished model that can be looked into, text by text."""

    def __init__(self, saved: Saved, name: str = "", boundaries: bool = True) -> None:
        self.model, self.tokenizer = saved.model.eval(), saved.tokenizer
        self.kind, self.labels, self.long = saved.head.kind, saved.head.labels, saved.head.long
        self.name, self.boundaries, self.prompt = name, boundaries, saved.head.prompt
        self.input, self.target = INPUTS[saved.head.reads], saved.head.target

    @classmethod
    def load(cls, path: str | Path) -> Inspector:
        """The model of a run; or an external one, in a folder, a pack or on the Hugging Face hub."""
        if made_elsewhere(str(path)):
            return cls(open_base(str(path)), str(path))
        run = Run.open(path)
        config = run.config
        if isinstance(config, TranslateConfig):
            raise ModelError(f"{path} is a translator: inspect_translation shows where it looked.")
        boundaries = config.data.boundaries if isinstance(config, PretrainConfig) else True
        saved = read_model(run.path / "model")
        return subclass_at(TARGETS[saved.head.task].inspector, cls)(saved, str(path), boundaries)

    def inspect(
        self,
        text: str,
        views: Sequence[str] = (),
        top: int = 6,
        temperature: float = 1.0,
        tokens: int = 0,
        how: Sampling | None = None,
        layer: int = 0,
        head: str = "mean",
        label: str | None = None,
    ) -> Inspection:
        """What the model makes of `text`, and of up to `tokens` tokens that it adds itself, sampled by `how`.

        `label` is the one for which each token is asked; the most probable if not given, or the first of several that the text has.
        """
        views = self._chosen(views, self._shown(VIEWS[self.kind]), MORE[self.kind])
        ids, cut = self._read(text)
        notes = []
        if cut and self.long == "window":
            notes = [f"Only the first {len(ids)} tokens are looked at; predict reads the {cut} after them in windows."]
        elif cut:
            notes = [f"{cut} tokens beyond the {len(ids)} that this model reads are left out."]
        given = len(ids)
        if tokens:
            ids = self._continued(ids, tokens, how or Sampling())
        names = [self.tokenizer.piece(i) for i in ids]
        found: list[View] = []
        if self.kind == "classify":
            labelled = label_probabilities(self.model, ids, self.labels)
            if "labels" in views:
                found.append(labelled)
            if "attribution" in views:
                asked = [label] if label else self._explained(labelled.probabilities)
                if len(asked) > MOST_LABELS:
                    notes.append(
                        f"This text has {len(asked)} labels; the {MOST_LABELS} most probable are attributed. "
                        "--label (in Python, label) takes another."
                    )
                shown = asked[:MOST_LABELS]
                found += [attribute(self.model, self.tokenizer, ids, self.labels, each) for each in shown]
        if "probabilities" in views:
            found.append(token_probabilities(self.model, self.tokenizer, ids, top, temperature, given))
        if "lens" in views:
            found.append(logit_lens(self.model, self.tokenizer, ids))
        if "attention" in views:
            found.append(attention_maps(self.model, ids, names, layer, head))
        return Inspection(self.name, text, tuple(found), tuple(notes))

    def inspect_rows(
        self,
        rows: Sequence[Example],
        name: str = "",
        views: Sequence[str] = (),
        most: int = 50,
        watch: Watch | None = None,
    ) -> Inspection:
        """What the first `most` rows of each label show: what speaks for each label, and what each layer knows."""
        one_class = self.target.task in ("classify", "ordinal")  # others cannot be probed for
        known = ROW_VIEWS[self.kind] if one_class else ROW_VIEWS["classify"][:1]
        views, watch = self._chosen(views, known), watch or Watch()
        found: list[View] = []
        strata = None
        if not one_class:
            target = separated_as(self.target, rows)
            must_be_readable(name, rows, target.task, getattr(target, "separator", ""))
            strata = target.strata([e.label for e in rows])
        chosen, probed = first_of_each_label(rows, most, strata), first_of_each_label(rows, max(most, FOLDS))
        if "classes" in views:
            with watch.bar(f"evidence in {counted(len(chosen), 'row')}", len(chosen)):
                found.append(self._classes(chosen, watch))
        if "probes" in views:
            head, base = self.model.head, self.model.base
            pool = head.pool if self.kind == "classify" else POOLS["last" if base.causal else "mean"]
            read, _, _ = rows_of([e.text for e in probed], self.tokenizer, base, "truncate", self.prompt)
            features = layer_features(self.model, read, self.tokenizer.pad, pool)
            with watch.bar(f"probes of {len(features)} layers on {counted(len(probed), 'row')}", len(features)):
                found.append(probe_layers(features, [e.label for e in probed], watch=watch))
        note = f"{len(chosen)} of {len(rows)} rows are looked at, the first {most} of each label; --rows (in Python, most) takes more."
        return Inspection(self.name, name, tuple(found), (note,) if len(chosen) < len(rows) else ())

    def inspect_change(self, before: Inspector, texts: Sequence[str]) -> Inspection:
        """What training moved since `before`, on `texts`; the first of them is shown token by token."""
        if before.tokenizer.sha256 != self.tokenizer.sha256:
            raise ModelError(f"{before.name} and {self.name} have different tokenizers, so they share no base.")
        rows = [self._read(text)[0] for text in texts]
        head = before.model.head if before.kind == "language" else None
        names = (before.name, self.name)
        found = compare(before.model.base, self.model.base, head, self.tokenizer, rows, names)
        return Inspection(self.name, texts[0], (found,))

    def _shown(self, views: Sequence[str]) -> Sequence[str]:
        """Those that the base has something for."""
        return [view for view in views if view != "attention" or self.model.base.attends]

    def _chosen(self, asked: Sequence[str], usual: Sequence[str], more: Sequence[str] = ()) -> Sequence[str]:
        known = [*usual, *more]
        for view in asked:
            if view not in known:
                raise ConfigError(
                    f"Of {self.name or 'this model'} this can be shown: {', '.join(known)}; not '{view}'."
                )
        return asked or usual

    def _classes(self, rows: Sequence[Example], watch: Watch) -> ClassAttribution:
        special = [self.tokenizer.piece(i) for i in (self.tokenizer.start, self.tokenizer.end)]
        found, done, target = [], count(), separated_as(self.target, rows)
        for label in self.labels:
            each = []
            for text in (e.text for e in rows if label in target.names_in(e.label)):
                watch.reach(next(done), label)
                each.append(attribute(self.model, self.tokenizer, self._read(text)[0], self.labels, label))
            if each:
                found.append(class_evidence(label, each, special))
        if not found:
            raise DataError(f"No row has a label of this model ({', '.join(self.labels)}).", "DATA_LABEL")
        return ClassAttribution(found)

    def _explained(self, probabilities: Mapping[str, float]) -> list[str]:
        """The labels that a text has, or the most probable one."""
        ranked = list(probabilities)
        if not isinstance(self.target, Labels):
            return ranked[:1]
        outputs = np.array([[probabilities[name] for name in self.target.names]])
        there = self.target.written(self.target.answers(outputs)[0])
        return [name for name in ranked if name in there] or ranked[:1]

    def _read(self, text: str) -> tuple[list[int], int]:
        """The ids that the model reads, and how many tokens do not fit into its context."""
        causal, limit = self.model.base.causal, self.model.base.max_len
        if self.input.several:
            every, kept = (
                rows_to_read([self.input.from_line(text)], self.tokenizer, causal, most, self.model.base.separators)[0][
                    0
                ]
                for most in (sys.maxsize, limit)
            )
            return kept.tolist(), len(every) - len(kept)
        if self.prompt:
            read, _, _ = rows_of([text], self.tokenizer, self.model.base, "truncate", self.prompt)
            whole = prompt_tokens(self.prompt, self.tokenizer, causal).size + len(
                self.tokenizer.encode([text], False)[0]
            )
            return read[0].tolist(), max(0, whole - limit)
        rows = self.tokenizer.encode([text], self.kind == "classify" or self.boundaries, end=not causal)
        cut, _ = truncated(rows, limit, None if causal else self.tokenizer.end)
        if not len(cut[0]):
            raise DataError("There is nothing to look at: the text is empty.", "DATA_EMPTY")
        return cut[0].tolist(), len(rows[0]) - len(cut[0])

    def _continued(self, ids: list[int], tokens: int, how: Sampling) -> list[int]:
        if self.kind != "language" or not self.model.base.causal:
            raise ModelError("Only a causal language model can continue a text. Leave out --tokens.")
        room = self.model.base.max_len - len(ids)
        if tokens > room:
            raise ConfigError(f"This model reads {self.model.base.max_len} tokens, so {room} can follow this text.")
        step, end, never = LanguageStep(self.model), self.tokenizer.end, self.tokenizer.suppressed
        added = generate(step, torch.tensor([ids]), tokens, end, how, never=never)
        return [*ids, *(choice.id for choice in added)]


def first_of_each_label(rows: Sequence[Example], most: int, strata: Sequence[Hashable] | None = None) -> list[Example]:
    """Up to `most` rows of each label, or of each of the `strata` of the rows, in their order.

    >>> [e.text for e in first_of_each_label([Example("a", "x"), Example("b", "x"), Example("c", "y")], 1)]
    ['a', 'c']
    """
    seen: Counter[Hashable] = Counter()
    chosen = []
    for row, stratum in zip(rows, strata or [row.label for row in rows], strict=True):
        seen[stratum] += 1
        if seen[stratum] <= most:
            chosen.append(row)
    return chosen


def inspect(run: str | Path, text: str, **settings: Any) -> Inspection:
    """What the model in `run` makes of `text`; in a notebook it shows itself. See `Inspector.inspect` for the settings."""
    if is_translator(run):
        return inspect_translation(run, text, **settings)
    return Inspector.load(run).inspect(text, **settings)


def is_translator(run: str | Path) -> bool:
    return not made_elsewhere(str(run)) and isinstance(Run.open(run).config, TranslateConfig)


def inspect_translation(run: str | Path, text: str, layer: int = 0, head: str = "mean") -> Inspection:
    """Where a translator looked while it translated `text`, or each of its words."""
    from headstart.use.translate import LoadedTranslator  # its scores load scipy, which takes half as long as torch

    return LoadedTranslator.load(run).inspect(text, layer, head, str(run))


@torch.inference_mode()
def label_probabilities(model: Model, ids: Sequence[int], labels: Sequence[str]) -> LabelProbabilities:
    """The probability of each label, most probable first; or the number that is predicted."""
    assert isinstance(model.head, ClassHead)
    row = model.head.outputs(model.features(*_batch(ids)))[0].tolist()
    found = dict(sorted(zip(labels, row, strict=True), key=lambda pair: -pair[1]))
    return LabelProbabilities(found, "prediction" if isinstance(model.head, NumberHead) else "probability")


@torch.inference_mode()
def attention_maps(
    model: Model, ids: Sequence[int], names: Sequence[str], layer: int = 0, head: str = "mean"
) -> AttentionMaps:
    """Where each token looked, in every layer and head."""
    weights = torch.stack([w[0] for w in model.look(*_batch(ids)).attention]).float().cpu().numpy()  # (L, H, T, T)
    allowed = causal_mask(len(ids)) if model.base.causal else None
    return AttentionMaps(names, names, np.ascontiguousarray(weights), allowed, layer=layer, head=head)


@torch.inference_mode()
def token_probabilities(
    model: Model,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    top: int = 6,
    temperature: float = 1.0,
    given: int | None = None,
) -> TokenProbabilities:
    """How sure a language model was of each token; those from `given` on are its own."""
    if not 0 < temperature < math.inf:
        raise ConfigError(f"The temperature must be a number above 0, not {temperature:g}.")
    temperatures = tuple(sorted({*TEMPERATURES, temperature}))
    given = len(ids) if given is None else given
    if model.base.causal:
        logits = model(*_batch(ids))[0]  # (T, V); row t is what follows token t
        rows: dict[int, Tensor] = {t + 1: row for t, row in enumerate(logits)}
        if given < len(ids) and ids[-1] == tokenizer.end:
            del rows[len(ids)]  # nothing follows an end
    else:
        rows = _hidden_in_turn(model, tokenizer, ids)
    places = []
    for t in range(len(ids) + (len(ids) in rows)):
        i = ids[t] if t < len(ids) else None
        token = "" if i is None else tokenizer.piece(i)
        if t in rows:
            places.append(_place(rows[t], token, i, tokenizer, top, temperatures, given <= t < len(ids)))
        else:
            places.append(Place(token, i, None, (), ()))
    return TokenProbabilities(tuple(places), temperatures, temperature, hidden=not model.base.causal)


def _hidden_in_turn(model: Model, tokenizer: Tokenizer, ids: Sequence[int]) -> dict[int, Tensor]:
    """The logits at each token of a bidirectional model that could not see just that token."""
    if tokenizer.mask is None:
        raise ModelError("This tokenizer has no mask token, so no token can be hidden.")
    plain = [t for t, i in enumerate(ids) if i not in (tokenizer.start, tokenizer.end)]
    rows = {}
    for t in plain:
        hidden = [*ids[:t], tokenizer.mask, *ids[t + 1 :]]
        rows[t] = model.head.logits(model.features(*_batch(hidden))[0, t])
    return rows


def _place(
    logits: Tensor, token: str, i: int | None, tokenizer: Tokenizer, top: int, temperatures: Sequence[float], made: bool
) -> Place:
    best = logits.topk(min(top, len(logits))).indices
    beliefs = []
    for temperature in temperatures:
        log = (logits.double() / temperature).log_softmax(-1)  # (V,)
        p = log.exp()
        entropy = float(-(p * log.clamp_min(-1e300)).sum())  # 0 × -inf is not a number
        beliefs.append(Belief(None if i is None else math.exp(log[i]), entropy, tuple(p[best].tolist())))
    rank = None if i is None else int((logits > logits[i]).sum()) + 1
    return Place(token, i, rank, tuple(map(tokenizer.piece, best.tolist())), tuple(beliefs), made)


def _batch(ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    row = torch.tensor([list(ids)])
    return row, torch.ones_like(row, dtype=torch.bool)
