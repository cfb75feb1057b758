"""Text becomes token ids and back: tokenizers trained here or loaded, and the only home of special ids.

Every text is encoded as start + tokens + end. Whatever looks like a special token inside a user's text is
text: only this file puts special ids into a row.
"""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from headstart.config import TokenizerConfig
from headstart.errors import ConfigError, DataError, ModelError, first_line
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import located
from headstart.text.inputs import INPUTS, input_of, parts
from headstart.text.sentencepiece import load_sentencepiece
from headstart.text.stretches import Texts, characters_of, pieces_of
from headstart.text.tokenizer_json import MOST_BYTES, check_tokenizer_json
from headstart.text.visible import is_whole
from headstart.text.vocabulary import KINDS, learn

# The names under which external tokenizers keep the same five roles, most specific first.
ROLES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "unk": ("<unk>", "[UNK]"),
    "start": ("<s>", "[CLS]", "<|startoftext|>", "<|endoftext|>", "<|begin_of_text|>", "<bos>"),
    "end": ("</s>", "[SEP]", "<|endoftext|>", "<|end_of_text|>", "<eos>"),
    "mask": ("<mask>", "[MASK]"),
}
PIECES_AT_ONCE = 500  # handed to the library, which is parallel over them
CHARACTERS_AT_ONCE = 1_000_000
TOKENS_AT_ONCE = 1_000_000  # of a stream that is gone through


class Stream(Protocol):
    """Token ids one after the other: an array, or a file of which parts are read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


@dataclass(frozen=True)
class TokenRows:
    """Many rows of ids in one stream: row i is ids[starts[i]:starts[i + 1]], or ids[starts[i]:stops[i]] where they overlap."""

    ids: Stream
    starts: NDArray[np.int64]
    stops: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | NDArray[np.int32]]) -> TokenRows:
        ids, starts = array("i"), [0]  # ids grow in place: many rows are never there twice
        for row in rows:
            ids.frombytes(np.asarray(row, dtype=np.int32).tobytes())
            starts.append(len(ids))
        return cls(np.asarray(ids), np.asarray(starts))

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, i: int) -> NDArray[np.int32]:
        return self.ids[self.begins[i] : self.ends[i]]

    @property
    def begins(self) -> NDArray[np.int64]:
        return self.starts[:-1] if self.stops is None else self.starts

    @property
    def ends(self) -> NDArray[np.int64]:
        return self.starts[1:] if self.stops is None else self.stops

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends - self.begins

    def stretches(self, beyond: int = 0) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """The stream, some of it at a time: where each stretch begins, and its ids with up to `beyond` that follow it."""
        for at in range(0, len(self.ids), TOKENS_AT_ONCE):
            yield at, np.asarray(self.ids[at : at + TOKENS_AT_ONCE + beyond])


class Tokenizer:
    def __init__(self, backend: Backend, growth: int = 1) -> None:
        """`growth`: how many characters one may become inside; so many fewer are read at a time."""
        backend.encode_special_tokens = True  # "<mask>" in a user's text is six characters
        backend.no_truncation()  # a tokenizer.json from elsewhere may cut and pad; rows are cut and padded in one place
        backend.no_padding()
        self.backend = backend
        self.growth = growth
        self.sampled: int | None = None  # characters that it was trained on, where not on all
        roles = {role: _first_known(backend, names) for role, names in ROLES.items()}
        start, end = roles["start"], roles["end"]
        if start is None or end is None:
            raise ModelError(
                "The tokenizer has no start and end tokens (<s> and </s>, [CLS] and [SEP], <|endoftext|>)."
            )
        self.start: int = start
        self.end: int = end
        pad = roles["pad"]
        self.pad: int = end if pad is None else pad  # padding is masked, so any id will do
        self.unk, self.mask = roles["unk"], roles["mask"]

    @classmethod
    def train(cls, texts: Texts, cfg: TokenizerConfig, seed: int = 0) -> Tokenizer:
        """A tokenizer of `cfg.kind` learned from `texts`, or from about `cfg.sample` characters of them drawn by the seed."""
        characters, rng = characters_of(texts), np.random.default_rng([seed, 4])
        cut = (piece for text in texts for piece in pieces_of(text, anywhere=True))
        share, taken = cfg.sample / max(1, characters), [0]

        def sample() -> Iterator[str]:
            for piece in cut:
                if share >= 1 or rng.random() < share:
                    taken[0] += len(piece)
                    yield piece

        made = learn(cfg.kind, sample(), characters, cfg.vocab, cfg.lower).to_str()
        while (read := Backend.from_str(made)).to_str() != made:  # scores lose a digit when they are written down
            made = read.to_str()
        tokenizer = cls(read)
        tokenizer.sampled = taken[0] if share < 1 else None
        return tokenizer

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a tokenizer.json or SentencePiece .model file, or of a folder (run or model) that holds one."""
        path = Path(path)
        names = "tokenizer.json", "model/tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"
        places = [path, *(path / name for name in names)]
        file = next((place for place in places if os.path.isfile(place)), None)
        if file is None:
            raise ModelError(f"{path}: no tokenizer.json here.")
        try:
            if file.stat().st_size > MOST_BYTES:
                raise ModelError(f"it is larger than {MOST_BYTES >> 20} MB")
            if file.suffix == ".model":
                with _library():
                    backend = load_sentencepiece(file)
                    return cls(backend, check_tokenizer_json(backend.to_str()))
            return cls.from_json(file.read_text("utf-8"))
        except (ModelError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise ModelError(f"{file}: not a usable tokenizer ({reason}).") from None

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer of a tokenizer.json, which may be a stranger's."""
        growth = check_tokenizer_json(text)
        with _library():
            return cls(Backend.from_str(text), growth)

    def to_json(self) -> str:
        return str(self.backend.to_str(pretty=True))

    @property
    def size(self) -> int:
        return int(self.backend.get_vocab_size())

    @property
    def largest(self) -> int:
        """The largest id; in external tokenizers there may be holes below it."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=0)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, texts: Sequence[str], boundaries: bool = True, end: bool = True) -> TokenRows:
        """One row of ids a text: start + tokens + end, or the bare tokens without `boundaries`."""
        ids, starts = array("i"), array("q", [0])  # these grow in place: a large corpus is never there twice
        try:
            for some, ends, _ in self.encode_stream(texts, boundaries, end):
                starts.extend(len(ids) + stop for stop in ends)
                ids.extend(some)
        except TypeError:  # how the library refuses half a character, such as a byte of an argument that is not UTF-8
            if all(map(is_whole, texts)):
                raise
            raise DataError("A text holds bytes that are no characters. Is it UTF-8?", "DATA_ENCODING") from None
        return TokenRows(np.asarray(ids), np.asarray(starts))

    def encode_stream(
        self, texts: Texts, boundaries: bool = True, end: bool = True, skip: int = 0
    ) -> Iterator[tuple[array[int], list[int], int]]:
        """What `encode` makes, some ids at a time: ids, the places in them where rows end, and of how many pieces they are.

        The first `skip` pieces are left out.
        """
        before, after = [self.start] if boundaries else [], [self.end] if boundaries and end else []
        for batch in self._batches(texts, skip):
            with _library():
                encoded = self.backend.encode_batch_fast([piece for piece, _, _ in batch], add_special_tokens=False)
            ids, ends = array("i"), []
            for (_, first, last), found in zip(batch, encoded, strict=True):
                ids.extend(before if first else [])
                ids.extend(found.ids)
                if last:
                    ids.extend(after)
                    ends.append(len(ids))
            yield ids, ends, len(batch)

    def encode_with_ends(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
        """Of each text the bare tokens, and the character behind the last one of each token."""
        for i in range(0, len(texts), PIECES_AT_ONCE):
            with _library():
                encoded = self.backend.encode_batch(list(texts[i : i + PIECES_AT_ONCE]), add_special_tokens=False)
            yield from ((found.ids, [end for _, end in found.offsets]) for found in encoded)

    def _batches(self, texts: Texts, skip: int = 0) -> Iterator[list[tuple[str, bool, bool]]]:
        """Pieces of texts but for the first `skip`, each with whether it begins and whether it ends one.

        They are few at a time: the library needs some 250 bytes for each token in hand.
        """
        batch: list[tuple[str, bool, bool]] = []
        characters = 0
        cut = (piece for text in texts for piece in _marked(pieces_of(text, self.seamless)))
        for piece in islice(cut, skip, None):
            batch.append(piece)
            characters += len(piece[0])
            if len(batch) == PIECES_AT_ONCE or characters > CHARACTERS_AT_ONCE // self.growth:
                yield batch
                batch, characters = [], 0
        if batch:
            yield batch

    def words(self) -> list[str]:
        """What each token is as a word of its own; nothing for special tokens, characters and pieces of words."""
        whole = isinstance(self.backend.model, models.WordLevel) and not self.by_character
        pieced = isinstance(self.backend.model, models.WordPiece)
        pieces = map(self.piece, range(self.size))
        is_word = [whole or (not p.startswith("##") if pieced else p.startswith(" ")) for p in pieces]
        return [self.decode([i]).strip() if word else "" for i, word in enumerate(is_word)]

    @cached_property
    def seamless(self) -> bool:
        """Whether a text may be cut anywhere: a tokenizer that marks where words begin would add a space there."""
        with _library():
            halves = [i for half in "ab" for i in self.backend.encode(half, add_special_tokens=False).ids]
        return self.by_character or self.decode(halves) == "ab"

    @property
    def suppressed(self) -> list[int]:
        """Ids that are never generated: the special tokens that no text has. The end is one that it has."""
        special = {self.pad, self.start, self.unk, self.mask} - {self.end, None}
        return sorted(i for i in special if i is not None)

    @property
    def lossless(self) -> bool:
        """Whether the tokens hold the whole text: nothing normalized away, no space forgotten."""
        return self.backend.normalizer is None and not isinstance(self.backend.decoder, decoders.WordPiece)

    @property
    def by_character(self) -> bool:
        """Whether every token is one character."""
        return isinstance(self.backend.decoder, decoders.Fuse)

    def decode(self, ids: Iterable[int]) -> str:
        with _library():
            return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=True))

    def piece(self, i: int) -> str:
        """One token as a reader would write it, with the space in front of it if it carries one."""
        token = self.backend.id_to_token(int(i))
        if token is None:
            return f"<{i}>"
        if i in (self.pad, self.unk, self.start, self.end, self.mask):
            return str(token)
        if isinstance(self.backend.decoder, decoders.ByteLevel):
            with _library():
                return str(self.backend.decode([int(i)], skip_special_tokens=False))
        return str(token).replace("▁", " ")

    def unknown_pieces(self, text: str) -> list[str]:
        """The parts of a text that the vocabulary does not have."""
        with _library():
            found = self.backend.encode(text, add_special_tokens=False)
        return [text[a:b] for i, (a, b) in zip(found.ids, found.offsets, strict=True) if i == self.unk]

    def unknown(self, rows: TokenRows) -> int:
        """How many tokens of `rows` the vocabulary does not have."""
        return 0 if self.unk is None else sum(int((ids == self.unk).sum()) for _, ids in rows.stretches())


def _marked(cut: Iterable[str]) -> Iterator[tuple[str, bool, bool]]:
    """Each piece of a text with whether it is the first and whether the last."""
    cut, first = iter(cut), True
    piece = next(cut)
    for following in cut:
        yield piece, first, False
        piece, first = following, False
    yield piece, first, True


def tokenizer_for(texts: Texts, cfg: TokenizerConfig, seed: int = 0) -> Tokenizer:
    """The tokenizer that `cfg` names: trained on `texts`, or loaded from a file, a model, a run or a pack."""
    named = re.search(r"[/.]", cfg.kind) or cfg.kind in PACKS or os.path.exists(cfg.kind)
    if cfg.kind in KINDS or not named:
        return Tokenizer.train(texts, cfg, seed)
    if cfg.lower:
        raise ConfigError(f"tokenizer.lower is for a tokenizer that is learned; '{cfg.kind}' is taken as it is.")
    tokenizer = Tokenizer.load(located(cfg.kind))
    if tokenizer.largest >= tokenizer.size:
        raise ModelError(
            f"{cfg.kind}: the tokenizer has {tokenizer.size} entries, and ids up to {tokenizer.largest}. A new model needs "
            "one without holes."
        )
    return tokenizer


@contextmanager
def _library() -> Iterator[None]:
    """What the library cannot do with a tokenizer, in one sentence: it raises plain Exception, or it panics."""
    try:
        yield
    except BaseException as error:  # a panic is none of Exception's
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"The tokenizer is damaged, or not made for this text ({first_line(error)}).") from None


def truncated(rows: TokenRows, limit: int, end: int | None = None) -> tuple[TokenRows, int]:
    """`rows` cut to `limit` tokens, the last of them `end` where it is given; and how many were cut."""
    cut = rows.lengths > limit
    if not cut.any():
        return rows, 0
    short = [row if len(row) <= limit else _shorten(row, limit, end) for row in (rows[i] for i in range(len(rows)))]
    return TokenRows.of(short), int(cut.sum())


def rows_to_read(
    texts: Sequence[str], tokenizer: Tokenizer, causal: bool, context: int, separators: int = 1
) -> tuple[TokenRows, int]:
    """Texts as a model reads them to classify or embed the whole, and how many had to be cut.

    A causal one has read the whole text at its last token, so no end token follows it; a bidirectional one sees a start and
    an end. The two texts of a pair have `separators` end tokens between them.
    """
    if INPUTS[input_of(texts)].several:
        return _rows_of_both(texts, tokenizer, causal, context, separators)
    return truncated(tokenizer.encode(texts, end=not causal), context, None if causal else tokenizer.end)


def _rows_of_both(
    texts: Sequence[str], tokenizer: Tokenizer, causal: bool, context: int, separators: int
) -> tuple[TokenRows, int]:
    firsts, seconds = (tokenizer.encode(side, boundaries=False) for side in zip(*map(parts, texts), strict=True))
    between, after = [tokenizer.end] * separators, [] if causal else [tokenizer.end]
    room = max(2, context - 1 - len(between) - len(after))
    kept = [fitted_lengths(len(firsts[i]), len(seconds[i]), room) for i in range(len(texts))]
    cut = sum(a < len(firsts[i]) or b < len(seconds[i]) for i, (a, b) in enumerate(kept))
    return TokenRows.of(
        [tokenizer.start, *firsts[i][:a], *between, *seconds[i][:b], *after] for i, (a, b) in enumerate(kept)
    ), cut


def fitted_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """The tokens that are kept of two texts: the longer is cut first, as the tokenizers library does it.

    >>> fitted_lengths(10, 3, 8), fitted_lengths(10, 9, 7), fitted_lengths(2, 3, 8)
    ((5, 3), (4, 3), (2, 3))
    """
    if first + second <= room:
        return first, second
    short, long = sorted((first, second))
    if short + short >= room:
        short = room // 2
    long = room - short
    return (long, short) if first > second else (short, long)


def _shorten(row: NDArray[np.int32], limit: int, end: int | None) -> NDArray[np.int32]:
    row = row[:limit].copy()
    if end is not None:
        row[-1] = end
    return row


def _first_known(backend: Backend, names: Sequence[str]) -> int | None:
    ids = (backend.token_to_id(name) for name in names)
    return next((int(i) for i in ids if i is not None), None)
