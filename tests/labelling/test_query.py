"""Which rows are asked for."""

from __future__ import annotations

import numpy as np

from headstart.labelling.query import (
    BATCH,
    EVERY,
    choose,
    interleaved,
    margins,
    random_order,
    random_part,
    typical,
    uncertain,
)


def in_turn(taken: set[int], count: int) -> list[int]:
    return [row for row in range(1000) if row not in taken][:count]


def test_one_row_in_four_is_drawn_by_chance() -> None:
    order = random_order(1000, seed=3)
    answered: set[int] = set()
    for labels in range(40):
        [(row, random)] = interleaved(labels, 1, order, answered, set(), in_turn)
        assert random == (labels % EVERY == 0)
        answered.add(row)
    assert [row for row in order[:10].tolist() if row not in answered] == []


def test_asking_for_many_at_once_gives_the_same_rows() -> None:
    order, answered, one_by_one = random_order(1000, seed=3), set[int](), []
    for labels in range(20):
        one_by_one += interleaved(labels, 1, order, answered, set(), in_turn)
        answered = {row for row, _ in one_by_one}
    assert interleaved(0, 20, order, set(), set(), in_turn) == one_by_one


def test_the_random_part_does_not_depend_on_what_was_chosen() -> None:
    order = random_order(50, seed=0)
    wanted = set(random_part(order, 40).tolist())
    greedy = interleaved(0, 40, order, set(), set(), lambda taken, count: [row for row in order.tolist() if row not in taken][:count])  # fmt: skip
    assert wanted <= {row for row, _ in greedy}  # also where those were chosen that would have been drawn
    assert len(wanted) == 10


def test_a_row_that_another_tab_shows_is_not_asked_for() -> None:
    order = random_order(30, seed=0)
    held = {row for row, _ in interleaved(0, 6, order, set(), set(), in_turn)}
    assert not held & {row for row, _ in interleaved(0, 6, order, set(), held, in_turn)}


def test_all_rows_are_asked_for_once_and_then_none() -> None:
    order = random_order(30, seed=0)
    few = lambda taken, count: [row for row in range(30) if row not in taken][:count]  # noqa: E731
    rows = [row for row, _ in interleaved(0, 100, order, set(), set(), few)]
    assert sorted(rows) == list(range(30))


def clusters(sizes: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 10 * np.eye(len(sizes))
    return np.vstack([rng.normal(c, 1, (n, len(sizes))) for c, n in zip(centres, sizes, strict=True)]), np.repeat(np.arange(len(sizes)), sizes)  # fmt: skip


def test_typical_rows_come_from_every_cluster_that_has_no_label() -> None:
    vectors, place = clusters([200, 100, 50, 50])
    found = typical(vectors, np.arange(1, 400), [0], 3)  # row 0, of the first cluster, is labelled
    assert {1, 2, 3} <= set(place[found].tolist())
    dense = [np.linalg.norm(vectors[row] - vectors[place == place[row]].mean(0)) for row in found]
    assert max(dense) < 1.5  # an average row is 2 away


def test_uncertain_rows_are_near_the_border_and_apart_from_each_other() -> None:
    rng = np.random.default_rng(0)
    vectors = np.hstack([rng.uniform(-1, 1, (2000, 1)), rng.uniform(-10, 10, (2000, 1))])
    p = 1 / (1 + np.exp(-5 * vectors[:, :1]))
    found = uncertain(vectors, np.arange(2000), margins(np.hstack([p, 1 - p])), 8)
    assert len(set(found)) == 8
    assert np.abs(vectors[found, 0]).max() < 0.1
    assert np.diff(np.sort(vectors[found, 1])).min() > 0.5
    nearest = np.argsort(np.abs(vectors[:, 0]))[:8]
    assert np.diff(np.sort(vectors[nearest, 1])).min() < 0.5  # without the spread


def test_the_margin_is_that_of_the_two_likeliest_classes() -> None:
    found = margins(np.array([[0.5, 0.5, 0.0], [0.4, 0.35, 0.25], [1.0, 0.0, 0.0]]))
    assert np.allclose(found, [1, 0.95, 0])


def test_the_last_rows_are_all_chosen() -> None:
    vectors, _ = clusters([5, 5])
    assert choose(vectors, None, [0], {0, 1, 2, 3, 4}, BATCH) == [5, 6, 7, 8, 9]
