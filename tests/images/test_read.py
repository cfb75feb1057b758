"""D25: every kind of image file becomes one picture in RGB, or one sentence; a bomb is refused before it is decoded."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headstart.errors import DataError
from headstart.images.pixels import pixels_of
from headstart.images.read import bad_notes, find_images, read_image, refuse_bad
from headstart.shapes import PixelsConfig

RED = (250, 10, 10)


def red(size: tuple[int, int] = (8, 6), mode: str = "RGB") -> Image.Image:
    return Image.new("RGB", size, RED).convert(mode)


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is and holds nothing."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = b"IEND"
    chunks = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (body, b"IDAT", end)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _sixteen_bits(path: Path) -> None:
    Image.fromarray(np.full((6, 8), 250 * 257, dtype=np.uint16)).save(path)


def _sixteen_bits_transparent(path: Path) -> None:
    Image.fromarray(np.zeros((6, 8), dtype=np.uint16)).save(path, transparency=0)


def _animated(path: Path) -> None:
    red().save(path, save_all=True, append_images=[Image.new("RGB", (8, 6), "blue")], lossless=True)


def _palette(path: Path) -> None:
    red().quantize(4).save(path, transparency=b"\xff" * 4)


def _transparent(path: Path) -> None:
    Image.new("RGBA", (8, 6), (0, 0, 0, 0)).save(path)


GOOD: dict[str, tuple[str, Callable[[Path], None], tuple[int, int, int]]] = {
    "a JPEG called .png": ("a.png", lambda p: red().save(p, "JPEG", quality=100), RED),
    "a PNG called .jpg": ("a.jpg", lambda p: red().save(p, "PNG"), RED),
    "WebP": ("a.webp", lambda p: red().save(p, lossless=True), RED),
    "CMYK": ("a.jpg", lambda p: red(mode="CMYK").save(p, quality=100), RED),
    "16 bits": ("a.png", _sixteen_bits, (250, 250, 250)),
    "16 bits, transparent": ("a.png", _sixteen_bits_transparent, (255, 255, 255)),
    "animated": ("a.webp", _animated, RED),
    "palette with transparency": ("a.png", _palette, RED),
    "transparent is white, not black": ("a.png", _transparent, (255, 255, 255)),
    "one bit": ("a.png", lambda p: Image.new("1", (8, 6), 1).save(p), (255, 255, 255)),
}


@pytest.mark.parametrize("kind", GOOD)
def test_every_kind_of_image_becomes_rgb(kind: str, tmp_path: Path) -> None:
    name, make, color = GOOD[kind]
    make(tmp_path / name)
    image = read_image(tmp_path / name)
    assert (image.mode, image.size) == ("RGB", (8, 6))
    assert np.abs(np.asarray(image).astype(int) - color).max() <= 6  # what JPEG and CMYK lose


def test_a_picture_is_turned_as_its_camera_was_held(tmp_path: Path) -> None:
    image, exif = Image.new("RGB", (8, 6), "white"), Image.Exif()
    image.paste(RED, (0, 0, 8, 3))  # the upper half
    exif[0x0112] = 6  # the camera was turned left: right is up
    image.save(tmp_path / "a.png", exif=exif)
    turned = read_image(tmp_path / "a.png")
    assert turned.size == (6, 8)
    assert turned.getpixel((5, 4)) == RED
    assert turned.getpixel((0, 4)) == (255, 255, 255)


BAD: dict[str, tuple[str, bytes, str]] = {
    "nothing in it": ("a.png", b"", "the file is empty"),
    "text": ("a.jpg", b"hello", "not a PNG, JPEG or WebP image"),
    "SVG": ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG, JPEG or WebP image"),
    "GIF, which is not read": ("a.gif", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", "not a PNG, JPEG or WebP image"),
    "a bomb": ("a.png", png_header(50_000, 50_000), "pixels are more than the 50,000,000 that are decoded"),
    "a small bomb": ("a.png", png_header(9_000, 6_000), "9,000 x 6,000 pixels are more than the 50,000,000"),
    "a line": ("a.png", png_header(60_000, 1), "60,000 x 1 pixels are a line and not an image"),
    "a thin column": ("a.png", png_header(10, 501), "10 x 501 pixels are a line"),
    "no pixels": ("a.png", png_header(8, 6), "damaged"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_image_is_told_in_one_sentence(kind: str, tmp_path: Path) -> None:
    name, data, says = BAD[kind]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"^{tmp_path / name}: .*{says}.*\.$") as error:
        read_image(tmp_path / name)
    assert error.value.code == "DATA_IMAGE"


def test_a_truncated_image_is_damaged(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for name in ("a.jpg", "a.png", "a.webp"):
        Image.fromarray(noise).save(tmp_path / name)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-400])
        with pytest.raises(DataError, match="damaged"):
            read_image(tmp_path / name)


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(png_header(9_000, 6_000))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(DataError, match="more than the 50,000,000"):
        read_image(tmp_path / "a.png")


def test_a_strip_that_is_no_line_is_read(tmp_path: Path) -> None:
    red((400, 8)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").size == (400, 8)


def test_only_what_is_called_an_image_is_found_and_below_folders_too(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "deep/er/c.webp", "notes.txt", ".hidden.png", "d.svg", ".hidden/e.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_images(tmp_path) == ["a.jpg", "b.PNG", "d.svg", "deep/er/c.webp"]


def test_folders_are_found_through_links_and_each_once(tmp_path: Path) -> None:
    for name in ("here/a.png", "elsewhere/b.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "here" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "round").symlink_to(tmp_path / "here")
    assert find_images(tmp_path / "here") == ["a.png", "more/b.png"]


def test_a_folder_that_cannot_be_entered_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.png").touch()
    enter = os.scandir

    def refuse(place: str) -> Any:
        if str(place).endswith("closed"):
            raise PermissionError(13, "Permission denied", place)
        return enter(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"closed: cannot be read \(Permission denied\)\.$"):
        find_images(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"), [("photo", "no such folder. Did you mean 'photos'"), ("a.txt", "a folder of images is needed")]
)
def test_where_there_is_no_folder_it_is_told(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=says):
        find_images(tmp_path / name)


def test_bad_files_are_left_out_unless_strict_or_all() -> None:
    bad = {f"{i}.png": "damaged" for i in range(5)}
    refuse_bad(bad, strict=False, usable=1, where="here")
    refuse_bad({}, strict=True, usable=1, where="here")
    for strict, usable in ((True, 1), (False, 0)):
        with pytest.raises(DataError, match=r"5 of \d images cannot be used: 0.png: damaged; .*; and 2 more\.$"):
            refuse_bad(bad, strict, usable, "here")
    assert bad_notes(bad, most=2) == [
        "0.png was left out: damaged.", "1.png was left out: damaged.", "5 images were left out.",
    ]  # fmt: skip
    assert len(bad_notes({f"{i}.png": "damaged" for i in range(99)})) == 6
    assert bad_notes({"a.png": "no such file. Did you mean 'b.png'?"})[0].endswith("Did you mean 'b.png'?")


def test_pixels_are_the_middle_of_the_picture_or_the_whole(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 10), "black")
    image.paste("white", (10, 0, 20, 10))
    plain = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    middle = pixels_of(image, PixelsConfig(size=10, edge=10, **plain))
    assert middle.shape == (3, 10, 10)
    assert middle.min() == 1.0
    whole = pixels_of(image, PixelsConfig(size=10, edge=0, **plain))
    assert whole[:, 5, 0].max() == 0.0
    assert whole[:, 5, 5].min() == 1.0
    centred = pixels_of(image, PixelsConfig(size=10, edge=10, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)))
    assert centred.max() == 2.0
