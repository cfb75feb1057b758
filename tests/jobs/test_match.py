"""The matching job: it learns, its frozen towers do not, a killed run goes on to the same weights, bad files are told."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from headstart.bases import image_index
from headstart.bases.image_index import ImageIndex
from headstart.bases.matcher import open_encoder, open_matcher, read_dual
from headstart.config import MatchConfig
from headstart.errors import ConfigError, DataError, ModelError
from headstart.jobs.job import prepare
from headstart.jobs.match import match
from headstart.models.dual import Space
from headstart.models.vision import ImageTransformer
from headstart.runs.model_dir import read_model
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import PatchConfig, PixelsConfig
from headstart.tasks.canonical import start_canonical
from headstart.tasks.retrieve import SeenPairs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def config(pictures: Path, towers: dict[str, str], **settings: Any) -> MatchConfig:
    train = {"steps": 12, "lr": 0.01, "batch_size": 16, "threads": 1, "eval_every": 4, "tensorboard": False}
    given = {**towers, "data": {"pairs": str(pictures)}, "space": {"width": 16}, "train": train}
    return parse(MatchConfig, {**given, **settings})


class Told(Watch):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_it_finds_pictures_that_it_has_not_seen(matcher: Path) -> None:
    result = json.loads((matcher / "result.json").read_text())
    test = result["test"]
    assert test["images"] == 5
    assert test["chance"]["text_to_image"]["recall@1"] == 0.2
    assert test["text_to_image"]["recall@1"]["value"] > 0.2
    rows = [json.loads(line) for line in (matcher / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == test["captions"] == 10
    assert sum(row["rank"] == 1 for row in rows) / 10 == pytest.approx(test["text_to_image"]["recall@1"]["value"])


def test_frozen_towers_stay_as_they_were_and_the_receipt_says_so(matcher: Path, towers: dict[str, str]) -> None:
    receipt = json.loads((matcher / "receipt.json").read_text())
    assert receipt["towers_sha256_before"] == receipt["towers_sha256_after"]
    assert receipt["frozen"] == ["text", "image"]
    assert receipt["frozen_moved"] == []
    assert all(name.startswith("space.") for name in receipt["new"])
    saved, source = read_dual(matcher / "model").model.state_dict(), read_model(Path(towers["text"]) / "model").model
    for name, tensor in source.base.state_dict().items():
        assert torch.equal(saved[f"text.base.{name}"], tensor)


@pytest.mark.parametrize("scope", ["head", "full"])
def test_a_stopped_run_goes_on_to_the_same_weights(
    scope: str, pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    cfg = config(pictures, towers, scope=scope)

    class Killer(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            if done == 6:
                raise KeyboardInterrupt

    match(cfg, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        match(cfg, tmp_path / "cut", watch=Killer())
    result = match(cfg, tmp_path / "cut", resume=True)
    for name in ("model/model.safetensors", "predictions.jsonl", "receipt.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert result["steps"] == 12


def test_projections_are_found_where_what_was_seen_is_kept_and_moved_afterwards(
    pictures: Path, towers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done, find, move = [], start_canonical, Space._apply
    monkeypatch.setattr("headstart.jobs.match.start_canonical", lambda *given: (done.append("found"), find(*given))[1])
    monkeypatch.setattr(Space, "_apply", lambda self, *given: (done.append("moved"), move(self, *given))[1])
    prepare(config(pictures, towers))
    assert done == ["found", "moved"]


def test_towers_that_learn_move(pictures: Path, towers: dict[str, str], tmp_path: Path) -> None:
    match(config(pictures, towers, scope="full", space={"width": 16, "start": "random"}), tmp_path / "run")
    receipt = json.loads((tmp_path / "run" / "receipt.json").read_text())
    for tower in ("text", "image"):
        assert receipt["towers_sha256_before"][tower] != receipt["towers_sha256_after"][tower]


def test_settings_with_which_nothing_could_be_learned_or_read_again_are_refused(
    pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"batch_size must be 2 or more"):
        config(pictures, towers, train={"batch_size": 1})
    tower = shutil.copytree(towers["image"], tmp_path / "tower") / "config.json"
    tower.write_text(tower.read_text().replace('"edge":0', '"edge":20'))
    with pytest.raises(ConfigError, match=r"image_size = 2000: edge: .* less than or equal to 2048 \(got 2500\)"):
        open_encoder(str(tower.parent), PatchConfig(), 2000)


def test_an_image_tower_from_nothing_learns(pictures: Path, towers: dict[str, str], tmp_path: Path) -> None:
    small = {"size": 16, "patch": 4, "layers": 1, "heads": 2, "width": 32}
    cfg = config(pictures, {**towers, "image": "transformer"}, scope="full", patches=small)
    match(cfg, tmp_path / "run")
    losses = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    valid = [line["loss"] for line in losses if line["split"] == "valid"]
    assert valid[-1] < valid[0] - 0.1
    with pytest.raises(Exception, match="--train full"):
        config(pictures, {**towers, "image": "transformer"})


def test_frozen_towers_look_at_every_picture_and_caption_once(
    pictures: Path, towers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match(config(pictures, towers), tmp_path / "first")
    monkeypatch.setattr(ImageTransformer, "forward", lambda *given: pytest.fail("looked again"))
    monkeypatch.setattr("headstart.models.dual.TextTower.forward", lambda *given: pytest.fail("read again"))
    settings = {"data": {"pairs": str(pictures), "split_seed": 3}}
    match(config(pictures, towers, **settings), tmp_path / "second")


@pytest.mark.parametrize(("tower", "file"), [("text", "model/config.json"), ("image", "config.json")])
def test_a_tower_with_the_same_weights_and_other_settings_looks_again(
    tower: str, file: str, pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    other = shutil.copytree(towers[tower], tmp_path / tower)
    described = (other / file).read_text()
    (other / file).write_text(re.sub(r'"heads": ?\d', '"heads": 4', described))
    assert (other / file).read_text() != described
    (other / "model" / "MANIFEST.json").unlink(missing_ok=True)

    def seen(towers: dict[str, str]) -> torch.Tensor:
        pairs = prepare(config(pictures, towers)).pairs
        assert isinstance(pairs, SeenPairs)
        return pairs.text_vectors if tower == "text" else pairs.image_vectors

    assert not torch.equal(seen(towers), seen({**towers, tower: str(other)}))


def test_bad_files_are_named_and_counted_and_the_rest_is_used(
    pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    """D25: a caption without a picture, one of another folder, a file that is empty."""
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    with (folder / "pairs.csv").open("a") as table:
        table.write("gone.png,nothing\n../pairs.csv,elsewhere\nempty.png,empty\n")
    (folder / "images" / "empty.png").touch()
    told = Told()
    for scope in ("head", "full"):
        result = match(config(folder, towers, scope=scope), tmp_path / scope, watch=told)
        assert result["bad_images"] == 3
        assert json.loads((tmp_path / scope / "data.json").read_text())["bad_images"] == {
            "gone.png": "no such file",
            "../pairs.csv": "not in the folder of the images",
            "empty.png": "the file is empty",
        }
    assert "Note: empty.png was left out: the file is empty." in told.notes
    assert "Note: 3 images were left out." in told.notes
    with pytest.raises(DataError, match="3 of 51 images cannot be used"):
        match(config(folder, towers, data={"pairs": str(folder), "strict": True}), tmp_path / "strict")
    assert not (tmp_path / "strict").exists()


def test_what_was_left_out_is_told_before_the_rest_is_too_few(
    pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    first = (pictures / "pairs.csv").read_text().splitlines()[1]
    (tmp_path / "pairs.csv").write_text(f"file,caption\n{first}\nred-red-1.png,\ngone.png,nothing\n")
    told, data = Told(), {"pairs": str(tmp_path / "pairs.csv"), "images": str(pictures / "images")}
    with pytest.raises(DataError, match="1 image is too few"):
        match(config(pictures, towers, data=data), tmp_path / "run", watch=told)
    assert told.notes[-3:] == [
        "Note: gone.png was left out: no such file.",
        "Note: 1 image was left out.",
        "Note: left out 1 row without a file or a caption.",
    ]


def test_a_tower_that_changed_since_the_run_began_is_refused(
    pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    mine = {**towers, "image": str(shutil.copytree(towers["image"], tmp_path / "tower"))}

    class Killer(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        match(config(pictures, mine), tmp_path / "run", watch=Killer())
    weights = tmp_path / "tower" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x3e")
    with pytest.raises(ModelError, match="weights of a tower changed"):
        match(config(pictures, mine), tmp_path / "run", resume=True)


@pytest.mark.parametrize("scope", ["head", "full"])
@pytest.mark.parametrize("change", ["deleted", "repainted"])
def test_pictures_that_changed_since_the_run_began_are_refused(
    change: str, scope: str, pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    cfg = config(folder, towers, scope=scope, space={"width": 16, "start": "random"})

    class Killer(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        match(cfg, tmp_path / "run", watch=Killer())
    picture = folder / "images" / "red-blue-0.png"
    before = picture.read_bytes()
    picture.unlink() if change == "deleted" else Image.new("RGB", (9, 9), "purple").save(picture)
    with pytest.raises(DataError, match="images were added, changed or deleted since this run began") as error:
        match(cfg, tmp_path / "run", resume=True)
    assert error.value.code == "DATA_CHANGED"
    picture.write_bytes(before)
    assert match(cfg, tmp_path / "run", resume=True)["steps"] == 12


def test_other_verbs_say_what_such_a_run_is(matcher: Path, towers: dict[str, str]) -> None:
    with pytest.raises(ModelError, match="matches captions and images"):
        read_model(matcher / "model")
    with pytest.raises(ModelError, match="headstart match train"):
        open_matcher(towers["text"])


# --- the index of a folder


class Eye:
    """A tower that remembers how many pictures it was shown."""

    def __init__(self) -> None:
        self.shown = 0

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        self.shown += len(pixels)
        return pixels.mean((2, 3))


def test_the_index_looks_only_at_what_is_new_and_forgets_what_is_gone(pictures: Path, tmp_path: Path) -> None:
    from headstart.images.read import find_images

    folder, eye = shutil.copytree(pictures / "images", tmp_path / "images"), Eye()
    index = ImageIndex(eye, PixelsConfig(size=8, edge=0), "key")

    def looked() -> int:
        before = eye.shown
        seen = index(folder, find_images(folder))
        fresh = ImageIndex(Eye(), PixelsConfig(size=8, edge=0), f"fresh {eye.shown} {before}")
        assert torch.equal(seen.vectors, fresh(folder, seen.files).vectors), "what is kept is what would be made"
        return eye.shown - before

    files = find_images(folder)
    assert looked() == 48
    assert looked() == 0
    (folder / files[0]).write_bytes((folder / files[1]).read_bytes())  # changed into a known one
    assert looked() == 0
    shutil.move(folder / files[2], folder / "moved.png")
    assert looked() == 0
    (folder / files[3]).unlink()
    assert looked() == 0
    kept = image_index._read(next((tmp_path / "cache" / "images").glob("key*")))
    assert set(kept) == set(find_images(folder))
    Image.new("RGB", (9, 9), "purple").save(folder / "new.png")
    Image.new("RGB", (9, 9), "orange").save(folder / files[5])
    assert looked() == 2
    assert ImageIndex(eye, PixelsConfig(size=8, edge=0), "other")(folder, files[6:9]).new == 3


def test_a_picture_that_keeps_its_size_and_time_is_still_seen_to_have_changed(tmp_path: Path) -> None:
    file, eye = tmp_path / "a.png", Eye()
    index = ImageIndex(eye, PixelsConfig(size=8, edge=0), "key")
    vectors = []
    for color in ("red", "blue"):
        Image.new("RGB", (8, 8), color).save(file, compress_level=0)
        os.utime(file, ns=(10**18, 10**18))
        vectors.append(index(tmp_path, ["a.png"]).vectors[0].tolist())
    assert vectors[0][0] > vectors[0][2]
    assert vectors[1][0] < vectors[1][2]


def test_a_bad_file_is_read_once_and_a_huge_one_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.png").write_text("no image")
    Image.new("RGB", (9, 9), "purple").save(tmp_path / "good.png")
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(2**30)
    files, index = ["bad.png", "good.png", "huge.png"], ImageIndex(Eye(), PixelsConfig(size=8, edge=0), "key")
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("read") if path.name == "huge.png" else read(path))
    first = index(tmp_path, files)
    assert (first.new, first.files) == (2, ["good.png"])
    assert first.bad["bad.png"] == "not a PNG, JPEG or WebP image"
    assert first.bad["huge.png"].startswith("1,073,741,824 bytes are more than")
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("read again"))
    monkeypatch.setattr(image_index, "write_file", lambda *given: pytest.fail("written again"))
    again = index(tmp_path, files)
    assert (again.new, again.bad, again.contents) == (0, first.bad, first.contents)


def test_a_file_that_is_taken_away_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (9, 9), "purple").save(tmp_path / name)
    read = Path.read_bytes

    def read_late(path: Path) -> bytes:
        if path.name == "a.png":
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_late)
    seen = ImageIndex(Eye(), PixelsConfig(size=8, edge=0), "key")(tmp_path, ["a.png", "b.png"])
    assert (seen.files, seen.bad) == (["b.png"], {"a.png": "cannot be read (No such file or directory)"})


def test_two_that_look_at_the_same_time_keep_what_both_saw(pictures: Path) -> None:
    files, eye = sorted(path.name for path in (pictures / "images").iterdir()), Eye()

    def shared(pixels: torch.Tensor) -> torch.Tensor:
        if not eye.shown:  # while this one looks, another looks at the rest
            ImageIndex(eye, PixelsConfig(size=8, edge=0), "key")(pictures / "images", files[4:])
        return pixels.mean((2, 3))

    ImageIndex(shared, PixelsConfig(size=8, edge=0), "key")(pictures / "images", files[:4])
    assert eye.shown == 44
    assert ImageIndex(eye, PixelsConfig(size=8, edge=0), "key")(pictures / "images", files).new == 0


def test_an_index_that_is_damaged_is_made_again_and_a_stop_keeps_what_was_seen(pictures: Path, cache: Path) -> None:
    files = sorted(path.name for path in (pictures / "images").iterdir())
    eye = Eye()

    def tired(pixels: torch.Tensor) -> torch.Tensor:
        if eye.shown >= 32:
            raise KeyboardInterrupt
        return eye(pixels)

    with pytest.raises(KeyboardInterrupt):
        ImageIndex(tired, PixelsConfig(size=8, edge=0), "key")(pictures / "images", files)
    assert ImageIndex(eye, PixelsConfig(size=8, edge=0), "key")(pictures / "images", files).new == 16
    file = next((cache / "images").iterdir())
    file.write_bytes(file.read_bytes()[:100])
    assert ImageIndex(eye, PixelsConfig(size=8, edge=0), "key")(pictures / "images", files).new == 48
