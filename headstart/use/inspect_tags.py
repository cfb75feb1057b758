"""Look inside a tagger: for each entity that it finds, what its first word owes to the tokens of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from headstart.errors import ConfigError, DataError, ModelError, did_you_mean
from headstart.models.decode import Sampling
from headstart.models.heads import ClassHead, Model
from headstart.runs.watch import Watch
from headstart.show.view import Inspection, View
from headstart.targets.tags import OUTSIDE, entities
from headstart.text.read import Example
from headstart.text.subwords import word_rows
from headstart.text.tagged import words_in
from headstart.use.attribution import attribute
from headstart.use.inspect import VIEWS, Inspector, attention_maps, label_probabilities

MOST_WORDS = 3  # that are attributed


class TagInspector(Inspector):
    """A tagger that can be looked into, text by text."""

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
        """What the model makes of the words of `text`. `label` is the tag that is asked for; else the predicted ones are."""
        views = self._chosen(views, self._shown(VIEWS["classify"]))
        if tokens:
            raise ModelError("Only a causal language model can continue a text. Leave out --tokens.")
        if label is not None and label not in self.labels:
            raise ConfigError(f"This model has no tag '{label}'. It has {', '.join(self.labels)}.{did_you_mean(label, self.labels)}")  # fmt: skip
        words = [text[a:b] for a, b in words_in(text)]
        if not words:
            raise DataError("There is nothing to look at: the text has no words.", "DATA_EMPTY")
        rows = word_rows([" ".join(words)], self.tokenizer, self.model.base.causal, self.model.base.max_len)
        places = rows.at[rows.row == 0].tolist()  # of the words that are read at once
        ids, notes = rows.rows[0].tolist(), []
        if len(places) < len(words):
            notes.append(f"Only the first {len(places)} words are looked at; predict reads the others after them.")
        found: list[View] = []
        for i in self._chosen_words(ids, places, label) if set(views) & {"labels", "attribution"} else ():
            there = at_token(self.model, places[i])
            probable = label_probabilities(there, ids, self.labels)
            tag = label or next(iter(probable.probabilities))
            if "labels" in views:
                found.append(probable)
            if "attribution" in views:
                evidence = attribute(there, self.tokenizer, ids, self.labels, tag)
                found.append(replace(evidence, label=f"{tag} of {words[i]}"))
        if "attention" in views:
            found.append(attention_maps(self.model, ids, [self.tokenizer.piece(i) for i in ids], layer, head))
        return Inspection(self.name, text, tuple(found), tuple(notes))

    @torch.inference_mode()
    def _chosen_words(self, ids: Sequence[int], places: Sequence[int], label: str | None) -> list[int]:
        """The first words of entities, or of other tags but O; of a given tag the words that have it most."""
        row = torch.tensor([list(ids)])
        logits = self.model(row, torch.ones_like(row, dtype=torch.bool))[0, list(places)]  # (words, C)
        if label is not None:
            order = np.argsort(-logits.softmax(-1)[:, self.labels.index(label)].numpy(), kind="stable")
            return order[:1].tolist()
        tags = [self.labels[i] for i in logits.argmax(-1).tolist()]
        begins = [entity.start for entity in entities(tags)] or [i for i, tag in enumerate(tags) if tag != OUTSIDE]
        return (begins or [0])[:MOST_WORDS]

    def inspect_rows(
        self,
        rows: Sequence[Example],
        name: str = "",
        views: Sequence[str] = (),
        most: int = 50,
        watch: Watch | None = None,
    ) -> Inspection:
        raise ModelError(f"{self.name or 'This model'} tags words: --data is for models with one label per text. Give texts.")  # fmt: skip


def at_token(model: Model, place: int) -> Model:
    """A classifier that reads one token of a text, with the base and the head of a tagger."""
    head = model.head
    assert isinstance(head, ClassHead)
    there = ClassHead(
        head.linear.in_features, head.linear.out_features, lambda hidden, mask: hidden[:, place], bias=True
    )
    there.linear = head.linear
    return Model(model.base, there).eval()
