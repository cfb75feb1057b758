"""A trained translator: saving, loading and translating.

model/
  config.json             the shape, under the key `headstart`
  model.safetensors
  tokenizer.json          of the source
  target_tokenizer.json   of the target: two vocabularies, because letters and phonemes, or English and French, share little
  README.md               the model card
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import DataError, ModelError
from headstart.models.recurrent import Recurrent
from headstart.models.seq2seq import Seq2Seq, TransformerSeq2Seq
from headstart.models.unfilled import Unfilled, shapes_alone
from headstart.runs.checkpoint import load_weights, must_fit, weights
from headstart.runs.model_dir import complaints, must_hold, read_description, read_tensors, write_parts
from headstart.schema import parse
from headstart.shapes import Seq2SeqConfig
from headstart.tasks.translate import TranslateText, source_rows, translations
from headstart.tasks.translation_scores import PairScores, Scored, translation_scores
from headstart.text.pairs import Pair, references
from headstart.text.tokenizer import Tokenizer, TokenRows

FILES = ("tokenizer.json", "target_tokenizer.json")


@dataclass(frozen=True)
class Translation:
    """One translation of a text."""

    text: str
    score: float  # log probability per token
    finished: bool  # False: cut off at the longest that the model writes


@dataclass(frozen=True)
class Translator:
    """A model with everything that its use needs."""

    model: Seq2Seq
    source: Tokenizer
    target: Tokenizer
    config: Seq2SeqConfig
    device: str = "cpu"

    def rows(self, texts: Sequence[str]) -> TokenRows:
        """Texts as the model reads them; a DataError or ModelError for one that it cannot."""
        if any(not text.strip() for text in texts):
            raise DataError("A text to translate is blank.", "DATA_BLANK")
        rows = source_rows(texts, self.source)
        for text, length in zip(texts, rows.lengths.tolist(), strict=True):
            if length > self.config.context:
                raise ModelError(
                    f"A text of {length} tokens ('{text[:40]}...') is longer than the {self.config.context} that this "
                    "model can read.",
                    "TEXT_LONG",
                )
        return rows

    def must_read(self, texts: Sequence[str], split: str) -> None:
        """Refuse texts that the model cannot read, whole or word by word."""
        self.rows([part for text in texts for part in parts_of(text, split)])

    def write(self, folder: Path, card: str) -> None:
        """Everything but the tokenizers, which a run writes when it begins; the weights last."""
        described = {
            "model_type": "headstart_seq2seq",
            "headstart": {"model": self.config.model_dump(), "head": "translate"},
        }
        write_parts(folder, described, card, weights(self.model))

    def translate(self, texts: Sequence[str], beams: int = 1, length_penalty: float = 1.0) -> list[list[Translation]]:
        """The best `beams` translations of each text, best first."""
        each = list(dict.fromkeys(texts))  # words come again
        found = translations(
            self.model, self.rows(each), self.source.pad, self.target, self.config.longest, beams, length_penalty,
            self.device,
        )  # fmt: skip
        made = {
            text: [Translation(self.target.decode(h.ids), h.score, h.finished) for h in best]
            for text, best in zip(each, found, strict=True)
        }
        return [made[text] for text in texts]


def build_seq2seq(cfg: Seq2SeqConfig) -> Seq2Seq:
    """A model with fresh weights."""
    return Recurrent(cfg) if cfg.recurrent else TransformerSeq2Seq(cfg)


def translate_texts(
    translator: Translator, texts: Sequence[str], split: str, beams: int = 1, length_penalty: float = 1.0
) -> list[str]:
    """The best translation of each text, whole or word by word."""
    parts = [parts_of(text, split) for text in texts]
    made = iter(translator.translate([part for cut in parts for part in cut], beams, length_penalty))
    return [" ".join(next(made)[0].text for _ in cut) for cut in parts]


def parts_of(text: str, split: str) -> list[str]:
    """What is translated on its own: the text, or each of its words; a blank text has none, and stays whole."""
    return (text.split() if split == "words" else []) or [text]


def rows_scored(
    translator: Translator, pairs: Sequence[Pair], split: str, beams: int = 1, length_penalty: float = 1.0
) -> list[Scored]:
    """Every source once, translated whole or word by word, beside its references."""
    known = references(pairs)
    made = translate_texts(translator, list(known), split, beams, length_penalty)
    return [Scored(source, text, tuple(known[source])) for source, text in zip(known, made, strict=True)]


def scores_of(translator: Translator, text: TranslateText, rows: Sequence[Scored]) -> PairScores:
    """The loss of the pairs, and the scores of the translations in `rows`."""
    loss = text.loss(translator.model, translator.device)
    return {
        "loss": loss["value"],
        "loss_interval": loss["interval"],
        "target_tokens": loss["tokens"],
        **translation_scores(rows, tokens_of(translator.target), translator.target.by_character),
    }


def tokens_of(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    """What cuts a translation into the tokens of its own vocabulary."""
    return lambda text: [tokenizer.piece(int(i)) for i in tokenizer.encode([text], boundaries=False)[0]]


def read_translator(folder: Path) -> Translator:
    """The model of a translation run's model/ folder."""
    with complaints(folder):
        described, tensors = read_description(folder), read_tensors(folder)
        cfg = parse(Seq2SeqConfig, described["model"], str(folder / "config.json"))
        must_hold(tensors, cfg.layers, folder)
        with shapes_alone():
            must_fit(build_seq2seq(cfg), tensors)
    source, target = (Tokenizer.load(folder / name) for name in FILES)
    for name, own, vocab in zip(FILES, (source, target), (cfg.vocab, cfg.target_vocab), strict=True):
        if own.size != vocab or own.largest >= vocab:
            raise ModelError(f"{folder}: {name} has {own.size} entries and ids up to {own.largest}, the model {vocab}.")
    with Unfilled():
        model = build_seq2seq(cfg)
    load_weights(model, tensors)
    return Translator(model.eval(), source, target, cfg)
