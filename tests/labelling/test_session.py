"""A labelling session from its start to the table that the other verbs read."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, DataError, ModelError, UserError
from headstart.labelling.features import Features
from headstart.labelling.session import REFIT, Session
from headstart.labelling.start import start
from headstart.labelling.table import labelled_csv
from headstart.text.read import read_labelled
from tests.labelling.conftest import TRUTH, WORDS, texts


def answer(session: Session, count: int) -> None:
    """Label so many rows as they are asked for."""
    for _ in range(count):
        [item] = session.next()
        session.add(item.row, TRUTH[item.row], "me")


def test_it_learns_from_the_rows_that_it_asks_for(session: Session) -> None:
    answer(session, 80)
    found = session.status()
    assert (found.labelled, found.random, found.skipped) == (80, 20, 0)
    assert sum(found.counts.values()) == 80
    last = found.curve[-1]
    assert last.labels == 80
    assert last.low < last.accuracy <= last.high
    assert last.accuracy > 0.8
    assert [each.labels for each in found.expected] == [50, 100]
    assert found.advice.startswith(("Go on: 50 more labels give", "Stop: 100 more labels give"))
    assert found.seconds < 2


def test_it_begins_with_every_class(session: Session) -> None:
    answer(session, 10)
    assert all(session.status().counts.values())


def test_another_process_goes_on_where_it_was(session: Session) -> None:
    answer(session, 23)
    other = Session.open(session.path)
    assert other.next(8) == session.next(8)
    assert other.status().model_dump(exclude={"seconds"}) == session.status().model_dump(exclude={"seconds"})
    other.add(other.next()[0].row, "food", "you")
    assert session.counts() == (24, 0)


def test_rows_are_chosen_anew_after_ten_labels_and_not_before(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []
    fit = session.classifier.fit
    monkeypatch.setattr(
        session.classifier, "fit", lambda rows, targets: (fits.append(len(rows)), fit(rows, targets))[1]
    )
    answer(session, 3 * REFIT + 1)
    assert fits == [0, 7, 15, 22]  # of the labels outside of the random part


def test_what_is_chosen_does_not_depend_on_the_labels_of_the_random_part(
    session: Session, file: Path, tmp_path: Path
) -> None:
    """Otherwise the accuracy that is measured on them comes out too low."""
    other = start(file, list(WORDS), tmp_path / "other", "tfidf")
    for _ in range(50):
        [one], [two] = session.next(), other.next()
        assert one == two
        session.add(one.row, TRUTH[one.row], "me")
        other.add(two.row, "food" if two.random else TRUTH[two.row], "me")


def test_skip_and_undo(session: Session) -> None:
    [first] = session.next()
    session.skip(first.row, "me")
    assert session.next()[0].row != first.row
    assert session.counts() == (0, 1)
    session.undo(first.row, "me")
    assert session.next() == [first]


def test_each_text_is_asked_for_once_and_blank_ones_never(tmp_path: Path) -> None:
    rows = [text for text, _ in texts(40)]
    (tmp_path / "t.csv").write_text(
        "text\n" + "\n".join([*rows, '" "', rows[0].upper(), f"{rows[1]}  "]) + "\n", "utf-8"
    )
    found = start(tmp_path / "t.csv", ["a", "b"], tmp_path / "out", "tfidf")
    assert found.record.rows == 40
    assert sorted(item.row for item in found.next(100)) == list(range(1, 41))


def test_rare_line_separators_are_part_of_a_text(tmp_path: Path) -> None:
    odd = "\x85\u2028\x0b\x1c"
    (tmp_path / "texts.csv").write_text("text\n" + "".join(f"soup{odd}{i}\n" for i in range(30)))
    session = start(tmp_path / "texts.csv", ["good", "bad"], tmp_path / "session", base="tfidf")
    [item] = Session.open(session.path).next()
    assert item.text.startswith(f"soup{odd}")
    session.add(item.row, "bad", "me")
    assert Session.open(session.path).status().counts["bad"] == 1


def test_labels_that_the_file_has_are_taken(tmp_path: Path) -> None:
    rows = texts(60)
    lines = [f"{text},{topic if i % 3 == 0 else ''}" for i, (text, topic) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("text,topic\n" + "\n".join(lines) + "\n", "utf-8")
    found = start(tmp_path / "t.csv", [], tmp_path / "out", "tfidf", label_column="topic")
    assert found.record.labels == ["food", "sport", "tech"]
    assert found.counts() == (20, 0)
    assert found.status().random == 0  # nobody knows how those rows were chosen
    assert all(item.row % 3 != 1 for item in found.next(40))


def test_the_table_is_one_that_other_verbs_read(session: Session, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row is labelled yet"):
        labelled_csv(session)
    with pytest.raises(DataError, match="Label some random rows first"):
        labelled_csv(session, random=True)
    answer(session, 24)
    whole, chosen, random = (labelled_csv(session, part) for part in (None, False, True))
    assert (whole.rows, chosen.rows, random.rows) == (24, 18, 6)
    (tmp_path / "labelled.csv").write_text(whole.csv, "utf-8")
    assert {(e.text, e.label) for e in read_labelled(tmp_path / "labelled.csv", None, None)} <= set(texts(150))


def test_zero_shot_answers_start_the_loop(session: Session) -> None:
    """With a language head the first rows are those that it is unsure of, and its answers stay a feature."""
    import headstart.labelling.query as query
    from headstart.labelling.classifier import Classifier

    rng = np.random.default_rng(0)
    truth = np.array([list(WORDS).index(TRUTH[row]) for row in session.numbers])
    words = rng.dirichlet([1, 1, 1], 150) * 0.5
    words[np.arange(150), truth] += 0.5
    plain = session.classifier
    session.classifier = Classifier(Features(plain.inputs, words.astype(np.float32)), 3)
    assert session.classifier.inputs.shape[1] == plain.inputs.shape[1] + 3
    assert session.status().zero_shot
    first = [session.places[item.row] for item in session.next(8) if not item.random]
    unsure = np.argsort(-query.margins(words))[: query.SPREAD * query.BATCH]
    assert set(first) <= set(unsure.tolist())
    answer(session, query.START)
    hits = {}
    for name, classifier in (("plain", plain), ("zero-shot", session.classifier)):
        rows = [session.places[a.row] for a in session.journal.labelled()]
        model = classifier.fit(rows, truth[rows].tolist())
        hits[name] = (classifier.predicted(model, range(150), 0) == truth).mean()
    assert hits["zero-shot"] > hits["plain"]
    untouched = Session.open(session.path)
    assert untouched.classifier.probabilities(None) is None
    assert session.classifier.probabilities(None) is not None


def test_a_fit_of_thousands_of_labels_takes_less_than_two_seconds() -> None:
    from headstart.labelling.classifier import Classifier

    rng = np.random.default_rng(0)
    targets = rng.integers(0, 3, 3000)
    vectors = rng.normal(0, 1, (10_000, 384)).astype(np.float32) / 20
    vectors[:3000, :3] += np.eye(3, dtype=np.float32)[targets] / 4
    classifier = Classifier(Features(vectors, np.zeros((10_000, 0), np.float32)), 3)
    began = time.process_time()
    classifier.probabilities(classifier.fit(range(3000), targets.tolist()))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("labels", "says"),
    [(["a"], "1 label; labelling needs 2 to 50"), (["a", " b"], "cannot be a label"), (["a", "b\nc"], "cannot be a label"), (["a", "x" * 61], "cannot be a label"), (["a", "\u202eb"], "cannot be a label")],
)  # fmt: skip
def test_labels_that_cannot_be_used_are_refused(file: Path, tmp_path: Path, labels: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        start(file, labels, tmp_path / "out", "tfidf")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_replaced(session: Session, file: Path) -> None:
    with pytest.raises(UserError, match="is there already"):
        start(file, ["a", "b"], session.path, "tfidf")


@pytest.mark.parametrize("name", ["labelling.json", "texts.jsonl", "features.safetensors", "labels.csv"])
@pytest.mark.parametrize("how", ["missing", "cut", "garbage"])
def test_a_damaged_session_is_named(session: Session, name: str, how: str) -> None:
    file = session.path / name
    data = file.read_bytes()
    file.unlink() if how == "missing" else file.write_bytes(
        data[: len(data) // 2] if how == "cut" else b"\xff\x00garbage\n"
    )
    code = "LABELLING_MISSING" if (name, how) == ("labelling.json", "missing") else "LABELLING_DAMAGED"
    with pytest.raises(ModelError) as caught:
        Session.open(session.path).next()
    assert caught.value.code == code


def test_the_verbs_label_rows(file: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "s")

    def run(*words: str, exit_code: int = 0) -> str:
        done = CliRunner().invoke(app, ["label", *words])
        assert done.exit_code == exit_code, done.output
        return done.output

    told = run("start", str(file), "--labels", "food,sport,tech", "--base", "tfidf", "--out", out)
    assert "150 rows to label as food, sport, tech; features of tfidf" in told
    for _ in range(50):
        row = run("next", out).split("\t")[0]
        run("add", out, row, TRUTH[int(row)])
    assert "50 labels, 0 skipped" in run("add", out, row, TRUTH[int(row)])
    assert "49 labels" in run("add", out, row, "--undo")
    assert "49 labels, 1 skipped" in run("add", out, row, "--skip")
    told = run("status", out)
    assert "49 labels of 150 rows (food " in told
    assert "measured on 13 random rows" in told
    assert "more labels give" in told
    told = run("export", out, "--out", str(tmp_path / "train.csv"), "--test", str(tmp_path / "test.csv"))
    assert "train.csv: 36 rows" in told
    assert "Did you mean 'sport'?" in run("add", out, row, "sports", exit_code=3)
    run("add", out, "151", "food", exit_code=3)
    run("add", out, row, exit_code=2)
