"""An .onnx file works without Headstart, and a damaged or crafted one is one sentence."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from headstart.cli import app
from headstart.config import TokenizerConfig
from headstart.text.tokenizer import Tokenizer
from headstart.use.onnx import OnnxClassifier, sealed
from headstart.use.onnx_export import EXAMPLE, metadata, put_metadata
from headstart.use.predict import LoadedClassifier

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
TEXTS = ["film 3 was lovely from end to end", "film 4 was awful", "film <s> was <mask> </s>", "dull cold film " * 40]
LABELS = ("negative", "positive")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as export writes it, around a model that is quickly made: a number of each token for each label, summed."""
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="word"))
    table = np.random.default_rng(0).normal(size=(tokenizer.size, len(LABELS))).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["found"]),
        onnx.helper.make_node("Cast", ["mask"], ["counted"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Unsqueeze", ["counted", "last"], ["wide"]),
        onnx.helper.make_node("Mul", ["found", "wide"], ["real"]),
        onnx.helper.make_node("ReduceSum", ["real", "tokens"], ["logits"], keepdims=0),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "sum",
        [
            onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["texts", "tokens"]),
            onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.BOOL, ["texts", "tokens"]),
        ],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["texts", len(LABELS)])],
        [
            onnx.numpy_helper.from_array(table, "table"),
            onnx.numpy_helper.from_array(np.array([2]), "last"),
            onnx.numpy_helper.from_array(np.array([1]), "tokens"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    put_metadata(model, tokenizer, metadata(tokenizer, LABELS, causal=False, context=24))
    file = tmp_path_factory.mktemp("exported") / "model.onnx"
    file.write_bytes(sealed(model.SerializeToString()))
    file.with_suffix(".example.py").write_bytes(EXAMPLE.read_bytes())
    return file


def predict(file: Path, *flags: str) -> Result:
    return CliRunner().invoke(app, ["predict", str(file), *TEXTS, "--json", *flags])


def crafted(exported: Path, file: Path, **told: str) -> Path:
    """The same model with other metadata."""
    model = onnx.load(exported)
    before = {entry.key: entry.value for entry in model.metadata_props if entry.key != "headstart_sha256"}
    onnx.helper.set_model_props(model, {**before, **told})
    file.write_bytes(model.SerializeToString())
    return file


def facts(exported: Path) -> dict[str, Any]:
    told = {entry.key: entry.value for entry in onnx.load(exported).metadata_props}
    return json.loads(told["headstart"])


def example(file: Path) -> list[list[str]]:
    """What the program beside the file says, which may load nothing of ours, nor torch."""
    code = f"""
import runpy, sys
class Nothing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("headstart", "torch", "transformers", "onnx"): raise ImportError(name)
sys.meta_path.insert(0, Nothing())
sys.argv = ["example", {str(file)!r}, *{TEXTS!r}]
runpy.run_path({str(file.with_suffix(".example.py"))!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=file.parent)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_example_gives_the_same_labels_without_headstart(exported):
    for said, ours in zip(example(exported), OnnxClassifier.load(exported).predict(TEXTS), strict=True):
        assert said[0] == ours["label"]
        assert float(said[1]) == pytest.approx(ours["probabilities"][said[0]], abs=1e-3)


@pytest.mark.slow
def test_an_exported_run_stands_beside_its_example(runs, tmp_path):
    pytest.importorskip("onnxscript")
    words = ["export", str(runs["full"]), "--to", "onnx", "--out", str(tmp_path / "model.onnx")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert "model.example.py: its use without Headstart" in done.stdout
    for said, ours in zip(
        example(tmp_path / "model.onnx"), LoadedClassifier.load(runs["full"]).predict(TEXTS), strict=True
    ):
        assert said[0] == ours["label"]
        assert float(said[1]) == pytest.approx(ours["probabilities"][said[0]], abs=1e-3)
    changed = bytearray((tmp_path / "model.onnx").read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / "model.onnx").write_bytes(changed)
    assert predict(tmp_path / "model.onnx").exit_code == 5


def test_neither_file_is_written_over_something(runs, tmp_path):
    (tmp_path / "model.example.py").write_text("mine")
    done = CliRunner().invoke(app, ["export", str(runs["full"]), "--to", "onnx", "--out", str(tmp_path / "model.onnx")])
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["model.example.py"]


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["a"]},
        {"labels": ["a", "b", "c"]},
        {"labels": ["a", "a"]},
        {"labels": [1, None]},
        {"labels": {"a": 1, "b": 2}},
        {"labels": 7},
        {"context": "x"},
        {"context": 0},
        {"context": -1},
        {"context": True},
        {"context": 10**9},
        {"causal": "no"},
    ],
    ids=str,
)
def test_facts_that_cannot_be_are_one_sentence(exported, tmp_path, change):
    done = predict(crafted(exported, tmp_path / "x.onnx", headstart=json.dumps({**facts(exported), **change})))
    assert done.exit_code == 5, done.stderr
    assert "Export it again" in json.loads(done.stderr)["error"]["message"]


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '"x"', "{}", "[" * 100_000])
@pytest.mark.parametrize("key", ["headstart", "tokenizer"])
def test_metadata_that_are_none_are_one_sentence(exported, tmp_path, key, text):
    done = predict(crafted(exported, tmp_path / "x.onnx", **{key: text}))
    assert done.exit_code == 5, done.stderr
    assert done.stderr.count("\n") == 1


def test_ids_that_the_model_has_no_row_for_are_one_sentence(exported, tmp_path):
    told = {entry.key: entry.value for entry in onnx.load(exported).metadata_props}
    tokenizer = json.loads(told["tokenizer"])
    tokenizer["model"]["vocab"] |= {token: 4000 + i for token, i in tokenizer["model"]["vocab"].items() if i > 4}
    done = predict(crafted(exported, tmp_path / "x.onnx", tokenizer=json.dumps(tokenizer)))
    assert done.exit_code == 5, done.stderr


@pytest.mark.parametrize("location", ["../secret.bin", "inside.bin", "/etc/passwd"])
def test_tensors_in_other_files_are_refused(exported, tmp_path, location):
    model = onnx.load(exported)
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    (tmp_path / "inside.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    (tmp_path / "x.onnx").write_bytes(model.SerializeToString())
    done = predict(tmp_path / "x.onnx", "--no-verify")
    assert done.exit_code == 5
    assert "keeps tensors in other files" in done.stderr


def test_a_file_without_a_hash_is_opened_and_one_with_another_is_not(exported, tmp_path):
    assert predict(crafted(exported, tmp_path / "old.onnx")).stdout == predict(exported).stdout
    (tmp_path / "new.onnx").write_bytes(sealed((tmp_path / "old.onnx").read_bytes()))
    assert predict(tmp_path / "new.onnx").exit_code == 0
    changed = bytearray((tmp_path / "new.onnx").read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / "new.onnx").write_bytes(changed)
    assert predict(tmp_path / "new.onnx").exit_code == 5
    assert "is damaged, or was changed by hand" in predict(tmp_path / "new.onnx").stderr


@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_damage_anywhere_never_gives_another_answer(times, exported, tmp_path):
    data, whole, chance = exported.read_bytes(), json.loads(predict(exported).stdout), random.Random(times)
    file = tmp_path / "x.onnx"
    for i in range(times):
        place = chance.randrange(len(data)) if i else len(data) - 1
        flipped = data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
        file.write_bytes([flipped, data[:place], data[:place] + b"0" + data[place:]][i % 3])
        done = predict(file)
        assert done.exit_code in (0, 5), (place, done.stderr)
        assert done.exit_code == 5 or json.loads(done.stdout) == whole, place
