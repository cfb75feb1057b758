"""Runs of every kind, killed at random again and again, end as the one that was left alone: HEADSTART_KILLS over all kinds."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.jobs.killed import (
    CONTRASTIVE,
    FINETUNE,
    MASKED,
    NUMBERS,
    PAIRS,
    PRETRAIN,
    SEVERAL,
    STARS,
    TAGS,
    finish,
    lines_of,
    start,
    what_remains,
    write_data,
)  # fmt: skip

SAVES = ["--set", "train.checkpoint_every=7"]
KINDS = {
    "causal": PRETRAIN, "masked": MASKED, "finetune": FINETUNE, "contrastive": CONTRASTIVE, "regression": NUMBERS,
    "multilabel": SEVERAL, "ordinal": STARS, "tag": TAGS, "pairs": PAIRS,
    "distill": [*PRETRAIN, "--objective", "distill", "--teacher", "{base}"],
    "prompt": ["finetune", "{labelled}", "--base", "{base}", "--prompt", "{{text}} so {{label}}", "--label-words", "bad=dull,good=fine",
               "--epochs", "8", "--batch-size", "4", *SAVES],
    "translate": ["translate", "train", "{translations}", "--model", "gru-additive", "--hidden", "8", "--epochs", "5", "--batch-size", "4", *SAVES],
    "match": ["match", "train", "{pictures}", "--text", "{text}", "--image", "{image}", "--train", "full", "--epochs", "10", "--batch-size", "4", *SAVES],
}  # fmt: skip
KILLS = int(os.environ.get("HEADSTART_KILLS", 3 * len(KINDS)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, pictures: Path, towers: dict[str, str]) -> Iterator[dict[str, str]]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("data")
    found = {**write_data(folder), **towers, "pictures": str(pictures), "base": str(folder / "base")}
    words = [(f"{c}{v}n", f"{v}n{c}ay") for c in "bdgklmnprstvz" for v in "aeiou"]
    (folder / "translations.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in words))
    found["translations"] = str(folder / "translations.tsv")
    lines = [f"film {i} was {('dull', 'fine')[i % 2]} to the end so {('dull', 'fine')[i % 2]}" for i in range(80)]
    (folder / "films.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(folder / "cache"))
        finish([*PRETRAIN, "--objective", "masked"], folder / "base", {**found, "corpus": str(folder / "films.txt")})
        yield found


def test_every_kind_of_run_is_killed() -> None:
    from headstart.runs.kinds import KINDS as JOBS

    assert {command[0] for command in KINDS.values()} == {kind.verb.split()[0] for kind in JOBS.values()}


@pytest.mark.slow
@pytest.mark.timeout(max(600, 60 * KILLS))
@pytest.mark.parametrize("kind", KINDS)
def test_random_kills_in_chains_lose_nothing(kind: str, files: dict[str, str], tmp_path: Path) -> None:
    """A chain is a run that is killed up to three times, most often at a line of its log, and then finished."""
    command, dice = KINDS[kind], random.Random(kind)
    finish(command, tmp_path / "whole", files)
    whole, landed = what_remains(tmp_path / "whole"), list[int]()
    wanted = KILLS // len(KINDS) + (list(KINDS).index(kind) < KILLS % len(KINDS))
    for chain in range(2 * wanted):
        if len(landed) >= wanted:
            break
        out = tmp_path / f"chain-{chain}"
        for _ in range(min(dice.randint(1, 3), wanted - len(landed))):
            landed += killed_at_random(command, out, files, len(whole["log"]), dice)
        finish(command, out, files, resume=(out / "env.json").exists())
        assert what_remains(out) == whole, f"chain {chain}"
        shutil.rmtree(out)
    assert len(landed) == wanted, f"{len(landed)} kills in {2 * wanted} chains: the runs are over too soon"
    assert len(set(landed)) > min(5, wanted // 3), f"the kills did not spread over the run: {sorted(landed)}"


def killed_at_random(
    command: list[str], out: Path, files: dict[str, str], steps: int, dice: random.Random
) -> list[int]:
    """The lines of the log when the run was killed; none if it was faster."""
    log, line = out / "log.jsonl", dice.randrange(-steps // 5, steps)
    if (out / "result.json").exists():
        return []
    process = start(command, out, files, resume=(out / "env.json").exists())
    if line > lines_of(log):
        while process.poll() is None and lines_of(log) < line:
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.05))
    else:
        time.sleep(dice.uniform(0, 0.5))  # while it starts, or has gone back to its last checkpoint
    alive = process.poll() is None
    process.kill()
    _, err = process.communicate()
    assert alive or process.returncode == 0, err
    return [lines_of(log)] if alive else []
