"""How time and memory grow with the corpus, rows, classes, seeds and context: four sizes each, and the exponent fitted.

python -m benchmarks.growth [--only WORD] [--scale 1.0]

Each size is a process of its own with one thread. Time is its processor seconds without imports and the making of inputs, memory
its peak above what it had then. The exponent is the slope of a line through the logarithms of size and seconds: 1 is linear, 2
quadratic. Fixed costs make it too low, so the slope between the two largest sizes stands beside it. --scale multiplies the sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.timing import memory_now, memory_peak
from headstart.text.read import Example
from headstart.text.split import Labelled

Work = Callable[[], object]
VOCABULARY = 20_000
LONG = 20  # words of a row


@dataclass(frozen=True)
class Case:
    of: str  # what the size counts
    sizes: tuple[int, int, int, int]
    prepared: Callable[[int, Path], Work]  # imports and inputs; then the work


@dataclass(frozen=True)
class Taken:
    seconds: float
    megabytes: float


def words(count: int) -> list[str]:
    """Words by Zipf's law."""
    chances = 1 / np.arange(1, VOCABULARY + 1)
    numbers = np.random.default_rng(0).choice(VOCABULARY, count, p=chances / chances.sum())
    return [f"w{number}" for number in numbers]


def texts(count: int) -> list[str]:
    """Rows of words, of which one in twenty is nearly another one."""
    drawn = words(count * LONG)
    rows = [drawn[i * LONG : (i + 1) * LONG] for i in range(count)]
    for i in range(20, count, 20):
        rows[i] = [*rows[i - 19][:-1], "else"]
    return [" ".join(row) for row in rows]


def near_duplicates(size: int, folder: Path) -> Work:
    from headstart.text.hygiene import check

    rows = [Example(text, "ab"[i % 2]) for i, text in enumerate(texts(size))]
    return lambda: check({"train": rows[: size // 2], "test": rows[size // 2 :]})


def template(size: int, folder: Path) -> Work:
    """Rows out of one template share most of their words."""
    from headstart.text.hygiene import check

    slots = np.array(words(size * 6)).reshape(size, 6)
    rows = [Example("we sent {} and {} to {} in {} for {} with {} and thanks".format(*row), "a") for row in slots]
    return lambda: check({"train": rows[: size // 2], "test": rows[size // 2 :]})


def overlap(size: int, folder: Path) -> Work:
    """Overlap of the rows drawn for each seed."""
    from headstart.study.overlap import overlapping

    data = labelled(2000, 2)
    return lambda: overlapping(data, range(len(data.test)), 200, range(size))


def reading(size: int, folder: Path) -> Work:
    from headstart.data import LabelledConfig
    from headstart.text.split import split_labelled

    file = folder / "rows.csv"
    file.write_text("text,label\n" + "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts(size))))
    return lambda: split_labelled(LabelledConfig(train=str(file)))


def labelling(size: int, folder: Path) -> Work:
    """A table labelled chunk by chunk, without a model."""
    from headstart.targets.classes import Classes
    from headstart.use.label_file import Columns, label_file

    class Halves:
        target = Classes(("a", "b"))

        def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
            return [[0.5, 0.5] for _ in texts]

        def predict(self, texts: Sequence[str]) -> list[dict[str, object]]:
            return []

    file = folder / "rows.csv"
    file.write_text("text\n" + "\n".join(texts(size)) + "\n")
    return lambda: label_file(Halves, file, folder / "out.csv", Columns())


def tfidf_rows(size: int, folder: Path) -> Work:
    from headstart.study.baselines import tfidf

    data = labelled(size, 2)
    return lambda: tfidf(data)


def tfidf_classes(size: int, folder: Path) -> Work:
    from headstart.study.baselines import tfidf

    data = labelled(2000, size)
    return lambda: tfidf(data)


def tokens(size: int, folder: Path) -> Work:
    from headstart.config import TokenizerConfig
    from headstart.text.tokenizer import Tokenizer

    rows = texts(size // LONG)
    tokenizer = Tokenizer.train(rows[:1000], TokenizerConfig(kind="word"))
    return lambda: tokenizer.encode(rows)


def vocabulary(size: int, folder: Path) -> Work:
    from headstart.config import TokenizerConfig
    from headstart.text.tokenizer import Tokenizer

    rows = texts(size // LONG)
    return lambda: Tokenizer.train(rows, TokenizerConfig(kind="bpe", vocab=2000))


def cooccurrences(size: int, folder: Path) -> Work:
    from headstart.config import TokenizerConfig
    from headstart.text.cooccurrence import token_vectors
    from headstart.text.tokenizer import Tokenizer

    rows = texts(size // LONG)
    tokenizer = Tokenizer.train(rows, TokenizerConfig(kind="word"))
    encoded = tokenizer.encode(rows)
    return lambda: token_vectors(encoded, tokenizer.size, 64)


def intervals(size: int, folder: Path) -> Work:
    """The interval of a difference, twenty times."""
    from headstart.study.statistics import difference

    a, b = (np.random.default_rng(i).integers(0, 2, (size, 5000)).astype(float) for i in (0, 1))
    return lambda: [difference(a, b) for _ in range(20)]


def training(size: int, folder: Path) -> Work:
    """Four steps over as many tokens each, whatever the context: attention alone should make it more."""
    import torch

    from benchmarks.language import build, our_step

    shape = {"preset": "gpt", "layers": 2, "heads": 4, "width": 128, "ff": 512, "vocab": 2048}
    model, _, batch = build({**shape, "context": size, "batch": 2048 // size})
    torch.set_num_threads(1)
    step = our_step(model.train(), batch)
    step()
    return lambda: [step() for _ in range(4)]


def generating(size: int, folder: Path) -> Work:
    """A text of so many tokens."""
    import torch

    from benchmarks.language import build
    from headstart.models.decode import LanguageStep, Sampling, generate

    shape = {"preset": "gpt", "layers": 2, "heads": 4, "width": 128, "ff": 512, "vocab": 2048}
    model, cfg, _ = build({**shape, "context": size + 8, "batch": 1})
    torch.set_num_threads(1)
    prompt = torch.randint(cfg.vocab, (1, 4))
    return lambda: list(generate(LanguageStep(model.eval()), prompt, size, None, Sampling()))


def labelled(rows: int, classes: int) -> Labelled:
    """Rows whose first word has to do with their class."""
    names = [f"c{i}" for i in range(classes)]
    made = [Example(f"x{i % classes if i % 3 else 0} {text}", names[i % classes]) for i, text in enumerate(texts(rows))]
    cut = [rows * 6 // 10, rows * 8 // 10]
    return Labelled(made[: cut[0]], made[cut[0] : cut[1]], made[cut[1] :], names)


CASES = {
    "near duplicates and overlap of splits": Case("rows", (4000, 8000, 16_000, 32_000), near_duplicates),
    "the same, rows of one template": Case("rows", (4000, 8000, 16_000, 32_000), template),
    "overlap of drawn rows": Case("seeds", (2, 4, 8, 16), overlap),
    "reading and splitting a table": Case("rows", (8000, 16_000, 32_000, 64_000), reading),
    "labelling a table, without a model": Case("rows", (8000, 16_000, 32_000, 64_000), labelling),
    "TF-IDF and logistic regression": Case("rows", (500, 1000, 2000, 4000), tfidf_rows),
    "TF-IDF and logistic regression, 2,000 rows": Case("classes", (2, 4, 8, 16), tfidf_classes),
    "tokenizing": Case("words", (250_000, 500_000, 1_000_000, 2_000_000), tokens),
    "training a BPE tokenizer": Case("words", (250_000, 500_000, 1_000_000, 2_000_000), vocabulary),
    "co-occurrence embeddings": Case("words", (100_000, 200_000, 400_000, 800_000), cooccurrences),
    "interval of a difference": Case("seeds", (5, 10, 20, 40), intervals),
    "four training steps of 2,048 tokens": Case("context", (64, 128, 256, 512), training),
    "generating a text": Case("tokens", (64, 128, 256, 512), generating),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        with tempfile.TemporaryDirectory() as folder:
            taken = measure(CASES[args.case], args.size, Path(folder))
        print(json.dumps([taken.seconds, taken.megabytes]))  # noqa: T201
        return
    print("\n".join(HEADER))  # noqa: T201
    for name, case in CASES.items():
        if args.only in name:
            sizes = [max(1, round(size * args.scale)) for size in case.sizes]
            print(line(name, case, sizes, [_in_a_process(name, size) for size in sizes]), flush=True)  # noqa: T201


HEADER = [
    "| what | of | sizes | processor seconds | peak memory, MB | exponent (last two sizes) |",
    "|---|---|---|---|---|---|",
]


def measure(case: Case, size: int, folder: Path) -> Taken:
    work = case.prepared(size, folder)
    before, began = memory_now(), time.process_time()
    work()
    return Taken(time.process_time() - began, memory_peak() - before)


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """
    >>> round(exponent([1, 2, 4, 8], [0.5, 1.0, 2.0, 4.0]), 3), round(exponent([10, 20, 40, 80], [1, 4, 16, 64]), 3)
    (1.0, 2.0)
    """
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)[0])


def line(name: str, case: Case, sizes: Sequence[int], taken: Sequence[Taken]) -> str:
    seconds = [t.seconds for t in taken]
    told = [
        ", ".join(f"{size:,}" for size in sizes).replace(", ", " / "),
        " / ".join(f"{second:.3g}" for second in seconds),
        " / ".join(f"{t.megabytes:,.0f}" for t in taken),
    ]
    return f"| {name} | {case.of} | {' | '.join(told)} | **{exponent(sizes, seconds):.2f}** ({exponent(sizes[-2:], seconds[-2:]):.2f}) |"


def _in_a_process(name: str, size: int) -> Taken:
    words = [sys.executable, "-m", "benchmarks.growth", "--case", name, "--size", str(size)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
    return Taken(*json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
