"""The arms zero-shot and prompt in a study: cells, counts of labels, table, curve, verdict, page, estimate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.errors import ConfigError, ModelError
from headstart.jobs.pretrain import pretrain
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse, to_toml
from headstart.study.classify import with_usual_arms
from headstart.study.estimate import study_estimate
from headstart.study.plan import StudyConfig
from headstart.study.study import Study
from headstart.text.tokenizer import Tokenizer
from headstart.use.predict import LoadedClassifier

KINDS = {"good": ["lovely", "fresh", "tasty", "warm"], "bad": ["awful", "cold", "stale", "bland"]}
DISHES = ["soup", "bread", "fish", "cake", "rice", "tea", "salad", "curry", "pasta", "pie"]
WORDS = {"good": "good", "bad": "bad"}


class Notes(Watch):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("meals")
    meals = [(f"The {d} was {w}.", k) for d in DISHES for k, ws in KINDS.items() for w in ws]
    (folder / "corpus.txt").write_text("\n".join(f"{text} It was {k}." for text, k in meals) + "\n")
    (folder / "rows.csv").write_text("\n".join(["text,label", *(f"{text},{k}" for text, k in meals)]) + "\n")
    settings = {
        "samples": (),
        "data": {"paths": (str(folder / "corpus.txt"),), "unit": "line", "valid_fraction": 0.0},
        "model": {"size": "nano", "context": 32, "dropout": 0.0},
        "train": {"steps": 400, "batch_size": 16, "lr": 5e-3, "tensorboard": False},
    }
    torch.set_num_threads(1)
    pretrain(parse(PretrainConfig, settings), folder / "base")
    return folder


def config(here: Path, **changes: Any) -> StudyConfig:
    given = {
        "data": {"train": str(here / "rows.csv"), "balanced": True},
        "bases": (str(here / "base"),),
        "arms": ("tfidf", "scratch", "frozen", "zero-shot", "prompt", "prompt:frozen", "ensemble"),
        "labels": (4, 8),
        "seeds": 2,
        "least_steps": 3,
        "prompts": ("{text} It was",),
        "label_words": WORDS,
        "finetune": {"train": {"threads": 1}},
    }
    return parse(StudyConfig, {**given, **changes})


@pytest.fixture(scope="module")
def study(here: Path) -> Study:
    return Study.run(config(here), here / "study")


def test_an_arm_without_labels_is_run_once_and_stands_at_0(study: Study) -> None:
    cells = sorted(path.name for path in (study.folder / "cells").glob("zero-shot*"))
    assert cells == ["zero-shot-base~none~0"]
    (zero,) = [arm for arm in study.results.arms if arm.kind == "zero-shot"]
    assert (zero.labels, zero.seeds, zero.over) == (0, 1, "rows only")
    assert study.results.label_counts == [4, 8]
    assert "zero-shot" in [arm.name for arm in study.results.at(4)]
    result = json.loads((study.folder / "cells" / "zero-shot-base~none~0" / "result.json").read_text())
    assert result["prompts"] == [{"template": "{text} It was", "words": {"bad": "bad", "good": "good"}}]
    assert result["calibrated_on"] == 64


def test_the_prompt_is_better_than_what_starts_from_nothing(study: Study) -> None:
    scores = {(arm.name, arm.labels): arm.mean or 0.0 for arm in study.results.arms}
    assert scores["zero-shot", 0] >= 0.9
    assert scores["prompt", 8] >= 0.9 > scores["scratch", 8]
    assert scores["prompt:frozen", 8] > scores["scratch", 8]


def test_every_arm_is_compared_with_the_prompt_where_that_makes_sense(study: Study) -> None:
    pairs = {(d.a, d.b) for d in study.results.differences if d.labels == 8}
    assert {
        ("zero-shot", "scratch"),
        ("zero-shot", "tfidf"),
        ("prompt", "zero-shot"),
        ("prompt:frozen", "zero-shot"),
        ("ensemble", "zero-shot"),
        ("ensemble", "scratch"),
    } <= pairs
    assert ("frozen", "zero-shot") not in pairs
    needed = {(n.arm, n.reference) for n in study.results.labels_needed}
    assert ("tfidf", "zero-shot") in needed


def test_the_curve_begins_at_0_and_the_page_says_so(study: Study) -> None:
    page = study.page.read_text()
    assert "Level lines: arms that use no labels." in page
    assert "with no labels" in page
    assert ">0<" in (study.folder / "figures" / "labels.svg").read_text().replace("\n", "")
    assert "The prompt alone (zero-shot" in study.verdict


def test_prompt_cells_keep_their_own_budget(study: Study) -> None:
    cfg: Any = Run.open(study.folder / "cells" / "prompt-base~8~0").config
    assert (cfg.prompt, cfg.train.steps, cfg.train.batch_size) == ("{text} It was", 30, 8)
    labels = Run.open(study.folder / "cells" / "prompt-base~8~0").read_json("data.json")["labels"]["train"]
    assert labels == {"bad": 4, "good": 4}


def test_one_seed_keeps_its_model_at_the_largest_count_and_the_others_say_how_to_get_theirs(study: Study) -> None:
    kept = sorted(path.parent.name for path in (study.folder / "cells").glob("*/model"))
    assert kept == [f"{kind}-base~8~0" for kind in ("frozen", "prompt", "prompt-frozen", "scratch")]
    assert (
        LoadedClassifier.load(study.folder / "cells" / "prompt-base~8~0").predict(["The soup was warm."])[0]["label"]
        == "good"
    )
    with pytest.raises(
        ModelError, match=r"prompt-base~8~1 has scores but no weights.*finetune --config .*config\.toml"
    ):
        LoadedClassifier.load(study.folder / "cells" / "prompt-base~8~1")


def test_opened_again_it_says_the_same(study: Study) -> None:
    assert Study.open(study.folder).results.plain() == study.results.plain()


def test_the_estimate_knows_the_arms(here: Path) -> None:
    cost, cells = study_estimate(config(here))
    assert set(cells) == {
        *(f"{kind}~{n}~{seed}" for kind in ("tfidf", "scratch-base", "frozen-base", "prompt-base", "prompt-frozen-base", "ensemble-base")
          for n in (4, 8) for seed in (0, 1)), "zero-shot-base~none~0",
    }  # fmt: skip
    assert 0 < cost["seconds"] < 600


def test_two_pretrained_arms_alone_are_compared_with_each_other(here: Path, tmp_path: Path) -> None:
    study = Study.run(config(here, arms=("frozen", "zero-shot"), labels=(8,)), tmp_path / "study")
    assert [{d.a, d.b} for d in study.results.differences] == [{"frozen", "zero-shot"}]
    assert "not compared" not in study.verdict


def test_bases_without_a_language_head_stand_beside_one_that_is_asked(
    here: Path, tmp_path: Path, elsewhere: Callable[..., Any]
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.load(here / "base")
    shape = elsewhere("bert", vocab_size=tokenizer.size)
    transformers.BertModel(transformers.BertConfig(**shape.settings)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer.json").write_text(tokenizer.to_json())
    notes = Notes()
    bases = (str(here / "base"), str(tmp_path / "bert"))
    cfg = config(here, bases=bases, arms=("frozen", "zero-shot", "prompt:frozen", "ensemble"), labels=(8,))
    study = Study.run(cfg, tmp_path / "study", watch=notes)
    assert sorted(arm.name for arm in study.results.arms) == [
        "ensemble bert", "frozen base", "frozen bert", "prompt:frozen base", "zero-shot base",
    ]  # fmt: skip
    assert not study.results.failures
    assert {"ensemble bert", "zero-shot base"} in [{d.a, d.b} for d in study.results.differences]
    assert "zero-shot, prompt:frozen left out for bert: no language head" in notes.told[-1]  # fmt: skip
    assert set(study_estimate(cfg)[1]) == {path.name for path in (tmp_path / "study" / "cells").iterdir()}
    assert Study.open(study.folder).results.plain() == study.results.plain()
    with pytest.raises(ConfigError, match=r"No base has a language head \(bert\), which the arm zero-shot needs"):
        Study.run(config(here, bases=bases[1:], arms=("tfidf", "zero-shot")), tmp_path / "other")


def test_a_preset_is_refused_before_anything_is_timed(here: Path) -> None:
    with pytest.raises(
        ConfigError, match="The preset 'gpt' has no pretrained weights, which zero-shot would start from"
    ):
        study_estimate(config(here, bases=("gpt",), arms=("scratch", "zero-shot")))


def test_labels_that_are_no_words_end_the_cell_with_what_to_do(here: Path, tmp_path: Path) -> None:
    rows = (here / "rows.csv").read_text().replace(",good", ",1").replace(",bad", ",0")
    (tmp_path / "rows.csv").write_text(rows)
    with pytest.raises(ConfigError, match="--label-words 0=negative,1=positive"):
        Study.run(config(here, data={"train": str(tmp_path / "rows.csv")}, label_words={}), tmp_path / "study")


def test_a_prompt_for_every_arm_is_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match="prompts and label_words are settings of the study"):
        config(here, finetune={"prompt": "{text} It was"})


def test_from_the_command_line(here: Path, tmp_path: Path) -> None:
    words = [
        "compare",
        str(here / "rows.csv"),
        "--base",
        str(here / "base"),
        "--arms",
        "zero-shot,tfidf",
        "--labels",
        "8,all",
    ]
    words += [
        "--prompt",
        "{text} It was",
        "--label-words",
        "good=good,bad=bad",
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "s"),
    ]
    done = CliRunner().invoke(app, [*words, "--quiet", "--yes", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {arm["labels"] for arm in found["arms"]} == {0, 8, 64}


def test_an_external_language_model_brings_the_prompt_arms_along(
    here: Path, tmp_path: Path, elsewhere: Callable[..., Any]
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.load(here / "base")
    shape = elsewhere("gpt2", vocab_size=tokenizer.size)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape.settings)).save_pretrained(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "tokenizer.json").write_text(tokenizer.to_json())
    notes = Notes()

    def arms(base: Path, **changes: Any) -> tuple[str, ...]:
        given = {"data": {"train": str(here / "rows.csv")}, "bases": (str(base),), **changes}
        return with_usual_arms(parse(StudyConfig, given), notes).arms

    usual = ("majority", "tfidf", "scratch", "frozen", "full")
    assert arms(here / "base") == usual
    assert arms(tmp_path / "gpt2") == (*usual, "zero-shot", "prompt")
    assert arms(tmp_path / "gpt2", arms=("tfidf",)) == ("tfidf",)
    assert arms(tmp_path / "gpt2", bases=(str(tmp_path / "gpt2"), str(here / "base"))) == usual, (
        "every base has every arm"
    )
    transformers.GPT2Model(transformers.GPT2Config(**shape.settings)).save_pretrained(tmp_path / "headless")
    (tmp_path / "headless" / "tokenizer.json").write_text(tokenizer.to_json())
    both = (str(tmp_path / "gpt2"), str(tmp_path / "headless"))
    assert arms(tmp_path, bases=both) == (*usual, "zero-shot", "prompt", "ensemble")
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "study.toml").write_text(to_toml(config(here, arms=("tfidf", "full"))))
    again = parse(StudyConfig, {"data": {"train": str(here / "rows.csv")}, "bases": both})
    assert with_usual_arms(again, notes, begun).arms == ("tfidf", "full"), "it goes on with what it has"
    assert not notes.told
    (tmp_path / "rows.csv").write_text((here / "rows.csv").read_text().replace(",good", ",1").replace(",bad", ",0"))
    assert arms(tmp_path / "gpt2", data={"train": str(tmp_path / "rows.csv")}) == usual
    assert "zero-shot and prompt are left out" in notes.told[0]


def test_a_cell_says_how_the_two_were_weighed(study: Study) -> None:
    result = json.loads((study.folder / "cells" / "ensemble-base~8~0" / "result.json").read_text())
    assert set(result["exponents"]) == {"zero-shot", "probe"}
    assert result["test"]["accuracy"] >= 0.9
    rows = [
        json.loads(line)
        for line in (study.folder / "cells" / "ensemble-base~8~0" / "predictions.jsonl").read_text().splitlines()
    ]
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in rows)


def test_without_zero_shot_it_is_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match="add zero-shot to the arms"):
        config(here, arms=("tfidf", "ensemble"))


def test_a_zero_shot_cell_of_an_earlier_version_is_refused_by_name(here: Path, study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    shutil.copytree(study.folder, folder)
    shutil.rmtree(folder / "cells" / "ensemble-base~8~0")
    file = folder / "cells" / "zero-shot-base~none~0" / "result.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "biases"}))
    again = Study.run(config(here), folder)
    assert "written by an earlier version" in again.results.failures[0].message
