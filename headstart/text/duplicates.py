"""Duplicates among rows: exact, contained and near, in time and memory that are nearly linear in the text.

    exact      the same text, once `normal` has set case, white space and composition aside
    contained  all words of one row stand, in their order and side by side, in another; FEWEST_WORDS or more
    near       the words and pairs of neighbouring words of two rows have a Jaccard similarity of NEAR or more

Not all pairs are listed, only what a report needs: for each row one earlier duplicate in its own part, and one in a
part before it. Exact and contained duplicates are all found. So are near duplicates, unless there are so many rows out
of one template that a row shares its rarest words with more than MOST_PAIRS / rows others (7,000 of 14,000 rows, 500
of 200,000). Such a row is compared with its neighbours in MinHash buckets: it meets a row of similarity NEAR in one of
BANDS buckets with a probability of 1 - (1 - NEAR ** BAND) ** BANDS = 0.99998, and the last few rows of each bucket are
compared with it. On templates of eight slots this found 98 % of what there was at the least. Whatever is reported has
been compared in full, so a count can be too low and never too high. Hashes are our own: no run differs from another.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FEWEST_WORDS = 5  # of a row that can count as contained in another
NEAR = 0.8
MOST_PAIRS = 100_000_000  # compared for near duplicates, about; shared out evenly among the rows
BANDS, BAND = 60, 8  # buckets that a row is in, and minimal hashes that the rows of a bucket have in common
BLOCK = 1_000_000  # pairs in memory at a time

Ints = NDArray[np.int64]
Found = tuple[Ints, Ints]  # row numbers of pairs: the earlier ones, the later ones


def normal(text: str) -> str:
    """What exact duplicates of a text have in common: case, white space and composition set aside.

    >>> normal(" A  Dog") == normal("a dog")
    True
    """
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


@dataclass(frozen=True)
class Rows:
    """Normal texts as numbers: of words, of whole texts, and of the part that each row is in."""

    words: Ints  # of all rows, one after the other
    ends: Ints  # where the words of each row end
    texts: Ints  # the same number where the text is the same
    parts: Ints  # ascending

    @classmethod
    def read(cls, texts: Sequence[str], parts: Sequence[int]) -> Rows:
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        words, ends = array("q"), array("q")
        for text in texts:
            words.extend(map(numbers.__getitem__, text.split()))
            ends.append(len(words))
        known: dict[str, int] = {}
        same = [known.setdefault(text, len(known)) for text in texts]
        return cls(*(np.array(column, dtype=np.int64) for column in (words, ends, same, parts)))

    @cached_property
    def lengths(self) -> Ints:
        return np.diff(self.ends, prepend=0)

    @cached_property
    def row(self) -> Ints:
        """The row that each word stands in."""
        return np.repeat(np.arange(len(self.ends)), self.lengths)

    @cached_property
    def part_starts(self) -> Ints:
        """The first row of the part that each row is in."""
        return np.searchsorted(self.parts, self.parts)

    def one_of_each(self, pairs: Sequence[Found]) -> Found:
        """Of all pairs, for each later row the first in its own part and the first in a part before it."""
        earlier, later = (np.concatenate([np.empty(0, np.int64), *side]) for side in zip(*pairs, strict=True))
        order = np.lexsort((earlier, later))
        earlier, later = earlier[order], later[order]
        inside = self.parts[earlier] == self.parts[later]
        first = np.unique(2 * later + inside, return_index=True)[1]
        return earlier[first], later[first]


def exact(rows: Rows) -> Found:
    filled = np.nonzero(rows.lengths)[0]  # blank rows are reported as such
    return rows.one_of_each([_earlier(rows, rows.texts[filled], filled, rows.texts[filled], filled)])


def contained(rows: Rows) -> Found:
    """Pairs in which the words of one row stand inside the other's.

    Stretches of 1, 2, 4, 8 ... words get numbers, equal stretches the same one (Karp, Miller and Rosenberg 1972), and
    those that occur once are dropped, which soon leaves few. A row of n words is two stretches of the greatest power of
    two up to n, its first and its last; it stands wherever the two stand at that distance.
    """
    names, size = rows.words, 1
    found: Found = (np.empty(0, np.int64), np.empty(0, np.int64))
    while size <= rows.lengths.max(initial=0):
        for some in _held(rows, names, size):
            found = rows.one_of_each([found, some])
        names, size = _doubled(rows, names, size), 2 * size
    return found


def _doubled(rows: Rows, names: Ints, size: int) -> Ints:
    """Numbers of the stretches of 2 * `size` words at each place; -1 where a row ends before, or no other is equal."""
    longer = np.full_like(names, -1)
    if len(names) <= size:
        return longer
    first, second = names[:-size], names[size:]
    (places,) = np.nonzero((first >= 0) & (second >= 0) & (rows.row[:-size] == rows.row[size:]))
    both = first[places] * (names.max(initial=0) + 1) + second[places]
    _, found, counts = np.unique(both, return_inverse=True, return_counts=True)
    longer[places] = np.where(counts > 1, np.cumsum(counts > 1) - 1, -1)[found]
    return longer


def _held(rows: Rows, names: Ints, size: int) -> Iterator[Found]:
    """(earlier, later) of the rows of `size` to 2 * `size` - 1 words that stand in longer ones."""
    starts = rows.ends - rows.lengths
    (inner,) = np.nonzero((rows.lengths >= max(size, FEWEST_WORDS)) & (rows.lengths < 2 * size))
    inner = inner[(names[starts[inner]] >= 0) & (names[rows.ends[inner] - size] >= 0)]
    if not len(inner):
        return
    order = np.argsort(names, kind="stable")
    sorted_names = names[order]
    for length in _distinct(rows.lengths[inner]).tolist():
        gap, some = length - size, inner[rows.lengths[inner] == length]
        heads = _distinct(names[starts[some]])
        spans = (np.searchsorted(sorted_names, heads, side) for side in ("left", "right"))
        places = order[_ranges(*spans)]
        places = places[(rows.lengths[rows.row[places]] > length) & (places + length <= rows.ends[rows.row[places]])]
        base = names.max() + 1
        wanted, own = np.unique(names[starts[some]] * base + names[starts[some] + gap], return_inverse=True)
        there = names[places] * base + names[places + gap]
        at = np.minimum(np.searchsorted(wanted, there), len(wanted) - 1)
        hit = (wanted[at] == there) & (names[places + gap] >= 0)
        held, holder = np.divmod(_distinct(at[hit] * len(rows.ends) + rows.row[places[hit]]), len(rows.ends))
        yield _earlier(rows, own, some, held, holder)
        yield _earlier(rows, held, holder, own, some)


def _earlier(rows: Rows, group: Ints, row: Ints, other_group: Ints, other_row: Ints) -> Found:
    """For each row the first of the other rows of its group in its part, and the first of all; those before it only."""
    found = []
    for own, others in (
        (group, other_group),
        (group * len(rows.parts) + rows.parts[row], other_group * len(rows.parts) + rows.parts[other_row]),
    ):
        order = np.lexsort((other_row, others))
        sorted_others = others[order]
        at = np.searchsorted(sorted_others, own)
        there = at < len(order)
        there[there] = sorted_others[at[there]] == own[there]
        first = other_row[order[at[there]]]
        found.append((first[first < row[there]], row[there][first < row[there]]))
    earlier, later = map(np.concatenate, zip(*found, strict=True))
    return earlier, later


def near(rows: Rows) -> Found:
    """Pairs of a similarity of NEAR or more that are not exact duplicates.

    Two sets can only be that similar if they share one of their rarest members: of n, the n - ceil(NEAR n) + 1 rarest
    (prefix filtering, Bayardo et al. 2007). A row is compared with those that it shares one with, if they are not too
    many; else with its neighbours in MinHash buckets.
    """
    sets = _Sets.of(rows)
    # A second copy of a text in a part would be found instead of the first, and nothing else.
    leading = np.zeros(len(rows.parts), bool)
    leading[np.unique(rows.texts * len(rows.parts) + rows.parts, return_index=True)[1]] = True
    members, row = sets.rarest()
    indexed = leading[row]
    order = np.lexsort((row[indexed], members[indexed]))
    posted, postings = row[indexed][order], (members[indexed] * len(rows.parts) + row[indexed])[order]
    low = np.searchsorted(postings, members * len(rows.parts))
    high = np.searchsorted(postings, members * len(rows.parts) + row)
    candidates = np.bincount(row, high - low, len(rows.parts)).astype(np.int64)  # as often as they share a member
    leaders = np.nonzero(leading)[0]
    before = np.searchsorted(leaders, np.arange(len(rows.parts)))
    crowded = np.minimum(candidates, before) > MOST_PAIRS // max(1, len(rows.parts))
    few = ~crowded & (candidates <= before)
    pairs = [(row[:0], row[:0])]
    pairs += [
        sets.similar(rows, posted[_ranges(low[block], high[block])], np.repeat(row[block], (high - low)[block]))
        for block in _blocks(np.nonzero(few[row])[0], (high - low)[few[row]])
    ]
    all_earlier = np.nonzero(~crowded & ~few)[0]
    pairs += [
        sets.similar(rows, leaders[_ranges(np.zeros_like(block), before[block])], np.repeat(block, before[block]))
        for block in _blocks(all_earlier, before[all_earlier])
    ]
    if crowded.any():
        shared = np.zeros(sets.kinds, bool)
        shared[members[crowded[row]]] = True
        pairs += _in_buckets(rows, sets, np.nonzero(crowded)[0], _distinct(row[indexed & shared[members]]))
    return rows.one_of_each(pairs)


@dataclass(frozen=True)
class _Sets:
    """The words and pairs of words of each row, by numbers that are smaller the rarer they are."""

    members: NDArray[np.int32]  # of all rows, one after the other; ascending in each
    ends: Ints
    kinds: int

    @classmethod
    def of(cls, rows: Rows) -> _Sets:
        kinds = int(rows.words.max(initial=-1)) + 1
        inside = rows.row[:-1] == rows.row[1:]
        pairs, numbers = np.unique(rows.words[:-1][inside] * kinds + rows.words[1:][inside], return_inverse=True)
        every = np.concatenate([rows.words, kinds + numbers])
        kinds += len(pairs)
        by_rarity = np.empty(kinds, np.int64)
        by_rarity[np.argsort(np.bincount(every, minlength=kinds), kind="stable")] = np.arange(kinds)
        keys = np.concatenate([rows.row, rows.row[:-1][inside]]) * kinds + by_rarity[every]
        keys = _distinct(keys)
        ends = np.searchsorted(keys, np.arange(1, len(rows.ends) + 1) * kinds)
        return cls((keys % max(1, kinds)).astype(np.int32), ends, kinds)

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.ends, prepend=0)

    @cached_property
    def parities(self) -> list[NDArray[np.uint64]]:
        """For each row 256 bits, in four numbers: whether the members that belong to a bit are odd in number."""
        place = _mixed(self.members.astype(np.uint64))
        row = np.repeat(np.arange(len(self.sizes)), self.sizes)
        found = []
        for word in range(4):
            bits = np.zeros(len(self.sizes), np.uint64)
            some = place >> np.uint64(62) == word
            np.bitwise_xor.at(bits, row[some], np.uint64(1) << (place[some] & np.uint64(63)))
            found.append(bits)
        return found

    def rarest(self) -> tuple[Ints, Ints]:
        """The members of which two similar rows must share one, and their rows."""
        counts = self.sizes - np.ceil(NEAR * self.sizes - 1e-9).astype(np.int64) + 1
        counts[self.sizes == 0] = 0
        starts = self.ends - self.sizes
        members, row = self.members[_ranges(starts, starts + counts)], np.repeat(np.arange(len(counts)), counts)
        shared = np.bincount(members, minlength=self.kinds)[members] > 1
        return members[shared].astype(np.int64), row[shared]

    def similar(self, rows: Rows, earlier: Ints, later: Ints) -> Found:
        """Those of the pairs that are near duplicates, each once."""
        from scipy.sparse import csr_matrix  # as long to load as all the rest

        # Of two sets that similar, so many members at most are in one only, and each of them changes one bit.
        most = (self.sizes[earlier] + self.sizes[later]) * ((1 - NEAR) / (1 + NEAR)) + 1e-9
        likely = rows.texts[earlier] != rows.texts[later]
        likely &= np.abs(self.sizes[earlier] - self.sizes[later]) <= most
        changed = np.zeros(len(earlier), np.int64)
        for bits in self.parities:
            changed += np.bitwise_count(bits[earlier] ^ bits[later])
        likely &= changed <= most
        pair = _distinct(later[likely] * len(rows.parts) + earlier[likely])
        earlier, later = pair % len(rows.parts), pair // len(rows.parts)
        kept = [(earlier[:0], later[:0])]
        for block in _blocks(np.arange(len(later)), self.sizes[earlier] + self.sizes[later]):
            one, other = earlier[block], later[block]
            left, right = (
                csr_matrix(
                    (
                        np.ones(int(self.sizes[side].sum()), np.int32),
                        self.members[_ranges(self.ends[side] - self.sizes[side], self.ends[side])],
                        np.concatenate([[0], np.cumsum(self.sizes[side])]),
                    ),
                    shape=(len(side), self.kinds),
                )
                for side in (one, other)
            )
            shared = np.asarray(left.multiply(right).sum(axis=1)).ravel()
            alike = shared >= NEAR * (self.sizes[one] + self.sizes[other] - shared) - 1e-9
            kept.append((one[alike], other[alike]))
        earlier, later = map(np.concatenate, zip(*kept, strict=True))
        return earlier, later


def _in_buckets(rows: Rows, sets: _Sets, crowded: Ints, index: Ints) -> Iterator[Found]:
    """Near duplicates of the `crowded` rows among those of `index`, by MinHash; a row is done when it has all it needs."""
    rng = np.random.default_rng(0)
    count = len(rows.parts)
    hashed = np.union1d(crowded, index)
    sizes = sets.sizes[hashed]
    members = _mixed(sets.members[_ranges(sets.ends[hashed] - sizes, sets.ends[hashed])].astype(np.uint64))
    starts = np.cumsum(sizes) - sizes
    compared = max(2, MOST_PAIRS // (2 * BANDS * len(crowded)))
    lonely, unleaked = np.ones(count, bool), rows.parts > 0
    bucket = np.zeros(count, np.int64)
    for _ in range(BANDS):
        crowded = crowded[lonely[crowded] | unleaked[crowded]]
        if not len(crowded):
            return
        key = np.zeros(len(hashed), np.uint64)
        for factor in rng.integers(0, 2**63, BAND, dtype=np.uint64) * np.uint64(2) + np.uint64(1):
            key = _mixed(key ^ np.minimum.reduceat(members * factor >> np.uint64(16), starts))
        bucket[hashed] = np.unique(key, return_inverse=True)[1]
        posted = np.sort(bucket[index] * count + index)
        earlier, later = [], []
        for missing, before in ((lonely, crowded), (unleaked, rows.part_starts[crowded])):
            asked = missing[crowded]
            start = bucket[crowded[asked]] * count + (rows.part_starts[crowded[asked]] if missing is lonely else 0)
            high = np.searchsorted(posted, bucket[crowded[asked]] * count + before[asked])
            low = np.maximum(high - compared, np.searchsorted(posted, start))
            earlier.append(posted[_ranges(low, high)] % count)
            later.append(np.repeat(crowded[asked], high - low))
        found = sets.similar(rows, *map(np.concatenate, (earlier, later)))
        inside = rows.parts[found[0]] == rows.parts[found[1]]
        lonely[found[1][inside]] = False
        unleaked[found[1][~inside]] = False
        yield found


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that look random, and are equal where `values` are (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)  # without it, 0 would stay 0 and be the minimum of every hash
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


def _distinct(values: Ints) -> Ints:
    """Numbers of 0 or more in order, each once; faster than np.unique, which hashes them."""
    values = np.sort(values)
    return values[np.diff(values, prepend=-1) != 0]


def _ranges(low: Ints, high: Ints) -> Ints:
    """The numbers from each `low` up to its `high`, one range after the other.

    >>> _ranges(np.array([3, 7]), np.array([5, 8])).tolist()
    [3, 4, 7]
    """
    counts = high - low
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - low, counts)


def _blocks(places: Ints, costs: Ints) -> list[Ints]:
    """`places` cut where their costs add up to BLOCK; one of them at least."""
    cuts = np.nonzero(np.diff(np.cumsum(costs) // BLOCK, prepend=0))[0]
    return np.split(places, cuts)
