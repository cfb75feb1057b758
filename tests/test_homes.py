"""Adding a task, or a kind of input, edits at most eight existing files: counted for tags of words and for pairs of texts.

A file is counted where its code names the kind: by a module that is the kind's own, imported or as module:name; by the
kind's word or one of its arms as a whole string; by one of its classes, or a function or key that is about it alone.
Comments, docstrings and sentences do not count. Reads files as text, so that it can count in any version of the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import headstart

MOST = 8
PACKAGE = Path(headstart.__file__).parent


@dataclass(frozen=True)
class Kind:
    own: tuple[str, ...]  # its own files, without the ending
    strings: frozenset[str]  # whole strings
    names: frozenset[str]  # of classes, functions and attributes
    source: str  # what names it in templates and scripts, and in an expression of Python

    @property
    def modules(self) -> frozenset[str]:
        return frozenset("headstart." + name.replace("/", ".") for name in self.own)


TAGS = Kind(
    own=(
        "targets/tags", "text/tagged", "text/subwords", "tasks/tag", "jobs/tag", "use/tag", "use/tagging", "use/onnx_tag",
        "use/inspect_tags", "use/token_tagger", "bases/word_probe", "study/tag_baselines", "study/tag_rows", "study/tags",
    ),
    strings=frozenset({"tag", "crf", "most-frequent-tag", "TokenTagger", "tag_probabilities"}),
    names=frozenset({
        "Tags", "Tag", "TagText", "TagHead", "Tagging", "LoadedTagger", "OnnxTagger", "TagInspector", "TokenTagger",
        "TaggedText", "TaggedRow", "is_tagged", "read_tagged", "tagged_rows", "most_frequent_tag", "crf",
    }),
    source=r"""["']tag["']|["']tokens["'] in r(ecord)?\b|stretches\(""",
)  # fmt: skip
PAIRS = Kind(
    own=("text/text_pair", "study/pair_baselines", "study/pair_features", "study/bi_encoder"),
    strings=frozenset({"pair", "paired", "overlap", "first-only", "second-only", "bi-encoder", "separators"}),
    names=frozenset({
        "TextPair", "is_paired", "paired", "pair_in", "pair_vectors", "pair_tfidf_rows", "pair_baseline", "bi_encoder",
        "sides_of",
    }),
    source=r"\bpaired\b|bi-encoder|first-only|is_pair",
)  # fmt: skip
# Words of these files that mean something else.
MEANS_ELSE = {
    "shapes.py": {"Tag"},  # of pydantic
    "cli/translate.py": {"pair"},  # a text and its translation, counted
    "text/pairs.py": {"pair"},
    "text/read.py": {"tag"},  # a usual name of the column of a class
    "text/tokenizer_json.py": {"pair"},  # a key of the tokenizers library
}


def naming(kind: Kind, package: Path) -> list[str]:
    """The files of `package` that name a kind and are not its own."""
    files = [*package.rglob("*.py"), *package.rglob("*.j2"), *package.rglob("*.js")]
    return sorted(name for file in files if _names(kind, file, name := str(file.relative_to(package))))


def _names(kind: Kind, file: Path, name: str) -> bool:
    if name.partition(".")[0] in kind.own:
        return False
    text = file.read_text("utf-8")
    if file.suffix != ".py":
        return bool(re.search(kind.source, text))
    tree = ast.parse(text)
    strings, words = (set(found) - MEANS_ELSE.get(name, set()) for found in (_strings(tree), _words(tree)))
    place = re.compile("|".join(rf"{re.escape(module)}(:|$)" for module in sorted(kind.modules)))
    return (
        bool(strings & kind.strings or words & (kind.names | kind.modules))
        or any(place.match(string) for string in strings)
        or any(re.search(kind.source, ast.unparse(node)) for node in ast.walk(tree) if isinstance(node, ast.Compare))
    )


def _strings(tree: ast.Module) -> Iterator[str]:
    """Every string but docstrings, as a whole."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def _words(tree: ast.Module) -> Iterator[str]:
    """Names, attributes, keywords and modules that are used or defined."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom():
                yield from (node.module or "", *(alias.name for alias in node.names))
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.keyword() | ast.arg():
                yield node.arg or ""
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name


@pytest.mark.parametrize("kind", [TAGS, PAIRS], ids=["tags", "pairs"])
def test_few_files_name_what_is_special_about_a_kind(kind: Kind) -> None:
    found = naming(kind, PACKAGE)
    assert len(found) <= MOST, "\n".join(found)


@pytest.mark.parametrize("kind", [TAGS, PAIRS], ids=["tags", "pairs"])
def test_the_own_files_of_a_kind_are_there(kind: Kind) -> None:
    there = {str(file.relative_to(PACKAGE)).partition(".")[0] for file in PACKAGE.rglob("*.*")}
    assert [name for name in kind.own if name not in there] == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (TAGS, "from headstart.text.tagged import COLUMNS"),
        (TAGS, "from headstart.text import tagged"),
        (TAGS, "JOB = 'headstart.jobs.tag:Tagging'"),
        (TAGS, "def f(x):\n    return isinstance(x, Tags)"),
        (TAGS, "def f(head):\n    return head.task == 'tag'"),
        (TAGS, "def f(record):\n    return 'tokens' in record"),
        (TAGS, "ARMS = ('crf', 'tfidf')"),
        (PAIRS, "from headstart.text.text_pair import lacks_text"),
        (PAIRS, "def f(data):\n    return data.paired"),
        (PAIRS, "x = Head(paired=True)"),
        (PAIRS, "def f(reads):\n    return reads == 'pair'"),
    ],
)  # fmt: skip
def test_a_special_case_is_counted(kind: Kind, code: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text('"""A tag, a pair of texts, TextPair."""\nx = 1  # "tag"\n')
    (tmp_path / "special.py").write_text(code)
    assert naming(kind, tmp_path) == ["special.py"]
