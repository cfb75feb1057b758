"""Every benchmark runs, at its smallest: a change of the code that it measures must not break it unseen."""

from __future__ import annotations

import csv
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main

from benchmarks import (
    buckets,
    bulk,
    check,
    estimates,
    few_labels,
    frozen,
    generation,
    growth,
    images,
    label_audit,
    labelling,
    language,
    large_text,
    looking,
    minilm,
    objectives,
    scaling,
    serving,
    tasks,
    timing,
    translation,
    verdict,
)
from benchmarks.timing import compare, gemm_peak, ways_to_multiply
from headstart.cli import app
from headstart.config import TokenizerConfig
from headstart.labelling.features import Features
from headstart.models import products
from headstart.text.read import Example
from headstart.text.tokenizer import Tokenizer

FILES = sorted(file.stem for file in Path(images.__file__).parent.glob("*.py") if file.stem != "__main__")
TINY = {"layers": 1, "heads": 2, "width": 16, "ff": 32, "vocab": 97, "context": 24, "batch": 2}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, shape in language.SHAPES.items():
        monkeypatch.setitem(language.SHAPES, name, {"preset": shape["preset"], **TINY})
    monkeypatch.setattr(generation, "NEW", 3)
    monkeypatch.setattr(generation, "TEXTS", 1)
    for module in (buckets, frozen):
        monkeypatch.setattr(module, "ROWS", 4)
        monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(buckets, "CONTEXT", 16)
    monkeypatch.setattr(translation, "WORDS", 4)
    monkeypatch.setattr(objectives, "UPDATES", 1)
    monkeypatch.setattr("benchmarks.timing.gemm_peak", lambda: 1.0)
    monkeypatch.setattr(objectives, "gemm_peak", lambda: 1.0)


@pytest.fixture
def bert(tmp_path: Path, elsewhere: Callable[..., Any], sentences: Path) -> Path:
    """A tiny base of transformers in a folder."""
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.train(sentences.read_text().splitlines(), TokenizerConfig(kind="word"))
    shape = elsewhere("bert", vocab_size=tokenizer.size, pad_token_id=tokenizer.pad)
    transformers.BertModel(transformers.BertConfig(**shape.settings)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer.json").write_text(tokenizer.to_json())
    return tmp_path / "bert"


@pytest.mark.parametrize("name", FILES)
def test_it_imports_and_explains_itself(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__


def test_every_file_has_a_test_here() -> None:
    text = Path(__file__).read_text("utf-8").partition("TINY = ")[2]
    assert [name for name in FILES if f"{name}." not in text] == []


@pytest.mark.parametrize(
    "rows",
    [
        lambda: language.rows(1, None),
        lambda: generation.rows(1),
        lambda: [buckets.row(1)],
        lambda: frozen._rows("nano", 1),
        lambda: translation.rows(1),
    ],
    ids=["language", "generation", "buckets", "frozen", "translation"],
)
def test_a_row_has_a_ratio_and_its_range(rows: Callable[[], list[str]]) -> None:
    for line in rows():
        assert line.count("|") == 7
        assert "** (" in line


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_the_memory_of_a_process_is_told_as_a_number(who: str, capsys: pytest.CaptureFixture[str]) -> None:
    language._measure_memory(who)
    assert float(capsys.readouterr().out) >= 0


def test_memory_and_time_are_of_what_is_measured() -> None:
    code = (
        "import numpy; from benchmarks.timing import memory_now, memory_peak; before = memory_now(); "
        "held = numpy.ones(16 << 20); print(memory_peak() - before)"  # 128 MB
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True
    )
    assert float(found.stdout) > 0.9 * 128  # in a process of its own: the peak of this one may be that of another test
    assert compare(lambda: None, lambda: torch.ones(1 << 20).sum(), samples=3).ratio > 1
    assert gemm_peak() > 0


def test_no_product_that_models_use_is_above_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (products.product in ways_to_multiply()) == products.prefers_onednn()
    monkeypatch.setattr(timing, "ways_to_multiply", lambda: [torch.mm])
    by_torch = gemm_peak()
    instant = [torch.mm, lambda a, b: a]
    for ways in (instant, instant[::-1]):  # the fastest counts, in any order
        monkeypatch.setattr(timing, "ways_to_multiply", lambda ways=ways: ways)
        assert gemm_peak() > 10 * by_torch


def test_minilm_is_trained_and_used_by_all(bert: Path) -> None:
    saved = minilm.classifier(str(bert), 16)
    rows = [Example(f"I hold a {animal} .", str(i % 2)) for i, animal in enumerate(("dog", "cat", "bird", "dog"))]
    assert [line.split("|")[2].strip() for line in minilm.training(saved, rows, 1)] == [
        "Trainer, defaults",
        "Trainer, grouped by length",
    ]
    assert len(minilm.using(saved, [row.text for row in rows])) == 3


def test_minilm_has_a_row_where_its_packs_are_at_hand(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minilm, "pack_folder", lambda name: tmp_path / name)
    assert minilm.rows(1) == []
    for name in ("minilm", "movie-reviews"):
        (tmp_path / name).mkdir()
    rows = [Example(f"I hold a {animal} .", str(i % 2)) for i, animal in enumerate(("dog", "cat", "bird", "dog"))]
    tiny = minilm.classifier(str(bert), 16)
    monkeypatch.setattr(minilm, "classifier", lambda *_: tiny)
    monkeypatch.setattr(minilm, "reviews", lambda _: rows)
    (row,) = minilm.rows(1)
    assert "| Trainer, grouped by length |" in row
    assert (row.count("|"), "** (" in row) == (7, True)


def test_an_objective_has_its_operations_counted(sentences: Path) -> None:
    table = sentences.with_name("corpus.csv")
    table.write_text("text\n" + sentences.read_text())
    (line,) = objectives.rows(1, "nano", str(table), ["causal"])
    assert line.startswith("| causal | ")


def question(folder: Path, bert: Path) -> verdict.Question:
    for name, count in (("labelled", 20), ("test", 6)):
        with (folder / f"{name}.csv").open("w") as file:
            rows = [
                (f"She {('holds', 'rubs')[i % 2]} the dog {i}", ("negative", "positive")[i % 2]) for i in range(count)
            ]
            csv.writer(file).writerows([("text", "label"), *rows])
    return verdict.Question(str(folder), str(bert), 1, 2, str(bert), 1, 4)


def test_the_plain_script_answers_the_question(tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "RATES", (1e-3,))
    found = verdict.plain_script(question(tmp_path, bert))
    assert list(found) == ["tfidf", *verdict.ARMS]
    assert all(0 <= accuracy <= 1 for accuracy in found.values())
    taken = verdict.Taken(1.0, 1.0, 1.0, found)
    assert "**1.00** (1.00 to 1.00)" in verdict.table("bert", question(tmp_path, bert), [(taken, taken)])[-1]


HERE = Path("somewhere")
COMMANDS = {
    **{f"estimates, {what}": words for what, words in estimates.jobs(HERE).items()},
    "looking": looking.MADE.split(),
    "images": images.TRAIN.split(),
    "large_text": large_text.pretraining(HERE, HERE),
    "scaling": scaling.pretraining(scaling.Setting("micro", 1, 1), HERE, HERE, 2),
    "scaling, a study": scaling.study(HERE, HERE, 2, 60),
    "bulk": [*bulk.commands(HERE, HERE, 1)[bulk.OURS][3:], "out.csv"],
    "verdict": verdict.comparison(verdict.Question("data", "base", 1, 2, "base", 1), HERE),
    **{
        f"few_labels, {base}": few_labels.comparison(few_labels.DATA[0], base, HERE, [8], 2, 1)
        for base in few_labels.ARMS
    },
    **{f"tasks, {task}": tasks.comparison(task, HERE, "minilm", 5, 2) for task in tasks.TASKS},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_a_benchmark_starts_is_one_that_the_command_line_accepts(name: str) -> None:
    group, words = typer.main.get_command(app), COMMANDS[name]
    while hasattr(group, "commands"):
        group, words = group.commands[words[0]], words[1:]
    with group.make_context(name, list(words)) as context:
        assert context.params


def test_the_table_of_a_task_has_a_row_for_each_arm(tmp_path: Path) -> None:
    arm = {"kind": "full", "mean": 0.5, "interval": [0.4, 0.6], "sd": 0.01, "cost": {"seconds": 2.0}}
    never = {"kind": "constant", "mean": 0.0, "interval": None, "sd": None, "cost": {"seconds": None}}
    study = tmp_path / "number" / "study"
    study.mkdir(parents=True)
    (study / "results.json").write_text(json.dumps({"score": "r2", "arms": [never, arm], "verdict": "Yes."}))
    assert tasks.table(study)[2:4] == ["| constant | 0.000 |  |  |", "| full | 0.500 (0.400 to 0.600) | 0.010 | 2.000 |"]  # fmt: skip


def test_words_of_an_address_that_are_tagged_alike_are_one_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "<A><Street>Martin Luther</Street> <Street>King</Street> <Zip>60603</Zip></A>"
    others = "".join(f"<A><Zip>{i}</Zip></A>" for i in range(400))
    monkeypatch.setattr(tasks, "source", lambda *_: f"<All>{address}{others}</All>".encode())
    train, test = tasks.tags()
    found = next(row[0] for row in [*train, *test] if "Martin" in row[0])
    assert found.split("\n") == ["Martin\tB-Street", "Luther\tI-Street", "King\tI-Street", "60603\tB-Zip"]


def test_few_labels_are_drawn_from_rows_that_no_test_row_is_among(tmp_path: Path) -> None:
    for part, rows in {"dev": "1\tfine\n0\tdull\n", "test": "0\ta\tb\n"}.items():
        (tmp_path / "sst2").mkdir(exist_ok=True)
        (tmp_path / "sst2" / f"{part}.tsv").write_text("label\tcontent\n" + rows)
    assert few_labels.rows_of("sst2", tmp_path) == (
        [("fine", "positive"), ("dull", "negative")],
        [("a\tb", "negative")],
    )
    assert few_labels.rows_of("books", tmp_path) is None


def test_the_table_of_few_labels_has_a_row_for_each_arm_and_a_column_for_each_count(tmp_path: Path) -> None:
    arms = [("prompt", "smollm2", 16, 0.85, 0.03), ("prompt", "smollm2", 128, 0.87, 0.01), ("zero-shot", "smollm2", None, 0.84, None)]  # fmt: skip
    found = [
        {"kind": kind, "base": base, "labels": labels, "accuracy": {"mean": mean, "sd": sd}}
        for kind, base, labels, mean, sd in arms
    ]
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "results.json").write_text(json.dumps({"arms": found}))
    header, _, prompt, zero_shot = few_labels.table(tmp_path, classes=2)
    assert header.split(" | ")[1:] == ["0 per class", "8 per class", "64 per class |"]
    assert prompt == "| prompt smollm2 |  | 0.850 (0.030) | 0.870 (0.010) |"
    assert zero_shot == "| zero-shot smollm2 | 0.840 |  |  |"


def test_the_cost_model_of_processes_is_fitted_to_what_it_says() -> None:
    model = scaling.Model(rate=1e9, bandwidth=1e8, latency=1e-4)
    sizes = (1000, 50_000)
    pair = [scaling.Measured(n, 64, 1.0, model.communication(n, 2, scaling.MICROS), 64) for n in sizes]
    alone = scaling.Measured(1000, 64, model.compute(1000, 64, 1), 0.0, 64)
    found = scaling.fit(alone, *pair)
    assert [found.rate, found.bandwidth, found.latency] == pytest.approx([1e9, 1e8, 1e-4])


def test_a_large_text_has_the_size_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_text, "WORDS", 50)
    large_text.generate(tmp_path, 3000)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 3000
    for code in (large_text.OURS, large_text.PEER, serving.OURS, serving.PLAIN):
        compile(code, "code", "exec")


@pytest.mark.parametrize("name", growth.CASES)
def test_a_case_of_growth_is_measured(name: str, tmp_path: Path) -> None:
    case = growth.CASES[name]
    small = {"rows": 100, "words": 4000, "seeds": 5, "classes": 2, "context": 8, "tokens": 3}[case.of]
    taken = growth.measure(case, small, tmp_path)
    assert taken.seconds > 0
    assert "| **1.00** (1.00) |" in growth.line(name, case, (1, 2), [growth.Taken(1, 1), growth.Taken(2, 1)])


def test_images_are_made(tmp_path: Path) -> None:
    images.make_images(tmp_path / "images", 2)
    assert len(list((tmp_path / "images").glob("*.jpg"))) == 2


def test_labelling_is_simulated_with_every_strategy() -> None:
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 2, 90)
    features = Features(rng.normal(size=(90, 4)) + 2 * targets[:, None], np.zeros((90, 0)))
    for choose in labelling.STRATEGIES.values():
        trial = labelling.simulate(features, targets, choose, 0, 10, advised=False)
        assert min(trial.accuracy.values()) >= 0.5


def test_flipped_labels_are_listed_by_all() -> None:
    truth = np.arange(200) % 2
    noisy, wrong = label_audit.flipped(truth, 2, 0)
    assert wrong.sum() == (noisy != truth).sum() == 10
    sure = np.where(truth[:, None] == np.arange(2), 0.95, 0.05)
    found = dict(label_audit.compared(sure[None, None], noisy))
    assert len(found) == 5
    assert (found["audit"] == wrong).all()


TABLE = """# Speed

{machine}, 2 threads, torch 2.13.0. Median of 5 samples, the two taken in turn in one
process.

| what | peer | Headstart | peer | ratio (range) | share of GEMM peak, ours / peer |
|---|---|---|---|---|---|
| gpt | nanoGPT | 4,097 | 1,524 | **{gpt:.2f}** (2.33 to 2.77) | 40% / 15% |
| classic, memory | nn.TransformerEncoder | 773 MB | 2,951 MB | **{memory:.2f}** | |
| loss by epoch 0.69 | Trainer | 3.1 | 1.3 | **{trainer:.2f}** ({lowest:.2f} to {highest:.2f}) | documents a second |
"""
BEFORE = {"gpt": 2.69, "memory": 3.82, "trainer": 2.38}


def table(**ratios: float) -> str:
    found = BEFORE | ratios
    return TABLE.format(machine="x", lowest=found["trainer"] - 0.01, highest=found["trainer"] + 0.02, **found)


@pytest.mark.parametrize(
    ("changed", "fell"),
    [
        ({}, []),
        ({"gpt": 2.90, "memory": 5.0}, []),  # faster
        ({"gpt": 2.40}, []),  # within the range
        ({"gpt": 2.34}, []),  # out of what it varied before, and within what it varies here
        ({"gpt": 2.20, "trainer": 2.0}, ["loss by epoch 0.69"]),
        ({"trainer": 2.28}, []),  # 4 %
        ({"memory": 3.70}, []),
        ({"memory": 3.60}, ["classic, memory"]),
        ({"gpt": 1.0, "memory": 1.0, "trainer": 1.0}, ["classic, memory", "loss by epoch 0.69"]),
    ],
)
def test_a_ratio_that_fell_by_more_than_the_noise_is_named(changed: dict[str, float], fell: list[str]) -> None:
    found, told = check.judged(table(), table(**changed))
    assert [what for what, _ in found] == fell
    assert [line.partition(",")[0] for line in told[:-1]] == [f"fell: {what.partition(',')[0]}" for what in fell]
    assert told[-1] == f"3 ratios compared, {len(fell)} fell by more than the noise seen"


def test_a_row_that_is_gone_and_another_machine_are_told() -> None:
    last = table()
    fresh = "\n".join(line for line in last.replace("x, 2", "y, 2").splitlines() if "nanoGPT" not in line)
    found, told = check.judged(last, fresh)
    assert not found
    assert told[0] == "not measured: gpt, nanoGPT"
    assert "another machine: y, 2 threads, torch 2.13.0, before x," in told[1]


def test_the_last_table_is_read_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    last = str(check.latest(Path(check.__file__).parent))
    monkeypatch.setattr("sys.argv", ["check", "--last", last, "--fresh", last])
    with pytest.raises(SystemExit, match="0"):
        check.main()
    assert re.search(r"(\d+) ratios compared, 0 fell", capsys.readouterr().out)[1] >= "16"  # type: ignore[index]


def test_a_table_labelled_by_the_pipeline_is_whole(tmp_path: Path, bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(bert)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_bytes((bert / "tokenizer.json").read_bytes())
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "model_max_length": 24}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(told))
    reviews = [("I hold a dog. She rubs the cat! I hold a dog.",), ("They see.<br />A bird",)]
    bulk.write(tmp_path / "reviews.csv", ("text",), reviews)
    texts = list(bulk.sentences(tmp_path / "reviews.csv"))
    assert texts == ["I hold a dog.", "She rubs the cat!", "They see.", "A bird"]
    bulk.write(tmp_path / "rows.csv", ("number", "text"), enumerate(texts))
    answers = []
    for chunk in bulk.WAYS.values():
        bulk.by_pipeline(str(tmp_path / "model"), tmp_path / "rows.csv", tmp_path / "out.csv", chunk, 1)
        rows = list(bulk.read(tmp_path / "out.csv"))
        assert [row["text"] for row in rows] == texts
        answers.append([row["label"] for row in rows])
    assert answers[0] == answers[1]
