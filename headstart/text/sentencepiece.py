"""SentencePiece's .model files, read without SentencePiece and turned into a `tokenizers` tokenizer.

The file is a protocol buffer: pieces with their scores, how it was trained, how it normalizes. Only the few fields
that matter are read here, by their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from headstart.errors import ModelError
from headstart.text.protobuf import fields
from headstart.text.tokenizer_json import LONGEST_TOKEN
from headstart.text.vocabulary import broken_specials

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = 1, 2


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


def load_sentencepiece(path: Path) -> Tokenizer:
    """The tokenizer of a .model file; a padding and a mask token are added where it has none."""
    try:
        return _build(path.read_bytes())
    except (IndexError, ValueError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: not a SentencePiece model ({error}).") from None


def _build(data: bytes) -> Tokenizer:
    pieces, trainer, normalizer = [], {}, {}
    for field, value in fields(data):
        if field == 1 and isinstance(value, bytes):
            pieces.append(_piece(value))
        elif field == 2 and isinstance(value, bytes):
            trainer = dict(fields(value))
        elif field == 3 and isinstance(value, bytes):
            normalizer = dict(fields(value))
    if not pieces:
        raise ValueError("it holds no pieces")
    unknown = next((i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN), None)
    if unknown is None:
        raise ValueError("it has no piece for what is unknown")
    byte_fallback = any(piece.kind == BYTE for piece in pieces)
    if trainer.get(3, UNIGRAM) == BPE:
        vocab = {piece.text: i for i, piece in enumerate(pieces)}
        unk = pieces[unknown].text
        model: models.Model = models.BPE(
            vocab, _merges(pieces, vocab), unk_token=unk, fuse_unk=True, byte_fallback=byte_fallback
        )
    elif trainer.get(3, UNIGRAM) == UNIGRAM:
        model = models.Unigram([(p.text, p.score) for p in pieces], unk_id=unknown, byte_fallback=byte_fallback)
    else:
        raise ValueError("only unigram and BPE models are read")
    tokenizer = Tokenizer(model)
    prepend = "always" if normalizer.get(3, 1) else "never"
    tokenizer.normalizer = normalizers.Sequence(_normalizers(normalizer))
    spaces = pre_tokenizers.Metaspace(prepend_scheme=prepend, split=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, broken_specials()])
    first = [decoders.Strip(" ", 1, 0)] if prepend == "always" else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *first]
    )
    special = [piece.text for piece in pieces if piece.kind in (CONTROL, UNKNOWN)]
    tokenizer.add_special_tokens([*special, *(name for name in ("<pad>", "<mask>") if name not in special)])
    return tokenizer


def _normalizers(spec: Mapping[int, object]) -> list[normalizers.Normalizer]:
    charsmap = spec.get(2)
    found: list[normalizers.Normalizer] = []
    if isinstance(charsmap, bytes) and charsmap:
        found.append(normalizers.Precompiled(charsmap))
    if spec.get(4, 1):  # extra white space removed
        found += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return found


def _merges(pieces: list[Piece], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs that were joined, in the order in which they were: a piece's score is minus its turn."""
    ranked = []
    for piece in pieces:
        if piece.kind != NORMAL or len(piece.text) < 2:
            continue
        halves = ((piece.text[:i], piece.text[i:]) for i in range(1, len(piece.text)))
        known = [(left, right) for left, right in halves if left in vocab and right in vocab]
        ranked += [(-piece.score, vocab[left], vocab[right], left, right) for left, right in known]
    return [(left, right) for *_, left, right in sorted(ranked)]


def _piece(data: bytes) -> Piece:
    found = dict(fields(data))
    text, score, kind = found[1], found.get(2, 0.0), found.get(3, NORMAL)
    if not isinstance(text, bytes) or len(text) > LONGEST_TOKEN or not isinstance(score, float | int):
        raise ValueError("a piece of it is damaged")
    return Piece(text.decode(), float(score), kind if isinstance(kind, int) else NORMAL)
