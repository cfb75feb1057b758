"""tokenizer.json before the library sees it: only parts that are known, of a size that is, and nothing that can blow up.

The library trusts such a file: a regular expression may take hours, a chain of replacements may make gigabytes of a
word, and much that is damaged ends in a panic. docs/decisions/0010-tokenizers-of-strangers.md has the reasons.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from headstart.errors import shortened

MOST_BYTES = 48 << 20  # of the file; the largest that are in use have some 33 MB
MOST_TOKENS = 1_000_000
MOST_ADDED = 50_000
LONGEST_TOKEN = 1024  # characters
LONGEST_WORD = 1000  # characters that WordPiece may look at; it takes their third power in the worst case
LONGEST_STRING = 4096  # in a part, such as a regular expression
MOST_PARTS = 24  # of one kind, in sequences
MOST_INSIDE = 2000  # values inside one of these
DEEPEST = 8
GROWTH = 100  # characters that one character may become: 72 with NFKC and bytes
LONGEST_REPLACEMENT = 32  # characters; NFKC has one of 18

# How many characters one may become in each part; what is not here is refused.
_NORMALIZERS: dict[str, int] = {
    "BertNormalizer": 3, "ByteLevel": 4, "Lowercase": 1, "NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Nmt": 1,
    "Precompiled": 18, "Prepend": 1, "Replace": 1, "Strip": 1, "StripAccents": 1,
}  # fmt: skip
_PRE_TOKENIZERS: dict[str, int] = {
    "BertPreTokenizer": 1, "ByteLevel": 4, "CharDelimiterSplit": 1, "Digits": 1, "Metaspace": 1, "Punctuation": 1,
    "Split": 1, "UnicodeScripts": 1, "Whitespace": 1, "WhitespaceSplit": 1,
}  # fmt: skip
_PROCESSORS = dict.fromkeys(("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"), 1)
_DECODERS = dict.fromkeys(
    ("BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece"), 1
)
_PARTS: dict[str, tuple[str, dict[str, int]]] = {  # the name of the list in a Sequence, and what may stand in it
    "normalizer": ("normalizers", _NORMALIZERS),
    "pre_tokenizer": ("pretokenizers", _PRE_TOKENIZERS),
    "post_processor": ("processors", _PROCESSORS),
    "decoder": ("decoders", _DECODERS),
}
_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")

# Regular expressions whose time grows with the text and no faster: alternatives of characters and classes, of which
# few are optional or counted, and one repeated without end, after which nothing can fail and send it back.
_ESCAPE = r"\\(?:[pP]\{\^?\w+\}|[sSdDwWnrtfv]|u[0-9A-Fa-f]{4}|[^A-Za-z0-9])"
_ATOM = rf"(?:{_ESCAPE}|\[\^?(?:{_ESCAPE}|[^\\\[\]])+\]|[^\\()\[\]{{}}|*+?^$])"
_COUNTED = rf"{_ATOM}(?:\?[+?]?|\{{\d(?:,\d)?\}})"
_SAFE = rf"{_ATOM}*(?:{_COUNTED}{_ATOM}*){{0,3}}(?:{_ATOM}(?:[*+][+?]?|\{{\d,\}}))?(?:{_ATOM}[*?])*"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = [rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}{a}{_LOWER}{b}" for a, b in ("*+", "+*")]
_KNOWN = (  # alternatives of GPT-2, Llama 3, Qwen 2, GPT-4o, Mistral, DeepSeek and BLOOM, and one of ours
    *(r"\s+(?!\S)", r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+$", _CONTRACTIONS, "'(?i:[sdmt]|ll|ve|re)"),
    *_CASED,
    *(f"{cased}{_CONTRACTIONS}?" for cased in _CASED),
    *(r" ?[^(\s|[.,!?…。，、।۔،])]+", "<(?=(?:pad|unk|/?s|mask)>)"),
)
_ALTERNATIVE = f"(?:{'|'.join(map(re.escape, _KNOWN))}|{_SAFE})"
_HARMLESS = re.compile(rf"{_ALTERNATIVE}(?:\|{_ALTERNATIVE})*", re.DOTALL)


def check_tokenizer_json(text: str) -> int:
    """How many characters one may become; a ValueError says why the library is not to open this tokenizer.json."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
    try:
        found = json.loads(text, object_pairs_hook=_without_twins)
        return _checked(_table(found, "it"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (TypeError, LookupError, AttributeError):  # a value of another kind than stands there in such files
        raise ValueError("it is damaged") from None


def _checked(described: Mapping[str, Any]) -> int:
    _check_model(_table(described.get("model"), "its model"))
    _check_added(described.get("added_tokens") or [])
    growth = 1
    for kind, (inside, known) in _PARTS.items():
        parts = list(_flat(described.get(kind), kind, inside, known))
        if len(parts) > MOST_PARTS:
            raise ValueError(f"its {kind} has more than {MOST_PARTS} parts")
        own = 1
        for part in parts:
            own *= _growth(part, known)
            if (growth if kind != "decoder" else 1) * own > GROWTH:
                raise ValueError(f"its {kind} can make more than {GROWTH} characters of one")
        growth *= own if kind != "decoder" else 1
    return growth


def harmless(pattern: str) -> bool:
    """Whether the time that a regular expression takes is known to grow no faster than the text.

    >>> harmless(r"\\w+|[^\\w\\s]+"), harmless(r"(a+)+$")
    (True, False)
    """
    return len(pattern) <= LONGEST_STRING and _HARMLESS.fullmatch(pattern) is not None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):  # others may take the first where we take the last
        raise ValueError("a name stands in it twice")
    return table


def _check_model(model: Mapping[str, Any]) -> None:
    if model.get("type", "BPE") not in _MODELS:
        raise ValueError(f"its model is of the unknown kind {_told(model['type'])}")
    vocab, merges = model.get("vocab"), model.get("merges") or []
    if isinstance(vocab, dict):
        tokens, ids = list(vocab), vocab.values()
        if not all(type(i) is int and 0 <= i < MOST_TOKENS for i in ids):
            raise ValueError(f"its vocabulary has an id that is not one of 0 to {MOST_TOKENS - 1:,}")
    elif isinstance(vocab, list) and all(isinstance(piece, list) and len(piece) == 2 for piece in vocab):
        tokens = [piece for piece, _ in vocab]
    else:
        raise ValueError("its model has no vocabulary")
    if len(tokens) > MOST_TOKENS or not isinstance(merges, list) or len(merges) > MOST_TOKENS:
        raise ValueError(f"its vocabulary has more than {MOST_TOKENS:,} entries")
    if not all(isinstance(token, str) and len(token) <= LONGEST_TOKEN for token in tokens):
        raise ValueError(f"its vocabulary has a token of more than {LONGEST_TOKEN} characters")
    if model.get("dropout"):
        raise ValueError("it drops merges by chance (dropout), so that no text would have the same tokens twice")
    if _number(model.get("max_input_chars_per_word", 100)) > LONGEST_WORD:
        raise ValueError(f"it looks at words of more than {LONGEST_WORD} characters")
    prefix = model.get("continuing_subword_prefix") or ""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    if not isinstance(prefix, str) or (prefix and not all(str(pair[-1]).startswith(prefix) for pair in pairs)):
        raise ValueError("its merges do not go with its prefix")  # the library would cut where there is nothing
    _must_be_small({key: value for key, value in model.items() if key not in ("vocab", "merges")}, "model")


def _check_added(added: Any) -> None:
    if not isinstance(added, list):
        raise ValueError("its added tokens are no list")
    if len(added) > MOST_ADDED:
        raise ValueError(f"it adds more than {MOST_ADDED:,} tokens")
    for token in added:
        content = _table(token, "a token that it adds").get("content")
        if not isinstance(content, str) or not 0 < len(content) <= LONGEST_TOKEN:
            raise ValueError(f"it adds a token of none or more than {LONGEST_TOKEN} characters")
        if not 0 <= _number(token.get("id")) < MOST_TOKENS:
            raise ValueError(f"it adds a token with an id that is not one of 0 to {MOST_TOKENS - 1:,}")


def _flat(part: Any, kind: str, inside: str, known: Mapping[str, int], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The parts of a kind in their order, out of sequences in sequences."""
    if part is None:
        return
    table = _table(part, f"its {kind}")
    if table.get("type") == "Sequence":
        parts = table.get(inside)
        if not isinstance(parts, list) or depth == DEEPEST:
            raise ValueError(f"its {kind} is damaged")
        yield from chain.from_iterable(_flat(each, kind, inside, known, depth + 1) for each in parts)
        return
    if table.get("type") not in known:
        raise ValueError(f"its {kind} has the unknown part {_told(table.get('type'))}")
    _must_be_small({k: v for k, v in table.items() if k != "precompiled_charsmap"}, kind)
    yield table


def _growth(part: Mapping[str, Any], known: Mapping[str, int]) -> int:
    """How many characters one may become; a ValueError for what has no end."""
    kind = part["type"]
    if kind == "Precompiled":
        return _check_charsmap(part.get("precompiled_charsmap"))
    if kind == "TemplateProcessing":
        _check_template(part)
    if kind not in ("Replace", "Split"):
        return known[kind]
    pattern, content = _table(part.get("pattern"), "a pattern"), str(part.get("content", ""))
    if "Regex" in pattern:
        if not isinstance(pattern["Regex"], str) or not harmless(pattern["Regex"]):
            raise ValueError(
                f"its regular expression {_told(pattern['Regex'])} is not one of those that are known to be fast"
            )
        return 1 + len(content) if kind == "Replace" else 1  # it may stand for nothing, between any two characters
    literal = pattern.get("String")
    if not isinstance(literal, str) or not literal:
        raise ValueError("it has an empty pattern")
    return max(1, -(-len(content) // len(literal))) if kind == "Replace" else 1


def _check_charsmap(encoded: Any) -> int:
    """A map of SentencePiece: a trie whose ways all end inside it, and the texts that it leads to."""
    try:
        data = base64.b64decode(encoded, validate=True)
        size = int.from_bytes(data[:4], "little")
        units = np.frombuffer(data[4 : 4 + size], "<u4")
        texts = data[4 + size :].decode()
    except (TypeError, ValueError, binascii.Error):
        raise ValueError("its character map is damaged") from None
    ways = units >> 31 == 0  # the others are leaves, which say where in the texts their own begins
    ahead = np.arange(len(units)) ^ ((units >> 10).astype(np.int64) << ((units & (1 << 9)) >> 6).astype(np.int64))
    if (
        len(data) < 4 + size
        or not len(units)
        or ((ahead | 255)[ways] >= len(units)).any()
        or ((units & 0x7FFFFFFF)[~ways] >= max(1, len(data) - 4 - size)).any()
    ):
        raise ValueError("its character map is damaged")
    longest = max(map(len, texts.split("\0")))
    if longest > LONGEST_REPLACEMENT:
        raise ValueError(f"its character map makes {longest} characters of one")
    return max(1, longest)


def _check_template(part: Mapping[str, Any]) -> None:
    """A text stands once in what is made of it: each template of a chain would double it."""
    for name in ("single", "pair"):
        pieces = part.get(name) or []
        if not isinstance(pieces, list):
            raise ValueError("its template is damaged")
        texts = [
            str(_table(p["Sequence"], "a template").get("id")) for p in pieces if "Sequence" in _table(p, "a piece")
        ]
        if len(texts) != len(set(texts)):
            raise ValueError("its template has a text twice")


def _must_be_small(value: Any, kind: str) -> None:
    """Refuse long texts, large numbers, and many or deeply nested values."""
    left, depth = [value], 0
    seen = 0
    while left:
        seen += len(left)
        if seen > MOST_INSIDE or depth > DEEPEST:
            raise ValueError(f"its {kind} holds more than it should")
        inside: list[Any] = []
        for each in left:
            if isinstance(each, dict):
                inside += [*each.keys(), *each.values()]
            elif isinstance(each, list):
                inside += each
            elif isinstance(each, str) and len(each) > LONGEST_STRING:
                raise ValueError(f"its {kind} holds a text of {len(each):,} characters")
            elif isinstance(each, int | float) and not -MOST_TOKENS < each < MOST_TOKENS:
                raise ValueError(f"its {kind} holds the number {_told(each)}")
        left, depth = inside, depth + 1


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not what it should be")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{_told(value)} stands where a whole number should")
    return value


def _told(value: Any) -> str:
    return shortened(value) if isinstance(value, str | int | float | None) else type(value).__name__
