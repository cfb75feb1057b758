"""Files of tagged words: CoNLL columns, JSON with tokens and tags, JSON with spans of characters.

    .conll, .iob, .bio   a word per line, its tag in the last column, a blank line between sentences
    .conllu              Universal Dependencies; the tag is UPOS
    {"tokens": ["Ada", "wrote"], "tags": ["B-PER", "O"]}
    {"text": "Ada wrote", "spans": [{"start": 0, "end": 3, "label": "PER"}]}

A row is the words of a sentence with one space between them, and their tags likewise. Tags that mark entities become IOB2,
whatever scheme they are in; what no scheme allows is repaired as seqeval reads it, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headstart.errors import DataError
from headstart.quantities import counted
from headstart.targets.tags import OUTSIDE, are_iob, as_iob2, entities
from headstart.text.files import PLAIN, Reading, is_blank, lines, read_text
from headstart.text.tables import as_text, find_column, header_of, is_table, json_records, read_columns
from headstart.text.visible import is_whole

COLUMNS = (".conll", ".conllu", ".iob", ".bio")  # a word per line
TOKENS = ("tokens", "words")
TAGS_OF_TABLES = (
    "tags",
    "ner_tags",
    "pos_tags",
    "upos",
)  # in cells of text, where nothing else shows that they are tags
TAGS = (*TAGS_OF_TABLES, "labels", "ner", "pos", "label")
SPANS = ("spans", "entities", "label", "labels")
SPAN_LABELS = ("label", "type", "tag", "entity_group")
_JSON = (".json", ".jsonl", ".ndjson")
_UNIVERSAL = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")  # columns of .conllu
LOOKED_AT = 1000  # rows of a JSON file that show whether it holds spans; the first ones may have none

Words = list[str]
Sentence = tuple[Words, list[str]]  # words and their tags
WORD = re.compile(r"\w+|[^\w\s]")


def words_in(text: str) -> list[tuple[int, int]]:
    """Where the words of a text begin and end; a punctuation mark is a word.

    >>> words_in("Ada, 1815.")
    [(0, 3), (3, 4), (5, 9), (9, 10)]
    """
    return [found.span() for found in WORD.finditer(text)]


def read_tagged(
    path: Path, text_column: str | None, label_column: str | None, reading: Reading = PLAIN, must: bool = False
) -> list[tuple[str, str]] | None:
    """The rows of a file of tagged words; None where it is another, unless it `must` be one."""
    if path.suffix.lower() in COLUMNS:
        found = list(_columns(path, text_column, label_column, reading))
    elif is_table(path, reading) and (kind := _kind(path, text_column, label_column, reading)):
        found = list(kind)
    elif must:
        raise DataError(
            f"{path}: tagged words are read from {', '.join(COLUMNS)}, or from a table with the columns tokens and tags, or text "
            "and spans.",
            "DATA_FORMAT",
        )
    else:
        return None
    return [(" ".join(words), " ".join(tags)) for words, tags in in_iob2(path, found, reading)]


def is_tagged(path: str | Path, text_column: str | None, label_column: str | None, reading: Reading = PLAIN) -> bool:
    """Whether a file is one of tagged words."""
    path = Path(path)
    if path.suffix.lower() in COLUMNS:
        return True
    return is_table(path, reading) and _kind(path, text_column, label_column, reading) is not None


def in_iob2(path: Path, sentences: Sequence[Sentence], reading: Reading = PLAIN) -> list[Sentence]:
    """The sentences with their entities in IOB2; tags that mark none as they are."""
    tags = {tag for _, row in sentences for tag in row}
    if not are_iob(list(tags)):
        return list(sentences)
    scheme = scheme_of([row for _, row in sentences])
    made = [(words, as_iob2(row)) for words, row in sentences]
    wanted = [as_bioes(row) if scheme == "BIOES" else row for _, row in made]
    as_read = [[_BILOU.get(tag[:2], tag[:2]) + tag[2:] for tag in row] for _, row in sentences]
    broken = sum(a != b for before, after in zip(as_read, wanted, strict=True) for a, b in zip(before, after, strict=True))  # fmt: skip
    if scheme != "IOB2":
        reading.note(f"{path} scheme", f"{path}: the tags are {scheme}, and are read as IOB2.")
    if broken and scheme != "IOB1":
        reading.note(f"{path} tags", f"{path}: {counted(broken, 'tag', 'was', 'were')} repaired: {scheme} does not allow them where they stand.")  # fmt: skip
    return made


_BILOU = {"L-": "E-", "U-": "S-"}


def scheme_of(rows: Sequence[Sequence[str]]) -> str:
    """IOB2; BIOES, which BILOU is too; or IOB1, in which B- only parts two entities of one type.

    >>> scheme_of([["I-PER", "B-PER", "O"]]), scheme_of([["B-PER", "O"]]), scheme_of([["S-PER", "O"]])
    ('IOB1', 'IOB2', 'BIOES')
    """
    if any(tag[0] in "ESLU" for row in rows for tag in row if tag != OUTSIDE):
        return "BIOES"
    pairs = [pair for row in rows for pair in zip([OUTSIDE, *row], row, strict=False)]
    parting = all(before[1:] == tag[1:] for before, tag in pairs if tag[0] == "B" and tag != OUTSIDE)
    return "IOB1" if parting and any(tag[0] == "I" for _, tag in pairs) else "IOB2"


def as_bioes(tags: Sequence[str]) -> list[str]:
    """The same entities in BIOES: E- at the last word of one, S- for one of a single word.

    >>> as_bioes(["B-PER", "I-PER", "O", "B-LOC"])
    ['B-PER', 'E-PER', 'O', 'S-LOC']
    """
    written = [OUTSIDE] * len(tags)
    for kind, start, end in entities(tags):
        marks = "S" if end - start == 1 else f"B{'I' * (end - start - 2)}E"
        written[start:end] = [f"{mark}-{kind}" for mark in marks]
    return written


def _columns(path: Path, text_column: str | None, label_column: str | None, reading: Reading) -> Iterator[Sentence]:
    universal = path.suffix.lower() == ".conllu"
    least = 4 if universal else 2
    width, words, tags = 0, Words(), Words()
    mark: str | None = None
    for number, line in enumerate(lines(read_text(path, reading)), start=1):
        line = line.rstrip("\n")
        where = f"{path}, line {number}"
        if is_blank(line) or line.startswith("-DOCSTART-"):
            if words:
                yield words, tags
            words, tags = [], []
            continue
        if not width:
            mark = "\t" if "\t" in line or universal else None
        cells = [cell.strip() for cell in line.split(mark)]
        if line.startswith("#") and not words and len(cells) != width and (universal or line[1:2] in ("", " ")):
            continue  # a comment
        width = width or len(cells)
        if len(cells) != width or width < least:
            usual = (
                "those of CoNLL-U are needed, with the tag in the fourth"
                if universal
                else "a word and its tag are needed"
            )
            needed = f"the first line has {width}" if width >= least else usual
            raise DataError(f"{where}: {counted(len(cells), 'column')} where {needed}. Is a blank line missing, or a tag?", "DATA_COLUMNS")  # fmt: skip
        if universal and not cells[0].isdigit():
            continue  # a range of words, or one that the text does not have
        word, tag = (
            cells[_place(path, name, width, usual, universal)]
            for name, usual in ((text_column, 1 if universal else 0), (label_column, 3 if universal else width - 1))
        )
        words.append(_word(where, word))
        tags.append(_tag(where, tag))
    if words:
        yield words, tags


def _place(path: Path, name: str | None, width: int, usual: int, universal: bool) -> int:
    """The column of a name or a number, counted from 1."""
    if name is None:
        return usual
    if universal and name.lower() in _UNIVERSAL:
        return _UNIVERSAL.index(name.lower())
    if name.isdecimal() and 1 <= int(name) <= width:
        return int(name) - 1
    raise DataError(f"{path}: no column '{name}'. Its columns are numbered from 1 to {width}.", "DATA_COLUMNS")


def _kind(path: Path, text_column: str | None, label_column: str | None, reading: Reading) -> Iterator[Sentence] | None:
    """The sentences of a table of tokens and tags, or of texts and spans; None of another."""
    header = header_of(path, reading)
    tokens = find_column(header, (text_column, TOKENS, "--text-column"))
    listed = path.suffix.lower() in _JSON
    tags = find_column(header, (label_column, TAGS if listed else TAGS_OF_TABLES, "--label-column"))
    if not listed:
        usual = tokens and tags and tokens[0] in TOKENS and tags[0] in TAGS_OF_TABLES
        return _cells(path, tokens[0], tags[0], reading) if usual else None
    first = next(json_records(path, reading), ("", {}))[1]
    if tokens and tags and all(isinstance(first.get(name), list) for name in (tokens[0], tags[0])):
        return _listed(path, tokens[0], tags[0], reading)
    texts = find_column(header, (text_column, ("text", "sentence", "content", "data"), "--text-column"))
    named = SPANS if label_column is None else (label_column,)
    for name in [name for name in named if isinstance(first.get(name), list)] if texts else ():
        values = (record.get(name) for _, record in islice(json_records(path, reading), LOOKED_AT))
        if any(isinstance(value, list) and value and _is_span(value[0]) for value in values):
            return _spanned(path, texts[0], name, reading)
    return None


def _cells(path: Path, tokens: str, tags: str, reading: Reading) -> Iterator[Sentence]:
    """Words and tags of a table of text, with spaces between them."""
    wanted = [(tokens, (), "--text-column"), (tags, (), "--label-column")]
    for number, (words, of_words) in enumerate(read_columns(path, wanted, reading), start=1):
        where = f"{path}, row {number}"
        yield _matched(where, words.split(), of_words.split())


def _listed(path: Path, tokens: str, tags: str, reading: Reading) -> Iterator[Sentence]:
    for where, record in json_records(path, reading):
        words, of_words = (_texts(where, name, record.get(name), reading) for name in (tokens, tags))
        yield _matched(where, words, of_words)


def _texts(where: str, name: str, values: Any, reading: Reading) -> list[str]:
    if not isinstance(values, list):
        raise DataError(f"{where}: '{name}' is no list.", "DATA_COLUMNS")
    return [as_text(where, name, value, reading) for value in values]


def _matched(where: str, words: Words, tags: list[str]) -> Sentence:
    if len(words) != len(tags):
        raise DataError(f"{where}: {counted(len(words), 'word')} and {counted(len(tags), 'tag')}. Each word needs one tag.", "DATA_LABEL")  # fmt: skip
    return [_word(where, word) for word in words], [_tag(where, tag) for tag in tags]


def _spanned(path: Path, text_column: str, span_column: str, reading: Reading) -> Iterator[Sentence]:
    widened = dropped = 0
    for where, record in json_records(path, reading):
        text = as_text(where, text_column, record.get(text_column), reading)
        spans = record.get(span_column) or []
        if not isinstance(spans, list) or not all(map(_is_span, spans)):
            raise DataError(f'{where}: \'{span_column}\' is no list of spans such as {{"start": 0, "end": 3, "label": "PER"}}.', "DATA_LABEL")  # fmt: skip
        words, tags = words_in(text), [OUTSIDE] * len(words_in(text))
        for start, end, label in sorted(map(_span, spans), key=lambda span: (span[0] - span[1], span[0])):
            if not 0 <= start < end <= len(text):
                raise DataError(f"{where}: a span from {start} to {end} in a text of {counted(len(text), 'character')}.", "DATA_LABEL")  # fmt: skip
            inside = [i for i, (a, b) in enumerate(words) if a < end and b > start]
            if not inside or any(tags[i] != OUTSIDE for i in inside):
                dropped += 1
                continue
            widened += not _is_between(text, start, end, words[inside[0]][0], words[inside[-1]][1])
            kind = _tag(where, label)
            for i in inside:
                tags[i] = f"{'B' if i == inside[0] else 'I'}-{kind}"
        yield [text[a:b] for a, b in words], tags
    if widened:
        reading.note(f"{path} widened", f"{path}: {counted(widened, 'span', 'was', 'were')} widened to whole words.")
    if dropped:
        reading.note(f"{path} dropped", f"{path}: {counted(dropped, 'span', 'was', 'were')} left out: no words in it, or inside a longer one.")  # fmt: skip


def _is_between(text: str, start: int, end: int, first: int, last: int) -> bool:
    """Whether a span is the words from `first` to `last`, but for white space around them."""
    return is_blank(text[start:first] or " ") and is_blank(text[last:end] or " ") and start <= first and last <= end


def _is_span(span: Any) -> bool:
    if isinstance(span, Mapping):
        label = next((span[key] for key in SPAN_LABELS if key in span), None)
        return _are_places(span.get("start"), span.get("end")) and isinstance(label, str)
    return isinstance(span, list) and len(span) == 3 and _are_places(*span[:2]) and isinstance(span[2], str)


def _are_places(*values: Any) -> bool:
    return all(type(value) is int for value in values)


def _span(span: Any) -> tuple[int, int, str]:
    if isinstance(span, Mapping):
        return span["start"], span["end"], next(span[key] for key in SPAN_LABELS if key in span)
    return span[0], span[1], span[2]


def _word(where: str, word: str) -> str:
    """A word without a space in it."""
    if is_blank(word) or not is_whole(word):
        raise DataError(f"{where}: a word is blank.", "DATA_BLANK")
    return re.sub(r"\s", "\u00a0", word.strip())


def _tag(where: str, tag: str) -> str:
    if is_blank(tag):
        raise DataError(f"{where}: a tag is blank. Every word needs one.", "DATA_LABEL")
    if re.search(r"\s", tag.strip()):
        raise DataError(f"{where}: the tag '{tag[:40]}' has white space in it.", "DATA_LABEL")
    return tag.strip()
