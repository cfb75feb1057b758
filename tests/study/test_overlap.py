"""Overlap is counted against the rows that a cell learned from, not against all that there are."""

from __future__ import annotations

from headstart.study.overlap import overlapping
from headstart.text.hygiene import check
from headstart.text.read import Example
from headstart.text.split import Labelled, draw


def rows(part: str, count: int) -> list[Example]:
    return [
        Example(f"{part} number {i} is about {'ships' if i % 2 else 'bread'} only {i * i}", "ab"[i % 2])
        for i in range(count)
    ]


def test_a_cell_of_few_labels_overlaps_with_its_own_rows_only() -> None:
    train = rows("train", 400)
    data = Labelled(train, [], [*train[:40], *rows("test", 20)], ["a", "b"])
    whole = check(data.parts())["overlapping_rows"]["test"]
    assert whole == list(range(40))
    assert overlapping(data, whole, 0, [0]) == whole
    one, other = ({e.text for e in draw(data, 50, seed).train} for seed in (0, 1))
    for seeds, learned in (([0], one), ([0, 1], one | other)):
        expected = [i for i in whole if data.test[i].text in learned]
        assert overlapping(data, whole, 50, seeds) == expected
    assert 0 < len(expected) < 40


def test_data_without_overlap_has_none_at_any_count() -> None:
    data = Labelled(rows("train", 100), [], rows("test", 20), ["a", "b"])
    assert overlapping(data, [], 50, [0, 1]) == []
