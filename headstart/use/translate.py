"""A finished translator put to work: translations with their scores, attention maps, and scores on other pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from statistics import mean
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from headstart.bases.translator import Translation, Translator, parts_of, read_translator, rows_scored, scores_of
from headstart.config import TranslateConfig
from headstart.errors import DataError, ModelError
from headstart.runs.kinds import must_be
from headstart.runs.run import Run
from headstart.show.attention import AttentionMaps, causal_mask
from headstart.show.view import Inspection
from headstart.tasks.translate import TranslateText, translations
from headstart.tasks.translation_scores import Failures, PairScores, where_it_fails
from headstart.text.batch import pad
from headstart.text.files import PLAIN, Reading
from headstart.text.pairs import read_pairs


@dataclass(frozen=True)
class Attended:
    """A translation and what was looked at for it: cross (target to source), encoder, decoder; what a model has."""

    source: str
    translation: str
    maps: dict[str, AttentionMaps]


class Ranked(TypedDict):
    translation: str
    score: float  # log probability per token


class TranslatedText(Ranked):
    source: str
    unknown: list[str]  # parts of the source that the model has never seen
    finished: bool  # False: cut off
    n_best: list[Ranked]


class TranslatorEvaluation(PairScores):
    blank_pairs: int
    left_out: int
    fails: Failures


class LoadedTranslator:
    """The translator of a finished run."""

    def __init__(self, translator: Translator, config: TranslateConfig) -> None:
        self.translator, self.config = translator, config

    @classmethod
    def load(cls, path: str | Path) -> LoadedTranslator:
        run = Run.open(path)
        config = must_be(run.config, TranslateConfig, path)
        return cls(read_translator(run.path / "model"), config)

    def translate(
        self,
        texts: Sequence[str],
        split: str | None = None,
        beams: int = 1,
        n_best: int = 1,
        length_penalty: float = 1.0,
    ) -> list[TranslatedText]:
        """The translation of each text, its score (log probability per token) and the `n_best` best of all beams.

        Word by word, a translation joins one of each word, and its score is the mean of theirs. `unknown` is
        what the model has never seen of the text; a translation that is not `finished` was cut off.
        """
        if n_best > beams:
            raise ModelError(f"{n_best} translations were asked for, and {beams} beams can find no more than {beams}.")
        pieces = [self._pieces(text, split) for text in texts]
        found = iter(self.translator.translate([p for cut in pieces for p in cut], beams, length_penalty))
        records: list[TranslatedText] = []
        for text, cut in zip(texts, pieces, strict=True):
            joined = best_joined([next(found) for _ in cut], n_best)
            ranked: list[Ranked] = [
                {"translation": " ".join(each.text for each in chosen), "score": mean(each.score for each in chosen)}
                for chosen in joined
            ]
            records.append(
                {
                    "source": text,
                    **ranked[0],
                    "unknown": [piece for part in cut for piece in self.translator.source.unknown_pieces(part)],
                    "finished": all(each.finished for each in joined[0]),
                    "n_best": ranked,
                }
            )
        return records

    def attention(self, text: str, split: str | None = None) -> list[Attended]:
        """Where every token looked while `text`, or each of its words, was translated greedily."""
        return [self._attended(piece) for piece in self._pieces(text, split)]

    def inspect(self, text: str, layer: int = 0, head: str = "mean", name: str = "") -> Inspection:
        """The same as views of a page."""
        attended = self.attention(text)
        maps = [replace(view, layer=layer, head=head, part=part) for a in attended for part, view in a.maps.items()]
        if not maps:
            raise ModelError(
                "This model has no attention: its decoder sees one state of the whole source, and no tokens."
            )
        return Inspection(name, f"{text} → {' '.join(a.translation for a in attended)}", tuple(maps))

    def _pieces(self, text: str, split: str | None) -> list[str]:
        return parts_of(text, split or self.config.split)

    @torch.inference_mode()
    def _attended(self, text: str) -> Attended:
        model, source, target = self.translator.model.eval(), self.translator.source, self.translator.target
        rows = self.translator.rows([text])
        ids, mask = pad([rows[0]])
        best = translations(model, rows, source.pad, target, self.translator.config.longest)[0][0]
        maps = model.look(ids, mask, torch.tensor([[target.start, *best.ids]]))
        read = [source.piece(i) for i in ids[0].tolist()]
        written = [target.piece(i) for i in [*best.ids, target.end]]  # at each place ...
        before = [target.piece(i) for i in [target.start, *best.ids]]  # ... and what stood there to be looked at
        views = {
            "cross": _view(maps.cross, read, written, cross=True),
            "encoder": _view(maps.encoder, read, read),
            "decoder": _view(maps.decoder, before, written, causal_mask(len(written))),
        }
        return Attended(text, target.decode(best.ids), {name: view for name, view in views.items() if view})

    def evaluate(
        self,
        paths: Sequence[str | Path],
        source_column: str | None = None,
        target_column: str | None = None,
        beams: int = 1,
        reading: Reading = PLAIN,
        split: str | None = None,
        length_penalty: float = 1.0,
    ) -> TranslatorEvaluation:
        """Scores on pairs, each with its interval, and where the translations fail."""
        pairs, blank = read_pairs(paths, source_column, target_column, reading)
        translator = self.translator
        text = TranslateText(pairs, translator.source, translator.target, translator.config.context)
        if not text.pairs:
            raise DataError("No pair fits into the context of the model.", "DATA_SMALL")
        rows = rows_scored(translator, text.pairs, split or self.config.split, beams, length_penalty)
        return {
            **scores_of(translator, text, rows),
            "blank_pairs": blank,
            "left_out": text.left_out,
            "fails": where_it_fails(rows),
        }


def best_joined(places: Sequence[Sequence[Translation]], most: int) -> list[tuple[Translation, ...]]:
    """The `most` best ways to take one translation from each place, by the sum of their scores, best first."""

    def score(chosen: tuple[int, ...]) -> float:
        return sum(place[k].score for place, k in zip(places, chosen, strict=True))

    first = (0,) * len(places)
    waiting, met = [(-score(first), first)], {first}
    found: list[tuple[Translation, ...]] = []
    while waiting and len(found) < most:
        _, chosen = heappop(waiting)
        found.append(tuple(place[k] for place, k in zip(places, chosen, strict=True)))
        for i, k in enumerate(chosen):  # a place at a time, one worse
            further = (*chosen[:i], k + 1, *chosen[i + 1 :])
            if k + 1 < len(places[i]) and further not in met:
                met.add(further)
                heappush(waiting, (-score(further), further))
    return found


def _view(
    layers: list[Tensor], sources: list[str], targets: list[str], allowed: Any = None, cross: bool = False
) -> AttentionMaps | None:
    if not layers:
        return None
    weights = np.ascontiguousarray(torch.stack([layer[0] for layer in layers]).float().cpu().numpy())
    return AttentionMaps(sources, targets, weights, allowed, cross)
