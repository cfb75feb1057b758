"""Tiny models, tiny data, one thread: what every test stands on."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # of child processes too: tests run beside each other, and threads would wait

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # child processes would compile every module again, 0.3 s each

import functools
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import typer.testing
from hypothesis import settings
from PIL import Image

from headstart.jobs import curves
from headstart.shapes import HuggingFaceConfig, TransformerConfig
from headstart.show import picture

settings.register_profile("headstart", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("headstart")

pytest_plugins = ["tests.faulty_disk"]

# The files that take longest, by processor seconds. They begin first, so that no worker works alone at the end.
LONGEST = (
    "tests/test_readme.py",
    "tests/mutations/test_mutations.py",
    "tests/study/test_which.py",
    "tests/serve/test_browser.py",
    "tests/serve/test_security.py",
    "tests/jobs/test_resume.py",
    "tests/labs/test_attention_lab.py",
    "tests/study/test_study.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONGEST)))


SENTENCES = [
    f"{who} {verb} {article} {animal}."
    for who in ("I", "She", "He", "They")
    for verb in ("hold", "rub", "see")
    for article in ("a", "the")
    for animal in ("dog", "cat", "bird")
]


def no_unpickling(event: str, arguments: tuple[Any, ...]) -> None:
    """A tripwire under all tests: whatever a pickle asks for by name could be run. Processes of one study may talk."""
    if event == "pickle.find_class":
        frame: FrameType | None = sys._getframe()
        while frame:
            if "multiprocessing" in frame.f_code.co_filename:
                return
            frame = frame.f_back
        raise AssertionError(f"something was unpickled: {arguments}")


sys.addaudithook(no_unpickling)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """curves.png of a run is plotted and written, but blank: to draw it takes as long as to train the tiniest models."""
    blank = io.BytesIO()
    Image.new("RGB", (1, 1)).save(blank, "PNG")

    def axes(count: int, width: float, height: float) -> tuple[Any, Sequence[Any]]:
        figure, found = picture.axes(count, width, height)
        figure.savefig = lambda file, **_: file.write(blank.getvalue())
        return figure, found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "axes", axes)
        yield


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at it."""
    monkeypatch.setattr(curves, "axes", picture.axes)


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """A corpus of 72 sentences, one a line."""
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(SENTENCES), "utf-8")
    return path


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """80 labelled rows that a classifier can learn from one word."""
    good, bad = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
    rows = [
        f"film {i} was {(good if i % 2 else bad)[i // 2 % 4]} from end to end,{'positive' if i % 2 else 'negative'}"
        for i in range(80)
    ]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    return path


@pytest.fixture
def tiny() -> Callable[..., TransformerConfig]:
    """A transformer small enough to run in a millisecond."""

    def make(preset: str = "gpt", **settings: Any) -> TransformerConfig:
        shape = {"vocab": 53, "layers": 2, "heads": 2, "width": 16, "ff": 32, "context": 24}
        return TransformerConfig.model_validate({"preset": preset, **shape, **settings})

    return make


# The smallest models of each kind that transformers builds; `tiny` ones of ours have the same shape.
ELSEWHERE: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 24},
    "roberta": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 26, "pad_token_id": 1},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 24},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24},
    "llama": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 24},
}  # fmt: skip
ELSEWHERE |= {"mpnet": {**ELSEWHERE["roberta"], "layer_norm_eps": 1e-5}}
ELSEWHERE |= {"camembert": ELSEWHERE["roberta"], "xlm-roberta": ELSEWHERE["roberta"]}
ELSEWHERE |= {"mistral": ELSEWHERE["llama"], "qwen2": ELSEWHERE["llama"]}


@pytest.fixture
def elsewhere() -> Callable[..., HuggingFaceConfig]:
    """The shape of a tiny model of transformers."""
    pytest.importorskip("transformers")
    from headstart.models.huggingface import shape_of

    def make(model_type: str, **settings: Any) -> HuggingFaceConfig:
        return shape_of({"model_type": model_type, "vocab_size": 53, **ELSEWHERE[model_type], **settings}, "test")

    return make


@pytest.fixture(scope="session", autouse=True)
def built_once() -> Iterator[None]:
    """The runner builds the command line anew at every call, which takes longer than most verbs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


BELOW = {
    "red": "brick",
    "green": "grass",
    "blue": "ocean",
    "yellow": "sand",
}  # other words, so that their order says nothing
COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230), "yellow": (230, 220, 40)}


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pairs.csv and images/: 48 pictures of one or two colours, each with two captions that name them."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "images").mkdir()
    rows = ["file,caption"]
    for above in COLORS:
        for below in COLORS:
            for shade in range(3):
                image = Image.new("RGB", (20, 16), tuple(max(0, c - 12 * shade) for c in COLORS[above]))
                image.paste(COLORS[below], (0, 8, 20, 16))
                name = f"{above}-{below}-{shade}.png"
                image.save(folder / "images" / name)
                rows += [
                    f"{name},{above} over {BELOW[below]}",
                    f"{name},the lower half is {BELOW[below]} the upper {above}",
                ]
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> dict[str, str]:
    """A text tower (a run of two steps) and an image tower (a folder), both tiny and nearly random."""
    from safetensors.torch import save_file

    from headstart.config import PretrainConfig
    from headstart.jobs.pretrain import pretrain
    from headstart.models.vision import build_encoder
    from headstart.runs.checkpoint import weights
    from headstart.schema import parse
    from headstart.shapes import ImageConfig, PatchConfig, PixelsConfig

    folder = tmp_path_factory.mktemp("towers")
    captions = [line.partition(",")[2] for line in (pictures / "pairs.csv").read_text().splitlines()[1:]]
    (folder / "captions.txt").write_text("\n".join(captions))
    train = {"steps": 2, "batch_size": 4, "eval_every": 2, "threads": 1, "tensorboard": False}
    settings: dict[str, Any] = {"data": {"paths": [str(folder / "captions.txt")], "unit": "line"}, "train": train}
    settings |= {"model": {"size": "nano", "context": 24}, "tokenizer": {"kind": "word"}, "objective": "masked"}
    pretrain(parse(PretrainConfig, settings), folder / "text")
    (folder / "image").mkdir()
    torch.manual_seed(0)
    patches = PatchConfig(size=16, patch=4, layers=1, heads=2, width=32)
    cfg = ImageConfig(kind="transformer", pixels=PixelsConfig(size=16, edge=0), patches=patches)
    (folder / "image" / "config.json").write_text(cfg.model_dump_json())
    random = weights(build_encoder(cfg))
    random["positions"] *= 50  # so that it can tell above from below without having learned to
    save_file(random, folder / "image" / "model.safetensors")
    return {"text": str(folder / "text"), "image": str(folder / "image")}


@pytest.fixture(scope="session")
def matcher(tmp_path_factory: pytest.TempPathFactory, pictures: Path, towers: dict[str, str]) -> Path:
    """A finished run of match train on the pictures, with frozen towers."""
    from headstart.config import MatchConfig
    from headstart.jobs.match import match
    from headstart.schema import parse

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(tmp_path_factory.mktemp("cache")))
        settings = {**towers, "data": {"pairs": str(pictures)}, "space": {"width": 16}}
        train = {"steps": 150, "lr": 0.01, "batch_size": 16, "threads": 1, "tensorboard": False}
        folder = tmp_path_factory.mktemp("runs") / "matcher"
        match(parse(MatchConfig, {**settings, "train": train}), folder)
    return folder
