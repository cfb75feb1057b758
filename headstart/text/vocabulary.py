"""Vocabularies learned from text: one function for each kind of tokenizer, on the `tokenizers` library.

What a model reads is what the user wrote, but for capitals where small letters were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from headstart.errors import ConfigError, did_you_mean

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
LARGEST_VOCAB = 8192  # of a vocabulary of pieces that we choose; the user may ask for more
MOST_WORDS = 30_000
CHARACTERS_PER_ENTRY = 400  # about a hundred sightings of each entry
PIECE = 20_000  # characters; longer texts are cut before they are tokenized
LONGEST_PIECE = 2 * PIECE  # where a text may be cut anywhere
_BETWEEN_WORDS = re.compile(r"(?<=\w) (?=\w)")


def learn(kind: str, cut: Iterable[str], characters: int, vocab: int, lower: bool = False) -> Tokenizer:
    """A tokenizer of `kind` with at most `vocab` entries (0: as many as the text can feed), from a text that was `cut`.

    With `lower` a word is the same wherever it stands: capitals are read as small letters, and whole words do not
    carry the space before them, so that French "l'auteur" and "un auteur" have one word in common.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"Unknown tokenizer '{kind}': not one of {', '.join(KINDS)}, and no such file or run."
            f"{did_you_mean(kind, KINDS)}"
        )
    tokenizer, trainer = KINDS[kind](vocab, vocabulary_fed_by(characters))
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
        if kind == "word":
            _forget_spaces(tokenizer)
    tokenizer.train_from_iterator(cut, trainer)
    return tokenizer


def vocabulary_fed_by(characters: int) -> int:
    """As many entries as a corpus of that many characters can show often enough to be learned."""
    return max(512, min(LARGEST_VOCAB, characters // CHARACTERS_PER_ENTRY))


def pieces(text: str, anywhere: bool = False) -> list[str]:
    """A long text cut in front of single spaces between words, where no tokenizer of ours joins anything.

    Where there is none for long, as in a genome, it is cut `anywhere` or not at all.

    >>> "".join(pieces("so it goes " * 20_000)) == "so it goes " * 20_000
    True
    """
    cut, start = [], 0
    while len(text) - start > PIECE:
        stop = start + LONGEST_PIECE if anywhere else len(text)
        place = _BETWEEN_WORDS.search(text, start + PIECE, stop)
        if place is None and stop >= len(text):
            break
        end = place.start() if place else stop
        cut.append(text[start:end])
        start = end
    return [*cut, text[start:]]


def stretched_pieces(stretches: Iterable[str], anywhere: bool = False) -> Iterator[str]:
    """`pieces` of a text that comes in stretches, of which few are in memory.

    >>> text = "so it goes " * 20_000
    >>> list(stretched_pieces((text[i : i + 999] for i in range(0, len(text), 999)))) == pieces(text)
    True
    """
    held, start, looked = "", 0, PIECE
    for stretch in stretches:
        held, start = held[start:] + stretch, 0
        while len(held) - start > LONGEST_PIECE:
            stop = start + LONGEST_PIECE if anywhere else len(held)
            place = _BETWEEN_WORDS.search(held, start + looked, stop)
            if place is None and not anywhere:
                looked = len(held) - start - 1
                break
            end = place.start() if place else stop
            yield held[start:end]
            start, looked = end, PIECE
    yield from pieces(held[start:], anywhere)


def _bpe(vocab: int, fed: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Pairs of bytes that stand together most often become one (GPT-2); nothing is ever unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    smallest = len(alphabet) + len(SPECIALS)
    if vocab and vocab < smallest:
        raise ConfigError(f"A bpe vocabulary needs {smallest} entries or more (its bytes), not {vocab}.")
    return tokenizer, trainers.BpeTrainer(
        vocab_size=vocab or fed, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )


def _unigram(vocab: int, fed: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Pieces under which the text is most probable (SentencePiece)."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([_words_with_their_space(), broken_specials()])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=vocab or fed, special_tokens=list(SPECIALS), unk_token="<unk>", show_progress=False
    )


def _wordpiece(vocab: int, fed: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Words, and pieces of words that go on with ## (BERT); where the spaces were is forgotten."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=100))
    _forget_spaces(tokenizer)
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=vocab or fed, special_tokens=list(SPECIALS), show_progress=False
    )


def _word(vocab: int, fed: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Whole words and punctuation marks, the most frequent first; the others are unknown."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [_words_with_their_space(), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer, _whole_units(vocab)


def _char(vocab: int, fed: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Every character by itself."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, _whole_units(vocab)


def _forget_spaces(tokenizer: Tokenizer) -> None:
    """Words and punctuation marks stand for themselves; decoding puts a space between words."""
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()


def _words_with_their_space() -> pre_tokenizers.PreTokenizer:
    """A word carries the space before it, so that decoding gives the text back; line ends stand alone."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )


def broken_specials() -> pre_tokenizers.PreTokenizer:
    """What looks like a special token in a text, cut in two: a unigram model knows them as pieces like any other."""
    return pre_tokenizers.Split(Regex(r"<(?=(?:pad|unk|/?s|mask)>)"), "isolated")


def _whole_units(vocab: int) -> trainers.Trainer:
    return trainers.WordLevelTrainer(vocab_size=vocab or MOST_WORDS, special_tokens=list(SPECIALS), show_progress=False)


KINDS: dict[str, Callable[[int, int], tuple[Tokenizer, trainers.Trainer]]] = {
    "bpe": _bpe,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "word": _word,
    "char": _char,
}
