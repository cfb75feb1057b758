"""A finished translator put to work: translations with their scores, attention maps, and scores on other pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headstart.config import TranslateConfig
from headstart.errors import DataError, ModelError
from headstart.models.seq2seq import Maps
from headstart.tasks.translate import TranslateText, source_rows, translations
from headstart.tasks.translation_scores import where_it_fails
from headstart.text.files import PLAIN, Reading
from headstart.text.pairs import read_pairs
from headstart.train.run import Run
from headstart.train.translate import Translator, read_translator, rows_scored, scores_of


class Translations:
    def __init__(self, translator: Translator, config: TranslateConfig) -> None:
        self.translator, self.config = translator, config

    @classmethod
    def load(cls, path: str | Path) -> Translations:
        run = Run.open(path)
        config = run.config
        if not isinstance(config, TranslateConfig):
            raise ModelError(
                f"{path} is no translator (its job was {config.job}). Train one: headstart translate train."
            )
        return cls(read_translator(run.path / "model"), config)

    def translate(
        self,
        texts: Sequence[str],
        split: str | None = None,
        beams: int = 1,
        n_best: int = 1,
        length_penalty: float = 1.0,
    ) -> list[dict[str, Any]]:
        """The translation of each text, its score (log probability a token) and the `n_best` best of all beams.

        Word by word, a text's translations of each place are those of its words, and the scores their means.
        """
        if n_best > beams:
            raise ModelError(f"{n_best} translations were asked for, and {beams} beams can find no more than {beams}.")
        if any(not text.strip() for text in texts):
            raise DataError("A text to translate is blank.", "DATA_BLANK")
        words = (split or self.config.split) == "words"
        pieces = [text.split() if words else [text] for text in texts]
        found = iter(self.translator.translate([p for cut in pieces for p in cut], beams, length_penalty))
        records = []
        for text, cut in zip(texts, pieces, strict=True):
            each = [next(found) for _ in cut]
            ranked = [
                {
                    "translation": " ".join(best[k][0] for best in each),
                    "score": sum(best[k][1] for best in each) / len(each),
                }
                for k in range(min(n_best, *(len(best) for best in each)))
            ]
            records.append({"source": text, **ranked[0], "n_best": ranked})
        return records

    def attention(self, text: str, split: str | None = None) -> list[dict[str, Any]]:
        """Every attention map of the greedy translation of `text`, or of each of its words: plain lists.

        A map has a row for each token that looks and a column for each token that is looked at.
        """
        words = (split or self.config.split) == "words"
        return [self._maps(piece) for piece in (text.split() if words else [text])]

    def _maps(self, text: str) -> dict[str, Any]:
        translator = self.translator
        source, target = translator.source, translator.target
        rows = source_rows([text], source)
        ids, mask = torch.from_numpy(rows[0]).long()[None], torch.ones(1, len(rows[0]), dtype=torch.bool)
        best = translations(translator.model, rows, source.pad, target, translator.config.longest)[0][0]
        written = torch.tensor([[target.start, *best.ids]])
        with torch.inference_mode():
            maps = translator.model.eval().look(ids, mask, written)
        read = [source.piece(i) for i in ids[0].tolist()]
        said = [*(target.piece(i) for i in best.ids), target.piece(target.end)]  # what each step wrote
        return {
            "source": text,
            "translation": target.decode(best.ids),
            "source_tokens": read,
            "target_tokens": said,
            "maps": _plain(maps, read, [target.piece(target.start), *said[:-1]], said),
        }

    def evaluate(
        self,
        paths: Sequence[str | Path],
        source_column: str | None = None,
        target_column: str | None = None,
        beams: int = 1,
        reading: Reading = PLAIN,
    ) -> dict[str, Any]:
        """Scores on pairs, each with its interval, and where the translations fail."""
        pairs, blank = read_pairs(paths, source_column, target_column, reading)
        translator = self.translator
        text = TranslateText(pairs, translator.source, translator.target, translator.config.context)
        if not text.pairs:
            raise DataError("No pair fits into the context of the model.", "DATA_SMALL")
        rows = rows_scored(translator, text.pairs, beams)
        return {
            **scores_of(translator, text, rows),
            "blank_pairs": blank,
            "left_out": text.left_out,
            "fails": where_it_fails(rows),
        }


def _plain(maps: Maps, read: list[str], before: list[str], said: list[str]) -> list[dict[str, Any]]:
    kinds = {
        "encoder": (maps.encoder, read, read),
        "decoder": (maps.decoder, said, before),
        "cross": (maps.cross, said, read),
    }
    return [
        {
            "kind": kind,
            "layer": layer,
            "head": head,
            "rows": rows,
            "columns": columns,
            "weights": [[round(w, 6) for w in row] for row in weights.tolist()],
        }
        for kind, (layers, rows, columns) in kinds.items()
        for layer, heads in enumerate(layers, start=1)
        for head, weights in enumerate(heads[0], start=1)
    ]
