"""Whatever a user names becomes texts or labelled examples.

Read here: .txt, tables (tables.py), folders. Not here: splitting into train and test (split.py), tokens
(tokenizer.py).
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.data import LabelledConfig, Unit
from headstart.errors import DataError
from headstart.quantities import counted
from headstart.task import Input
from headstart.text.classes import spellings
from headstart.text.compressed import is_compressed, plain_name
from headstart.text.files import PLAIN, STRETCH, Reading, check_file, is_blank, lines, read_text
from headstart.text.inputs import INPUTS, input_with, lacks_text, text_of, wanted_texts
from headstart.text.layouts import layout_task, read_layout
from headstart.text.separated import SEPARATORS, Header
from headstart.text.tables import TABLES, Wanted, find_column, first_few, header_of, is_table, read_columns
from headstart.text.visible import is_whole

FLAG = "--label-column"
TRUTH = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}  # of columns that are labels
LONGEST_HEADER = 500  # characters of a first line that may name columns
# The usual names, the best first: of a title and a body, the body is the text.
TEXT_COLUMNS = (
    "text", "sentence", "content", "review", "input", "document", "review_text", "full_text", "body", "utterance",
    "message", "comment", "comment_text", "tweet", "tweet_text", "post", "question", "question_text", "query", "prompt",
    "abstract", "description", "summary", "caption", "headline", "title",
)  # fmt: skip
LABEL_COLUMNS = (
    "label", "class", "category", "target", "sentiment", "intent", "topic", "emotion", "polarity", "genre", "tag",
    "rating", "stars", "score", "y", "labels", "tags", "categories", "topics", "genres", "emotions", "review_score",
    "star_rating", "grade", "gold_label", "is_duplicate", "similarity",
)  # fmt: skip

# A sentence ends at . ! ? or an ellipsis, with any closing quotes or brackets, before white space.
_SENTENCE_END = re.compile(r"([.!?…][\"'”’»)\]]*)\s+")


@dataclass(frozen=True)
class Example:
    text: str
    label: str


def read_corpus(
    paths: Sequence[str | Path], unit: Unit, column: str | None = None, reading: Reading = PLAIN
) -> list[str]:
    """The texts of all `paths`, in order; a folder stands for the files in it that can be read.

    A row of a table is one text, unless it is to be cut into sentences.
    """
    texts: list[str] = []
    for path in text_files(paths):
        if is_table(path):
            rows = (row[0] for row in read_columns(path, [(column, TEXT_COLUMNS, "--text-column")], reading))
            texts += (piece for row in rows for piece in cut(row, unit)) if unit == "sentence" else rows
        else:
            texts += cut(read_text(path, reading), unit)
    if all(map(is_blank, texts)):
        raise DataError(f"{', '.join(map(str, paths))}: no text in it.", "DATA_EMPTY")
    return texts


def read_labelled(
    path: str | Path,
    text_column: str | None,
    label_column: str | None,
    reading: Reading = PLAIN,
    keep_blank: bool = False,
    known: Sequence[str] = (),
) -> list[Example]:
    """Labelled rows of a table, or of a folder with one sub-folder of .txt files for each label.

    A row of which the text or the label is blank is refused, or left out if `reading` says so; with `keep_blank` they
    are refused only where there are no others. `known` are the labels that cleaned ones are to be spelled like.
    """
    path = Path(path)
    files = _arrow_files(path) or [path]
    if os.path.isdir(files[0]):  # Path.is_dir raises for a name that is too long
        return _tidied(path, _read_label_folders(path, reading), reading, known)
    task = reading.how.task if isinstance(reading.how, LabelledConfig) else "auto"
    if rows := read_layout(path, text_column, label_column, reading, task):
        return _without_blank(path, [Example(*row) for row in rows], reading)
    if not is_table(files[0]):
        hint = _unknown_table(path, reading)  # reads it, and says so if it is no text at all
        raise DataError(
            f"{path}: labelled text is read from a table ({', '.join(TABLES)}), or from a folder with one sub-folder "
            f"for each label.{f' This file {hint}.' if hint else ''}",
            "DATA_FORMAT",
        )
    header = header_of(files[0], reading)
    texts = text_columns(files[0], header, text_column, reading)
    labels = label_columns(files[0], header, label_column, texts, reading)
    examples = [
        Example(
            text_of(cells[: len(texts)]),
            cells[-1] if len(labels) == 1 else label_list(f"{f}, row {row}", labels, cells[len(texts) :]),
        )
        for f in files
        for row, cells in enumerate(read_columns(f, [*texts, *labels], reading), start=1)
    ]
    examples = _tidied(path, examples, reading, known)
    if keep_blank and not all(lacks_text(example.text) or is_blank(example.label) for example in examples):
        return examples
    refuse_blank(path, examples)
    return examples


def text_columns(path: Path, header: Header, given: str | None, reading: Reading = PLAIN) -> list[Wanted]:
    """The column of the text of a labelled table, or the columns of the texts of a row."""
    found = wanted_texts(header, given, TEXT_COLUMNS)
    if len(found) > 1 and given is None:
        names = " and ".join(f"'{usual[0]}'" for _, usual, _ in found)
        reading.note(
            f"{path} pairs",
            f"{path}: a row is {input_with(len(found)).one}, {names}. --text-column names one to use it alone.",
        )
    return found


def label_columns(
    path: Path, header: Header, given: str | None, texts: Sequence[Wanted], reading: Reading
) -> list[Wanted]:
    """The column of the label; or several of 0 and 1, one for each label: named with commas, or all that hold nothing else."""
    usual = (given, LABEL_COLUMNS, FLAG)
    if given is not None and given not in header.names and "," in given:
        return [(name.strip(), (), FLAG) for name in given.split(",")]
    if given is not None or find_column(header, usual):
        return [usual]
    taken = {column for wanted in texts for column in find_column(header, wanted)[:1]}
    names = [name for name in header.names if name not in taken]
    if len(names) < 2 or len(set(names)) < len(names):
        return [usual]
    only = set(names)
    for cells in read_columns(path, [(name, (), FLAG) for name in names], reading):
        only -= {name for name, cell in zip(names, cells, strict=True) if cell.strip().lower() not in TRUTH}
    found = [name for name in names if name in only]
    if len(found) < 2:
        return [usual]
    reading.note(
        f"{path} labels",
        f"{path}: a label is a column of 0 and 1: {', '.join(found[:10])}{', ...' * (len(found) > 10)}. --label-column names others.",
    )
    return [(name, (), FLAG) for name in found]


def label_list(where: str, columns: Sequence[Wanted], cells: Sequence[str]) -> str:
    """The labels whose columns hold 1, as a JSON list."""
    there = []
    for (name, _, _), cell in zip(columns, cells, strict=True):
        if (true := TRUTH.get(cell.strip().lower())) is None:
            raise DataError(
                f"{where}: the label column '{name}' holds '{cell[:40]}', where 0 or 1 is needed.", "DATA_LABEL"
            )
        there += [name] if true else []
    return json.dumps(there, ensure_ascii=False)


def refuse_blank(path: str | Path, examples: Sequence[Example], labels: bool = True) -> None:
    """Rows without a text, or without a label where each row needs one; and a table without rows."""
    if blank := [n for n, example in enumerate(examples, start=1) if labels and is_blank(example.label)]:
        raise DataError(
            f"{path}, row {first_few(blank)}: the label is blank. Every row needs one; --skip-blank leaves such rows out.",
            "DATA_LABEL",
        )
    if blank := [n for n, example in enumerate(examples, start=1) if lacks_text(example.text)]:
        raise DataError(
            f"{path}, row {first_few(blank)}: the text is blank. Fill it in; --skip-blank leaves such rows out.",
            "DATA_BLANK",
        )
    if not examples:
        raise DataError(f"{path}: no rows below the header.", "DATA_EMPTY")


def label_column_of(path: str | Path, given: str | None, reading: Reading = PLAIN) -> str | None:
    """The name of the label column of a table."""
    table = next(iter(_arrow_files(Path(path))), Path(path))
    if given is not None or os.path.isdir(table) or not is_table(table):
        return given
    return next(iter(find_column(header_of(table, reading), (None, LABEL_COLUMNS, "--label-column"))), None)


def read_lines(path: str | Path, column: str | None = None, reading: Reading = PLAIN) -> list[str]:
    """One text for each line of a file or row of a table, none left out, so that answers line up with them."""
    path = Path(path)
    if is_table(path):
        return read_corpus([path], "line", column, reading)
    return read_text(path, reading).removesuffix("\n").split("\n")


def read_inputs(path: str | Path, reads: Input, column: str | None = None, reading: Reading = PLAIN) -> list[str]:
    """What a model is to read, row by row: texts as `read_lines` has them, or several texts out of the columns of a table."""
    path = Path(path)
    if not INPUTS[reads].several:
        return read_lines(path, column, reading)
    if not is_table(path):
        raise DataError(f"{path}: {INPUTS[reads].rows} are read from a table ({', '.join(TABLES)}).", "DATA_FORMAT")
    texts = text_columns(path, header_of(path, reading), column, reading)
    return [text_of(cells) for cells in read_columns(path, texts, reading)]


def read_examples(
    path: str | Path, unit: Unit, text_column: str | None, label_column: str | None, reading: Reading = PLAIN
) -> list[Example]:
    """Labelled rows where there is a label column, texts with the empty label elsewhere; blank ones among them too."""
    folder = os.path.isdir(path) and not _arrow_files(Path(path))
    try:
        if label_column is not None or folder or _has_labels(Path(path), reading):
            return read_labelled(path, text_column, label_column, reading, keep_blank=True)
    except DataError as error:
        if label_column is not None or not folder or error.code != "DATA_EMPTY":
            raise
    return [Example(text, "") for text in read_corpus([path], unit, text_column, reading)]


def unlabelled(path: str | Path, label_column: str | None, reading: Reading = PLAIN) -> str | None:
    """What to tell of a table that is not known for one, or of which no column is taken for the label."""
    table = next(iter(_arrow_files(Path(path))), Path(path))
    if label_column is not None or os.path.isdir(table) or _has_labels(Path(path), reading):
        return None
    if not is_table(table):
        hint = _unknown_table(table, reading)
        return f"{path} {hint}. It was read as plain text." if hint else None
    names = [name or "(no name)" for name in header_of(table, reading).names]
    problem = f"{path} has no column called {', '.join(LABEL_COLUMNS[:5])} or the like, so its rows are checked without labels"
    return f"{problem}; the columns are {', '.join(names)}. Name one with --label-column." if len(names) > 1 else None


def _unknown_table(path: Path, reading: Reading) -> str | None:
    """What a file does that seems to be a table, and is none by its name or layout."""
    first = next(lines(read_text(path, reading)))
    if path.suffix.lower() == ".json":
        return 'holds no list of objects, such as [{"text": "...", "label": "..."}, ...], and no object a line'
    for mark in SEPARATORS if len(first) < LONGEST_HEADER else ():
        header = Header([name.strip(' "\n') for name in first.split(mark)])
        wanted = [(None, TEXT_COLUMNS, "--text-column"), (None, LABEL_COLUMNS, "--label-column")]
        if all(find_column(header, column) for column in wanted):
            return f"begins like a table: call it {'.tsv' if mark == chr(9) else '.csv'}"
    return None


def _has_labels(path: Path, reading: Reading) -> bool:
    table = next(iter(_arrow_files(path)), path)
    if layout_task(table, None, None, reading):
        return True
    if not is_table(table):
        return False
    header = header_of(table, reading)
    one = bool(find_column(header, (None, LABEL_COLUMNS, FLAG)))
    return one or len(label_columns(table, header, None, wanted_texts(header, None, TEXT_COLUMNS), reading)) > 1


def _tidied(path: Path, examples: list[Example], reading: Reading, known: Sequence[str]) -> list[Example]:
    """Rows without the blank ones, and with one spelling of each label, as far as `reading` asks for it."""
    how, examples = reading.how, _without_blank(path, examples, reading)
    if isinstance(how, LabelledConfig) and how.clean_labels:
        right = spellings((e.label for e in examples if not is_blank(e.label)), known)
        changed = Counter(e.label for e in examples if e.label in right)
        reading.respelled(str(path), {label: (right[label], rows) for label, rows in changed.items()})
        examples = [Example(e.text, right.get(e.label, e.label)) for e in examples]
    return examples


def _without_blank(path: Path, examples: list[Example], reading: Reading) -> list[Example]:
    how = reading.how
    if isinstance(how, LabelledConfig) and how.skip_blank:
        kept = [example for example in examples if not lacks_text(example.text) and not is_blank(example.label)]
        reading.skipped(str(path), len(examples) - len(kept))
        examples = kept or examples  # where all are blank, they are reported as blank
    return examples


def text_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that `paths` stand for, folders opened and sorted by name."""
    files: list[Path] = []
    for path in (found for pattern in paths for found in _matching(Path(pattern))):
        if os.path.isdir(path):
            inside = sorted(p for p in path.rglob("*") if _is_readable(p))
            if not inside:
                raise DataError(f"{path}: no {', '.join(('.txt', *TABLES))} file in this folder.", "DATA_EMPTY")
            files += inside
        else:
            check_file(path)
            files.append(path)
    for path in files:
        if not is_whole(str(path)):  # it could not be written into the run
            raise DataError(f"{path}: the name of this file is not UTF-8. Rename it.", "DATA_PATH")
    return files


def _matching(path: Path) -> list[Path]:
    """The paths that a pattern such as shards/*.txt stands for; a path that exists stands for itself."""
    if os.path.lexists(path) or not glob.has_magic(str(path)):
        return [path]
    return sorted(map(Path, glob.glob(str(path), recursive=True))) or [path]


def cut(text: str, unit: Unit) -> list[str]:
    """`text` as lines, sentences or one document; blank ones are left out.

    >>> cut("I hold a dog.  She is here!", "sentence")
    ['I hold a dog.', 'She is here!']
    """
    match unit:
        case "document":
            return [] if is_blank(text) else [text]
        case "line":
            pieces = lines(text)  # not splitlines: form feeds and U+2028 are part of a line
        case "sentence":
            pieces = _sentences(text)
    return [piece for piece in map(squeezed, pieces) if piece]


def squeezed(text: str) -> str:
    """`text` with every run of white space as one space, and none around it."""
    if len(text) <= STRETCH:
        return " ".join(text.split())
    # A long line is taken a stretch at a time: split makes an object of every word, ten times what the word takes.
    stretches = (text[i : i + STRETCH] for i in range(0, len(text), STRETCH))
    found = "".join(" ".join(f".{stretch}.".split())[1:-1] for stretch in stretches)  # dots hold the spaces at its ends
    while "  " in found:  # where two stretches meet
        found = found.replace("  ", " ")
    return found.strip(" ")


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.end(1)]
        start = end.end()
    yield text[start:]


def passed_over_notes(paths: Sequence[str | Path]) -> list[str]:
    """What to report of files in the folders among `paths` that are not read, hidden ones aside."""
    skipped = sorted(
        p
        for folder in map(Path, paths)
        if os.path.isdir(folder)
        for p in folder.rglob("*")
        if p.is_file() and not _is_readable(p) and not p.name.startswith(".")
    )
    names = ", ".join(p.name for p in skipped[:5])
    return [f"Note: {counted(len(skipped), 'file', 'was', 'were')} not read: {names}."] if skipped else []


def _is_readable(path: Path) -> bool:
    """Whether a file in a folder is text or a table; .json files that hold no rows are something else there."""
    plain = plain_name(path)
    known = plain.suffix.lower() in (".txt", *TABLES) if is_compressed(path) else is_table(path)
    return path.is_file() and (plain.suffix.lower() == ".txt" or known)


def _arrow_files(folder: Path) -> list[Path]:
    """The data of a folder that the datasets library saved; none elsewhere."""
    return sorted(folder.glob("*.arrow")) if os.path.isdir(folder) else []


def _read_label_folders(folder: Path, reading: Reading) -> list[Example]:
    if (folder / "env.json").exists() and (folder / "config.toml").exists():
        raise DataError(f"{folder} is a run, not labelled text. Are DATA and --base swapped?", "DATA_PATH")
    examples = [
        Example(read_text(file, reading), sub.name)
        for sub in sorted(p for p in folder.iterdir() if p.is_dir())
        for file in sorted(sub.glob("*.txt"))
    ]
    if not examples:
        raise DataError(f"{folder}: no LABEL/*.txt files in this folder.", "DATA_EMPTY")
    return examples
