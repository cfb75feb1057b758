"""params of a preset is arithmetic: it needs no torch, and equals what the real modules have."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from headstart.runs.model_dir import HeadSpec, build_model
from headstart.schema import parse
from headstart.shapes import PRESETS, SIZES, TransformerConfig
from headstart.use.params import describe
from headstart.use.preset_parameters import preset_parameters

SHAPES = [{}, *({"size": size} for size in SIZES), {"context": 40, "width": 24, "heads": 3, "ff": 50, "layers": 2}]
ODD = [{"positions": "none"}, {"norm": "pre", "tied": False}, {"head_bias": True, "embedding_norm": True}]


@pytest.mark.parametrize("head", ["lm", "classify"])
@pytest.mark.parametrize("shape", [*SHAPES, *ODD], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_is_that_of_the_real_modules(preset: str, shape: dict[str, object], head: str) -> None:
    settings = {"preset": preset, "vocab": 501, **shape}
    spec = HeadSpec("language") if head == "lm" else HeadSpec("classify", ("a", "b", "c"))
    with torch.device("meta"):
        real = describe(build_model(parse(TransformerConfig, settings), spec))
    ours = preset_parameters(settings, head, 3)
    assert ours.data() == real.data()
    assert str(ours) == str(real)


@pytest.mark.parametrize(
    "words", [["classic", "--vocab", "50001"], ["bert", "--vocab", "9", "--head", "classify", "--json"]]
)
def test_no_torch_is_loaded(words: list[str]) -> None:
    code = f"import sys\nfrom headstart.cli import app\ntry: app(['params', *{words}])\nexcept SystemExit as end: assert not end.code\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
