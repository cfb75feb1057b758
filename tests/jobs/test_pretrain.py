"""A corpus in, a language model out: through the command line, on sentences that can be counted by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.jobs.job import Kept
from headstart.jobs.pretrain import Pretraining
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch


def invoke(*words: object) -> Any:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of sentences in which each choice is as likely as the other."""
    folder = tmp_path_factory.mktemp("pretrain")
    text = " ".join(
        f"{who} {verb} the {pet}."
        for who in ("He and I", "He and she")
        for verb in ("hold", "rub")
        for pet in ("dog", "cat")
    )
    (folder / "corpus.txt").write_text(text)
    out = folder / "run"
    invoke("pretrain", folder / "corpus.txt", "--out", out, "--unit", "sentence", "--tokenizer", "word", "--size", "nano",
           "--steps", 200, "--batch-size", 8, "--lr", 3e-3, "--quiet",
           "--set", "data.valid_fraction=0", "--set", "model.dropout=0.0")  # fmt: skip
    return out


def test_the_loss_comes_down_to_the_entropy_of_the_corpus(run: Path) -> None:
    train = Run.open(run).read_json("result.json")["train"]
    # Eight sentences of 8 predictions (end included), three of them a choice of two.
    assert train["entropy"] == pytest.approx(3 * 0.6931 / 8, abs=1e-3)
    assert train["entropy"] - 1e-6 <= train["loss"] <= train["entropy"] + 0.03


def test_the_result_has_the_loss_and_the_time_of_the_updates_that_were_logged(run: Path) -> None:
    curve = Run.open(run).read_json("result.json")["curve"]
    assert [point["step"] for point in curve] == [1, *range(10, 201, 10)]
    assert curve[0]["loss"] > 2.0 > 1.0 > curve[-1]["loss"]
    seconds = [point["seconds"] for point in curve]
    assert 0 < seconds[0] < seconds[-1]
    assert seconds == sorted(seconds)


def test_without_its_mask_a_model_sees_what_it_should_predict_and_cannot_write(run: Path, tmp_path: Path) -> None:
    config = ("--config", run / "config.toml", "--set", "model.causal=false", "--steps", 100)
    train = invoke("pretrain", *config, "--out", tmp_path / "unmasked", "--quiet")["train"]
    assert train["loss"] < train["entropy"] - 0.1  # below the floor of every model that predicts
    done = CliRunner().invoke(app, ["generate", str(tmp_path / "unmasked"), "He and"])
    assert (done.exit_code, "is bidirectional" in done.stderr) == (5, True)
    begun = Run.open(tmp_path / "unmasked").config
    assert isinstance(begun, PretrainConfig)
    assert (
        Pretraining.prepare(begun, Kept(begun), Watch()).cfg.objective == "causal"
    )  # a run that goes on does not become a masked one


def test_generated_tokens_carry_their_probabilities(run: Path) -> None:
    found = invoke("generate", run, "He and", "--tokens", 6, "--top", 3)
    first = found["tokens"][0]
    assert {t["token"] for t in first["top"][:2]} == {" I", " she"}
    assert all(abs(t["probability"] - 0.5) < 0.1 for t in first["top"][:2])
    assert first["probability"] == max(t["probability"] for t in first["top"])
    assert found["text"].startswith("He and ")
    assert found["text"].endswith(".")
    assert len(found["tokens"]) == 6  # "I hold the dog ." and the end


def test_the_table_is_drawn(run: Path, tmp_path: Path) -> None:
    plain = CliRunner().invoke(
        app, ["generate", str(run), "He and", "--top", "2", "--plot", str(tmp_path / "table.png")]
    )
    assert plain.exit_code == 0, plain.output
    assert "chosen" in plain.stdout
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_repeats_the_training_loss(run: Path) -> None:
    again = invoke("evaluate", run, run.parent / "corpus.txt")
    result = Run.open(run).read_json("result.json")
    assert again["loss"] == pytest.approx(result["train"]["loss"], abs=1e-6)
    assert again["entropy"] == pytest.approx(result["train"]["entropy"])


def test_everything_a_reader_needs_is_in_the_run_directory(run: Path) -> None:
    names = {p.name for p in run.iterdir()}
    assert names >= {"config.toml", "env.json", "data.json", "log.jsonl", "model", "result.json", "tensorboard"}
    assert "checkpoints" not in names
    config = Run.open(run).config
    assert isinstance(config, PretrainConfig)
    assert config.model.vocab == read_model(run / "model").tokenizer.size
    samples = [r for r in Run.open(run).read_lines("log.jsonl") if r["split"] == "sample"]
    assert samples[-1]["text"].startswith("He and")


@pytest.mark.parametrize("preset", ["gpt", "bert"])
def test_plain_transformers_opens_the_model_and_agrees(preset: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    import torch
    from torch.testing import assert_close

    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog " * 40)
    objective = "causal" if preset == "gpt" else "masked"
    invoke("pretrain", tmp_path / "text.txt", "--out", tmp_path / "run", "--size", "nano", "--context", 16, "--steps", 5,
           "--objective", objective, "--preset", preset, "--quiet", "--set", "train.tensorboard=false")  # fmt: skip
    auto = transformers.AutoModelForCausalLM if preset == "gpt" else transformers.AutoModelForMaskedLM
    theirs = auto.from_pretrained(tmp_path / "run" / "model").eval()
    ours = read_model(tmp_path / "run" / "model")
    ids = torch.tensor(ours.tokenizer.encode(["the lazy dog jumps"])[0].tolist())[None]
    with torch.no_grad():
        mine = ours.model(ids, torch.ones_like(ids, dtype=torch.bool))
        assert_close(theirs(ids).logits, mine, atol=1e-5, rtol=1e-4)


def test_documents_hold_out_their_last_tenth(tmp_path: Path) -> None:
    text = "".join(chr(ord("a") + i * i % 26) for i in range(3000))
    (tmp_path / "text.txt").write_text(text)
    found = invoke("pretrain", tmp_path / "text.txt", "--out", tmp_path / "run", "--tokenizer", "char", "--size", "nano",
                   "--context", 32, "--steps", 5, "--quiet", "--set", "train.tensorboard=false")  # fmt: skip
    data = Run.open(tmp_path / "run").read_json("data.json")
    assert data["tokens"] == {"train": 2702, "valid": 302}  # characters, and a start and an end
    assert found["valid"]["bits_per_byte"] == pytest.approx(found["valid"]["loss"] / 0.6931 * 301 / 300, rel=1e-3)


def test_bits_a_byte_stand_beside_those_of_xz_and_of_the_untrained_model(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 100)
    found = invoke("pretrain", tmp_path / "text.txt", "--out", tmp_path / "run", "--size", "nano", "--context", 32,
                   "--steps", 40, "--lr", 3e-3, "--quiet", "--set", "train.tensorboard=false")  # fmt: skip
    assert found["beside"]["untrained"] > found["valid"]["bits_per_byte"]
    assert 0 <= found["beside"]["xz"] < 2


def test_runs_are_listed_with_their_scores(run: Path) -> None:
    (listed,) = invoke("runs", run.parent)
    assert listed["run"] == str(run)
    assert (listed["job"], listed["state"], listed["steps"]) == ("pretrain", "finished", 200)
    plain = CliRunner().invoke(app, ["runs", str(run.parent)])
    assert "finished" in plain.stdout


def test_token_vectors_can_be_counted_instead_of_drawn(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(
        "\n".join(
            f"the {animal} sat on {n} {what}s"
            for animal in ("cat", "dog")
            for n in range(50)
            for what in ("mat", "log")
        )
    )
    job = ["pretrain", tmp_path / "text.txt", "--unit", "line", "--tokenizer", "word", "--size", "nano", "--context", 16,
           "--quiet", "--set", "train.tensorboard=false", "--start", "cooccurrence"]  # fmt: skip
    unmeasured = invoke(
        *job, "--objective", "masked", "--steps", 0, "--set", "data.valid_fraction=0", "--out", tmp_path / "u"
    )
    assert unmeasured["curve"] == []  # nothing was logged at all
    found = invoke(*job, "--steps", 0, "--out", tmp_path / "counted")
    assert (found["steps"], found["tokens"], found["curve"]) == (0, 0, [])
    counted = read_model(tmp_path / "counted" / "model")
    tokens = counted.model.base.get_parameter("tokens.weight").detach()
    cat, dog, sat = (counted.tokenizer.encode([word], boundaries=False)[0][0] for word in ("cat", "dog", "sat"))
    alike = tokens @ tokens.T / (tokens.norm(dim=1, keepdim=True) * tokens.norm(dim=1)).clamp(min=1e-9)
    assert alike[cat, dog] > alike[cat, sat] + 0.2
    assert float(tokens.square().mean().sqrt()) == pytest.approx(0.1, rel=1e-3)
    assert invoke(*job, "--steps", 20, "--out", tmp_path / "run")["valid"]["loss"] < found["valid"]["loss"]


def test_vectors_are_counted_where_the_text_is_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("a b c d e f\n" * 30)
    words = ["pretrain", tmp_path / "text.txt", "--tokenizer", "word", "--size", "nano", "--context", 8, "--steps", 1]
    for least, start in ((10_000, "random"), (100, "cooccurrence")):
        monkeypatch.setattr("headstart.bases.cooccurrence_start.FEWEST_TOKENS", least)
        invoke(*words, "--out", tmp_path / start, "--quiet")
        assert Run.open(tmp_path / start).read_json("data.json")["counted_vectors"] == (start == "cooccurrence")
    sizes = [read_model(tmp_path / s / "model").model.base.embedding.weight.std() for s in ("random", "cooccurrence")]
    assert sizes[1] > 2 * sizes[0]


def test_a_random_start_has_to_learn_something(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c d e f\n" * 30)
    done = CliRunner().invoke(
        app, ["pretrain", str(tmp_path / "text.txt"), "--steps", "0", "--out", str(tmp_path / "run")]
    )
    assert done.exit_code == 4
    assert "0 needs start = cooccurrence" in done.stderr


def test_word_vectors_made_elsewhere_take_half_of_each(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on a mat\nthe dog sat on a log\n" * 30)
    rng, words = np.random.default_rng(0), ("the", "cat", "dog", "on", "a", "mat", "log")
    numbers = {word: rng.normal(size=8) for word in words}
    numbers["dog"] = numbers["mat"]  # as no text says
    lines = "".join(f"{word} {' '.join(map(str, v))}\n" for word, v in numbers.items())
    (tmp_path / "known.vec").write_text(f"7 8\n{lines}")
    job = ["pretrain", tmp_path / "text.txt", "--unit", "line", "--tokenizer", "word", "--set", "tokenizer.lower=true",
           "--size", "nano", "--context", 16, "--vectors", tmp_path / "known.vec", "--steps", 0, "--quiet",
           "--set", "data.valid_fraction=0"]  # fmt: skip
    invoke(*job, "--out", tmp_path / "run")
    facts = Run.open(tmp_path / "run").read_json("data.json")
    assert facts["counted_vectors"]
    assert facts["known_tokens"] == 7
    assert facts["files"][-1]["sha256"] == hashlib.sha256((tmp_path / "known.vec").read_bytes()).hexdigest()
    assert "Word vectors: known.vec." in (tmp_path / "run" / "model" / "README.md").read_text()
    made = read_model(tmp_path / "run" / "model")
    tokens = made.model.base.get_parameter("tokens.weight").detach()
    dog, mat, sat = (made.tokenizer.encode([word], boundaries=False)[0][0] for word in ("dog", "mat", "sat"))
    assert torch.equal(tokens[dog, -8:], tokens[mat, -8:])
    assert not tokens[sat, -8:].any()
    assert tokens[sat, :-8].any()


@pytest.mark.parametrize("more", [["--start", "random"], ["--base", "RUN"]])
def test_vectors_stand_beside_counted_ones_only(more: list[str], run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c d e f\n" * 30)
    (tmp_path / "known.vec").write_text("a 1 2\n")
    words = [str(run) if word == "RUN" else word for word in more]
    job = ["pretrain", str(tmp_path / "text.txt"), "--vectors", str(tmp_path / "known.vec"), *words]
    done = CliRunner().invoke(app, [*job, "--out", str(tmp_path / "out")])
    assert done.exit_code == 4
    assert "vectors extend co-occurrence embeddings" in done.stderr


def test_a_resumed_run_remembers_its_word_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("a b c d e f\n" * 300)
    (tmp_path / "known.vec").write_text("a 1 2\nb 2 1\n")
    job = ["pretrain", tmp_path / "text.txt", "--tokenizer", "word", "--size", "nano", "--context", 8, "--steps", 4,
           "--set", "train.checkpoint_every=1", "--set", "tokenizer.lower=true", "--vectors", tmp_path / "known.vec",
           "--out", tmp_path / "run", "--quiet"]  # fmt: skip
    with monkeypatch.context() as broken:
        broken.setattr("headstart.jobs.pretrain.Pretraining.final_training_loss", lambda job: 1 / 0)
        assert CliRunner().invoke(app, [*map(str, job)]).exit_code == 1
    before = Run(tmp_path / "run").read_json("data.json")
    invoke("pretrain", "--out", tmp_path / "run", "--resume", "--quiet")
    assert Run.open(tmp_path / "run").read_json("data.json") == before
    assert before["known_tokens"] == 2


def test_word_vectors_that_are_not_there_are_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c d e f\n" * 300)
    job = ["pretrain", tmp_path / "text.txt", "--vectors", tmp_path / "no.vec", "--out", tmp_path / "run"]
    done = CliRunner().invoke(app, [*map(str, job)])
    assert done.exit_code == 3
    assert "no.vec: no such file, and no such pack." in done.stderr
