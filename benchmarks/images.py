"""Looking through a folder of images: how many a second the first time, and a second search from the shell.

python -m benchmarks.images [--images 1000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.timing import timed
from headstart.hub.packs import get_pack

TOWER = "efficientnet-lite0"
TRAIN = f"match train pictures --image {TOWER} --epochs 1 --out run --quiet"
HEADSTART = [sys.executable, "-m", "headstart"]


def line(samples: int, images: int = 1000) -> str:
    """JPEG files of 500 x 375 pixels, as of Flickr8k."""
    for name in ("minilm", TOWER):
        get_pack(name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_images(folder / "pictures", images)
        rows = [f"{i}.jpg,picture number {i}" for i in range(40)]
        (folder / "pictures" / "pairs.csv").write_text("\n".join(["file,caption", *rows]) + "\n", "utf-8")
        subprocess.run([*HEADSTART, *TRAIN.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        search = [*HEADSTART, "search", "pictures", "a dog in the snow", "--model", "run", "--quiet"]

        def seconds() -> float:
            return timed(lambda: subprocess.run(search, cwd=folder, check=True, stdout=subprocess.DEVNULL))

        first = seconds()
        again = [seconds() for _ in range(samples)]
    rate = (images - 40) / (first - statistics.median(again))  # training has looked at forty
    return (
        f"`headstart search` over {images:,} JPEG files of 500 x 375 pixels with {TOWER}, {os.environ.get('OMP_NUM_THREADS', 'all')} threads: "
        f"{rate:.0f} images/s the first time; a second search {statistics.median(again):.1f} s from the shell "
        f"({min(again):.1f} to {max(again):.1f})."
    )


def make_images(folder: Path, images: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(images):
        rough = Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8))
        rough.resize((500, 375), Image.Resampling.BICUBIC).save(folder / f"{i}.jpg", quality=90)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--images", type=int, default=1000)
    args = parser.parse_args()
    print(line(args.samples, args.images))  # noqa: T201
