"""A corpus that is larger than memory: its texts, one at a time, and the part of them that is held out.

The texts and the split are those that read.py and split.py make of the same files in memory.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headstart.data import CorpusConfig
from headstart.errors import DataError
from headstart.text.compressed import is_compressed, plain_name
from headstart.text.digests import digest
from headstart.text.duplicates import normal
from headstart.text.files import Reading, file_facts, is_blank, stream_lines, stream_text
from headstart.text.read import TEXT_COLUMNS, cut, read_corpus, squeezed, text_files
from headstart.text.separated import Header, stream_separated
from headstart.text.stretches import StreamedTexts, Stretches, Text, stretches_of
from headstart.text.tables import SEPARATED, as_text, choose_column, is_table, json_object, read_columns, whole_rows

SPARE = 1000  # groups of duplicates that are kept beside those that are needed


def is_large(cfg: CorpusConfig) -> bool:
    """Whether a corpus is read in a stream: by the size of its files; compressed ones always are."""
    files = text_files(cfg.paths)
    return any(map(is_compressed, files)) or sum(file.stat().st_size for file in files) > cfg.stream_above


def corpus_texts(cfg: CorpusConfig, reading: Reading) -> Iterable[Text]:
    """The texts of a corpus, in memory where they are few enough."""
    return CorpusStream(cfg, reading) if is_large(cfg) else read_corpus(cfg.paths, cfg.unit, cfg.text_column, reading)


@dataclass(frozen=True)
class Survey:
    """What a first pass found: how many texts and characters, and the length of each document."""

    texts: int
    characters: int
    lengths: list[int]


class CorpusStream:
    def __init__(self, cfg: CorpusConfig, reading: Reading) -> None:
        self.cfg, self.reading = cfg, reading.decompressing()
        self.files = text_files(cfg.paths)

    def __iter__(self) -> Iterator[Text]:
        """Every text, as `read_corpus` has them."""
        for path in self.files:
            if is_table(plain_name(path), self.reading):
                for row in self._rows(path):
                    yield from cut(row, "sentence") if self.cfg.unit == "sentence" else (row,)
            elif self.cfg.unit == "document":
                yield Stretches(lambda path=path: stream_text(path, self.reading))  # type: ignore[misc]
            elif self.cfg.unit == "line":
                yield from filter(None, map(squeezed, stream_lines(path, self.reading)))
            else:
                yield from cut("".join(stream_text(path, self.reading)), "sentence")

    def _rows(self, path: Path) -> Iterator[str]:
        wanted = (self.cfg.text_column, TEXT_COLUMNS, "--text-column")
        suffix = plain_name(path).suffix.lower()
        if suffix in SEPARATED:
            header, rows, _ = stream_separated(path, self.reading)
            place = header.names.index(choose_column(path, header, wanted, self.reading))
            yield from (row[place] for _, row in whole_rows(path, header.names, rows))
        elif suffix in (".jsonl", ".ndjson"):
            name = ""
            for number, line in enumerate(stream_lines(path, self.reading), start=1):
                if line.strip():
                    where = f"{path}, line {number}"
                    record = json_object(where, line)
                    name = name or choose_column(path, Header(list(record)), wanted, self.reading)
                    if name not in record:
                        raise DataError(f"{where}: no '{name}' in this object ({', '.join(record)}).", "DATA_COLUMNS")
                    yield as_text(where, name, record[name], self.reading)
        else:
            yield from (row[0] for row in read_columns(path, [wanted], self.reading))

    def survey(self) -> Survey:
        texts = characters = 0
        lengths: list[int] = []
        blank = True
        for text in self:
            length = 0
            for stretch in stretches_of(text):
                length += len(stretch)
                blank = blank and is_blank(stretch)
            texts, characters = texts + 1, characters + length
            if self.cfg.unit == "document":
                lengths.append(length)
        if blank:
            raise DataError(f"{', '.join(self.cfg.paths)}: no text in it.", "DATA_EMPTY")
        return Survey(texts, characters, lengths)

    def held_out(self, room: int) -> set[int]:
        """The numbers of the texts that `hash_split` would hold out, where there is room for so many."""
        most = 2 * room + SPARE
        while True:
            groups, all_of_them = self._first_groups(most)
            left, taken = room, set[int]()
            for key in sorted(groups):
                if len(groups[key]) <= left:
                    taken.update(groups[key])
                    left -= len(groups[key])
            if not left or all_of_them:
                return taken
            most *= 2  # too many groups were larger than the room

    def _first_groups(self, most: int) -> tuple[dict[str, list[int]], bool]:
        """Of the digests of all texts the `most` smallest, with the numbers of their texts; and whether these are all.

        A digest that has to go is larger than those that stay, so it never comes back, and those that stay have all their texts.
        """
        groups: dict[str, list[int]] = {}
        largest: list[tuple[int, str]] = []  # a heap
        whole = True
        for number, text in enumerate(self):
            key = digest("0", normal("".join(stretches_of(text))))
            if key in groups:
                groups[key].append(number)
                continue
            if not whole and -int(key, 16) < largest[0][0]:
                continue
            groups[key] = [number]
            heapq.heappush(largest, (-int(key, 16), key))
            if len(groups) > most:
                whole = False
                del groups[heapq.heappop(largest)[1]]
        return groups, whole

    def without(self, held_out: set[int], characters: int) -> StreamedTexts:
        """All texts but those that are held out."""

        def read() -> Iterator[Text]:
            return (text for number, text in enumerate(self) if number not in held_out)

        return StreamedTexts(read, characters, self._identity(sorted(held_out)))

    def tails(self, cuts: list[int]) -> tuple[StreamedTexts, list[str]]:
        """The beginning of each document, and what follows it."""
        blank, tails = set(), []
        for number, text in enumerate(self):
            seen, head, tail = 0, True, []
            for stretch in stretches_of(text):
                begin = max(0, cuts[number] - seen)
                head = head and is_blank(stretch[:begin])
                tail.append(stretch[begin:])
                seen += len(stretch)
            blank |= {number} if head else set()
            tails.append("".join(tail))

        def read() -> Iterator[Text]:
            for number, text in enumerate(self):
                if number not in blank:
                    yield text[: cuts[number]] if isinstance(text, str) else text.head(cuts[number])

        return StreamedTexts(read, sum(cuts), self._identity(cuts)), [tail for tail in tails if tail.strip()]

    def _identity(self, split: list[int]) -> str:
        files = [
            (fact["bytes"], fact["sha256"], "".join(Path(str(fact["file"])).suffixes))
            for fact in file_facts(self.files)
        ]
        settings = self.cfg.model_dump(exclude={"paths", "stream_above", "boundaries"})
        return digest(json.dumps([files, settings, split]))
