"""The verdict: what a comparison showed, in words that a statistician would sign. No torch.

It is the answer in one short sentence, and below it a list of points that add to it. It says no
more than the intervals do: an arm helps, hurts, beats or loses only where zero is outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headstart.quantities import counted, points, signed
from headstart.study.arms import UNRANKED, arm_kind
from headstart.study.next_step import mean_of as _mean
from headstart.study.next_step import next_step
from headstart.study.results import ArmResult, Difference, Needed, Results
from headstart.targets.tasks import TARGETS

MOST_WORDS = 120
MOST_SEEDS, MOST_TIMES_THE_ROWS = 100, 100  # more than these is no advice
GIVEAWAY = 0.05  # above a constant answer: what one text of a pair may show of the label without a word of caution


@dataclass(frozen=True)
class Gap:
    """The score of `a` minus that of `b`, in points."""

    a: str
    b: str
    labels: int
    points: float
    low: float
    high: float
    over: str
    adjusted: bool
    needed: Needed | None

    @property
    def sign(self) -> int:
        """1 where `a` is clearly ahead, -1 where it is clearly behind, 0 where there is no significant difference."""
        return (self.low > 0) - (self.high < 0)

    @property
    def size(self) -> str:
        low, high = sorted((abs(self.low), abs(self.high)))
        return f"{points(abs(self.points))} points ({points(low)} to {points(high)})"

    @property
    def signed(self) -> str:
        return f"{signed(self.points)} points ({points(self.low)} to {points(self.high)})"

    def turned(self) -> Gap:
        return Gap(
            self.b, self.a, self.labels, -self.points, -self.high, -self.low, self.over, self.adjusted, self.needed
        )


def verdict(results: Results) -> str:
    """The answer, and points below it, "- " before each: 120 words or so at most; what matters least is left out first."""
    study = _Study(results)
    lead = study.lead()
    sentences = [(0, study.answer(lead)), *study.sentences(lead)] if lead else list(study.without_comparison())
    while len(_joined(sentences).split()) > MOST_WORDS and max(weight for weight, _ in sentences) > 0:
        sentences.remove(max(sentences, key=lambda sentence: sentence[0]))
    return _joined(sentences)


def headline(verdict: str) -> str:
    """Its first sentence.

    >>> headline("Yes: it helps.\\n- full 0.8 is ahead of scratch 0.7.")
    'Yes: it helps.'
    """
    return verdict.partition("\n")[0]


class _Study:
    """Results, and what can be said of them: (how easily left out, sentence) pairs; 0 is never left out."""

    def __init__(self, results: Results) -> None:
        self.results, self.every, self.most = results, results.all_labels, results.most_labels
        self.kinds = {arm.name: arm_kind(arm.kind) for arm in results.arms}
        self.arms = {arm.name: arm for arm in results.at(self.every)}
        self.gaps = [self._gap(row) for row in results.differences]
        self.here = [gap for gap in self.gaps if gap.labels == self.every and {gap.a, gap.b} <= set(self.arms)]

    def lead(self) -> Gap | None:
        """The comparison that the study was made for: pretraining against none, or else what comes nearest.

        Of several bases the best leads; the intervals are adjusted for all of them.
        """

        def first(gap: Gap) -> tuple[bool, bool, int, int, float]:
            order = self._order(gap.b), self._order(gap.a)
            return not self._asks(gap), self._adds_tfidf(gap), *order, -_mean(self.arms[gap.a])

        return min(self.here, key=first, default=None)

    def answer(self, lead: Gap) -> str:
        """What most people came to know, without its uncertainty."""
        if not self._asks(lead):
            return f"At {self.most} {self._plainly(lead)}{self._better_joined()}"
        asked = [gap for gap in self.here if self._asks(gap)]
        helped = [gap for gap in asked if gap.sign > 0]
        told = lead if lead.sign > 0 or not helped else max(helped, key=lambda gap: gap.points)
        by = f"by about {points(abs(told.points))} points at {self.most}"
        if lead.sign > 0:
            said = f"Yes: pretraining helps here, {by}"
        elif helped:
            lead_too = f"hurts {lead.a}" if lead.sign < 0 else f"makes no clear difference to {lead.a}"
            said = f"In part: pretraining helps {told.a}, {by}, and {lead_too}"
        elif lead.sign < 0:
            said = f"No: pretraining hurts here, {by}"
        else:
            said = (
                f"No clear {'gain' if any(gap.sign for gap in asked) else 'difference'} from pretraining at {self.most}"
            )
        linear = self._beside_linear_arm(told)
        if linear and linear.sign < 0:
            said += f"; {self._beside(linear, 'still ' if told.sign > 0 else '')}"
        return said + self._better_joined()

    def _beside(self, linear: Gap, still: str) -> str:
        """That the linear baseline is better than the arm that leads; than all others too, unless one is clearly ahead of it."""
        short, ahead = self.kinds[linear.b].short, self._ahead_of_linear()
        if not ahead:
            return f"{short} is {still}better"
        return f"{short} is {still}better than {linear.a}, and {ahead.a} is better than {short}"

    def _ahead_of_linear(self) -> Gap | None:
        """The best pretrained arm that is clearly ahead of the linear baseline, by itself."""
        ahead = [gap for gap in self.here if gap.sign > 0 and self.kinds[gap.b].linear and self.kinds[gap.a].pretrained]
        alone = [gap for gap in ahead if not self.kinds[gap.a].joined]
        return max(alone, key=lambda gap: _mean(self.arms[gap.a]), default=None)

    def _better_joined(self) -> str:
        """The best arm that joins a base and TF-IDF, if it is clearly ahead of either alone."""
        ahead = [gap for gap in self.here if self._adds_tfidf(gap) and gap.sign > 0]
        ahead = [gap for gap in ahead if (linear := self._beside_linear_arm(gap)) and linear.sign > 0]
        if not ahead:
            return ""
        best = max(ahead, key=lambda gap: _mean(self.arms[gap.a]))
        return f"; {best.a} ({best.b} and TF-IDF together) is better than either"

    def sentences(self, lead: Gap) -> Iterator[tuple[int, str]]:
        smaller = [gap for gap in self.gaps if (gap.a, gap.b) == (lead.a, lead.b) and gap.labels < self.every]
        yield 0, self._lead(lead)
        yield from self._beside_linear(lead)
        yield from self._bases(lead)
        yield from self._others(lead)
        yield from self._prompt_is_worth()
        yield from self._beside_tfidf(lead)
        yield from self._helped(lead)
        yield from self._with_fewer(lead, sorted(smaller, key=lambda gap: gap.labels))
        yield from self._labels_needed(lead)
        yield from self._next()
        yield from self._floor()
        yield from self._one_side()
        yield from self._without_overlap(lead)
        yield 0, self._brackets(lead, bool(smaller))
        yield from self._conditions()

    def without_comparison(self) -> Iterator[tuple[int, str]]:
        yield 0, "There is no second arm to compare with" if len(self.arms) == 1 else "The arms were not compared"
        for arm in self.arms.values():
            low, high = arm.interval or (_mean(arm), _mean(arm))
            score = f"the score of {self._name(arm.name)} is {_mean(arm):.3f} ({low:.3f} to {high:.3f})"
            yield 1, f"At {self.most} {score}"
        yield from self._conditions()

    def _lead(self, gap: Gap) -> str:
        """What the answer rests on: the two scores, and how far apart they are."""
        a, b = (f"{self._name(name)} {_mean(self.arms[name]):.3f}" for name in (gap.a, gap.b))
        if not gap.sign:
            return f"{a} minus {b} is {gap.signed}{self._seeds(gap)}{self._would_tell(gap)}"
        return f"{a} is {'ahead of' if gap.sign > 0 else 'behind'} {b} by {gap.size}{self._seeds(gap)}"

    def _beside_linear(self, lead: Gap) -> Iterator[tuple[int, str]]:
        """What the arm that leads is worth beside TF-IDF, where it has led by another comparison."""
        gap = self._beside_linear_arm(lead)
        if gap and gap.sign < 0 < lead.sign:
            ahead = self._ahead_of_linear()
            other = f"; {self._compared(ahead)}" if ahead else ""
            yield 0, f"{gap.a} is still {gap.size} below {self._name(gap.b)}{other}"
        elif gap:
            yield 0, self._compared(gap)
        elif self.kinds[lead.a].pretrained and not self._asks(lead):
            yield 0, "There is no scratch arm, so what pretraining adds is not known"

    def _others(self, lead: Gap) -> Iterator[tuple[int, str]]:
        others = [self._compared(gap) for gap in self.here if self._asks(gap) and gap.a != lead.a]
        if others:
            yield 4, "Of the other arms, " + "; ".join(others)

    def _beside_tfidf(self, lead: Gap) -> Iterator[tuple[int, str]]:
        joined = [gap for gap in self.here if self._adds_tfidf(gap)]
        linear = [gap for alone in joined if (gap := self._beside_linear_arm(alone))]
        added = [self._compared(gap) for gap in (*joined, *linear) if gap != lead]
        if added:
            yield 1, "Joined with TF-IDF, " + "; ".join(added)

    def _bases(self, lead: Gap) -> Iterator[tuple[int, str]]:
        between = [self._compared(g) for g in self.here if self.kinds[g.a] == self.kinds[g.b] and g != lead]
        if between:
            yield 1, "Between bases, " + "; ".join(between)

    def _with_fewer(self, lead: Gap, gaps: Sequence[Gap]) -> Iterator[tuple[int, str]]:
        unclear = [gap for gap in gaps if not gap.sign]
        if not gaps:
            return
        if len(unclear) == len(gaps):
            or_fewer = " or fewer" if len(gaps) > 1 else ""
            yield 3, f"With {gaps[-1].labels:,} labels{or_fewer} there is no significant difference"
            return
        parts = []
        for sign in (1, -1):
            told = [gap for gap in gaps if gap.sign == sign]
            if told:
                if self._asks(lead):
                    verb = "pretraining helps" if sign > 0 else "pretraining hurts"
                else:
                    verb = f"{self._name(lead.a)} is {'ahead' if sign > 0 else 'behind'}"
                rest = f", and also at {_listed(told[1:])}" if told[1:] else ""
                parts.append(f"{verb} by {told[0].size} at {told[0].labels:,}{rest}")
        if unclear:
            parts.append(f"at {_listed(unclear)} there is no significant difference")
        yield 3, "With fewer labels " + "; ".join(parts)

    def _labels_needed(self, lead: Gap) -> Iterator[tuple[int, str]]:
        for row in self.results.labels_needed:
            low, high = row.interval
            if (row.arm, row.reference) != (lead.a, lead.b) or high is None or high >= self.every:
                continue  # that labels are saved is not clear
            about = f"{row.labels:,} or fewer" if row.at_most else f"about {row.labels:,}"
            needs = f"{self._name(lead.a)} needs {about} ({low:,} to {high:,})"
            yield 2, f"For what {self._name(lead.b)} reaches with {self.most}, {needs}"

    def _prompt_is_worth(self) -> Iterator[tuple[int, str]]:
        """How many labels the arm that learns fastest, without the prompt, needs for the score of the prompt alone."""
        for zero in (arm for arm in self.results.at(0) if arm.kind == "zero-shot"):
            rows = [r for r in self.results.labels_needed if r.reference == zero.name and not self._prompted(r.arm)]
            score = f"The prompt alone ({zero.name}, {_mean(zero):.3f} with no labels)"
            reached = [row for row in rows if row.labels is not None]
            if not reached:
                if rows:
                    yield 0, f"{score} is worth more than {self.most}: no arm without a prompt reaches it"
                continue
            best = min(reached, key=lambda row: row.labels or 0)
            low, high = best.interval
            about = f"at most {best.labels:,}" if best.at_most else f"about {best.labels:,}"
            between = f" ({low:,} to {high:,})" if low is not None and high is not None else ""
            between = between or (f" ({low:,} or more)" if low is not None else "")
            yield (
                0,
                f"{score} is worth {about} labels here{between}: {self._name(best.arm)} needs that many to match it",
            )

    def _next(self) -> Iterator[tuple[int, str]]:
        if any(self._prompted(name) for name in self.arms):
            yield 1, next_step(self.results, self.kinds)

    def _helped(self, lead: Gap) -> Iterator[tuple[int, str]]:
        """What a linear probe on another base adds to a language model that is asked in words."""
        added = [
            self._compared(g)
            for g in self.here
            if self.kinds[g.a].pools_zero_shot and not self.kinds[g.b].labelled and g != lead
        ]
        if added:
            yield 0, "With a linear probe added, " + "; ".join(added)

    def _prompted(self, name: str) -> bool:
        return self.kinds[name].asks or self.kinds[name].pools_zero_shot

    def _floor(self) -> Iterator[tuple[int, str]]:
        floors = [(_mean(arm), self.kinds[arm.name].words) for arm in self.arms.values() if self._is_constant(arm)]
        lows = [arm.interval[0] for arm in self.arms.values() if not self._is_constant(arm) and arm.interval]
        if floors and lows and max(lows) <= floors[0][0]:
            yield 1, f"No arm is clearly above {floors[0][1]} ({floors[0][0]:.3f})"

    def _one_side(self) -> Iterator[tuple[int, str]]:
        """Whether labels of pairs can be guessed from one text, which says how the pairs were written, and nothing of their relation."""
        floor = next((_mean(arm) for arm in self.arms.values() if self._is_constant(arm)), None)
        sides = [arm for arm in self.arms.values() if self.kinds[arm.name].one_side]
        clear = [arm for arm in sides if arm.interval and floor is not None and arm.interval[0] > floor + GIVEAWAY]
        for arm in sorted(clear, key=_mean)[-1:]:
            yield (
                0,
                f"Caution: {self.kinds[arm.name].short} reaches {_mean(arm):.3f}, a constant answer {floor:.3f}: some labels can be guessed without comparing the texts",
            )

    def _without_overlap(self, lead: Gap) -> Iterator[tuple[int, str]]:
        rows = self.results.data.overlapping_test_rows
        clean = [(self._name(name), score.mean) for name in (lead.a, lead.b) if (score := self.arms[name].clean)]
        if rows and len(clean) == 2:
            scores = " and ".join(f"{name} {mean:.3f}" for name, mean in clean)
            yield 2, f"Without the {rows:,} test rows that overlap with training rows: {scores}"

    def _brackets(self, lead: Gap, fewer: bool) -> str:
        score = "Scores are macro-F1, since the classes are uneven; in" if self.results.score == "macro_f1" else "In"
        if self.results.task != "classify":
            score = f"Scores are {self.results.score_name}; in"
        over = "seeds and test rows"
        if lead.over == "rows only":
            over = f"the {self.results.data.rows['test']:,} test rows alone"
        family = sum(gap.adjusted for gap in self.gaps)
        adjusted = f", {'at all labels ' if fewer else ''}adjusted for {family} comparisons" if family > 1 else ""
        few = self._most_seeds(lead)
        caution = f"; with only {counted(few, 'seed')}, others may give another answer" if few and few < 5 else ""
        return f"{score} brackets: 95 % intervals over {over}{adjusted}{caution}"

    def _conditions(self) -> Iterator[tuple[int, str]]:
        runs = len(self.results.pretraining)
        if runs and any(self.kinds[name].pretrained for name in self.arms):
            yield 0, f"All this is for one pretraining run{' a base' * (runs > 1)}: another could give another answer"
        failed = len(self.results.failures)
        if failed:
            yield 0, f"{counted(failed, 'run', 'failed and is', 'failed and are')} left out"

    def _compared(self, gap: Gap) -> str:
        a, b = self._name(gap.a), self._name(gap.b)
        if not gap.sign:
            return f"{a} shows no significant difference from {b}, {gap.signed}"
        return f"{a} {'beats' if gap.sign > 0 else 'loses to'} {b} by {gap.size}"

    def _plainly(self, gap: Gap) -> str:
        a, b = (self.kinds[name].short or name for name in (gap.a, gap.b))
        if not gap.sign:
            return f"there is no clear difference between {a} and {b}"
        better, worse = (a, b) if gap.sign > 0 else (b, a)
        return f"{better} is better than {worse}, by about {points(abs(gap.points))} points"

    def _would_tell(self, gap: Gap) -> str:
        if gap.needed is None:
            return ""
        seeds, rows = gap.needed.seeds, gap.needed.rows
        ways = {f"{seeds:,} seeds": seeds <= MOST_SEEDS} if seeds else {}
        if rows:
            within = rows <= MOST_TIMES_THE_ROWS * self.results.data.rows["test"]
            ways[f"{float(f'{rows:.2g}'):,.0f} test rows"] = within
        if near := [way for way, within in ways.items() if within]:
            return f"; if that is the truth, about {' or '.join(near)} would give an even chance to show it"
        if ways:
            return f"; to show a difference that small would take about {' or '.join(ways)}"
        return "; neither more seeds nor more test rows alone would show a difference that small"

    def _seeds(self, gap: Gap) -> str:
        seeds = self._most_seeds(gap)
        return f" over {seeds} seeds" if seeds > 1 else ""

    def _most_seeds(self, gap: Gap) -> int:
        """Seeds of the comparison; 0 where neither arm depends on them."""
        by_chance = [name for name in (gap.a, gap.b) if self.kinds[name].based and self.kinds[name].labelled]
        return max((self.arms[name].seeds for name in by_chance), default=0)

    def _beside_linear_arm(self, gap: Gap) -> Gap | None:
        """Another comparison of what `gap` speaks of, with the linear baseline."""
        return next((g for g in self.here if g.a == gap.a and self.kinds[g.b].linear and g != gap), None)

    def _asks(self, gap: Gap) -> bool:
        """Whether the comparison is of pretraining with none."""
        return self.kinds[gap.a].pretrained and self.kinds[gap.b].name == "scratch"

    def _adds_tfidf(self, gap: Gap) -> bool:
        """Whether the comparison is of a base joined with TF-IDF, and the same base alone."""
        return self.kinds[gap.a].joined and self.kinds[gap.a].partner == self.kinds[gap.b].name

    def _is_constant(self, arm: ArmResult) -> bool:
        return self.kinds[arm.name].constant

    def _order(self, name: str) -> int:
        return self.kinds[name].rank if name in self.kinds else UNRANKED

    def _name(self, name: str) -> str:
        kind = self.kinds[name]
        words = name if kind.based else kind.words
        return words.replace("logistic regression", TARGETS[self.results.task].linear)

    def _gap(self, row: Difference) -> Gap:
        low, high = (100 * end for end in row.interval)
        gap = Gap(row.a, row.b, row.labels, 100 * row.difference, low, high, row.over, row.adjusted, row.needed)
        turned = self._order(gap.a) > self._order(gap.b) and not self._adds_tfidf(gap)
        return gap.turned() if turned else gap


def _listed(gaps: Sequence[Gap]) -> str:
    *most, last = (f"{gap.labels:,}" for gap in gaps)
    return f"{', '.join(most)} and {last}" if most else last


def _joined(sentences: Sequence[tuple[int, str]]) -> str:
    return "\n- ".join(f"{text}." for _, text in sentences)
