"""Search: the same similarities as transformers', the wanted picture and what each word did, and a page that is safe."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers
from torch.testing import assert_close

from headstart.bases.matcher import open_matcher
from headstart.errors import DataError, ModelError, UserError
from headstart.hub.packs import pack_folder
from headstart.images.read import read_image
from headstart.jobs.default_matcher import default_matcher
from headstart.runs.watch import Watch
from headstart.show.view import Inspection
from headstart.use.match import classify
from headstart.use.search import ImageFolder, ImageSearch


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP model with random weights, as transformers writes it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("clip")
    words = ["<|startoftext|>", "red", "blue", "green", "yellow", "over", "a", "picture", "of", "x", "<|endoftext|>"]
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="x"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.save(str(folder / "tokenizer.json"))
    marks = {"bos_token_id": 0, "eos_token_id": 10, "pad_token_id": 10}
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**shape, **marks, "vocab_size": len(words), "max_position_embeddings": 12},
        vision_config={**shape, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    torch.manual_seed(0)
    model = transformers.CLIPModel(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(folder)
    transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}
    ).save_pretrained(folder)
    return folder


def test_a_clip_model_gives_the_similarities_that_transformers_gives(clip: Path, pictures: Path) -> None:
    import transformers

    captions = ["red over ocean", "A picture of yellow", "green"]
    search = ImageSearch.open(pictures / "images", str(clip))
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    processor = transformers.CLIPImageProcessorPil.from_pretrained(clip)
    backend = Backend.from_file(str(clip / "tokenizer.json"))
    rows = [[0, *backend.encode(c).ids, 10] for c in captions]
    ids = torch.tensor([row + [10] * (8 - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (8 - len(row)) for row in rows])
    images = [read_image(pictures / "images" / file) for file in search.files]
    with torch.inference_mode():
        found = model(input_ids=ids, attention_mask=mask, **processor(images, return_tensors="pt"))
    assert_close(search.scores(captions) * search.matcher.scale, found.logits_per_text, atol=1e-4, rtol=1e-4)
    again = ImageSearch.open(pictures / "images", str(clip))
    assert (search.new, again.new) == (48, 0)
    assert torch.equal(again.scores(captions), search.scores(captions))


def described(clip: Path, tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "changed"
    folder.mkdir()
    for file in clip.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def test_a_clip_model_with_other_settings_looks_again(clip: Path, pictures: Path, tmp_path: Path) -> None:
    vision = json.loads((clip / "config.json").read_text())["vision_config"]
    other = described(clip, tmp_path, vision_config={**vision, "num_attention_heads": 4})
    assert [ImageSearch.open(pictures / "images", str(name)).new for name in (clip, other, clip)] == [48, 48, 0]


def test_a_clip_model_that_is_not_what_it_says_is_refused(clip: Path, tmp_path: Path) -> None:
    folder = described(clip, tmp_path, projection_dim=9)
    with pytest.raises(ModelError, match=r"do not make the CLIP model.*_projection.weight"):
        open_matcher(str(folder))
    text = json.loads((clip / "config.json").read_text())["text_config"]
    (folder / "config.json").write_text(
        json.dumps({"model_type": "clip", "text_config": {**text, "num_hidden_layers": 10**9}})
    )
    with pytest.raises(ModelError, match="its settings speak of 10000000"):
        open_matcher(str(folder))
    (folder / "config.json").write_text(json.dumps({"model_type": "blip"}))
    with pytest.raises(ModelError, match="kind 'blip' do not match captions and images"):
        open_matcher(str(folder))
    (tmp_path / "other").mkdir()
    folder = described(clip, tmp_path / "other", auto_map={"AutoModel": "x.Y"})
    open_matcher(str(folder))  # what it says of code is passed over
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="only pickled weights"):
        open_matcher(str(folder))


@pytest.mark.parametrize(
    ("says", "told"),
    [([], "not a model that Headstart wrote"), ({"crop_size": {"height": 16}}, "'width'"),
     ({"crop_size": {"height": 16, "width": 8}}, "16 x 8 pixels are no square"),
     ({"crop_size": 8}, "they come out 8 pixels wide, and the model reads 16"),
     ({"image_std": [0.5, 0, 0.5]}, "std.1: Input should be greater than 0"), ({"image_mean": [0.5]}, "mean"),
     ({"do_rescale": False}, "divided by 255"), ({"rescale_factor": 0}, "division by zero"), ({"resample": 1}, "1")],
)  # fmt: skip
def test_a_way_to_prepare_pictures_that_is_not_understood_is_refused(
    says: Any, told: str, clip: Path, tmp_path: Path
) -> None:
    folder = described(clip, tmp_path)
    for name in ("processor_config.json", "preprocessor_config.json"):
        (folder / name).unlink(missing_ok=True)
    base = {"size": {"shortest_edge": 16}, "crop_size": 16}
    (folder / "preprocessor_config.json").write_text(json.dumps({**base, **says} if says else says))
    with pytest.raises(ModelError, match=told):
        open_matcher(str(folder))


def test_pictures_that_are_not_centred_keep_their_numbers(clip: Path, tmp_path: Path) -> None:
    folder = described(clip, tmp_path)
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": 16, "crop_size": 16, "do_normalize": False}))
    pixels = open_matcher(str(folder)).pixels
    assert (pixels.mean, pixels.std) == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def test_the_best_pictures_come_first_with_rank_and_score(matcher: Path, pictures: Path) -> None:
    search = ImageSearch.open(pictures, str(matcher))
    sheet = search.find(["red over ocean"], top=5)[0]
    assert [found.rank for found in sheet.found] == [1, 2, 3, 4, 5]
    scores = search.scores(["red over ocean"])[0]
    assert [found.score for found in sheet.found] == pytest.approx(sorted(scores.tolist(), reverse=True)[:5])
    assert sheet.found[0].file.startswith("images/red-blue")
    assert re.search(r"^ +1 +0\.\d{4} +images/red-blue", str(sheet), flags=re.MULTILINE)
    with pytest.raises(DataError, match="blank"):
        search.scores([" "])


def test_the_edit_tells_the_rank_for_each_caption_and_what_each_word_did(matcher: Path, pictures: Path) -> None:
    search = ImageSearch.open(pictures / "images", str(matcher))
    edits = search.edits("red-blue-0.png", ["red", "red over ocean"])
    first, second = edits.asked
    assert edits.of == 48
    assert [(w.word, w.added) for w in second.words] == [("red", False), ("over", True), ("ocean", True)]
    own = search.files.index("red-blue-0.png")
    for asked in (first, second):
        row = search.scores([asked.caption])[0]
        assert asked.rank == 1 + int((row > row[own]).sum())
        assert asked.best == search.files[int(row.argmax())]
    without = search.scores(["red over"])[0]
    assert second.words[2].helps == pytest.approx(second.score - float(without[own]), abs=1e-6)
    assert second.words[2].rank_without == 1 + int((without > without[own]).sum())
    assert second.rank <= 3 < first.rank  # three shades of it: naming the other colour finds it
    assert f"red-blue-0.png: rank {first.rank} → {second.rank} of 48" in str(edits)
    assert "+ ocean" in str(edits)


@pytest.mark.parametrize("folder", ["", "images"])
def test_images_come_with_their_captions_and_are_wanted_by_them(folder: str, matcher: Path, pictures: Path) -> None:
    search = ImageSearch.open(pictures / folder, str(matcher))
    best = search.find(["red over ocean"], top=1)[0]
    assert best.found[0].own_caption == "red over ocean"
    assert re.search(r"^   1  0\.\d{4}  (images/)?red-blue-\d.png +red over ocean$", str(best), flags=re.MULTILINE)
    told = ImageFolder(search.folder.path, search.files, {search.files[7]: ["A red wall"]})
    assert told.file("a red wall") == search.files[7]


def test_a_table_that_has_no_captions_is_told_and_the_images_are_found(
    matcher: Path, pictures: Path, tmp_path: Path
) -> None:
    class Kept(Watch):
        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    (folder / "pairs.csv").write_text("a,b\n1,2\n")
    sheet = ImageSearch.open(folder, str(matcher), watch=Kept()).find(["red"], top=1)[0]
    assert len(notes) == 1
    assert re.match(r"Note: captions of the images are not shown\. .*pairs.csv: no column called file", notes[0])
    assert "caption" not in str(sheet)


def test_the_wanted_image_is_on_the_sheet_and_equal_ones_have_one_order(
    matcher: Path, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "same"
    folder.mkdir()
    for i in range(4):
        shutil.copy(pictures / "images" / "red-red-0.png", folder / f"{i}.png")
    search = ImageSearch.open(folder, str(matcher))
    sheet = search.find(["red"], top=1, target="2.png")[0]
    assert [(each.rank, each.file) for each in sheet.found] == [(1, "0.png"), (3, "2.png")]
    assert re.search(r"^   3  [\d.-]+  2.png \(wanted\)$", str(sheet), flags=re.MULTILINE)
    assert search.edits("2.png", ["red"]).asked[0].rank == 3


@pytest.mark.parametrize(("target", "says"), [("red-blue-9.png", "no such image in .*Did you mean 'images/red-blue"), ("twice.png", "2 images have this name"), ("red over ocean", r"3 images have this caption \(images/red-blue-0.png, "), ("red over oceans", "Did you mean 'red over ocean'")])  # fmt: skip
def test_a_target_that_is_not_there_is_told(
    target: str, says: str, matcher: Path, pictures: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    for place in ("a", "b"):
        (folder / place).mkdir()
        shutil.copy(folder / "images" / "red-red-0.png", folder / place / "twice.png")
    with pytest.raises(DataError, match=says):
        ImageSearch.open(folder, str(matcher)).place(target)


def test_the_sheet_is_drawn_and_its_page_asks_for_nothing(matcher: Path, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>\udcff.png"  # a name need not be UTF-8
    (tmp_path / "images").mkdir()
    for name, color in ((hostile, "red"), ("b.png", "blue")):
        Image.new("RGB", (300, 20), color).save(tmp_path / "images" / name)
    search = ImageSearch.open(tmp_path / "images", str(matcher))
    caption = "</title><script>alert(1)</script>"
    sheet = search.find([caption], 2, thumbnails=True)[0]
    html = Inspection("run", caption, (sheet,)).html()
    assert html.encode()
    assert html.count("data:image/png;base64,") == 2
    assert "img-src data:" in html
    assert "<img src=x" not in html
    assert html.count("<script>") == 1  # ours
    assert not re.search(r"(src|href)=\"?(http|//)", html)
    assert sheet.picture().png().startswith(b"\x89PNG")
    assert search.edits(hostile, ["blue", "blue over red"]).picture().png().startswith(b"\x89PNG")


def test_classes_are_told_from_their_names_and_scored_by_their_folders(
    matcher: Path, pictures: Path, tmp_path: Path
) -> None:
    for color in ("red", "blue"):
        (tmp_path / "images" / color).mkdir(parents=True)
        for shade in range(3):
            name = f"{color}-{color}-{shade}.png"
            (tmp_path / "images" / color / name).write_bytes((pictures / "images" / name).read_bytes())
    found = classify(str(matcher), tmp_path / "images", [], ["{}", "the upper {}"])
    assert found["labels"] == ["blue", "red"]
    assert found["scores"]["accuracy"] == 1.0
    for image in found["images"]:
        assert sum(image["probabilities"].values()) == pytest.approx(1.0)
        assert image["label"] == max(image["probabilities"], key=image["probabilities"].get)
    assert classify(str(matcher), pictures / "images", ["red", "blue"])["scores"] is None
    with pytest.raises(UserError, match="two labels or more"):
        classify(str(matcher), pictures / "images", ["red"])
    with pytest.raises(UserError, match="'a photo' does not"):
        classify(str(matcher), pictures / "images", ["red", "blue"], ["a photo"])


def test_the_newest_run_is_the_default_matcher(matcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/old", "runs/deep/new"):
        shutil.copytree(matcher, name)
        (Path(name) / "result.json").touch()
    assert default_matcher(Path("photos"), Watch()) == "runs/deep/new"
    shutil.copytree(matcher, "runs/damaged")
    Path("runs/damaged/env.json").write_text("[")
    assert default_matcher(Path("photos"), Watch()) == "runs/deep/new"
    emoji = pack_folder("emoji")
    ours = shutil.copytree(matcher, emoji.parent.parent / "runs" / emoji.name)
    assert default_matcher(emoji / "images", Watch()) == str(ours)  # a model that has seen emoji is always at hand


def test_a_file_of_another_shape_of_weights_is_named(clip: Path, tmp_path: Path) -> None:
    folder = described(clip, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("visual_projection.weight")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"visual_projection\.weight missing"):
        open_matcher(str(folder))
