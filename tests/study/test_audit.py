"""headstart audit: planted wrong labels are found among training rows only, and a corrected table is the old one otherwise."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse
from headstart.study.audit import Audit, Suspect, audit, corrected
from headstart.text.split import split_labelled

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
FLIPPED = (5, 22, 41, 78, 103)  # rows, from 1


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    lines = [
        f"film {i} was {(GOOD + BAD)[i % 8]} all in all: Answer: {'yes' if i % 8 < 4 else 'no'}" for i in range(120)
    ]
    (folder / "corpus.txt").write_text("\n".join(lines))
    train = {"steps": 5, "batch_size": 8, "eval_every": 5, "threads": 1, "tensorboard": False}
    settings = {"data": {"paths": [str(folder / "corpus.txt")], "unit": "line"}, "train": train, "samples": [],
                "model": {"layers": 1, "heads": 2, "width": 16, "ff": 32, "context": 32}, "tokenizer": {"kind": "word"}}  # fmt: skip
    pretrain(parse(PretrainConfig, settings), folder / "run")
    return folder / "run"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """120 rows that one word decides; the labels of five are wrong."""
    lines = ["id,text,label,note"]
    for i in range(1, 121):
        good = bool(i % 2) != (i in FLIPPED)
        lines.append(
            f'{i},film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]} all in all,{"yes" if good else "no"},"a, b"'
        )
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def audited(*words: str) -> Any:
    return CliRunner().invoke(app, ["audit", *words, "--quiet"])


def test_planted_labels_are_found_and_test_rows_are_not_looked_at(table: Path, base: Path) -> None:
    cfg = LabelledConfig(train=str(table))
    held_out = {e.text for e in split_labelled(cfg).test}
    found = audit(cfg, [str(base)])
    texts = {row["text"]: int(row["id"]) for row in rows_of(table)}
    judged = {number for text, number in texts.items() if text not in held_out}
    assert (found.rows, found.held_out) == (len(judged), len(held_out))
    assert {each.row for each in found.suspects} <= judged
    assert {each.row for each in found.suspects} >= set(FLIPPED) & judged
    assert {each.row for each in found.suspects[: len(set(FLIPPED) & judged)]} == set(FLIPPED) & judged
    first = found.suspects[0]
    assert first.text == rows_of(table)[first.row - 1]["text"]
    assert {first.label, first.suggested} == {"yes", "no"}
    assert first.votes.split("/")[1] == str(2 * len(found.models))
    assert list(found.models)[:2] == ["tfidf", f"{base} frozen"]


def test_rows_given_as_test_are_not_opened_and_none_are_held_out(table: Path, base: Path, tmp_path: Path) -> None:
    found = audit(LabelledConfig(train=str(table), test=str(tmp_path / "not-there.csv")), [str(base)])
    assert (found.rows, found.held_out) == (120, 0)
    assert {each.row for each in found.suspects[:5]} == set(FLIPPED)


def test_the_table_of_suspects_corrects_the_data(table: Path, base: Path, tmp_path: Path) -> None:
    suspects, out = tmp_path / "suspects.csv", tmp_path / "corrected.csv"
    words = [str(table), "--base", str(base), "--test", "later.csv"]
    done = audited(*words, "--out", str(suspects), "--json")
    answer = json.loads(done.stdout)
    assert answer["file"] == str(suspects)
    lines = rows_of(suspects)
    assert [int(line["row"]) for line in lines] == [each["row"] for each in answer["suspects"]]
    kept = [line for line in lines if int(line["row"]) in FLIPPED[1:]]  # the line of one is deleted
    with suspects.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        writer.writerows(kept)
    done = audited(*words, "--apply", str(suspects), "--out", str(out), "--json")
    assert json.loads(done.stdout)["changed"] == 4
    for before, after in zip(rows_of(table), rows_of(out), strict=True):
        i = int(before["id"])
        right = "yes" if i % 2 else "no"
        assert after == {**before, "label": right if i != FLIPPED[0] else before["label"]}
    assert audited(*words, "--out", str(suspects)).exit_code == 2  # it is there, and may have been edited


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("5,film 5 was bright,no,yes", "not the text and label that were audited"),
        ("5,TEXT,yes,no", "not the text and label that were audited"),
        ("500,film 5,no,yes", "has no row 500; it has 120 rows"),
        ("five,film 5,no,yes", "'five' is no number of a row"),
        ("5,TEXT,no,", "'suggested' is blank. Give a label, or delete the line"),
    ],
)
def test_a_table_that_does_not_fit_the_data_changes_nothing(table: Path, tmp_path: Path, line: str, says: str) -> None:
    text = rows_of(table)[4]["text"]
    (tmp_path / "suspects.csv").write_text(f"row,text,label,suggested\n{line.replace('TEXT', text)}\n")
    with pytest.raises(DataError, match=says):
        corrected(LabelledConfig(train=str(table)), tmp_path / "suspects.csv")


def test_a_text_that_a_spreadsheet_would_compute_is_escaped_and_still_known(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n=1+2,a\nb,a\n")
    suspect = Suspect(row=1, text="=1+2", label="a", suggested="b", surety=1.0, votes="1/1")
    found = Audit(measure="confidence", rows=2, held_out=0, models={}, suspects=(suspect,), notes=()).as_csv()
    assert "\n1,'=1+2,a,b" in found
    (tmp_path / "suspects.csv").write_text(found)
    assert corrected(LabelledConfig(train=str(tmp_path / "rows.csv")), tmp_path / "suspects.csv").changed == 1


def several_of(number: int) -> list[str]:
    return [name for name, there in (("good", number % 2), ("late", number % 3 == 0)) if there]


def written(form: str, path: Path) -> Path:
    """240 rows with two labels that two words decide, in one of the forms that a table may have; row 7 has one label too many, row 12 one too few."""
    lines = []
    for i in range(1, 241):
        names = several_of(i)
        text = f"film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]} and {'delayed' if i % 3 == 0 else 'early'}"
        names = ["good", "late"] if i == 7 else [] if i == 12 else names
        lines.append((text, names))
    match form:
        case "separator":
            rows = [f'"{text}",{"|".join(names)}' for text, names in lines]
            path.write_text("\n".join(["text,labels", *rows]) + "\n")
        case "columns":
            rows = [f"{text},{int('good' in names)},x,{int('late' in names)}" for text, names in lines]
            path.write_text("\n".join(["text,good,note,late", *rows]) + "\n")
        case _:
            path = path.with_suffix(".jsonl")
            path.write_text("".join(json.dumps({"text": text, "labels": names}) + "\n" for text, names in lines))
    return path


@pytest.mark.parametrize("form", ["separator", "columns", "list"])
def test_labels_too_many_and_too_few_are_found_and_corrected(form: str, base: Path, tmp_path: Path) -> None:
    table, suspects, out = written(form, tmp_path / "rows.csv"), tmp_path / "suspects.csv", tmp_path / "out.csv"
    words = [str(table), "--base", str(base), "--test", "later.csv"]
    found = json.loads(audited(*words, "--out", str(suspects), "--json").stdout)["suspects"]
    assert {each["row"] for each in found[:2]} == {7, 12}
    with suspects.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["row", "text", "label", "suggested"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(found[:2])
    done = audited(*words, "--apply", str(suspects), "--out", str(out), "--json")
    assert json.loads(done.stdout)["changed"] == 2, done.output
    again = split_labelled(parse(LabelledConfig, {"train": str(out), "test": str(out)})).test
    target = split_labelled(parse(LabelledConfig, {"train": str(out)})).target
    assert [target.names_in(row.label) for row in again] == [several_of(i) for i in range(1, 241)]


def test_a_suggested_label_without_a_column_is_refused(tmp_path: Path) -> None:
    table = written("columns", tmp_path / "rows.csv")
    (tmp_path / "suspects.csv").write_text(
        f'row,text,label,suggested\n1,{rows_of(table)[0]["text"]},"[""good""]","[""fine""]"\n'
    )
    with pytest.raises(DataError, match="has the label 'fine', for which there is no column"):
        corrected(LabelledConfig(train=str(table)), tmp_path / "suspects.csv")


def test_numbers_far_from_what_is_expected_are_listed_with_their_deviation(base: Path, tmp_path: Path) -> None:
    worth = {word: 2.5 + i for i, word in enumerate((*BAD, *GOOD))}
    lines = ["text,price"]
    for i in range(1, 241):
        word = (GOOD if i % 2 else BAD)[i // 2 % 4]
        lines.append(f"film {i} was {word} all in all,{99.5 if i == 9 else worth[word] + i % 3 / 10}")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    words = [str(tmp_path / "rows.csv"), "--label-column", "price", "--task", "regression", "--base", str(base)]
    words += ["--test", "later.csv", "--out", str(tmp_path / "suspects.csv")]
    found = json.loads(audited(*words, "--json").stdout)["suspects"]
    assert (found[0]["row"], found[0]["label"]) == (9, "99.5")
    assert abs(float(found[0]["suggested"]) - worth[GOOD[0]]) < 2
    assert found[0]["deviation"] > 10
    assert rows_of(tmp_path / "suspects.csv")[0]["deviation"] == f"{found[0]['deviation']:.4f}"
    done = audited(*words[:-2], "--apply", str(tmp_path / "suspects.csv"), "--out", str(tmp_path / "out.csv"))
    assert done.exit_code == 0, done.output
    assert rows_of(tmp_path / "out.csv")[8]["price"] == found[0]["suggested"]


def test_pairs_are_audited_and_corrected(base: Path, tmp_path: Path) -> None:
    lines = ["premise,hypothesis,label"]
    for i in range(1, 241):
        text, label = f"film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]},all in all", bool(i % 2) != (i in FLIPPED)
        lines.append(f"{text},{'yes' if label else 'no'}")
    table = tmp_path / "pairs.csv"
    table.write_text("\n".join(lines) + "\n")
    words = [str(table), "--base", str(base), "--test", "later.csv"]
    found = json.loads(audited(*words, "--out", str(tmp_path / "suspects.csv"), "--json").stdout)["suspects"]
    assert len({each["row"] for each in found} & set(FLIPPED)) >= 4
    done = audited(*words, "--apply", str(tmp_path / "suspects.csv"), "--out", str(tmp_path / "out.csv"))
    assert done.exit_code == 0, done.output
    assert rows_of(tmp_path / "out.csv")[40] == {**rows_of(table)[40], "label": "yes"}


def test_tags_of_words_are_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "names.conll").write_text("\n".join(f"Ada{i} B-PER\nleft O\n" for i in range(40)))
    said = audited(str(tmp_path / "names.conll"), "--base", str(base)).stderr
    assert (
        "the task of these labels is tag; this command takes classify, multilabel, regression and ordinal only" in said
    )


def test_a_label_of_one_text_is_not_judged(table: Path, base: Path) -> None:
    with table.open("a") as file:
        file.write('121,nothing like it,"rare","x"\n122,nothing LIKE it,"rare","x"\n')
    found = audit(LabelledConfig(train=str(table), test="later.csv"), [str(base)])
    assert "rare" not in {each.label for each in found.suspects}
    assert "Labels with one text only cannot be judged: rare." in found.notes


def test_bad_requests_name_the_remedy(table: Path, tmp_path: Path) -> None:
    assert "Missing DATA" in audited().stderr
    assert "--out takes a .csv file, not 'x.parquet'" in audited(str(table), "--out", "x.parquet").stderr
    assert "takes another file than those that are read" in audited(str(table), "--out", str(table)).stderr
