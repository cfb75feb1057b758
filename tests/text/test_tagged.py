"""Files of tagged words: what is read, what is repaired and counted, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.text.files import Reading
from headstart.text.read import Example, read_labelled
from headstart.text.split import split_labelled
from headstart.text.subwords import word_rows
from headstart.text.tokenizer import Tokenizer, TokenizerConfig

ADA = Example("Ada Lovelace wrote it .", "B-PER I-PER O O O")


def read(
    file: Path, content: str, label_column: str | None = None, task: Any = "auto"
) -> tuple[list[Example], list[str]]:
    file.write_text(content, "utf-8")
    reading = Reading(LabelledConfig(train=str(file), task=task))
    return read_labelled(file, None, label_column, reading), reading.notes()


def jsonl(*records: Any) -> str:
    return "\n".join(map(json.dumps, records)) + "\n"


@pytest.mark.parametrize("mark", [" ", "\t", "  "])
def test_a_word_per_line_and_a_blank_line_between_sentences(mark: str, tmp_path: Path):
    lines = [f"{word}{mark}X{mark}{tag}" for word, tag in zip(ADA.text.split(), ADA.label.split(), strict=True)]
    text = "-DOCSTART- -X- O\n\n" + "\n".join([*lines, "", "", *lines]) + "\n"
    rows, notes = read(tmp_path / "a.conll", text)
    assert rows == [ADA, ADA]
    assert notes == []


def test_the_column_of_the_tags_can_be_named(tmp_path: Path):
    rows, _ = read(tmp_path / "a.conll", "Ada NNP B-PER\nwrote VBD O\n", label_column="2")
    assert rows == [Example("Ada wrote", "NNP VBD")]


def test_universal_dependencies_give_parts_of_speech(tmp_path: Path):
    head = "# sent_id = 1\n# text = du pain\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n"
    words = [
        "1\tde\tde\tADP\tP\t_\t3\tcase\t_\t_",
        "2\tle\tle\tDET\tD\t_\t3\tdet\t_\t_",
        "3\tpain\tpain\tNOUN\tN\t_\t0\troot\t_\t_",
    ]
    rows, _ = read(tmp_path / "a.conllu", head + "\n".join(words) + "\n\n")
    assert rows == [Example("de le pain", "ADP DET NOUN")]
    rows, _ = read(tmp_path / "a.conllu", head + "\n".join(words) + "\n\n", label_column="xpos")
    assert rows == [Example("de le pain", "P D N")]


def test_tokens_and_tags_in_json_lines(tmp_path: Path):
    record = {"tokens": ADA.text.split(), "ner_tags": ADA.label.split()}
    assert read(tmp_path / "a.jsonl", jsonl(record))[0] == [ADA]
    assert read(tmp_path / "a.json", json.dumps([record]))[0] == [ADA]


def test_tokens_and_tags_in_a_table(tmp_path: Path):
    assert read(tmp_path / "a.csv", f"tokens,tags\n{ADA.text},{ADA.label}\n")[0] == [ADA]


@pytest.mark.parametrize(
    "spans",
    [
        {"spans": [{"start": 0, "end": 12, "label": "PER"}]},
        {"entities": [{"start": 0, "end": 12, "type": "PER"}]},
        {"label": [[0, 12, "PER"]]},
    ],
)
def test_spans_of_characters_become_tags_of_words(spans: dict[str, Any], tmp_path: Path):
    rows, notes = read(
        tmp_path / "a.jsonl",
        jsonl({"text": "Nobody.", **{key: [] for key in spans}}, {"text": "Ada Lovelace wrote it.", **spans}),
    )
    assert rows == [Example("Nobody .", "O O"), ADA]
    assert notes == []


def test_spans_that_fit_no_words_are_widened_or_left_out_and_counted(tmp_path: Path):
    spans = [
        {"start": 0, "end": 2, "label": "PER"},
        {"start": 4, "end": 12, "label": "PER"},
        {"start": 4, "end": 6, "label": "LOC"},
    ]
    rows, notes = read(tmp_path / "a.jsonl", jsonl({"text": "Ada Lovelace wrote it.", "spans": spans}))
    assert rows == [Example(ADA.text, "B-PER B-PER O O O")]
    assert [note.partition(": ")[2] for note in notes] == [
        "1 span was widened to whole words.",
        "1 span was left out: no words in it, or inside a longer one.",
    ]


@pytest.mark.parametrize(
    ("tags", "expected", "said"),
    [
        ("I-PER I-PER O O O", "B-PER I-PER O O O", ["the tags are IOB1, and are read as IOB2."]),
        ("B-PER E-PER O O O", "B-PER I-PER O O O", ["the tags are BIOES, and are read as IOB2."]),
        ("B-PER L-PER O O U-LOC", "B-PER I-PER O O B-LOC", ["the tags are BIOES, and are read as IOB2."]),
        ("B-PER I-LOC O I-PER O", "B-PER B-LOC O B-PER O", ["2 tags were repaired: IOB2 does not allow them where they stand."]),
        ("B-PER O O E-PER O", "B-PER O O B-PER O", ["the tags are BIOES, and are read as IOB2.", "2 tags were repaired: BIOES does not allow them where they stand."]),
    ],
)  # fmt: skip
def test_every_scheme_becomes_iob2_and_what_is_broken_is_counted(
    tags: str, expected: str, said: list[str], tmp_path: Path
):
    rows, notes = read(tmp_path / "a.jsonl", jsonl({"tokens": ADA.text.split(), "tags": tags.split()}))
    assert rows == [Example(ADA.text, expected)]
    assert [note.partition(": ")[2] for note in notes] == said


@pytest.mark.parametrize(
    ("name", "content", "said", "code"),
    [
        ("a.conll", "Ada B-PER\nwrote\n", "line 2: 1 column where the first line has 2", "DATA_COLUMNS"),
        ("a.conll", "Ada\nwrote\n", "line 1: 1 column where a word and its tag are needed", "DATA_COLUMNS"),
        ("a.conllu", "1\tAda\tX\n", "line 1: 3 columns where those of CoNLL-U are needed, with the tag in the fourth", "DATA_COLUMNS"),
        ("a.conll", "Ada\t\n", "line 1: a tag is blank", "DATA_LABEL"),
        ("a.conll", "-DOCSTART- O\n\n", "no sentences", "DATA_EMPTY"),
        ("a.jsonl", jsonl({"tokens": ["a", "b"], "tags": ["O"]}), "line 1: 2 words and 1 tag", "DATA_LABEL"),
        ("a.jsonl", jsonl({"tokens": ["a"], "tags": ["O"]}, {"tokens": "a", "tags": ["O"]}), "line 2: 'tokens' is no list", "DATA_COLUMNS"),
        ("a.jsonl", jsonl({"tokens": ["a", " "], "tags": ["O", "O"]}), "line 1: a word is blank", "DATA_BLANK"),
        ("a.jsonl", jsonl({"tokens": ["a"], "tags": ["B PER"]}), "has white space in it", "DATA_LABEL"),
        ("a.jsonl", jsonl({"text": "Ada", "spans": [{"start": 0, "end": 9, "label": "PER"}]}), "a span from 0 to 9 in a text of 3 characters", "DATA_LABEL"),
        ("a.jsonl", jsonl({"text": "Ada", "spans": [{"start": 0, "end": 3, "label": "PER"}]}, {"text": "b", "spans": [7]}), "line 2: 'spans' is no list of spans", "DATA_LABEL"),
    ],
)  # fmt: skip
def test_what_cannot_be_tags_is_refused_with_its_place(name: str, content: str, said: str, code: str, tmp_path: Path):
    with pytest.raises(DataError, match=said) as error:
        read(tmp_path / name, content)
    assert error.value.code == code


def test_a_table_that_must_have_tags_and_has_none_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"tagged words are read from \.conll"):
        read(tmp_path / "a.csv", "text,label\nAda,PER\n", task="tag")


def test_a_space_inside_a_word_does_not_make_two(tmp_path: Path):
    rows, _ = read(tmp_path / "a.conll", "thông tin\tN\ncủa\tE\n")
    assert [len(rows[0].text.split(" ")), rows[0].label] == [2, "N E"]


def test_other_tables_are_read_as_they_were(tmp_path: Path):
    for name, content in (("a.csv", "text,tags\nred car,a\nblue,b\n"), ("b.jsonl", jsonl({"text": "x", "labels": ["a"]}, {"text": "y", "labels": []}))):  # fmt: skip
        (tmp_path / name).write_text(content)
        rows = read_labelled(tmp_path / name, None, None, keep_blank=True)
        assert [row.text for row in rows] in (["red car", "blue"], ["x", "y"])


def test_the_task_is_found_in_the_file(tmp_path: Path):
    sentences = [f"Ada B-PER\nlives O\nat O\n{i} O\n" for i in range(40)]
    (tmp_path / "a.conll").write_text("\n".join(sentences))
    data = split_labelled(LabelledConfig(train=str(tmp_path / "a.conll")))
    assert data.target.task == "tag"
    assert data.target.names == ("B-PER", "I-PER", "O")
    assert data.target.encode([data.train[0].label]).shape == (1, 4)


def test_a_tag_that_no_training_row_has_counts_as_a_mistake_and_is_reported(tmp_path: Path):
    (tmp_path / "train.conll").write_text("\n\n".join(f"Ada N\nlives V\nat P\n{i} M" for i in range(30)) + "\n")
    (tmp_path / "test.conll").write_text("Oh I\nAda N\nlives V\nat P\n7 M\nno I\n")
    data = split_labelled(LabelledConfig(train=str(tmp_path / "train.conll"), test=str(tmp_path / "test.conll")))
    assert "I" in data.labels
    assert data.target.encode([data.test[0].label]).shape == (1, 6)
    assert "No training row has the tags 'I' of held-out rows: they count as mistakes." in data.reading.notes()


TEXTS = ["the cat sat on the mat .", "a cat", "unbelievably long wordswithoutend here", "ﬁne naïve Ünïcode"]


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram", "char", "wordpiece"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("context", [64, 6])
def test_each_word_has_the_place_of_its_first_token(kind: str, causal: bool, context: int):
    from headstart.text.vocabulary import KINDS

    if kind not in KINDS:
        pytest.skip(f"no tokenizer {kind}")
    tokenizer = Tokenizer.train(TEXTS * 20, TokenizerConfig(kind=kind))
    rows = word_rows(TEXTS, tokenizer, causal, context)
    assert int(rows.rows.lengths.max()) <= context
    for i, text in enumerate(TEXTS):
        own = rows.words_of(i)
        words = text.split(" ")
        assert own.stop - own.start == len(words)
        for word, row, at in zip(words, rows.row[own], rows.at[own], strict=True):
            assert row in rows.rows_of(i)
            token = rows.rows[int(row)][int(at)]
            piece = tokenizer.piece(int(token)).strip().removeprefix("##")
            if token != tokenizer.unk and "�" not in piece:
                first = at == 1  # SentencePiece writes a mark before the first word
                assert piece or first, f"the space before '{word}' is no token of it"
                assert word.startswith(piece)
