"""The translation job: it learns, resumes to the last bit, and keeps what its use needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from headstart.config import TranslateConfig
from headstart.errors import ModelError, Stopped
from headstart.schema import parse
from headstart.train.estimate import estimate
from headstart.train.run import Run
from headstart.train.translate import read_translator, translate
from headstart.train.watch import Watch
from headstart.use.translate import Translations

KINDS = ["gru", "lstm-additive", "attention", "transformer"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """200 words of two syllables and what they are with the syllables swapped."""
    syllables = [c + v for c in "bdgkm" for v in "aeo"]
    rows = [f"{a}{b}\t{b}{a}" for a in syllables for b in syllables if a != b][:200]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(rows), "utf-8")
    return path


def settings(pairs: Path, **changes: Any) -> TranslateConfig:
    train = {"threads": 1, "tensorboard": False, "log_every": 5, **changes.pop("train", {})}
    model = {"hidden": 16, "layers": 1, "dropout": 0.1, **changes.pop("model", {})}
    data = {"pairs": [str(pairs)], **changes.pop("data", {})}
    return parse(TranslateConfig, {"epochs": 2, "data": data, "model": model, "train": train, **changes})


def test_a_transformer_learns_to_swap_syllables(pairs: Path, tmp_path: Path) -> None:
    result = translate(settings(pairs, model={"hidden": 32, "dropout": 0.0}, epochs=60), tmp_path / "run")
    assert result["test"]["exact_match"]["value"] > 0.8
    assert result["valid"]["loss"] < 0.3
    low, high = result["valid"]["loss_interval"]
    assert low <= result["valid"]["loss"] <= high
    model = Translations.load(tmp_path / "run")
    again = model.evaluate([pairs])
    assert again["exact_match"]["value"] > 0.9
    assert len(again["fails"]["worst"]) == min(10, again["fails"]["wrong"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_and_opens_with_the_same_translations(kind: str, pairs: Path, tmp_path: Path) -> None:
    result = translate(settings(pairs, model={"kind": kind}, samples=["bade", "koma"]), tmp_path / "run")
    model = Translations.load(tmp_path / "run")
    said = [record["translation"] for record in model.translate(["bade", "koma"])]
    assert said == list(result["samples"].values())
    log = list(Run.open(tmp_path / "run").read_lines("log.jsonl"))
    assert {r["step"] for r in log if r["split"] == "sample"} == {r["step"] for r in log if r["split"] == "valid"}
    assert sorted(p.name for p in (tmp_path / "run" / "model").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "target_tokenizer.json", "tokenizer.json",
    ]  # fmt: skip
    words = model.attention("bade koma", "words")
    assert [each.source for each in words] == ["bade", "koma"]
    assert set(words[0].maps) == {
        "gru": set(), "lstm-additive": {"cross"}, "attention": {"encoder", "decoder", "cross"},
        "transformer": {"encoder", "decoder", "cross"},
    }[kind]  # fmt: skip


class StopAt(Watch):
    def __init__(self, step: int) -> None:
        self.step = step

    def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
        import signal

        if done == self.step:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("kind", ["gru-additive", "transformer"])
def test_a_stopped_run_goes_on_to_the_same_bits(kind: str, pairs: Path, tmp_path: Path) -> None:
    cfg = settings(pairs, model={"kind": kind})
    translate(cfg, tmp_path / "whole")
    with pytest.raises(Stopped):
        translate(cfg, tmp_path / "cut", watch=StopAt(4))
    translate(cfg, tmp_path / "cut", resume=True)
    for name in ("model/model.safetensors", "model/tokenizer.json", "config.toml", "data.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    logs = [
        [
            {k: v for k, v in record.items() if k != "wall"}
            for record in Run.open(tmp_path / run).read_lines("log.jsonl")
        ]
        for run in ("whole", "cut")
    ]
    assert logs[0] == logs[1]


def test_pairs_that_do_not_fit_are_left_out_and_counted(pairs: Path, tmp_path: Path) -> None:
    with pairs.open("a", encoding="utf-8") as file:
        file.write("\n" + "\n".join(f"{'ba' * 20}{i}\tx" for i in range(40)))
    notes: list[str] = []
    watch = Watch()
    watch.note = notes.append  # type: ignore[method-assign]
    translate(settings(pairs, model={"context": 24}), tmp_path / "run", watch=watch)
    left_out = Run.open(tmp_path / "run").read_json("data.json")["left_out"]
    assert sum(left_out.values()) == 40
    assert any("longer than the context (24) were left out" in note for note in notes)


def test_two_vocabularies_of_different_kinds(tmp_path: Path) -> None:
    rows = [f"{a}{b}\t{a.upper()} {b.upper()}x" for a in "abcdefgh" for b in "ijklmnop"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows), "utf-8")
    translate(settings(tmp_path / "pairs.tsv", target={"kind": "word"}), tmp_path / "run")
    translator = read_translator(tmp_path / "run" / "model")
    assert translator.source.by_character
    assert translator.target.decode(translator.target.encode(["A Ix"], boundaries=False)[0]) == "A Ix"
    assert len(translator.target.encode(["A Ix"], boundaries=False)[0]) == 2


def test_the_estimate_is_of_this_job(pairs: Path) -> None:
    cost = estimate(settings(pairs))
    assert cost["job"] == "translate"
    assert (cost["steps"], cost["texts"]) == (2 * 3, 162)
    assert cost["parameters"] == cost["trained_parameters"] > 1000


def test_a_model_with_another_tokenizer_is_refused(pairs: Path, tmp_path: Path) -> None:
    translate(settings(pairs, target={"kind": "word"}), tmp_path / "run")
    folder = tmp_path / "run" / "model"
    shutil.copy(folder / "tokenizer.json", folder / "target_tokenizer.json")
    with pytest.raises(ModelError, match=r"target_tokenizer.json has \d+ entries, the model \d+"):
        read_translator(folder)
