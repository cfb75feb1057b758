"""A SentencePiece model read by us gives the ids that SentencePiece gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.errors import ModelError
from headstart.text.tokenizer import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece")

TEXT = [
    "Il était une fois, dans une ville de province, un homme qui lisait trop.",
    "Les livres qu'il aimait parlaient de voyages, de mers et d'îles lointaines.",
    "Un jour — c'était en mai — il partit sans dire un mot à personne.",
    "La ville l'oublia vite ; les livres restèrent, couverts de poussière.",
] * 5
NEW = [*TEXT[:4], "  Deux   espaces ", "ﬁn ½ № ｆｕｌｌ", "zzz 漢字 🙂", "", "a", "le <s> et <unk>"]


SIZES = {("unigram", False): 80, ("unigram", True): 330, ("bpe", False): 120, ("bpe", True): 380}


@pytest.fixture(params=SIZES, ids=str, scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind, byte_fallback = request.param
    folder = tmp_path_factory.mktemp("spm")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(folder / "small"), vocab_size=SIZES[request.param],
        model_type=kind, byte_fallback=byte_fallback, minloglevel=2,
    )  # fmt: skip
    return folder / "small.model"


@pytest.mark.parametrize("text", NEW)
def test_the_ids_are_those_of_the_library(model: Path, text: str) -> None:
    theirs = sentencepiece.SentencePieceProcessor(str(model))
    assert Tokenizer.load(model).encode([text], boundaries=False)[0].tolist() == theirs.encode(text)


def test_decoding_gives_the_text_back(model: Path) -> None:
    tokenizer = Tokenizer.load(model)
    assert tokenizer.decode(tokenizer.encode(TEXT[:1])[0]) == TEXT[0]


def test_a_padding_and_a_mask_token_are_added_behind_the_pieces(model: Path) -> None:
    theirs, ours = sentencepiece.SentencePieceProcessor(str(model)), Tokenizer.load(model)
    assert (ours.start, ours.end, ours.unk) == (theirs.bos_id(), theirs.eos_id(), theirs.unk_id())
    assert sorted([ours.pad, ours.mask]) == [theirs.get_piece_size(), theirs.get_piece_size() + 1]


@pytest.mark.parametrize("data", [b"", b"\x0a\xff\xff", b"not a model at all", b"\x0a\x05\x0a\x01"])
def test_what_is_no_model_is_said_to_be_none(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.model").write_bytes(data)
    with pytest.raises(ModelError, match=r"x\.model: not a SentencePiece model"):
        Tokenizer.load(tmp_path / "x.model")
