"""More text than memory: peak memory of a short pretraining run, and the speed of tokenizing beside `datasets.map`.

python -m benchmarks.large_text [--megabytes 500 2000] [--speed 100] [--peer PYTHON] [--keep DIR]

The corpus is generated (words by Zipf's law, from a seed) in shards of 50 MB. --peer is a Python with `datasets` and `tokenizers`
(it may be an environment of its own); both sides tokenize the same file with the same tokenizer.json on one core and write
the ids to disk. Speeds are in MB of text per processor second, so that what else the machine does counts less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SHARD = 50_000_000
WORDS = 200_000  # of the vocabulary that texts are drawn from
OURS = """
import sys, time
from headstart.data import CorpusConfig
from headstart.text.split import split_corpus
from headstart.text.token_store import token_rows
from headstart.text.tokenizer import Tokenizer
texts = split_corpus(CorpusConfig(paths=(sys.argv[1],), stream_above=1)).train
tokenizer, began = Tokenizer.load(sys.argv[2]), time.process_time()
rows = token_rows(texts, tokenizer, boundaries=False)
print(time.process_time() - began, len(rows.ids))
"""
PEER = """
import glob, sys, time
from datasets import disable_progress_bars, load_dataset
from tokenizers import Tokenizer
disable_progress_bars()
rows = load_dataset("text", data_files=sorted(glob.glob(sys.argv[1] + "/*.txt")), cache_dir=sys.argv[3], split="train")
tokenizer, began = Tokenizer.from_file(sys.argv[2]), time.process_time()
told = rows.map(lambda some: {"ids": [found.ids for found in tokenizer.encode_batch(some["text"])]}, batched=True, remove_columns=["text"])
seconds = time.process_time() - began
print(seconds, sum(map(len, told["ids"])))
"""


def generate(folder: Path, size: int, seed: int = 0) -> None:
    """Shards of lines, `size` bytes together."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    lengths = rng.integers(2, 11, WORDS)
    words = np.array(["".join(rng.choice(letters, n, p=_falling(26))) for n in lengths], dtype=object)
    chances = _falling(WORDS)
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(-(-size // SHARD)):
        left = min(SHARD, size - shard * SHARD)
        with open(folder / f"{shard:03}.txt", "w", encoding="ascii") as file:
            while left > 0:
                drawn = words[rng.choice(WORDS, 200_000, p=chances)]
                ends = np.cumsum(rng.integers(5, 40, 8_000))
                lines = [" ".join(part) for part in np.split(drawn, ends[ends < len(drawn)])]
                text = "\n".join(lines)[: left - 1] + "\n"
                file.write(text)
                left -= len(text)


def _falling(count: int) -> np.ndarray:
    chances = 1 / np.arange(1, count + 1)
    return chances / chances.sum()


def peak(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Peak memory in GB and seconds of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{command} ended with {status}"
    return usage.ru_maxrss * 1024 / 1e9, time.perf_counter() - began


def pretraining(corpus: Path, out: Path) -> list[str]:
    return ["pretrain", str(corpus), "--out", str(out), "--steps", "50", "--size", "nano", "--threads", "1", "--quiet"]  # fmt: skip


def pretrained(corpus: Path, scratch: Path) -> tuple[float, float]:
    words = pretraining(corpus, scratch / f"run-{corpus.name}")
    return peak([sys.executable, "-m", "headstart", *words], {"HEADSTART_CACHE": str(scratch / f"cache-{corpus.name}")})


def seconds_of(python: str, code: str, *words: str, **env: str) -> tuple[float, int]:
    one = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **env}
    done = subprocess.run([python, "-W", "ignore", "-c", code, *words], env={**os.environ, **one}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    seconds, tokens = done.stdout.split()
    return float(seconds), int(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[500, 2000])
    parser.add_argument("--speed", type=int, default=50, help="megabytes to tokenize with each; 0: leave it out")
    parser.add_argument("--peer", help="a Python that has datasets and tokenizers")
    parser.add_argument("--scratch", help="a folder on a disk with room for twice the text")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        scratch = Path(folder)
        for megabytes in args.megabytes:
            generate(scratch / str(megabytes), megabytes * 1_000_000)
            memory, seconds = pretrained(scratch / str(megabytes), scratch)
            print(f"pretrain --steps 50, {megabytes} MB: peak {memory:.3f} GB, {seconds:.0f} s", flush=True)  # noqa: T201
        if args.speed:
            corpus, tokenizer = scratch / "speed", scratch / "tokenizer.json"
            generate(corpus, args.speed * 1_000_000, seed=1)
            from headstart.config import TokenizerConfig
            from headstart.text.tokenizer import Tokenizer

            text = (corpus / "000.txt").read_text("ascii")[:5_000_000]
            tokenizer.write_text(Tokenizer.train(text.split("\n"), TokenizerConfig()).to_json())
            for turn in range(2):
                ours = seconds_of(sys.executable, OURS, str(corpus), str(tokenizer), HEADSTART_CACHE=str(scratch / f"ours-{turn}"))  # fmt: skip
                told = {"ours MB/s": args.speed / ours[0], "ours tokens": ours[1]}
                if args.peer:
                    theirs = seconds_of(args.peer, PEER, str(corpus), str(tokenizer), str(scratch / f"peer-{turn}"))
                    told |= {"datasets.map MB/s": args.speed / theirs[0], "their tokens": theirs[1]}
                print(json.dumps({key: round(value, 2) for key, value in told.items()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
