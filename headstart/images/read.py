"""External image files become images: what may be opened, how large, and every kind made one.

What a file is, its content says, and only PNG, JPEG and WebP are tried. The size stands in the header, and an image
with too many pixels, or as thin as a line, is refused before one of them is decoded.
"""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from headstart.errors import DataError, did_you_mean, first_line
from headstart.quantities import counted
from headstart.text.files import check_file

FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 50_000_000
LONGEST = 50  # sides by the shorter one, which is made as long as a model needs: the other grows with it
MOST_BYTES = 20 * 2**20
# A file that is called so is meant to be an image; what else lies in a folder is passed over.
NAMES = {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".svg", ".heic", ".avif", ".ico"}


def find_images(folder: str | Path) -> list[str]:
    """Every file below `folder` that is called an image, by its path from there, in order."""
    if not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise DataError(f"{folder}: this is no folder; a folder of images is needed here.", "DATA_PATH")
        parent = Path(folder).absolute().parent
        beside = [each.name for each in parent.iterdir() if each.is_dir()] if os.access(parent, os.R_OK) else []
        raise DataError(f"{folder}: no such folder.{did_you_mean(Path(folder).name, beside)}", "DATA_PATH")
    found: list[str] = []
    been: set[str] = set()  # links may lead in a circle
    for place, below, names in os.walk(folder, onerror=_cannot_enter, followlinks=True):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if os.path.realpath(place) in been:
            below.clear()
            continue
        been.add(os.path.realpath(place))
        images = (n for n in names if os.path.splitext(n)[1].lower() in NAMES and not n.startswith("."))
        found += [os.path.relpath(os.path.join(place, name), folder) for name in images]
    if not found:
        raise DataError(f"{folder}: no .png, .jpg or .webp file in this folder.", "DATA_EMPTY")
    return sorted(found)


def _cannot_enter(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror}).", "DATA_PATH") from None


def check_image(path: Path) -> os.stat_result:
    """What the file system knows of an image file; refused if that is enough to tell that it cannot be used."""
    check_file(path)
    found = path.stat()
    if not found.st_size:
        raise _refusal(path, "the file is empty")
    if found.st_size > MOST_BYTES:
        raise _refusal(path, f"{found.st_size:,} bytes are more than the {MOST_BYTES:,} that are read")
    return found


def read_image(path: Path) -> Image.Image:
    """The first frame of an image file, upright and in RGB; a DataError of one sentence for what cannot be used."""
    check_image(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of is a bomb, which is refused below, or bad metadata
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise Image.DecompressionBombError(f"{image.width:,} x {image.height:,} pixels")
                if max(image.size) > LONGEST * min(image.size):
                    raise _refusal(path, f"{image.width:,} x {image.height:,} pixels are a line and not an image")
                image.load()
                return _rgb(ImageOps.exif_transpose(image))
    except UnidentifiedImageError:
        raise _refusal(path, "not a PNG, JPEG or WebP image") from None
    except Image.DecompressionBombError as error:
        found = re.search(r"\d[\d, x]*", str(error))
        many = f"{found[0].strip()} pixels are more than" if found else "more pixels than"
        raise _refusal(path, f"{many} the {MOST_PIXELS:,} that are decoded") from None
    except (OSError, SyntaxError, ValueError, struct.error, EOFError, IndexError, KeyError, TypeError) as error:
        raise _refusal(path, f"damaged ({first_line(error)})") from None  # Pillow raises all of these


def refuse_bad(bad: dict[str, str], strict: bool, usable: int, where: str) -> None:
    """Go on without the files that cannot be used, unless none can, or none may be left out."""
    if bad and (strict or not usable):
        first = "; ".join(f"{name}: {why}" for name, why in list(bad.items())[:3])
        more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        message = f"{where}: {len(bad):,} of {len(bad) + usable:,} images cannot be used: {first}{more}"
        raise DataError(ended(message), "DATA_IMAGE")


def bad_notes(bad: dict[str, str], most: int = 5) -> Sequence[str]:
    """What to report of files that were left out: the first by name, and how many."""
    notes = [ended(f"{name} was left out: {why}") for name, why in list(bad.items())[:most]]
    return [*notes, f"{counted(len(bad), 'image', 'was', 'were')} left out."] if bad else []


def ended(sentence: str) -> str:
    """With a full stop, unless it ends with a hint that asks.

    >>> ended("a.png was left out: the file is empty"), ended("b.png: no such file. Did you mean 'a.png'?")
    ('a.png was left out: the file is empty.', "b.png: no such file. Did you mean 'a.png'?")
    """
    return sentence if sentence.endswith("?") else f"{sentence}."


def _refusal(path: Path, why: str) -> DataError:
    return DataError(f"{path}: {why}.", "DATA_IMAGE")


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits a pixel, which Pillow would cut off at 255
        deep, unseen = np.asarray(image), image.info.get("transparency")
        image = Image.fromarray((deep.astype(np.float32) / 257).round().clip(0, 255).astype(np.uint8))
        if unseen is not None:
            image.putalpha(Image.fromarray(np.where(deep == unseen, 0, 255).astype(np.uint8)))
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return image.convert("RGB")
