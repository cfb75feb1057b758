"""A model whose files are not those that were written is refused, and no answer is made of numbers that are none."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from headstart.bases.matcher import open_encoder, read_dual
from headstart.bases.translator import read_translator
from headstart.cli import app
from headstart.config import FinetuneConfig, TranslateConfig
from headstart.errors import ModelError
from headstart.jobs.finetune import finetune
from headstart.jobs.translate import translate
from headstart.runs.manifest import unverified
from headstart.runs.model_dir import read_model
from headstart.schema import parse
from headstart.strict_json import to_json

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1" / "run"
TEXTS = ["film 3 was lovely from end to end", "film 4 was awful", "dull"]
MUTATIONS = [100, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: one epoch over rows that one word decides."""
    folder = tmp_path_factory.mktemp("classifier")
    rows = [f"film {i} was {'lovely' if i % 2 else 'awful'},{'positive' if i % 2 else 'negative'}" for i in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    settings = {"base": "bert", "init": "scratch", "epochs": 1, "data": {"train": str(folder / "reviews.csv")}}
    settings |= {"model": {"size": "nano", "context": 16}, "tokenizer": {"kind": "word"}}
    settings |= {"train": {"batch_size": 8, "threads": 1, "tensorboard": False, "lr": 1e-2}}
    finetune(parse(FinetuneConfig, settings), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    (folder / "pairs.tsv").write_text("\n".join(f"a{i}\t{i}a" for i in range(20)))
    settings = {"data": {"pairs": [str(folder / "pairs.tsv")]}, "model": {"hidden": 8}, "epochs": 1}
    translate(parse(TranslateConfig, {**settings, "train": {"threads": 1, "tensorboard": False}}), folder / "run")
    return folder / "run"


@pytest.fixture(params=["classifier", "translator", "matcher"])
def finished(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[Path], Any]]:
    """A copy of model/ of a run, and what opens it."""
    reads = {"classifier": read_model, "translator": read_translator, "matcher": read_dual}
    shutil.copytree(request.getfixturevalue(request.param) / "model", tmp_path / "model")
    return tmp_path / "model", reads[request.param]


@pytest.fixture
def run(classifier: Path, tmp_path: Path) -> Path:
    """A copy of the classifier, to be damaged."""
    shutil.copytree(classifier, tmp_path / "run")
    return tmp_path / "run"


def predict(run: Path, *flags: str) -> Result:
    return CliRunner().invoke(app, ["predict", str(run), *TEXTS, "--json", *flags])


def swap_labels(run: Path) -> None:
    file = run / "model" / "config.json"
    described = json.loads(file.read_text())
    described["headstart"]["labels"].reverse()
    file.write_text(json.dumps(described))


def test_every_file_but_the_card_is_held_against_what_was_written(finished):
    folder, read = finished
    read(folder)
    (folder / "README.md").write_text("Mine, and better.")
    read(folder)
    for file in [*sorted(folder.glob("*.json")), folder / "model.safetensors"]:
        whole = file.read_bytes()
        for damaged in (whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], whole[:-9]):
            file.write_bytes(damaged)
            with pytest.raises(ModelError, match=r"is damaged, or was changed by hand: .*(written|manifest)"):
                read(folder)
        file.write_bytes(whole)
    read(folder)


def test_a_flipped_bit_and_swapped_labels_are_told_and_taken_only_when_asked(run):
    before = json.loads(predict(run).stdout)
    swap_labels(run)
    refused = predict(run)
    assert refused.exit_code == 5
    told = json.loads(refused.stderr)["error"]
    assert told["code"] == "MODEL"
    assert "config.json" in told["message"]
    assert "--no-verify takes it as it is" in told["message"]
    taken = predict(run, "--no-verify")
    assert taken.exit_code == 0, taken.stderr
    assert [r["label"] for r in json.loads(taken.stdout)] != [r["label"] for r in before]
    assert predict(run).exit_code == 5, "what one command was told, the next one was not"


def test_a_model_without_a_manifest_is_opened(run):
    assert not (GOLDEN / "model" / "MANIFEST.json").exists()
    read_model(GOLDEN / "model")
    (run / "model" / "MANIFEST.json").unlink()
    assert predict(run).exit_code == 0


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{}x",
        b"[]",
        b'{"config.json": {"bytes": "1", "sha256": ""}}',
        b'{"../../secret": {"bytes": 1, "sha256": ""}}',
        b" " * (1 << 21),
    ],
)
def test_a_manifest_that_is_none_is_one_sentence(run, manifest):
    (run / "model" / "MANIFEST.json").write_bytes(manifest)
    assert predict(run).exit_code == 5
    assert predict(run, "--no-verify").exit_code == 0


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.safetensors"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(run, name):
    (run / "model" / name).unlink()
    os.mkfifo(run / "model" / name)
    assert predict(run).exit_code == 5


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused_by_name(run, number):
    file = run / "model" / "model.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[1] = number
    save_file(tensors, file)
    done = predict(run, "--no-verify")
    assert done.exit_code == 5
    assert f"the tensor {name} holds numbers that are not finite" in json.loads(done.stderr)["error"]["message"]


def test_large_weights_are_finite(run):
    file = run / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors[sorted(tensors)[0]].fill_(3e38)
    save_file(tensors, file)
    with unverified():
        read_model(run / "model")


def test_an_image_tower_of_others_must_be_finite_too(towers, tmp_path):
    shutil.copytree(towers["image"], tmp_path / "image")
    file = tmp_path / "image" / "model.safetensors"
    save_file({name: torch.full_like(t, math.nan) for name, t in load_file(file).items()}, file)
    with pytest.raises(ModelError, match="not finite"):
        open_encoder(str(tmp_path / "image"), None)


def test_json_has_no_word_for_what_is_not_finite():
    value = {"a": math.nan, "b": [1.5, (math.inf, {"c": -math.inf})], "é": "é"}
    assert to_json(value) == '{"a": null, "b": [1.5, [null, {"c": null}]], "é": "é"}'


@pytest.mark.parametrize("times", MUTATIONS)
def test_damage_anywhere_never_gives_another_answer(times, classifier, tmp_path):
    """One bit, one cut or one byte more, in any file, at random places."""
    whole = json.loads(predict(classifier).stdout)
    chance = random.Random(times)
    names = [path.name for path in sorted((classifier / "model").iterdir())]
    shutil.copytree(classifier, tmp_path / "run")
    for i in range(times):
        file = tmp_path / "run" / "model" / names[i % len(names)]
        data = file.read_bytes()
        place = chance.randrange(len(data))
        damaged = [
            data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :],
            data[:place],
            data[:place] + b"0" + data[place:],
        ][chance.randrange(3)]
        file.write_bytes(damaged)
        done = predict(tmp_path / "run")
        assert done.exit_code in (0, 5), (file.name, place, done.stderr)
        assert done.exit_code == 5 or json.loads(done.stdout) == whole, (file.name, place)
        assert predict(tmp_path / "run", "--no-verify").exit_code in (0, 4, 5), (file.name, place)
        file.write_bytes(data)
