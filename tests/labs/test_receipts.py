"""Runs that are handed in: a run of one's own counts; a copied or edited one is found, and by what."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.config import FinetuneConfig, PretrainConfig
from headstart.labs.assignment import seed_of, start
from headstart.labs.grade import grade
from headstart.schema import parse

LAB = """
title = "Reach"
question = "Can you?"

[[task]]
name = "tuned"
kind = "reach"
ask = "Classify the rows."
points = 5
command = "headstart finetune rows.csv --base base --seed {seed} --out runs/tuned"
run = "runs/tuned"
score = "test.accuracy"
least = 0.4
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab, its key, and the folder of alice, whose classifier has trained for two steps."""
    from headstart.jobs.finetune import finetune
    from headstart.jobs.pretrain import pretrain

    root = tmp_path_factory.mktemp("reach")
    (root / "reach.toml").write_text(LAB)
    (root / "key.toml").write_text('lab = "reach.toml"')
    folder = start(str(root / "reach.toml"), "alice", root / "alice")
    rows = [f"the film number {n} was {'good' if n % 2 else 'bad'},{'pos' if n % 2 else 'neg'}" for n in range(80)]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]))
    (folder / "corpus.txt").write_text("\n".join(row.split(",")[0] for row in rows))
    train = {"steps": 2, "batch_size": 4, "eval_every": 2, "threads": 1, "tensorboard": False}
    shape = {"size": "nano", "context": 32}
    data = {"paths": [str(folder / "corpus.txt")], "unit": "line"}
    settings = {"data": data, "train": train, "samples": [], "model": shape}
    pretrain(parse(PretrainConfig, settings), folder / "base")
    tuning = {"base": str(folder / "base"), "data": {"train": str(folder / "rows.csv")}}
    own = {**train, "seed": seed_of("reach", "alice")}
    finetune(parse(FinetuneConfig, {**tuning, "train": own}), folder / "runs" / "tuned")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "root")
    return tmp_path / "root"


def test_a_run_of_ones_own_counts(root: Path) -> None:
    (found,) = grade([root / "alice"], root / "key.toml")
    assert (found.points, found.findings) == (5, [])
    assert found.tasks[0].note.startswith("test.accuracy is ")
    assert found.tasks[0].note.endswith("; its first step, run again, gives the same weights")


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text("utf-8")
    assert change(before) != before
    path.write_text(change(before))


def in_json(path: Path, change: Callable[[dict], None]) -> None:
    found = json.loads(path.read_text("utf-8"))
    change(found)
    path.write_text(json.dumps(found))


def lines(path: Path, change: Callable[[list[dict]], None]) -> None:
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(found)
    path.write_text("".join(json.dumps(line) + "\n" for line in found))


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def better_rows(rows: list[dict]) -> None:
    """Every test row right, its probabilities too."""
    for row in rows:
        row["prediction"] = row["label"]
        row["probabilities"] = {label: 0.9 if label == row["label"] else 0.1 for label in row["probabilities"]}


def forge(run: Path) -> None:
    """The score and the test rows agree; the weights do not."""
    lines(run / "predictions.jsonl", better_rows)
    in_json(run / "result.json", lambda found: found["test"].update(accuracy=1.0))


def one_more(rows: list[dict]) -> None:
    rows[0]["prediction"] = next(label for label in rows[0]["probabilities"] if label != rows[0]["prediction"])


def other_weights(rows: list[dict]) -> None:
    next(row for row in rows if row["split"] == "receipt").update(weights_sha256="0" * 64)


def another_processor(rows: list[dict]) -> None:
    next(row for row in rows if row["split"] == "receipt").update(processor="another")


UNJUDGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "another processor": (lambda run: lines(run / "log.jsonl", another_processor), "cannot be judged here: processor another -> "),
    "a log of an older version": (lambda run: lines(run / "log.jsonl", lambda rows: rows.remove(next(r for r in rows if r["split"] == "receipt"))), "cannot be judged: log.jsonl has no SHA-256"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNJUDGED)
def test_a_first_step_that_cannot_be_judged_is_said_to_be_so(what: str, root: Path) -> None:
    change, says = UNJUDGED[what]
    change(root / "alice" / "runs" / "tuned")
    (found,) = grade([root / "alice"], root / "key.toml")
    assert (found.points, found.findings) == (5, [])
    assert says in found.tasks[0].note


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a better score": (
        lambda run: in_json(run / "result.json", lambda found: found["test"].update(accuracy=0.99)),
        "is not the accuracy in result.json",
    ),
    "a test row": (lambda run: lines(run / "predictions.jsonl", one_more), "not the accuracy in result.json"),
    "score and test rows": (forge, "do not give the probabilities"),
    "the log": (
        lambda run: lines(run / "log.jsonl", lambda rows: [row.update(loss=0.1) for row in rows] and None),
        "log.jsonl and result.json disagree about the validation",
    ),
    "the end of the log": (
        lambda run: lines(run / "log.jsonl", lambda rows: rows.__delitem__(slice(1, None))),
        "log.jsonl does not end at step 2",
    ),
    "the weights": (
        lambda run: flip(run / "model" / "model.safetensors"),
        "model/ was changed: model.safetensors is not what was written",
    ),
    "the manifest": (lambda run: (run / "model" / "MANIFEST.json").unlink(), "MANIFEST.json is missing"),
    "a run of another text under this seed": (
        lambda run: lines(run / "log.jsonl", other_weights),
        "its first step, run again with its settings and data, gives other weights",
    ),
    "the seed": (
        lambda run: in_json(run / "env.json", lambda found: found.update(seed=1)),
        "its files name different seeds",
    ),
    "the settings": (
        lambda run: in_json(run / "env.json", lambda found: found["asked"]["train"].update(seed=1)),
        "its settings are not those that the run began with",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_run_is_found_and_gets_no_points(what: str, root: Path) -> None:
    change, says = EDITS[what]
    change(root / "alice" / "runs" / "tuned")
    (found,) = grade([root / "alice"], root / "key.toml")
    assert found.points == 0
    assert any(says in each for each in found.findings), found.findings


def test_the_run_of_another_student_is_found(root: Path) -> None:
    start(str(root / "reach.toml"), "bob", root / "bob")
    shutil.copytree(root / "alice" / "runs", root / "bob" / "runs")
    alice, bob = grade([root / "alice", root / "bob"], root / "key.toml")
    assert (alice.points, bob.points) == (5, 0)
    assert [each.partition(",")[0] for each in bob.findings] == [f"runs/tuned: its seed is {seed_of('reach', 'alice')}"]


def test_a_link_to_another_run_is_not_followed(root: Path) -> None:
    start(str(root / "reach.toml"), "bob", root / "bob")
    (root / "bob" / "runs").symlink_to(root / "alice" / "runs")
    (bob,) = grade([root / "bob"], root / "key.toml")
    assert (bob.points, bob.findings) == (0, ["runs/tuned is a link that leads out of the folder"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: shutil.rmtree(run), "there is no run runs/tuned yet"),
        (lambda run: (run / "result.json").unlink(), "this run is not finished"),
        (lambda run: (run / "env.json").unlink(), "this folder is not a run"),
    ],
)
def test_a_run_that_is_not_finished_gets_no_points(change: Callable[[Path], None], says: str, root: Path) -> None:
    change(root / "alice" / "runs" / "tuned")
    (found,) = grade([root / "alice"], root / "key.toml")
    assert found.points == 0
    assert says in found.tasks[0].note
    assert not found.findings


def test_a_score_that_is_not_reached_gets_no_points(root: Path) -> None:
    edit(root / "reach.toml", lambda text: text.replace("least = 0.4", "least = 1.1"))
    (found,) = grade([root / "alice"], root / "key.toml")
    assert found.points == 0
    assert "at least 1.1 is asked for" in found.tasks[0].note
