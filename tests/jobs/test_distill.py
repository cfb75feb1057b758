"""A small base learns what a larger one says of texts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.bases.pretrained import open_base
from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.errors import ConfigError
from headstart.jobs.estimate import estimate
from headstart.jobs.job import prepare
from headstart.jobs.pretrain import pretrain
from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.study.plan import StudyConfig
from headstart.tasks.distill import SHORTEST, TaughtText, Teacher

WORDS = {"pets": "dog cat bird fish mouse", "food": "bread apple cheese soup rice", "sky": "cloud star moon sun rain"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of which each speaks of one thing."""
    torch.manual_seed(0)
    lines = []
    for i in range(60):
        words = list(WORDS.values())[i % 3].split()
        lines.append(" ".join(words[int(k)] for k in torch.randint(5, (20,))))
    file = tmp_path_factory.mktemp("distill") / "corpus.txt"
    file.write_text("\n".join(lines))
    return file


def settings(corpus: Path, **more: Any) -> PretrainConfig:
    train = {"steps": 60, "batch_size": 4, "lr": 3e-3, "tensorboard": False}
    model = {"size": "nano", "layers": 1, "width": 32, "heads": 2, "context": 64, "dropout": 0.0}
    given = {"data": {"paths": [str(corpus)]}, "tokenizer": {"kind": "word"}, "model": model, **more}
    return parse(PretrainConfig, {**given, "train": {**train, **more.get("train", {})}})


@pytest.fixture(scope="module")
def teacher(corpus: Path) -> Path:
    """A base that has counted which words stand together."""
    out = corpus.parent / "teacher"
    pretrain(settings(corpus, objective="masked", start="cooccurrence", train={"steps": 0}), out)
    return out


def base_of(run: Path) -> str:
    return fingerprint(weights(open_base(str(run)).model.base))


def distilling(corpus: Path, teacher: Path, **more: Any) -> PretrainConfig:
    return settings(corpus, objective="distill", teacher=str(teacher), start="random", **more)


def test_the_student_comes_to_say_what_the_teacher_says(corpus: Path, teacher: Path, tmp_path: Path) -> None:
    before = base_of(teacher)
    result = pretrain(distilling(corpus, teacher, train={"steps": 100}), tmp_path / "run")
    first = next(r for r in Run.open(tmp_path / "run").read_lines("log.jsonl") if r["split"] == "valid")
    assert first["similarity"] < 0.5 < 0.9 < result["valid"]["similarity"]
    assert base_of(teacher) == before
    # What is kept is a base like any other, with the weights that learned.
    assert base_of(tmp_path / "run") != fingerprint(weights(prepare(distilling(corpus, teacher)).model.base))


def test_the_teacher_is_asked_once_of_what_is_measured_again_and_again(
    corpus: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked, vectors = prepare(distilling(corpus, teacher)), [], Teacher.vectors

    def heard(self: Teacher, texts: Sequence[str]) -> torch.Tensor:
        asked.append(len(texts))
        return vectors(self, texts)

    monkeypatch.setattr(Teacher, "vectors", heard)
    first, again = list(job.valid.measured()), list(job.valid.measured(10**9))
    assert len(asked) == len(first) == len(again)


def test_a_teacher_is_asked_of_few_batches_to_know_what_fits(
    corpus: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, vectors = [], Teacher.vectors

    def heard(self: Teacher, texts: Sequence[str]) -> torch.Tensor:
        asked.append(len(texts))
        time.sleep(0.02)
        return vectors(self, texts)

    monkeypatch.setattr(Teacher, "vectors", heard)
    monkeypatch.setattr("headstart.jobs.estimate.TIMED", 0.1)
    cost = estimate(distilling(corpus, teacher))
    assert cost["gathering_seconds"] > 0.02
    assert len(asked) < 20


def test_a_causal_student_and_a_short_context_are_taught_too(corpus: Path, teacher: Path, tmp_path: Path) -> None:
    shape = {"preset": "gpt", "size": "nano", "layers": 1, "width": 32, "heads": 2}

    def taught(context: int) -> dict[str, Any]:
        more = {"model": {**shape, "context": context}, "train": {"steps": 1}}
        return pretrain(distilling(corpus, teacher, **more), tmp_path / str(context))

    assert taught(3)["steps"] == 1
    with pytest.raises(ConfigError, match="--context 3, or more"):
        taught(2)


def test_pieces_of_a_batch_are_texts_of_one_length_between_a_start_and_an_end(corpus: Path, teacher: Path) -> None:
    job = prepare(distilling(corpus, teacher))
    assert isinstance(job.text, TaughtText)
    tokenizer, lengths = job.tokenizer, set()
    for i in range(20):
        batch = job.batches(i)
        assert (batch.ids[:, 0] == tokenizer.start).all()
        whole = batch.mask.all(1)
        assert (batch.ids[whole, -1] == tokenizer.end).all()
        assert batch.target.shape == (len(batch.ids), 32)
        torch.testing.assert_close(batch.target.norm(dim=1), torch.ones(len(batch.ids)))
        lengths.add(batch.ids.size(1) - 2)
    assert lengths == {SHORTEST, 2 * SHORTEST, 64 - 2}  # the whole context, with a start and an end


def test_the_target_is_the_teachers_mean_over_the_text(corpus: Path, teacher: Path) -> None:
    job = prepare(distilling(corpus, teacher))
    assert isinstance(job.text, TaughtText)
    saved = open_base(str(teacher))
    text = "dog cat moon"
    rows = saved.tokenizer.encode([text])
    states = saved.model.base(torch.as_tensor(rows[0]).long()[None], torch.ones(1, len(rows[0]), dtype=torch.bool)).last
    mean = states[0].mean(0)
    torch.testing.assert_close(job.text.teacher.vectors([text, "rain " * 30])[0], mean / mean.norm(), atol=1e-5, rtol=0)


def test_a_stopped_distillation_goes_on_to_the_same_weights(corpus: Path, teacher: Path, tmp_path: Path) -> None:
    short = {"steps": 12, "checkpoint_every": 3, "eval_every": 6, "keep_checkpoints": True}
    pretrain(distilling(corpus, teacher, train=short), tmp_path / "whole")
    pretrain(distilling(corpus, teacher, train=short), tmp_path / "again")
    for name in ("result.json", "model/model.safetensors"):
        (tmp_path / "again" / name).unlink()
    for late in sorted((tmp_path / "again" / "checkpoints").iterdir())[1:]:
        for file in late.iterdir():
            file.unlink()
        late.rmdir()
    pretrain(distilling(corpus, teacher, train=short), tmp_path / "again", resume=True)
    assert base_of(tmp_path / "whole") == base_of(tmp_path / "again")


def test_a_distilled_base_predicts_no_tokens(corpus: Path, teacher: Path, tmp_path: Path) -> None:
    pretrain(distilling(corpus, teacher, train={"steps": 1}), tmp_path / "run")
    run, out = str(tmp_path / "run"), str(tmp_path / "out.onnx")
    exports = [["export", run, "--to", to, "--out", out] for to in ("hf", "onnx")]
    for verb in (["generate", run, "dog"], ["evaluate", run, str(corpus)], *exports):
        done = CliRunner().invoke(app, verb)
        assert done.exit_code != 0
        assert "was distilled and predicts no tokens" in done.stderr


def test_a_teacher_and_the_objective_distill_go_together(corpus: Path, tmp_path: Path) -> None:
    for words in (["--objective", "distill"], ["--teacher", "minilm"]):
        done = CliRunner().invoke(app, ["pretrain", str(corpus), "--out", str(tmp_path / "run"), *words])
        assert done.exit_code == 4
        assert "needs a teacher" in done.stderr


def test_what_was_reached_is_said(corpus: Path, teacher: Path, tmp_path: Path) -> None:
    words = ["pretrain", str(corpus), "--objective", "distill", "--teacher", str(teacher), "--steps", "2", "--size", "nano",
             "--tokenizer", "word", "--context", "32", "--batch-size", "4", "--out", str(tmp_path / "run")]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    valid = json.loads((tmp_path / "run" / "result.json").read_text())["valid"]
    assert f"cosine with its vectors of the validation text {valid['similarity']:.3f}" in done.stdout


def test_a_study_gives_the_teacher_to_the_objective_that_has_one(corpus: Path, teacher: Path) -> None:
    own = {"data": {"paths": [str(corpus)]}, "teacher": str(teacher)}
    study = parse(StudyConfig, {"data": {"train": "rows.csv"}, "pretrain": own, "objectives": ["causal", "distill"]})
    assert study.pretraining("causal").teacher is None
    assert study.pretraining("distill").teacher == str(teacher)
