"""The verbs about embeddings: embed, cluster; and the part of search that is about texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headstart.cli.app import app, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_notes, show_table
from headstart.errors import UserError
from headstart.quantities import counted
from headstart.runs.disk import write_file

MOST_CLUSTERS = 1000


@verb(app, "embed")
def embed(given: Given) -> None:
    """Embed texts with RUN|BASE: one vector for each. Written with every column of the input."""
    from headstart.hub.packs import located
    from headstart.text.columns import Table
    from headstart.use.encode import LoadedEncoder
    from headstart.use.vectors import write_vectors

    source, out = _source(given), new_file(given)
    normalize = _yes_or_no(given["--normalize"])
    reading, quiet = reading_of(given), given["--quiet"]
    table = Table.open(located(source), given["--text-column"], reading)
    result = write_vectors(out, table, LoadedEncoder.load(given["RUN|BASE"], normalize), Bar(quiet))
    show_notes([*reading.notes(), *_text_notes(result["blank"], result["truncated"])], quiet)
    if given["--json"]:
        show_json(result)
        return
    length = ", length 1" if result["normalized"] else ""
    show(f"{out}: {counted(result['rows'], 'vector')} of {result['width']} numbers ({result['pool']} pooling{length})")


@verb(app, "cluster")
def cluster(given: Given) -> None:
    """Cluster texts by their embeddings with RUN|BASE. Each cluster is named by its characteristic words."""
    from headstart.hub.packs import located
    from headstart.show.nearest import shortened
    from headstart.text.columns import Table
    from headstart.use.clusters import find_clusters, with_clusters
    from headstart.use.encode import LoadedEncoder

    source, out, count = _source(given), new_file(given), _count(given["--clusters"])
    if out.suffix.lower() != ".csv":
        raise UserError(f"--out takes a .csv file, not '{out}'.")
    reading, quiet = reading_of(given), given["--quiet"]
    table = Table.open(located(source), given["--text-column"], reading)
    texts = [text for part in table.parts(1000) for text in part.texts]
    vectors = LoadedEncoder.load(given["RUN|BASE"], True).encode(texts, Bar(quiet))
    found = find_clusters(texts, vectors, count, given["--seed"])
    write_file(out, with_clusters(table, found).encode())
    show_notes([*reading.notes(), *_text_notes(table.blank, 0)], quiet)
    if given["--json"]:
        show_json({**found.model_dump(mode="json", exclude={"numbers"}), "file": str(out)})
        return
    rows = [
        [
            *([str(c.number), str(c.size), c.name] if text is c.typical[0] else [""] * 3),
            str(text.row),
            shortened(text.text, 70),
        ]
        for c in found.clusters
        for text in c.typical
    ]
    show_table(["cluster", "texts", "words", "row", "typical texts"], rows, right=(0, 1, 3))
    chosen = ", chosen by it" if found.tried else ""
    scored = "" if found.silhouette is None else f" (silhouette {found.silhouette:.3f}{chosen})"
    show(f"\n{out}: {counted(found.rows, 'row')} in {counted(len(found.clusters), 'cluster')}{scored}")


def _count(word: str) -> int | None:
    """How many clusters; None: to be chosen."""
    if word == "auto":
        return None
    if not word.isdecimal() or not 2 <= int(word) <= MOST_CLUSTERS:
        raise UserError(f"--clusters takes auto or a number from 2 to {MOST_CLUSTERS}, not '{word}'.")
    return int(word)


def _source(given: Given) -> str:
    if not given["--file"]:
        raise UserError(f"Missing --file: the texts to {given.verb}, one per line, or a table.")
    return str(given["--file"])


def new_file(given: Given) -> Path:
    """The file to write, which is not there yet or may be replaced, and is not the one to read."""
    out = Path(given["--out"])
    may_be_written(out, [given["--file"]], given["--overwrite"])
    return out


def may_be_written(out: Path, read: Sequence[str], overwrite: bool) -> None:
    """Refuse to write over a file that is read, or over another without --overwrite."""
    if out.exists() and any(os.path.exists(file) and os.path.samefile(out, file) for file in read):
        raise UserError(f"--out takes another file than those that are read, not '{out}'.")
    if os.path.lexists(out) and not overwrite:
        raise UserError(f"{out} already exists. Choose another --out, or give --overwrite.", "FILE_EXISTS")


def _yes_or_no(word: str | None) -> bool | None:
    if word not in (None, "yes", "no"):
        raise UserError(f"--normalize takes yes or no, not '{word}'.")
    return None if word is None else word == "yes"


def _text_notes(blank: int, truncated: int) -> list[str]:
    notes = [f"{counted(blank, 'text')} {'is' if blank == 1 else 'are'} blank."] if blank else []
    longer = f"{counted(truncated, 'text', 'was', 'were')} longer than the context and truncated."
    return [*notes, longer] if truncated else notes


def holds_texts(name: str) -> bool:
    """Whether what is to be searched is a file of texts, by its name; a folder is one of images."""
    from headstart.hub.packs import located
    from headstart.text.tables import TABLES

    path = Path(located(name))
    return not os.path.isdir(path) and path.suffix.lower() in (".txt", *TABLES)


def queries(given: Given) -> list[str]:
    """Those of the command line, then those of --file."""
    from headstart.hub.packs import located
    from headstart.text.read import read_lines

    reading = reading_of(given)
    found = list(given["QUERY..."] or [])
    if given["--file"]:
        found += [line for line in read_lines(located(given["--file"]), None, reading) if line.strip()]
    show_notes(reading.notes(), given["--quiet"])
    if not found:
        raise UserError("Nothing to look for: give a QUERY, or --file.")
    return found


def search_texts(given: Given, asked: list[str]) -> None:
    """The nearest texts of each query."""
    from headstart.hub.packs import located
    from headstart.text.read import read_lines
    from headstart.use.text_search import TextSearch

    for flag in ("--png", "--html", "--target", "--strict"):
        if given.values[flag]:
            raise UserError(f"{flag} is for images; {given['IMAGES|TEXTS']} holds texts.")
    reading = reading_of(given)
    texts = read_lines(located(given["IMAGES|TEXTS"]), given["--text-column"], reading)
    show_notes(reading.notes(), given["--quiet"])
    found = TextSearch.over(texts, given["--model"] or "minilm", Bar(given["--quiet"])).find(asked, given["--top"])
    if given["--json"]:
        show_json([each.data() for each in found])
    else:
        show("\n\n".join(map(str, found)))
