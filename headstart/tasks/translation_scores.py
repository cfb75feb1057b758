"""How good translations are, with intervals, and where they fail. No torch.

A translation may have several references: it is right if it is one of them, and its errors are counted against the
nearest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from rapidfuzz.distance import Levenshtein
from scipy.stats import t as student

from headstart.targets.class_scores import accuracy_interval
from headstart.tasks.metrics import Estimate

BOOTSTRAPS = 1000  # resamples of BLEU and chrF, which are no means over rows
WORST = 10  # examples shown
COMMON = 12  # first letters shown
FEWEST = 5  # rows of a group of lengths


@dataclass(frozen=True)
class Scored:
    """One source with its translation and the references of it."""

    source: str
    translation: str
    references: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.translation in self.references


class SignedEstimate(Estimate):
    """A score of sacrebleu, with the signature that says how it was computed."""

    signature: str


class SacrebleuScores(TypedDict):
    bleu: SignedEstimate
    chrf: SignedEstimate


class TranslationScores(SacrebleuScores):
    exact_match: Estimate
    character_error_rate: Estimate
    token_error_rate: Estimate
    rows: int


class PairScores(TranslationScores):
    """All scores of a translator on pairs."""

    loss: float  # nats per target token
    loss_interval: list[float] | None
    target_tokens: int


class ErrorShare(TypedDict):
    rows: int
    wrong: int
    error: float  # wrong / rows


class LengthErrors(ErrorShare):
    length: str  # of the source in characters, such as 3-5


class StartErrors(ErrorShare):
    start: str  # the first two letters of the source


class WrongTranslation(TypedDict):
    source: str
    translation: str
    reference: str  # the nearest
    edits: int  # characters


class Failures(TypedDict):
    wrong: int
    by_length: list[LengthErrors]
    by_start: list[StartErrors]
    worst: list[WrongTranslation]


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> Estimate:
    """The sum of `tops` over that of `bottoms`, with its 95 % interval over rows (linearized, Student's t).

    >>> found = ratio([1.0, 2.0, 3.0, 2.0], [4.0, 4.0, 4.0, 4.0])
    >>> found["value"], [round(x, 3) for x in found["interval"]]
    (0.5, [0.175, 0.825])
    """
    top, bottom, rows = np.asarray(tops, float), np.asarray(bottoms, float), len(tops)
    value = float(top.sum() / bottom.sum())
    if rows < 2 or not np.ptp(top - value * bottom):  # rows that do not differ tell nothing of others
        return {"value": value, "interval": None}
    spread = float(np.sqrt(np.var(top - value * bottom, ddof=1) / rows) / bottom.mean())
    half = float(student.ppf(0.975, rows - 1)) * spread
    return {"value": value, "interval": [max(0.0, value - half), value + half]}


def translation_scores(
    rows: Sequence[Scored], tokens: Callable[[str], Sequence[str]], by_character: bool
) -> TranslationScores:
    """Exact match, character and token error rate, BLEU and chrF, each with its interval.

    `tokens` cuts a translation as its tokenizer does; `by_character` has BLEU count characters instead of words.
    """
    right = sum(row.right for row in rows)
    return {
        "exact_match": {"value": right / len(rows), "interval": list(accuracy_interval(right, len(rows)))},
        "character_error_rate": _error_rate(rows, str),
        "token_error_rate": _error_rate(rows, tokens),
        **_sacrebleu(rows, by_character),
        "rows": len(rows),
    }


def where_it_fails(rows: Sequence[Scored]) -> Failures:
    """Errors by the length of the source and by its first letters, and the worst translations."""
    by_length: dict[int, list[bool]] = defaultdict(list)
    by_start: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        by_length[len(row.source)].append(row.right)
        by_start[row.source[:2].lower()].append(row.right)
    wrong = [(_nearest(row, str)[0], row) for row in rows if not row.right]
    wrong.sort(key=lambda pair: (-pair[0], pair[1].source))
    starts = sorted(by_start, key=lambda start: (-by_start[start].count(False), start))
    missed = [start for start in starts if False in by_start[start]]
    return {
        "wrong": len(wrong),
        "by_length": [{"length": length, **_share(found)} for length, found in _bins(by_length)],
        "by_start": [{"start": start, **_share(by_start[start])} for start in missed[:COMMON]],
        "worst": [
            {
                "source": row.source,
                "translation": row.translation,
                "reference": _nearest(row, str)[1],
                "edits": edits,
            }
            for edits, row in wrong[:WORST]
        ],
    }


def _bins(by_length: dict[int, list[bool]]) -> list[tuple[str, list[bool]]]:
    """Neighbouring lengths together until each group has enough rows to measure an error: a tenth of all."""
    least = max(FEWEST, sum(map(len, by_length.values())) // 10)
    bins: list[tuple[list[int], list[bool]]] = []
    for length in sorted(by_length):
        if not bins or len(bins[-1][1]) >= least:
            bins.append(([], []))
        bins[-1][0].append(length)
        bins[-1][1].extend(by_length[length])
    if len(bins) > 1 and len(bins[-1][1]) < FEWEST:
        lengths, found = bins.pop()
        bins[-1] = (bins[-1][0] + lengths, bins[-1][1] + found)
    return [(f"{n[0]}-{n[-1]}" if len(n) > 1 else str(n[0]), found) for n, found in bins]


def _share(found: Sequence[bool]) -> ErrorShare:
    wrong = len(found) - sum(found)
    return {"rows": len(found), "wrong": wrong, "error": wrong / len(found)}


def _nearest(row: Scored, cut: Callable[[str], Sequence[str]]) -> tuple[int, str]:
    """The fewest edits to a reference, and that reference."""
    hypothesis = cut(row.translation)
    edits = ((Levenshtein.distance(hypothesis, cut(reference)), reference) for reference in row.references)
    return min(edits, key=lambda pair: pair[0])


def _error_rate(rows: Sequence[Scored], cut: Callable[[str], Sequence[str]]) -> Estimate:
    nearest = [_nearest(row, cut) for row in rows]
    return ratio([edits for edits, _ in nearest], [max(1, len(cut(reference))) for _, reference in nearest])


def _sacrebleu(rows: Sequence[Scored], by_character: bool) -> SacrebleuScores:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    most = max(len(row.references) for row in rows)
    # sacrebleu takes the first references of all rows, then the second; None where a row has no more.
    columns: Any = [[row.references[k] if k < len(row.references) else None for row in rows] for k in range(most)]
    hypotheses = [row.translation for row in rows]

    def scored(metric: BLEU | CHRF) -> SignedEstimate:
        return {
            "value": float(metric.corpus_score(hypotheses, columns).score),
            "interval": _resampled(metric, hypotheses, columns),
            "signature": str(metric.get_signature()),
        }

    return {"bleu": scored(BLEU(tokenize="char" if by_character else "13a")), "chrf": scored(CHRF())}


def _resampled(metric: Any, hypotheses: list[str], columns: Any) -> list[float] | None:
    """The middle 95 % of the scores of rows drawn again; sacrebleu's own fails where some of them are 0.

    None where every draw scores the same, as with rows that are all right.
    """
    counts = np.asarray(metric._extract_corpus_statistics(hypotheses, columns), dtype=float)  # (rows, counts)
    rng, rows = np.random.default_rng(0), len(hypotheses)
    drawn = (rng.multinomial(rows, [1 / rows] * rows) @ counts for _ in range(BOOTSTRAPS))
    scores = [float(metric._compute_score_from_stats(list(sums)).score) for sums in drawn]
    low, high = (float(x) for x in np.quantile(scores, [0.025, 0.975]))
    return [low, high] if high - low > 1e-9 else None
