"""The lab `transfer` as an assignment: a right solution gets all points, each usual mistake loses exactly its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from headstart.labs.assignment import open_course, start, variant_of
from headstart.labs.grade import Grade, grade, read_key
from headstart.labs.tasks import Choose, Predict

KEY_FILE = Path(__file__).parents[2] / "examples" / "keys" / "transfer" / "key.toml"
KEY, COURSE, _ = read_key(KEY_FILE)
RIGHT = (KEY_FILE.parent / KEY.solution).read_text("utf-8")
KEPT = 'if name.startswith("base.")'
POOLED = "hidden[torch.arange(len(hidden)), last]"
MISTAKES = {
    "no bias in the projections": ("4 * (width * width + width)", "4 * width * width", "parameter-counts"),
    "the output projection forgotten": ("4 * (width", "3 * (width", "parameter-counts"),
    "one layer norm": ("2 * 2 * width", "2 * width", "parameter-counts"),
    "the language head tied to the embedding": ("width * vocabulary + vocabulary", "vocabulary", "parameter-counts"),
    "one layer for all": ("layers * layer\n", "layer\n", "parameter-counts"),
    "the language head kept": ("return {**kept, ", "return {**state, 'lm_head.weight': state['head.weight'], ", "replace-head"),
    "the base from random weights": (f"name: tensor for name, tensor in state.items() {KEPT}", f"name: torch.randn_like(tensor) for name, tensor in state.items() {KEPT}", "replace-head"),
    "the head transposed": ("torch.zeros(classes, width)", "torch.zeros(width, classes)", "replace-head"),
    "the bias of the vocabulary": ('"head.bias": torch.zeros(classes)', '"head.bias": state["head.bias"]', "replace-head"),
    "the embedding not copied": (KEPT, 'if name.startswith("base.layers.")', "replace-head"),
    "the head frozen with the base": ('startswith(("head.", *tuned))', 'startswith(tuple(tuned or ["head."]))', "trainable"),
    "layers sorted as words": ("int(name.split", "str(name.split", "trainable"),
    "layer 1 taken for layer 11": ('f"base.layers.{number}."', 'f"base.layers.{number}"[:13]', "trainable"),
    "the first layers for the last": ("number > max(layers) - last", "number < last", "trainable"),
    "one layer too many": ("number > max", "number >= max", "trainable"),
    "position -1, padding or not": (POOLED, "hidden[:, -1]", "padding-read"),
    "the first token": (POOLED, "hidden[:, 0]", "padding-read"),
    "one token too far": ("mask.sum(dim=1) - 1", "mask.sum(dim=1).clamp(max=mask.shape[1] - 1)", "padding-read"),
    "padding in the mean": (POOLED, "hidden.mean(dim=1)", "padding-read"),
    "softmax before the cross-entropy": ("features @ weight.T + bias, labels", "(features @ weight.T + bias).softmax(-1), labels", "training-step"),
    "a sum for a mean": ("+ bias, labels)", "+ bias, labels, reduction='sum')", "training-step"),
    "up the gradient": ("weight - lr * weight.grad", "weight + lr * weight.grad", "training-step"),
    "the bias not trained": ("bias - lr * bias.grad", "bias", "training-step"),
    "the learning rate left out": ("weight - lr * weight.grad", "weight - weight.grad", "training-step"),
    "the loss after the step": ("loss.detach()]", "F.cross_entropy(features @ (weight - lr * weight.grad).T + bias, labels)]", "training-step"),
}  # fmt: skip
WRONG_ANSWERS: dict[str, tuple[str, Any]] = {
    "a head without bias": ("class-head", lambda v: v["width"] * v["classes"]),
    "a layer without norms": ("one-layer", lambda v: 4 * v["width"] * (v["width"] + 1) + 2 * v["width"] * v["ff"] + v["ff"] + v["width"]),
    "every position sees all": ("which-token", lambda _: "d"),
    "a base with fewer parameters": ("frozen", lambda _: "c"),
}  # fmt: skip
POINTS = {task.name: task.points for task in COURSE.lab.task}


def fill(folder: Path, student: str, code: str, wrong: str = "") -> None:
    tasks = {task.name: task for task in COURSE.lab.task if isinstance(task, Choose | Predict)}
    number = {name: variant_of("transfer", student, task) for name, task in tasks.items()}
    right = {name: KEY.answers[name] for name in tasks}
    answers: dict[str, object] = {name: each[number[name]] if isinstance(each, list) else each for name, each in right.items()}  # fmt: skip
    answers["is-it-transfer"] = f"{student} {KEY.answers['is-it-transfer']}"
    if wrong:
        name, answer = WRONG_ANSWERS[wrong]
        task = tasks[name]
        answers[name] = answer(task.variant[number[name]].values if task.variant else None)
    lines = [f"{name} = {json.dumps(answer)}" for name, answer in answers.items()]
    (folder / "answers.toml").write_text("\n".join([f'student = "{student}"', "[answers]", *lines]))
    (folder / "transfer.py").write_text(f"# {student}\n{code}")


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Grade]:
    root = tmp_path_factory.mktemp("class")
    (root / "key.toml").write_text('lab = "transfer"')  # so the answers are compared with the hashes of the lab
    names = ["right", *MISTAKES, *WRONG_ANSWERS]
    for number, name in enumerate(names):
        before, after, _ = MISTAKES.get(name, ("", "", ""))
        assert not before or RIGHT.count(before) == 1, name
        folder = start("transfer", f"s{number}", root / f"s{number}")
        code = RIGHT.replace(before, after) if before else RIGHT
        fill(folder, f"s{number}", code, name if name in WRONG_ANSWERS else "")
    folders = [root / f"s{number}" for number in range(len(names))]
    return dict(zip(names, grade(folders, root / "key.toml"), strict=True))


@pytest.mark.parametrize("name", ["right", *MISTAKES, *WRONG_ANSWERS])
def test_a_mistake_loses_its_own_points_and_no_others(name: str, graded: dict[str, Grade]) -> None:
    costs = {MISTAKES[name][2]} if name in MISTAKES else {WRONG_ANSWERS[name][0]} if name in WRONG_ANSWERS else set()
    found = graded[name]
    assert {task.task for task in found.tasks if task.points == 0} == costs
    assert found.points == 26 - sum(POINTS[task] for task in costs)
    assert (found.by_hand, found.most, found.findings) == (3, 29, [])


def test_the_stubs_get_no_points_as_they_are(tmp_path: Path) -> None:
    (found,) = grade([start("transfer", "alice", tmp_path / "alice")], KEY_FILE)
    assert (found.points, found.by_hand) == (0, 0)


def test_the_snapshots_are_what_torch_computes() -> None:
    def counted(*modules: nn.Module) -> int:
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    for case in open_course("transfer").snapshots["parameter_counts"]:
        vocabulary, width, ff, layers, classes = case.args
        with torch.device("meta"):  # nothing is allocated
            embedding, language = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
            layer, head = nn.TransformerEncoderLayer(width, 1, ff), nn.Linear(width, classes)
        stack = [embedding, *[layer] * layers]
        parts = ([embedding], [layer], stack, [language], [*stack, language], [head], [*stack, head])
        assert list(case.expects) == [counted(*part) for part in parts]
    assert list(COURSE.snapshots["parameter_counts"][0].expects) == [
        10_000_200, 242_000, 10_968_200, 10_050_201, 21_018_401, 402, 10_968_602
    ]  # fmt: skip
    for case in COURSE.snapshots["training_step"]:
        weight, bias, features, labels = (torch.tensor(each["tensor"]) for each in case.args[:4])
        head = nn.Linear(features.shape[1], len(bias))
        head.load_state_dict({"weight": weight, "bias": bias})
        optimizer = torch.optim.SGD(head.parameters(), lr=case.args[4])
        loss = functional.cross_entropy(head(features), labels)
        loss.backward()
        optimizer.step()
        for found, expected in zip((head.weight, head.bias, loss), case.expects, strict=True):
            torch.testing.assert_close(found.detach(), torch.tensor(expected["tensor"]), atol=1e-5, rtol=1e-4)
