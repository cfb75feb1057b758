"""Text becomes ids and comes back, and nobody but the tokenizer can put a special id into a row."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstart.config import TokenizerConfig
from headstart.errors import ConfigError, DataError, ModelError
from headstart.hub.pack_contents import PACKS, Pack
from headstart.text.tokenizer import Tokenizer, TokenRows, tokenizer_for, truncated
from headstart.text.vocabulary import KINDS, SPECIALS, pieces, vocabulary_fed_by

TEXTS = (
    "I hold a dog.",
    "She rubs the cat's ear, twice!",
    "Two  spaces\nand a line.\n\n",
    "naïve 🧀 e\u0301 עברית",
    "the the",
)
LOOKALIKES = " ".join([*SPECIALS, "[CLS]", "[MASK]", "<|endoftext|>"])
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # a lone surrogate is not text


@cache
def trained(kind: str) -> Tokenizer:
    return Tokenizer.train([*TEXTS, LOOKALIKES], TokenizerConfig(kind=kind))


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(request.param)


@given(ANY_TEXT)
def test_bpe_gives_back_any_text_at_all(text):
    assert trained("bpe").decode(trained("bpe").encode([text])[0]) == text


@given(st.text(st.sampled_from(sorted(set("".join(TEXTS))))))
def test_char_gives_back_any_text_of_known_characters(text):
    assert trained("char").decode(trained("char").encode([text])[0]) == text


@pytest.mark.parametrize("text", TEXTS)
def test_every_lossless_kind_gives_back_what_it_was_trained_on(tokenizer, text):
    if not tokenizer.lossless:
        assert tokenizer.decode(tokenizer.encode(["the dog"])[0]) == "the dog"
        return
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text
    assert tokenizer.decode(tokenizer.encode([text], boundaries=False)[0]) == text


@pytest.mark.parametrize("text", ["👩‍👩‍👧", "a\u202eb", "\u0378", "𠀀", "\ufeff", "\u2028"])
def test_rare_characters_survive_bpe(text):
    assert trained("bpe").decode(trained("bpe").encode([text])[0]) == text


def test_half_a_character_is_a_fault_of_the_text(tokenizer):
    with pytest.raises(DataError, match="no characters"):
        tokenizer.encode(["fine", "a \udce9 b"])


def test_start_and_end_stand_where_they_are_asked_for(tokenizer):
    bare = tokenizer.encode(["a dog"], boundaries=False)[0].tolist()
    assert tokenizer.encode(["a dog"])[0].tolist() == [tokenizer.start, *bare, tokenizer.end]
    assert tokenizer.encode(["a dog"], end=False)[0].tolist() == [tokenizer.start, *bare]


@pytest.mark.parametrize("text", [*SPECIALS, "the <s> a </s><mask>", LOOKALIKES, "<unk><unk>"])
def test_a_special_token_in_a_text_is_text(tokenizer, text):
    for again in (tokenizer, Tokenizer.from_json(tokenizer.to_json())):
        ids = set(again.encode([text], boundaries=False).ids.tolist())
        assert not ids & {again.pad, again.unk, again.start, again.end, again.mask}
        if again.lossless:
            assert again.decode(again.encode([text])[0]) == text


def test_a_text_that_teaches_special_tokens_teaches_none():
    tokenizer = Tokenizer.train(["<s> </s> <mask> <pad>"] * 200, TokenizerConfig(kind="bpe", vocab=400))
    assert not set(tokenizer.encode(["<s> </s> <mask> <pad>"], boundaries=False).ids.tolist()) & set(
        range(len(SPECIALS))
    )


def test_a_saved_tokenizer_gives_the_same_ids(tokenizer, tmp_path):
    (tmp_path / "model").mkdir()
    file = tmp_path / "model" / "tokenizer.json"
    file.write_text(tokenizer.to_json(), "utf-8")
    for place in (file, tmp_path / "model", tmp_path):  # a file, a model, a run
        loaded = tokenizer_for([], TokenizerConfig(kind=str(place)))
        assert loaded.encode(TEXTS).ids.tolist() == tokenizer.encode(TEXTS).ids.tolist()
        assert loaded.sha256 == tokenizer.sha256


def test_a_loaded_tokenizer_cuts_and_pads_nothing():
    backend = Tokenizer.train(TEXTS, TokenizerConfig()).backend
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    lengths = Tokenizer.from_json(backend.to_str()).encode(["abcdef", ""], boundaries=False).lengths
    assert lengths.tolist() == trained("char").encode(["abcdef", ""], boundaries=False).lengths.tolist()


@pytest.mark.parametrize(("kind", "pieces"), [("bpe", ["I", " hold"]), ("word", [" I", " hold"]), ("char", ["I", " "])])
def test_a_piece_reads_as_a_reader_would_write_it(kind, pieces):
    tokenizer = Tokenizer.train(["I hold a dog"] * 20, TokenizerConfig(kind=kind))
    ids = tokenizer.encode(["I hold"])[0]
    assert [tokenizer.piece(i) for i in ids[:3]] == ["<s>", *pieces]
    assert tokenizer.piece(10**6) == "<1000000>"


@pytest.mark.parametrize(("kind", "vocab"), [("bpe", 261), ("bpe", 280), ("word", 5), ("word", 9), ("char", 20)])
def test_a_vocabulary_is_no_larger_than_was_asked_for(kind, vocab):
    tokenizer = Tokenizer.train(list(TEXTS) * 5, TokenizerConfig(kind=kind, vocab=vocab))
    assert tokenizer.size == vocab
    assert 0 <= tokenizer.encode(TEXTS).ids.min() <= tokenizer.encode(TEXTS).ids.max() < vocab


def test_a_bpe_vocabulary_must_hold_its_bytes():
    with pytest.raises(ConfigError, match=r"261 entries or more .* not 260"):
        Tokenizer.train(TEXTS, TokenizerConfig(vocab=260))


def test_a_vocabulary_is_as_large_as_the_corpus_can_feed():
    assert [vocabulary_fed_by(n) for n in (0, 400_000, 10**9)] == [512, 1000, 8192]


@pytest.mark.parametrize("kind", KINDS)
def test_small_letters_only_where_they_are_asked_for(kind, tmp_path):
    lower = Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, lower=True))
    (tmp_path / "tokenizer.json").write_text(lower.to_json(), "utf-8")
    for made in (lower, Tokenizer.load(tmp_path)):
        assert made.encode(["I HOLD a Dog."]).ids.tolist() == made.encode(["i hold a dog."]).ids.tolist()
        assert not made.lossless
    assert trained(kind).encode(["The dog"]).ids.tolist() != trained(kind).encode(["the dog"]).ids.tolist()


def test_in_small_letters_a_word_is_the_same_wherever_it_stands():
    made = Tokenizer.train(["l'auteur, un auteur (auteur)"], TokenizerConfig(kind="word", lower=True))
    ids = made.encode(["L'auteur un auteur"], boundaries=False)[0].tolist()
    assert ids[2] == ids[4]
    assert made.decode(ids) == "l ' auteur un auteur"
    assert made.unknown(made.encode(["roman"])) == 1
    spaced = Tokenizer.train(["l'auteur, un auteur (auteur)"], TokenizerConfig(kind="word"))
    assert spaced.decode(spaced.encode(["l'auteur un auteur"], boundaries=False)[0].tolist()) == "l'auteur un auteur"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "word"])
def test_a_token_is_a_word_without_its_space(kind):
    made = trained(kind)
    words = made.words()
    assert len(words) == made.size
    assert [words[i] for i in made.encode(["I hold the dog"], boundaries=False)[0]][-2:] == ["the", "dog"]
    assert not any(words[i] for i in (made.pad, made.start, made.end))
    assert not any(word.startswith("##") for word in words)


def test_pieces_and_characters_are_no_words():
    assert not any(trained("char").words())
    made = trained("bpe")
    inside = made.encode(["adog"], boundaries=False)[0]
    assert not any(made.words()[i] for i in inside)


def test_a_tokenizer_that_is_there_is_taken_as_it_is(tmp_path):
    (tmp_path / "tokenizer.json").write_text(trained("word").to_json(), "utf-8")
    with pytest.raises(ConfigError, match=r"tokenizer\.lower is for a tokenizer that is learned"):
        tokenizer_for(TEXTS, TokenizerConfig(kind=str(tmp_path), lower=True))


def test_what_the_vocabulary_does_not_have_is_counted():
    assert trained("char").unknown(trained("char").encode(["dog", "ΩdΩ"])) == 2
    assert trained("bpe").unknown(trained("bpe").encode(["ΩdΩ"])) == 0


@pytest.mark.parametrize(
    ("kind", "hint"), [("bp", "'bpe'"), ("wrod", "'word'"), ("x" * 300, "not one of bpe, unigram")]
)
def test_an_unknown_kind_is_told(kind, hint):
    with pytest.raises(ConfigError, match=hint):
        tokenizer_for(TEXTS, TokenizerConfig(kind=kind))


@pytest.mark.parametrize(
    "content", [None, "", "{}", "not json", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}']
)
def test_a_file_that_is_no_tokenizer_is_told(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokenizer.load(path)


@given(st.lists(st.lists(st.integers(0, 99))))
def test_rows_in_one_array_are_the_rows(rows):
    kept = TokenRows.of(rows)
    assert [kept[i].tolist() for i in range(len(kept))] == rows
    assert kept.lengths.tolist() == [len(row) for row in rows]


def test_long_rows_are_cut_counted_and_closed():
    rows = TokenRows.of([[2, 7, 8, 9, 3], [2, 7, 3], [2, 7, 8, 3]])
    short, cut = truncated(rows, 3, end=3)
    assert cut == 2
    assert [short[i].tolist() for i in range(3)] == [[2, 7, 3]] * 3
    assert truncated(rows, 4)[0][0].tolist() == [2, 7, 8, 9]
    assert np.array_equal(rows[0], [2, 7, 8, 9, 3])  # the given rows stay as they were


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_a_long_text_cut_into_pieces_gives_the_same_ids(kind, monkeypatch):
    text = "It was the best of times, it was the worst of times;\n  it was  \u00e9t\u00e9 - and (so) it went on. " * 40
    tokenizer = Tokenizer.train([text], TokenizerConfig(kind=kind))
    whole = tokenizer.encode([text, "short"]).ids.tolist()
    monkeypatch.setattr("headstart.text.vocabulary.PIECE", 50)
    assert len(pieces(text)) > 20
    assert tokenizer.encode([text, "short"]).ids.tolist() == whole


@given(st.lists(st.text(st.sampled_from("ab \n"), max_size=400), max_size=20))
@example(["a" * 400] * 5)
def test_little_is_in_the_hands_of_the_library_at_a_time_and_nothing_is_lost(texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headstart.text.vocabulary.PIECE", 50)
        patch.setattr("headstart.text.vocabulary.LONGEST_PIECE", 100)
        patch.setattr("headstart.text.tokenizer.CHARACTERS_AT_ONCE", 300)
        patch.setattr("headstart.text.tokenizer.PIECES_AT_ONCE", 7)
        batches = list(trained("bpe")._batches(texts))
    assert all(len(batch) <= 7 and sum(len(piece) for piece, _, _ in batch) <= 400 for batch in batches)
    flat = [item for batch in batches for item in batch]
    assert [first for _, first, _ in flat] == [True, *(last for _, _, last in flat)][: len(flat)]
    assert "".join(piece + "|" * last for piece, _, last in flat) == "".join(f"{text}|" for text in texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_spaces_is_cut_only_where_that_leaves_no_trace(kind, monkeypatch):
    text = "acgt" * 100
    tokenizer = Tokenizer.train([text, "a c g t"], TokenizerConfig(kind=kind))
    monkeypatch.setattr("headstart.text.vocabulary.PIECE", 20)
    monkeypatch.setattr("headstart.text.vocabulary.LONGEST_PIECE", 40)
    assert len(pieces(text, anywhere=True)) == 10
    assert pieces(text) == [text]
    assert tokenizer.seamless == (kind in ("bpe", "char"))
    if tokenizer.lossless:
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_a_pack_can_be_the_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = Tokenizer.train(["a dog and a cat"], TokenizerConfig(kind="char"))

    def make(archives: object, folder: Path) -> None:
        (folder / "tokenizer.json").write_text(learned.to_json())

    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    monkeypatch.setitem(PACKS, "tiny", Pack("tokenizer", "", "", make, "tokenizer.json"))
    assert tokenizer_for(["other text"], TokenizerConfig(kind="tiny")).sha256 == learned.sha256
