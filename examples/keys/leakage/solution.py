"""Right answers to the functions of the lab `leakage`."""

import math

import torch


def macro_f1(labels: list[str], predictions: list[str]) -> float:
    scores = []
    for name in set(labels):
        hits = sum(a == b == name for a, b in zip(labels, predictions, strict=True))
        wrong = sum((a == name) != (b == name) for a, b in zip(labels, predictions, strict=True))
        scores.append(2 * hits / (2 * hits + wrong))
    return sum(scores) / len(scores)


def accuracy_interval(right: int, rows: int) -> list[float]:
    z, p = 1.96, right / rows
    below = 1 + z**2 / rows
    centre = (p + z**2 / (2 * rows)) / below
    half = z / below * math.sqrt(p * (1 - p) / rows + z**2 / (4 * rows**2))
    return [centre - half, centre + half]


def normal(text: str) -> str:
    return " ".join(text.casefold().split())


def without_leaks(train: list[str], test: list[str]) -> list[str]:
    known = {normal(text) for text in train}
    return [text for text in test if normal(text) not in known]


def standardised(train: torch.Tensor, test: torch.Tensor) -> list[torch.Tensor]:
    mean, deviation = train.mean(dim=0), train.std(dim=0)
    return [(train - mean) / deviation, (test - mean) / deviation]


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
