"""Captions are read from any table, and no picture and no group stands on two sides of a split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headstart.data import CaptionsConfig
from headstart.errors import DataError
from headstart.images.captions import Captioned, CaptionParts, read_captions, split_captions

ROWS = [("a.png", "one"), ("b.png", "two"), ("a.png", "three"), ("a.png", "one"), ("c.png", "  "), ("", "four")]


def write(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("file", "caption")) -> str:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows))
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(mark.join(row) + "\n" for row in [header, *rows]))
    return str(path)


def config(pairs: str, **settings: Any) -> CaptionsConfig:
    return CaptionsConfig(pairs=pairs, **settings)


def split(found: Captioned, cfg: CaptionsConfig, **copies: str) -> CaptionParts:
    """Every picture has a content of its own, apart from `copies`."""
    return split_captions(found, {file: copies.get(file.removesuffix(".png"), file) for file in found.captions}, cfg)


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv", ".jsonl"])
def test_several_captions_of_a_picture_come_together(suffix: str, tmp_path: Path) -> None:
    found = read_captions(config(write(tmp_path / f"rows{suffix}", ROWS)))
    assert found.captions == {"a.png": ["one", "three"], "b.png": ["two"]}
    assert found.blank == 2
    assert found.folder == tmp_path


def test_a_folder_stands_for_its_table_and_its_images(tmp_path: Path) -> None:
    write(tmp_path / "pairs.csv", ROWS)
    (tmp_path / "images").mkdir()
    for images in (None, str(tmp_path)):
        assert read_captions(config(str(tmp_path), images=images)).folder == tmp_path / "images"


def test_columns_are_found_or_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ROWS, ("image", "said"))
    with pytest.raises(DataError, match=r"no column called caption.*--caption-column"):
        read_captions(config(file))
    assert read_captions(config(file, caption_column="said")).captions["b.png"] == ["two"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("a.md", "file,caption\na.png,x\n", "captions are read from a .csv"), ("a.csv", "file,caption\n,x\n", "no row with a file"),
     ("b.csv", None, "no such file")],
)  # fmt: skip
def test_what_holds_no_captions_is_told(name: str, text: str | None, says: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=says):
        read_captions(config(str(tmp_path / name)))


def test_pictures_of_a_group_stand_on_one_side(tmp_path: Path) -> None:
    rows = [(f"{i}-{tone}.png", f"hand {i}", f"hand {i}") for i in range(40) for tone in range(5)]
    cfg = config(write(tmp_path / "a.csv", rows, ("file", "caption", "group")), test_fraction=0.2, valid_fraction=0.2)
    parts = split(read_captions(cfg), cfg).parts()
    sides = [{file.split("-")[0] for file in part} for part in parts.values()]
    assert all(len(side) >= 5 for side in sides)
    assert len(set.union(*sides)) == sum(map(len, sides)) == 40
    assert sum(map(len, parts.values())) == 200


def test_the_split_does_not_depend_on_the_order_and_the_seed_changes_it(tmp_path: Path) -> None:
    rows = [(f"{i}.png", f"caption {i}") for i in range(50)]

    def tested(name: str, rows: list[tuple[str, ...]], seed: int) -> set[str]:
        cfg = config(write(tmp_path / name, rows), split_seed=seed)
        return set(split(read_captions(cfg), cfg).test)

    first = tested("a.csv", rows, 0)
    assert len(first) == 5
    assert tested("b.csv", rows[::-1], 0) == first
    assert tested("c.csv", rows, 2) != first


def test_too_few_pictures_are_refused(tmp_path: Path) -> None:
    cfg = config(write(tmp_path / "a.csv", ROWS))
    with pytest.raises(DataError, match=r"2 images are too few.* needs two or more\.$"):
        split(read_captions(cfg), cfg)


@pytest.mark.parametrize("seed", range(3))
def test_copies_of_a_picture_stand_on_one_side_and_so_do_the_groups_that_share_one(seed: int, tmp_path: Path) -> None:
    rows = [(f"{i}.png", f"caption {i}", f"group {i // 2}") for i in range(60)]
    cfg = config(
        write(tmp_path / "a.csv", rows, ("file", "caption", "group")),
        test_fraction=0.3, valid_fraction=0.3, split_seed=seed,
    )  # fmt: skip
    found = read_captions(cfg)
    chain = {str(i): f"content {(i + 1) // 4}" for i in range(20)}  # copies tie each group to one beside it
    sides = [{int(file.removesuffix(".png")) for file in part} for part in split(found, cfg, **chain).parts().values()]
    assert sum(set(range(20)) <= side for side in sides) == 1
    assert all(len(side) >= 8 for side in sides)
    plain = split(found, cfg)
    assert plain == split(found, cfg, **{"0": "a", "1": "a"}), "copies that stand together already change nothing"


def test_the_group_of_a_picture_is_the_one_that_is_told_and_no_two(tmp_path: Path) -> None:
    rows = [("a.png", "one", ""), ("a.png", "two", "x"), ("b.png", "three", "x"), ("c.png", "four", "")]
    table = write(tmp_path / "a.csv", rows, ("file", "caption", "group"))
    assert read_captions(config(table)).groups == {"a.png": "x", "b.png": "x", "c.png": "c.png"}
    write(tmp_path / "a.csv", [*rows, ("a.png", "five", "y")], ("file", "caption", "group"))
    with pytest.raises(DataError, match=r"a\.png stands in two groups, 'x' and 'y'"):
        read_captions(config(table))


def test_groups_that_are_too_large_to_hold_out_are_named(tmp_path: Path) -> None:
    rows = [(f"{i}.png", f"caption {i}", f"group {i % 3}") for i in range(40)]
    cfg = config(write(tmp_path / "a.csv", rows, ("file", "caption", "group")), valid_fraction=0.5)
    with pytest.raises(DataError, match=r"0 tested on, .* Images of a group stay together, and 'group 0' has 14\.$"):
        split(read_captions(cfg), cfg)


def test_a_whole_path_into_the_folder_of_the_images_is_one_from_there(tmp_path: Path) -> None:
    rows = [(str(tmp_path / "images" / "a.png"), "one"), ("a.png", "two"), ("/elsewhere/b.png", "three")]
    (tmp_path / "images").mkdir()
    found = read_captions(config(write(tmp_path / "rows.csv", rows)))
    assert found.captions == {"a.png": ["one", "two"], "/elsewhere/b.png": ["three"]}
