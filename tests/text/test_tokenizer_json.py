"""A tokenizer.json of a stranger is opened only if nothing in it can take hours, gigabytes or the process with it."""

from __future__ import annotations

import base64
import json
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import TokenizerConfig
from headstart.errors import ModelError
from headstart.text import tokenizer_json
from headstart.text.tokenizer import Tokenizer, tokenizer_for
from headstart.text.tokenizer_json import harmless
from headstart.text.vocabulary import KINDS

WORDS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "▁", "a", "b", "ab", "##b", "é"]
TEXTS = ("I hold a dog.", "She rubs the cat's ear, twice!", "naïve 🧀 e\u0301")


def made(**parts: Any) -> dict[str, Any]:
    """A small tokenizer.json with other parts."""
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    return {**json.loads(backend.to_str()), **parts}


def replace(pattern: Any, content: str) -> dict[str, Any]:
    return {
        "type": "Replace",
        "pattern": pattern if isinstance(pattern, dict) else {"String": pattern},
        "content": content,
    }


def sequence(name: str, *parts: Any) -> dict[str, Any]:
    return {"type": "Sequence", name: list(parts)}


def split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def charsmap(units: list[int], texts: bytes) -> dict[str, Any]:
    data = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def template(*ids: str) -> dict[str, Any]:
    pieces = [{"Sequence": {"id": i, "type_id": 0}} for i in ids]
    return {"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": {}}


def added(**changes: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": 11, "content": "more", **flags, **changes}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a regular expression without end": (made(pre_tokenizer=split("(a+)+$")), "not one of those that are known to be fast"),
    "one in a normalizer": (made(normalizer=replace({"Regex": r"(\w+\s?)+$"}, "")), "known to be fast"),
    "one in a decoder": (made(decoder=replace({"Regex": r"(\w+\s?)+$"}, "")), "known to be fast"),
    "a normalizer that doubles thirty times": (
        made(normalizer=sequence("normalizers", *[replace("a", "aa")] * 20)), "more than 100 characters of one"),
    "one that does so by way of NFKC": (
        made(normalizer=sequence("normalizers", *[replace(".", "…"), {"type": "NFKC"}] * 3)), "more than 100 characters"),
    "one long replacement": (made(normalizer=replace("a", "b" * 4000)), "more than 100 characters"),
    "bytes of bytes of bytes": (made(pre_tokenizer=sequence("pretokenizers", *[BYTES] * 20)), "more than 100 characters"),
    "a decoder that doubles": (made(decoder=sequence("decoders", *[replace("a", "aa")] * 20)), "more than 100 characters"),
    "an empty pattern": (made(normalizer=replace("", "aa")), "an empty pattern"),
    "a long text in front": (made(normalizer={"type": "Prepend", "prepend": "a" * 10_000}), "a text of 10,000 characters"),
    "a character that becomes a book": (made(normalizer=charsmap([0] * 256, b"a" * 100 + b"\0")), "100 characters of one"),
    "a character map with ways out of it": (made(normalizer=charsmap([0x3FFFFC00] * 256, b"a\0")), "map is damaged"),
    "a character map cut short": (made(normalizer=charsmap([0] * 2, b"")), "map is damaged"),
    "a character map that is none": (made(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}), "map is damaged"),
    "a part that is not known": (made(pre_tokenizer={"type": "FixedLength", "length": 0}), "unknown part 'FixedLength'"),
    "a part without its name": (made(normalizer={"pattern": {"String": "a"}, "content": "aa"}), "unknown part None"),
    "a template that doubles": (made(post_processor=template("A", "A")), "a text twice"),
    "an id past the vocabulary": (
        made(model={"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 4_000_000_000}, "unk_token": "<s>"}), "has an id"),
    "an id that is no number": (
        made(model={"type": "WordLevel", "vocab": {"<s>": 0, "</s>": "1"}, "unk_token": "<s>"}), "has an id"),
    "a vocabulary that is none": (made(model={"type": "WordLevel", "vocab": 7, "unk_token": "<s>"}), "no vocabulary"),
    "a model that is not known": (made(model={"type": "Evil", "vocab": {}}), "unknown kind 'Evil'"),
    "words of any length": (
        made(model={"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 10**6, "vocab": {"a": 0}}), "words of more than 1000"),
    "merges by chance": (made(model={"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.5}), "by chance"),
    "merges that panic": (
        made(model={"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]],
                    "continuing_subword_prefix": "éé"}), "merges do not go with its prefix"),
    "an added token without text": (made(added_tokens=[added(content="")]), "adds a token of none"),
    "an added token far away": (made(added_tokens=[added(id=2**31)]), "adds a token with an id"),
    "a long token": (made(model={"type": "Unigram", "vocab": [["a" * 2000, 0.0]], "unk_id": 0}), "more than 1024"),
    "too many parts": (made(normalizer=sequence("normalizers", *[{"type": "Strip"}] * 50)), "more than 24 parts"),
    "parts in parts": (made(normalizer={"type": "Strip", "x": [[[[[[[[[[[1]]]]]]]]]]]}), "more than it should"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_stranger_may_have_put_in_is_one_sentence_at_once(name, tmp_path):
    described, says = HOSTILE[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    began = time.monotonic()
    with pytest.raises(ModelError, match=f"tokenizer.json: not a usable tokenizer .*{says}"):
        Tokenizer.load(tmp_path)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"model": ' * 100_000, '{"model": 1, "model": 2}', "7", "{}", '"\\ud800"']
)
def test_json_that_is_no_tokenizer_is_one_sentence(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match="not a usable tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_large_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("headstart.text.tokenizer.MOST_BYTES", 100)
    (tmp_path / "tokenizer.json").write_text(json.dumps(made()))
    with pytest.raises(ModelError, match="it is larger than"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "model",
    [
        {"type": "Unigram", "vocab": [["<s>", 0.0], ["</s>", 0.0]], "unk_id": None},
        {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1}, "unk_token": "gone"},
    ],
)
def test_a_tokenizer_that_fails_at_a_text_is_one_sentence(model):
    tokenizer = Tokenizer.from_json(json.dumps(made(model=model)))
    with pytest.raises(ModelError, match="The tokenizer is damaged, or not made for this text"):
        tokenizer.encode(["zzz"])


def test_a_panic_is_a_fault_of_the_file_like_any_other(monkeypatch, capfd):
    monkeypatch.setattr(tokenizer_json, "harmless", lambda _: True)
    tokenizer = Tokenizer.from_json(json.dumps(made(pre_tokenizer=split("(a+)+$"))))
    with pytest.raises(ModelError, match=r"not made for this text .Onig"):
        tokenizer.encode(["a" * 40 + "!"])
    monkeypatch.setattr(tokenizer_json, "_check_charsmap", lambda _: 1)
    with pytest.raises(ModelError, match="The tokenizer is damaged"):
        Tokenizer.from_json(json.dumps(made(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})))
    capfd.readouterr()  # what the library says of it on its own


def test_a_new_model_wants_ids_without_holes(tmp_path):
    model = {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1, "a": 900}, "unk_token": "<s>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(made(model=model)))
    assert Tokenizer.load(tmp_path).largest == 900
    with pytest.raises(ModelError, match="3 entries, and ids up to 900"):
        tokenizer_for([], TokenizerConfig(kind=str(tmp_path)))


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
CASE = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"{CASE % ('*', '+')}|{CASE % ('+', '*')}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


@pytest.mark.parametrize(
    "regex",
    [
        GPT2,
        LLAMA3,
        CL100K,
        O200K,
        CLIP,
        r"\s+",
        " {2,}",
        r"[\s\S]",
        r"\d",
        "[一-龥가-힣]+",
        r"\w+|[^\w\s]+",
        "[0-9][0-9]",
    ],
)
def test_a_regular_expression_of_the_field_is_harmless_and_fast(regex):
    assert harmless(regex)
    tokenizer = Tokenizer.from_json(json.dumps(made(pre_tokenizer=split(regex))))
    began = time.monotonic()
    for character in "a A1.\n é中'":
        tokenizer.encode([character * 20_000 + "!"])
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "regex",
    [
        "(a|a)*b",
        r"(\w+\s?)+$",
        "a?a?a?a?a?aaaaa",
        r"\w+\w+x",
        r"\w+x",
        ".*.*=",
        r"(a)\1",
        "(?R)",
        "a{2,}+b",
        "a{1,3}{1,3}",
        "a{999}",
    ],
)
def test_one_that_can_go_back_is_not(regex):
    assert not harmless(regex)


def _converted() -> dict[str, Backend]:
    """Tokenizers as the converters of transformers make them."""
    pieces = [(w, -float(i)) for i, w in enumerate(WORDS)]
    bpe = models.BPE(
        {w: i for i, w in enumerate(WORDS)}, [("a", "b")], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    bert = Backend(models.WordPiece({w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])}))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    bert.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    roberta = Backend(models.BPE({w: i for i, w in enumerate(WORDS)}, [("a", "b")]))
    roberta.pre_tokenizer, roberta.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    roberta.post_processor = processors.RobertaProcessing(("</s>", 3), ("<s>", 2))
    xlnet = Backend(models.Unigram(pieces, unk_id=1))
    xlnet.normalizer = normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
         normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]
    )  # fmt: skip
    xlnet.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    xlnet.decoder = decoders.Metaspace()
    llama = Backend(bpe)
    llama.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    qwen = Backend(models.BPE({w: i for i, w in enumerate(WORDS)}, []))
    qwen.normalizer = normalizers.NFC()
    isolated = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    qwen.pre_tokenizer = pre_tokenizers.Sequence(
        [isolated, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    qwen.decoder, qwen.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    clip = Backend(
        models.BPE({w: i for i, w in enumerate(WORDS)}, [], continuing_subword_prefix="", end_of_word_suffix="</w>")
    )
    clip.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    clip.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return {"bert": bert, "roberta": roberta, "xlnet": xlnet, "llama": llama, "qwen": qwen, "clip": clip}


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "llama", "qwen", "clip"])
def test_the_tokenizers_of_the_field_are_opened(name):
    backend = _converted()[name]
    tokenizer = Tokenizer.from_json(backend.to_str())
    expected = [backend.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert [row.tolist() for row in map(tokenizer.encode([*TEXTS], boundaries=False).__getitem__, range(3))] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_tokenizers_are_opened(kind):
    trained = Tokenizer.train(TEXTS, TokenizerConfig(kind=kind))
    assert Tokenizer.from_json(trained.to_json()).sha256 == trained.sha256


def test_a_model_made_elsewhere_with_such_a_tokenizer_is_refused_by_the_command_line(tmp_path):
    described = made(pre_tokenizer=split("(a+)+$"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    (tmp_path / "a.txt").write_text("a line\nanother line\n" * 20)
    words = [
        "pretrain",
        str(tmp_path / "a.txt"),
        "--tokenizer",
        str(tmp_path / "tokenizer.json"),
        "--out",
        str(tmp_path / "run"),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 5, done.output
    assert "'(a+)+$' is not one of those that are known to be fast" in done.stderr


def _changed(value: Any, chance: random.Random) -> Any:
    """The same with one value inside it replaced, taken away or repeated."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        i = chance.randrange(len(value))
        return [*value[:i], _changed(value[i], chance), *value[i:]]
    return chance.choice(
        [None, True, -1, 2**40, 1.5, "", "\0", "(a+)+$", [], {}, [[]], "Sequence", "Replace", {"type": "NFKC"}]
    )


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "llama", "qwen", "clip"])
@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_changes_at_random_are_one_sentence_or_a_tokenizer(times, name, tmp_path: Path, capfd):
    chance = random.Random(f"{name} {times}")
    described = json.loads(_converted()[name].to_str())
    for _ in range(times):
        text = json.dumps(_changed(described, chance))
        if chance.random() < 0.3:
            text = text[: chance.randrange(len(text))]
        (tmp_path / "tokenizer.json").write_text(text)
        try:
            tokenizer = Tokenizer.load(tmp_path)
            tokenizer.decode(tokenizer.encode([*TEXTS])[0])
        except ModelError:
            pass
    capfd.readouterr()
