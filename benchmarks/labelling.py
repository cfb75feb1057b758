"""Labelling by simulation: rows chosen as `headstart label` does, by margin alone, and at random; labels from the data.

python -m benchmarks.labelling bbc-news movie-reviews DATA --base tfidf --base minilm [--rows 4000] [--repeats 10]

A third of the rows is held out and tells the accuracy. The advice is compared with what 100 more labels really brought.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t

from headstart.bases.features import kept
from headstart.hub.cache import cache_folder
from headstart.hub.packs import located
from headstart.labelling import curve, query
from headstart.labelling.advice import MORE, advise
from headstart.labelling.classifier import Classifier
from headstart.labelling.features import Features, features_of
from headstart.labelling.session import REFIT
from headstart.runs.watch import Watch
from headstart.text.digests import digest
from headstart.text.duplicates import normal
from headstart.text.read import read_labelled
from headstart.text.rows import drawn

MARKS = (50, 100, 200)  # labels at which accuracies are compared
ADVISED = (50, 100, 200, 300, 400)  # labels at which advice is asked for

Ints = NDArray[np.int64]
Choose = Callable[[Classifier, NDArray[np.float64] | None, list[int], set[int], int], list[int]]


def ours(classifier: Classifier, found: NDArray[np.float64] | None, labelled: list[int], taken: set[int], count: int) -> list[int]:  # fmt: skip
    return query.choose(classifier.inputs, found, labelled, taken, count)


def spread(classifier: Classifier, found: NDArray[np.float64] | None, labelled: list[int], taken: set[int], count: int) -> list[int]:  # fmt: skip
    """Without typical rows at the start."""
    if found is None:
        return by_chance(classifier, found, labelled, taken, count)
    free = np.array([row for row in range(len(classifier.inputs)) if row not in taken])
    return query.uncertain(classifier.inputs, free, query.margins(found), count)


def margin(classifier: Classifier, found: NDArray[np.float64] | None, labelled: list[int], taken: set[int], count: int) -> list[int]:  # fmt: skip
    """The most uncertain rows, however alike."""
    if found is None:
        return by_chance(classifier, found, labelled, taken, count)
    order = np.argsort(-query.margins(found), kind="stable")
    return [int(row) for row in order if int(row) not in taken][:count]


def by_chance(classifier: Classifier, found: NDArray[np.float64] | None, labelled: list[int], taken: set[int], count: int) -> list[int]:  # fmt: skip
    order = np.random.default_rng(len(labelled) + 10_000 * len(classifier.inputs)).permutation(len(classifier.inputs))
    return [int(row) for row in order if int(row) not in taken][:count]


STRATEGIES: dict[str, Choose] = {"random": by_chance, "margin": margin, "spread": spread, "label": ours}


@dataclass
class Trial:
    """One simulated session: accuracies on held-out rows by label count, and the advice on the way."""

    accuracy: dict[int, float] = field(default_factory=dict)
    right: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # of each held-out row
    advice: dict[int, tuple[curve.Gain, bool]] = field(default_factory=dict)
    estimate: dict[int, tuple[float, float, float]] = field(default_factory=dict)


def simulate(features: Features, targets: Ints, choose: Choose, repeat: int, last: int, advised: bool) -> Trial:
    rng = np.random.default_rng(repeat)
    shuffled = rng.permutation(len(targets))
    pool, test = np.split(shuffled, [2 * len(targets) // 3])
    classes = int(targets.max()) + 1
    classifier = Classifier(Features(features.vectors[pool], features.words[pool]), classes)
    held_out = Classifier(Features(features.vectors[test], features.words[test]), classes)
    order, labelled, trial = query.random_order(len(pool), repeat), list[int](), Trial()
    while len(labelled) < last:
        aside = set(query.random_part(order, len(labelled)).tolist())
        known = [row for row in labelled if row not in aside]
        found = classifier.probabilities(classifier.fit(known, targets[pool[known]].tolist()))

        def pick(
            taken: set[int], count: int, found: NDArray[np.float64] | None = found, known: list[int] = known
        ) -> list[int]:
            return choose(classifier, found, known, taken, count)

        labelled += [row for row, _ in query.interleaved(len(labelled), REFIT, order, set(labelled), set(), pick)]
        count, truth = len(labelled), targets[pool[labelled]].tolist()
        model = classifier.fit(labelled, truth)
        usual = int(np.bincount(truth).argmax())
        trial.right[count] = held_out.predicted(model, range(len(test)), usual) == targets[test]
        trial.accuracy[count] = float(trial.right[count].mean())
        if advised and count in ADVISED:
            advise_at(trial, classifier, labelled, truth, order)
    return trial


def advise_at(trial: Trial, classifier: Classifier, labelled: list[int], truth: list[int], order: Ints) -> None:
    random = set(query.random_part(order, len(labelled)).tolist())
    test = [i for i, row in enumerate(labelled) if row in random]
    at = curve.marks(len(labelled))
    hits = curve.hits_of(classifier, labelled, truth, test, at)
    gains = curve.gains(hits, at, MORE)
    if gains:
        counts = {str(c): truth.count(c) for c in range(classifier.classes)}
        stop, _ = advise(counts, len(test), 1000, gains)
        trial.advice[len(labelled)] = gains[-1], stop
        trial.estimate[len(labelled)] = float(hits[-1].mean()), *curve.wilson(int(hits[-1].sum()), len(test))


def read(data: str, base: str, rows: int) -> tuple[Features, Ints]:
    """Features, kept in the cache, and classes."""
    found = {normal(row.text): row for row in read_labelled(located(data), None, None) if row.text.strip()}
    examples = drawn(list(found.values()), rows)
    labels = sorted({e.label for e in examples})
    texts = [e.text for e in examples]
    folder, key = Path(cache_folder()) / "benchmarks", digest(base, *labels, *texts)[:24]

    def made() -> torch.Tensor:
        features = features_of(texts, labels, base, Watch())
        return torch.from_numpy(np.hstack([features.vectors, features.words]))

    both = kept(folder / f"{key}.safetensors", made).numpy()
    words = len(labels) if base == "smollm2" else 0
    cut = both.shape[1] - words
    return Features(both[:, :cut], both[:, cut:]), np.array([labels.index(e.label) for e in examples])


def interval(values: list[float]) -> str:
    """Mean and half-width of its 95 % interval, in points."""
    found = 100 * np.array(values)
    return f"{found.mean():.1f} ± {t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found)):.1f}"


def accuracy_lines(name: str, trials: dict[str, list[Trial]]) -> Iterator[str]:
    for strategy, found in trials.items():
        cells = [interval([trial.accuracy[n] for trial in found]) for n in MARKS]
        paired = [a.accuracy[100] - b.accuracy[100] for a, b in zip(found, trials["random"], strict=True)]
        yield f"| {name} | {strategy} | {' | '.join(cells)} | {interval(paired) if strategy != 'random' else ''} |"


def covers(gain: curve.Gain, trial: Trial, n: int) -> bool:
    """Whether the interval has the gain in it that was measured, which has a standard error of its own."""
    difference = 100 * (trial.right[n + 100].astype(float) - trial.right[n])
    error = 1.645 * difference.std() / np.sqrt(len(difference))
    low, high = np.hypot(gain.points - gain.low, error), np.hypot(gain.high - gain.points, error)
    return bool(gain.points - low <= difference.mean() <= gain.points + high)


def advice_lines(name: str, found: list[Trial]) -> Iterator[str]:
    for n in ADVISED:
        asked = [(*trial.advice[n], 100 * (trial.accuracy[n + 100] - trial.accuracy[n]), trial) for trial in found if n in trial.advice]  # fmt: skip
        if not asked:
            continue
        real = [gained for _, _, gained, _ in asked]
        alone = sum(gain.low <= gained <= gain.high for gain, _, gained, _ in asked)
        inside = sum(covers(gain, trial, n) for gain, _, _, trial in asked)
        right = sum(low <= trial.accuracy[n] <= high for *_, trial in asked for _, low, high in [trial.estimate[n]])
        stops = [gained for _, stop, gained, _ in asked if stop]
        mean = np.mean([[gain.points, gain.low, gain.high] for gain, *_ in asked], axis=0)
        told = f"{np.mean(stops):.1f} (at most {max(stops):.1f})" if stops else ""
        yield (
            f"| {name} | {n} | {mean[0]:.1f} ({mean[1]:.1f} to {mean[2]:.1f}) | {np.mean(real):.1f} | {inside}, {alone} | "
            f"{right} | {len(stops)} | {told} |"
        )


def summary(found: list[Trial]) -> Iterator[str]:
    """What 100 more labels brought where the advice was to stop, and where it was to go on."""
    asked = [(gain, stop, trial, n) for trial in found for n, (gain, stop) in trial.advice.items()]
    for told, wanted in (("stop", True), ("go on", False)):
        real = np.array([100 * (trial.accuracy[n + 100] - trial.accuracy[n]) for _, stop, trial, n in asked if stop == wanted])  # fmt: skip
        if len(real):
            yield f"{told}: {len(real)} times; 100 more labels brought {real.mean():.2f} points, more than 2 {(real > 2).sum()} times, less than 1 {(real < 1).sum()} times, {real.max():.1f} at most"  # fmt: skip
    inside = [covers(gain, trial, n) for gain, _, trial, n in asked]
    yield f"interval has the measured gain: {np.mean(inside):.2f} of {len(inside)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first repeat")
    args = parser.parse_args()
    accuracies, advice, everything = list[str](), list[str](), list[Trial]()
    for data in args.data:
        for base in args.base or ["tfidf"]:
            features, targets = read(data, base, args.rows)
            name, trials = f"{Path(data).parent.name if '.' in data else data}, {base}", dict[str, list[Trial]]()
            for strategy, choose in STRATEGIES.items():
                last = ADVISED[-1] + 100 if strategy == "label" else MARKS[-1]
                trials[strategy] = [simulate(features, targets, choose, repeat, last, strategy == "label") for repeat in range(args.first, args.first + args.repeats)]  # fmt: skip
            accuracies += accuracy_lines(name, trials)
            advice += advice_lines(name, trials["label"])
            everything += trials["label"]
            print("\n".join([*accuracies[-len(STRATEGIES) :], *advice[-len(ADVISED) :]]), flush=True)  # noqa: T201
    print("\n".join(summary(everything)))  # noqa: T201


if __name__ == "__main__":
    main()
