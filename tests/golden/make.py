"""Make the run of today's format that later versions must still read: python tests/golden/make.py.

Once a format is released its folder stays as it is; a new format gets a folder of its own beside it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headstart.config import PretrainConfig
from headstart.jobs.pretrain import pretrain
from headstart.runs.run import FORMAT
from headstart.schema import parse

SETTINGS = {
    "data": {"paths": ["corpus.txt"], "unit": "line"},
    "tokenizer": {"kind": "word"},
    "model": {"layers": 1, "heads": 1, "width": 4, "ff": 8, "context": 8, "dropout": 0.0},
    "train": {
        "steps": 6,
        "batch_size": 4,
        "lr": 0.01,
        "eval_every": 3,
        "log_every": 1,
        "threads": 1,
        "tensorboard": False,
        "keep_checkpoints": True,
    },
}

if __name__ == "__main__":
    folder = Path(__file__).parent / f"format-{FORMAT}"
    folder.mkdir()
    os.chdir(folder)
    lines = (f"{who} {verb} the {pet}." for who in ("I", "She") for verb in ("hold", "see") for pet in ("cat", "dog"))
    Path("corpus.txt").write_text("\n".join(lines) + "\n")
    sys.argv = ["headstart"]
    pretrain(parse(PretrainConfig, SETTINGS), "run")
    env = Path("run/env.json")
    facts = {**json.loads(env.read_text()), "folder": ".", "platform": "Linux", "git_commit": None}
    env.write_text(json.dumps(facts, indent=2) + "\n")  # what this machine is called concerns nobody
    Path("run/.lock").unlink()
