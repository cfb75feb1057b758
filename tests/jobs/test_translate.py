"""The translation job: it learns, resumes to the last bit, and keeps what its use needs."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from headstart.bases.translator import Translation, read_translator
from headstart.config import TranslateConfig
from headstart.errors import DataError, ModelError, Stopped
from headstart.jobs.estimate import estimate
from headstart.jobs.job import prepare
from headstart.jobs.translate import translate
from headstart.runs.manifest import unverified
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.tasks.translate import source_rows
from headstart.use.translate import LoadedTranslator, best_joined

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


def test_a_transformer_learns_to_swap_syllables_and_is_scored_word_by_word(pairs: Path, tmp_path: Path) -> None:
    cfg = settings(pairs, model={"hidden": 32, "dropout": 0.0}, epochs=60, split="words")
    result = translate(cfg, tmp_path / "run")
    assert result["test"]["exact_match"]["value"] > 0.8
    assert result["valid"]["loss"] < 0.3
    low, high = result["valid"]["loss_interval"]
    assert low <= result["valid"]["loss"] <= high
    model = LoadedTranslator.load(tmp_path / "run")
    again = model.evaluate([pairs])
    assert again["exact_match"]["value"] > 0.9
    assert len(again["fails"]["worst"]) == min(10, again["fails"]["wrong"])
    words = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()]
    texts = tmp_path / "texts.tsv"
    texts.write_text("\n".join(f"{a} {c}\t{b} {d}" for (a, b), (c, d) in itertools.pairwise(words)), "utf-8")
    assert model.evaluate([texts])["exact_match"]["value"] > 0.8
    assert model.evaluate([texts], split="texts")["exact_match"]["value"] < 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_and_opens_with_the_same_translations(kind: str, pairs: Path, tmp_path: Path) -> None:
    result = translate(settings(pairs, model={"kind": kind}, samples=["bade", "koma"]), tmp_path / "run")
    model = LoadedTranslator.load(tmp_path / "run")
    said = [record["translation"] for record in model.translate(["bade", "koma"])]
    assert said == list(result["samples"].values())
    log = list(Run.open(tmp_path / "run").read_lines("log.jsonl"))
    assert {r["step"] for r in log if r["split"] == "sample"} == {r["step"] for r in log if r["split"] == "valid"}
    assert sorted(p.name for p in (tmp_path / "run" / "model").iterdir()) == [
        "MANIFEST.json", "README.md", "config.json", "model.safetensors", "target_tokenizer.json", "tokenizer.json",
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
    with pytest.raises(ModelError, match=r"target_tokenizer.json has \d+ entries .*, the model \d+"), unverified():
        read_translator(folder)


def told_while(cfg: TranslateConfig, out: Path) -> list[str]:
    """What a run says."""
    notes: list[str] = []
    watch = Watch()
    watch.note = notes.append  # type: ignore[method-assign]
    translate(cfg, out, watch=watch)
    return notes


@pytest.mark.parametrize("kind", KINDS)
def test_a_translation_that_finds_no_end_is_cut_at_the_context(kind: str, pairs: Path) -> None:
    job = prepare(settings(pairs, model={"kind": kind, "context": 6}))
    with torch.no_grad():
        job.model.head.bias[job.target.end] = -1e9
    assert job.text.longest > 6
    (best,), *_ = job.translator.translate(["bade", "koma"])
    assert not best.finished
    assert len(best.text) == 6


def test_a_part_of_which_no_pair_fits_is_told_by_its_name(pairs: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.tsv"
    long.write_text("\n".join(f"{'ba' * 20}{i}\t{'ab' * 20}{i}" for i in range(10)), "utf-8")
    for part, name in (("valid", "validation"), ("test", "test"), ("pairs", "training")):
        data = {"valid": [str(pairs)], "test_fraction": 0, part: [str(long)]}
        with pytest.raises(DataError, match=f"No {name} pair fits into the 20 tokens of the model"):
            translate(settings(pairs, data=data, model={"context": 20}), tmp_path / part)


def test_the_best_of_several_words_are_the_best_of_all_ways_to_join_them() -> None:
    rng = torch.Generator().manual_seed(0)
    scores = -torch.rand(3, 4, generator=rng).cumsum(1)
    places = [[Translation(f"{i}{k}", float(x), True) for k, x in enumerate(row)] for i, row in enumerate(scores)]
    every = sorted(itertools.product(*places), key=lambda chosen: -sum(each.score for each in chosen))
    for most in (1, 10, 64, 100):
        assert best_joined(places, most) == every[:most]


def test_a_size_of_a_vocabulary_leaves_what_a_token_is(pairs: Path) -> None:
    assert [side.kind for side in _sides(settings(pairs, source={"vocab": 60}))] == ["char", "char"]
    assert [side.kind for side in _sides(settings(pairs, target={"vocab": 60}))] == ["char", "char"]
    both = _sides(settings(pairs, source={"kind": "word", "vocab": 60}, target={"vocab": 70}))
    assert [(side.kind, side.vocab) for side in both] == [("word", 60), ("word", 70)]
    assert _sides(settings(pairs, source={"vocab": 60}))[1].vocab == 60


def _sides(cfg: TranslateConfig) -> tuple[Any, Any]:
    return cfg.source, cfg.target


def test_what_was_learned_and_what_was_not_there_to_hold_out_is_told(pairs: Path, tmp_path: Path) -> None:
    data = {"valid": [str(pairs)], "test_fraction": 0, "hold_out": ["bade", "badee"]}
    notes = told_while(settings(pairs, data=data), tmp_path / "run")
    assert Run.open(tmp_path / "run").read_json("result.json")["overlapping"] == {"valid": 199, "test": 0}
    assert any("no pair has the source 'badee'" in note for note in notes)
    assert not any("'bade'" in note for note in notes)


def test_a_sample_that_cannot_be_read_is_refused_before_anything_is_learned(pairs: Path, tmp_path: Path) -> None:
    for sample, says in (("ba" * 200, "A text of 402 tokens"), (" ", "blank")):
        with pytest.raises((DataError, ModelError), match=says):
            translate(settings(pairs, samples=["bade", sample]), tmp_path / "run")
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_attention_is_asked_only_of_what_can_be_read(pairs: Path, tmp_path: Path) -> None:
    translate(settings(pairs), tmp_path / "run")
    model = LoadedTranslator.load(tmp_path / "run")
    for split in ("texts", "words"):
        with pytest.raises(ModelError, match="A text of 302 tokens"):
            model.attention("b" * 300, split)
        with pytest.raises(DataError, match="blank"):
            model.attention("  ", split)


def test_what_a_translation_lacks_is_known(pairs: Path, tmp_path: Path) -> None:
    translate(settings(pairs), tmp_path / "run")
    model = LoadedTranslator.load(tmp_path / "run")
    assert [record["unknown"] for record in model.translate(["bade", "BADe", "bade 7"])] == [
        [],
        ["B", "A", "D"],
        [" ", "7"],
    ]
    with torch.no_grad():
        model.translator.model.head.bias[model.translator.target.end] = -1e9
    assert not model.translate(["bade"])[0]["finished"]


def test_a_text_that_comes_again_is_translated_once(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, asked = prepare(settings(pairs)).translator, []
    monkeypatch.setattr(
        type(translator), "rows", lambda self, texts: asked.extend(texts) or source_rows(texts, self.source)
    )
    said = translator.translate(["bade", "koma", "bade"])
    assert asked == ["bade", "koma"]
    assert said[0] == said[2] != said[1]


def test_special_tokens_are_never_said(pairs: Path) -> None:
    job = prepare(settings(pairs))
    with torch.no_grad():
        for i in job.target.suppressed:
            job.model.head.bias[i] = 1e9
    assert len(job.target.suppressed) == 4
    assert all(len(best.text) > 3 or best.finished for found in job.translator.translate(["bade"], 3) for best in found)
    assert job.translator.translate(["bade"])[0][0].text != ""


def test_the_loss_at_the_end_is_that_of_the_logits(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.tasks.translate.SCORED_AT_ONCE", 7)
    job = prepare(settings(pairs))
    batches = list(job.valid.measured())
    theirs = torch.cat(
        [
            torch.nn.functional.cross_entropy(
                job.model.eval()(b.source, b.mask, b.given).mT, b.target, reduction="none", ignore_index=-100
            ).flatten()
            for b in batches
        ]
    )
    assert job.valid.loss(job.model, "cpu")["value"] == pytest.approx(theirs[theirs != 0].mean().item(), rel=1e-5)


def test_test_pairs_are_kept_with_what_was_said_of_them(pairs: Path, tmp_path: Path) -> None:
    result = translate(settings(pairs), tmp_path / "run")
    rows = list(Run.open(tmp_path / "run").read_lines("predictions.jsonl"))
    assert len(rows) == result["test"]["rows"] == 20
    assert rows[0].keys() == {"source", "translation", "references"}
    model = LoadedTranslator.load(tmp_path / "run")
    assert [row["translation"] for row in rows] == [
        record["translation"] for record in model.translate([row["source"] for row in rows])
    ]
    assert result["test"]["fails"]["wrong"] == 20 - round(20 * result["test"]["exact_match"]["value"])
