"""Batches hold every token where it belongs, once an epoch, the same at every call."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headstart.config import TokenizerConfig
from headstart.text.batch import (
    IGNORE,
    Batch,
    Batches,
    PackedBatches,
    RowBatches,
    blocks,
    bucketed,
    by_length,
    hidden_tokens,
    in_order,
    next_token,
    pad,
    windows,
)
from headstart.text.tokenizer import Tokenizer, TokenRows

SIZES = st.tuples(st.integers(2, 9), st.integers(0, 1))  # tokens of a block, tokens it shares with the one before


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def some_lengths(rows: int = 103) -> np.ndarray:
    return rng().integers(1, 60, rows)


def numbers(part, _) -> Batch:
    """A batch that holds the numbers of its rows."""
    ids, mask = pad([[int(i)] for i in part])
    return Batch(ids, mask, ids)


def in_a_stream(rows, _) -> Batch:
    ids, mask = pad(rows)
    return Batch(ids, mask, ids)


def packed(tokens: int = 101, size: int = 9, overlap: int = 1, seed: int = 0) -> PackedBatches:
    return PackedBatches(np.arange(tokens, dtype=np.int32), size, overlap, 4, in_a_stream, seed)


BATCHES = {
    "rows": lambda seed=0: RowBatches(some_lengths(), 8, numbers, seed),
    "packed": lambda seed=0: packed(seed=seed),
}


@pytest.fixture(params=BATCHES)
def make(request: pytest.FixtureRequest):
    return BATCHES[request.param]


def epoch(batches: Batches, number: int) -> list[list[int]]:
    first = number * batches.per_epoch
    return [batches(i).ids.tolist() for i in range(first, first + batches.per_epoch)]


@given(st.lists(st.lists(st.integers(1, 99), min_size=1), min_size=1))
def test_padding_adds_to_a_row_and_takes_nothing(rows):
    ids, mask = pad(rows, pad_id=0)
    assert [row[real].tolist() for row, real in zip(ids, mask, strict=True)] == rows
    assert not ids[~mask].any()
    assert ids.size(1) == max(map(len, rows))


@given(st.lists(st.lists(st.integers(1, 99), min_size=2), min_size=1))
def test_n_plus_one_tokens_give_n_predictions(rows):
    batch = next_token([np.array(row) for row in rows], pad_id=0)
    for row, ids, mask, target in zip(rows, batch.ids, batch.mask, batch.target, strict=True):
        assert ids[mask].tolist() == row[:-1]
        assert target[mask].tolist() == row[1:]
        assert (target[~mask] == IGNORE).all()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the quick brown fox jumps over a lazy dog"], TokenizerConfig(kind="char"))


@pytest.fixture(scope="module")
def rows(tokenizer) -> list[np.ndarray]:
    encoded = tokenizer.encode(["the quick brown fox", "a lazy dog"] * 400)
    return [encoded[i] for i in range(len(encoded))]


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_as_many_tokens_are_hidden_as_asked(tokenizer, rows, rate):
    batch = hidden_tokens(rows, tokenizer, rate, rng())
    asked = batch.target != IGNORE
    real = sum(len(row) - 2 for row in rows)
    assert asked.sum() / real == pytest.approx(rate, abs=0.02)
    shown, true = batch.ids[asked], batch.target[asked]
    assert (shown == tokenizer.mask).float().mean() == pytest.approx(0.8, abs=0.03)
    assert (shown == true).float().mean() == pytest.approx(0.1, abs=0.03)


def test_start_end_and_padding_are_never_hidden(tokenizer, rows):
    ids, mask = pad(rows, tokenizer.pad)
    batch = hidden_tokens(rows, tokenizer, 0.9, rng())
    special = ~mask | (ids == tokenizer.start) | (ids == tokenizer.end)
    assert (batch.target[special] == IGNORE).all()
    assert torch.equal(batch.ids[special], ids[special])


def test_tokens_that_need_no_guess_are_shown_as_they_are(tokenizer, rows):
    ids, _ = pad(rows, tokenizer.pad)
    batch = hidden_tokens(rows, tokenizer, 0.15, rng())
    asked = batch.target != IGNORE
    assert torch.equal(batch.ids[~asked], ids[~asked])
    assert torch.equal(batch.target[asked], ids[asked])


def test_a_batch_of_very_short_texts_still_hides_a_token(tokenizer):
    rows = [tokenizer.encode(["a"])[0]]
    assert all((hidden_tokens(rows, tokenizer, 0.01, rng(i)).target != IGNORE).any() for i in range(20))


@given(st.integers(1, 60), SIZES)
def test_blocks_lose_no_token_and_repeat_only_the_overlap(tokens, sizes):
    size, overlap = sizes
    cut = blocks(np.arange(tokens), size, overlap)
    joined = [*cut[0].tolist(), *(i for block in cut[1:] for i in block[overlap:].tolist())]
    assert joined == list(range(tokens))
    assert max(map(len, cut)) <= size


@given(st.lists(st.integers(1, 40), min_size=1), SIZES)
def test_windows_predict_every_token_once(lengths, sizes):
    size, overlap = sizes
    rows = TokenRows.of([list(range(1000 * i, 1000 * i + n)) for i, n in enumerate(lengths)])
    cut = windows(rows, size, overlap)
    assert int(cut.lengths.max()) <= size
    seen = Counter(t for i in range(len(cut)) for t in cut[i][overlap:].tolist())  # the first of a window is given
    assert seen == Counter(t for i in range(len(rows)) for t in rows[i][overlap:].tolist())


def test_short_rows_are_their_own_windows():
    rows = TokenRows.of([[1, 2], [3]])
    assert windows(rows, 4, 1) is rows


@given(st.lists(st.integers(1, 50), min_size=1, max_size=80), st.integers(1, 9), st.integers(0, 2))
def test_every_row_comes_exactly_once_an_epoch(lengths, batch_size, number):
    batches = RowBatches(np.array(lengths), batch_size, numbers, seed=0)
    seen = [row for batch in epoch(batches, number) for [row] in batch]
    assert sorted(seen) == list(range(len(lengths)))


@given(st.integers(0, 90), SIZES, st.integers(0, 5))
def test_a_packed_epoch_predicts_nearly_every_token_once(more, sizes, number):
    size, overlap = sizes
    tokens = size + more
    batches = packed(tokens, size, overlap)
    rows = [row for batch in epoch(batches, number) for row in batch]
    assert all(row == list(range(row[0], row[0] + size)) for row in rows)  # whole blocks, in the order of the text
    seen = [t for row in rows for t in row[overlap:]]
    assert len(seen) == len(set(seen))
    assert tokens - len(seen) < 2 * size


def test_packed_epochs_together_miss_nothing():
    batches = packed(tokens=101, size=9)
    seen = {t for number in range(40) for batch in epoch(batches, number) for row in batch for t in row}
    assert seen == set(range(101))


def test_a_stream_of_one_block_is_one_batch():
    assert epoch(packed(tokens=9, size=9), 3) == [[list(range(9))]]


def test_a_batch_depends_on_seed_and_number_alone(make):
    forwards, one, other = make(), make(), make()
    wanted = [forwards(i).ids.tolist() for i in range(3 * forwards.per_epoch)]
    assert [one(i).ids.tolist() for i in reversed(range(len(wanted)))] == wanted[::-1]
    assert other(len(wanted) - 1).ids.tolist() == wanted[-1]


def test_hidden_tokens_depend_on_seed_and_number_alone(tokenizer, rows):
    def batches() -> Batches:
        def collate(part, generator):
            return hidden_tokens([rows[int(i)] for i in part], tokenizer, 0.15, generator)

        return RowBatches(np.array([len(row) for row in rows]), 8, collate, seed=0)

    assert torch.equal(batches()(7).target, batches()(7).target)
    assert not torch.equal(batches()(7).ids, batches()(7 + batches().per_epoch).ids)


def test_another_epoch_and_another_seed_are_in_another_order(make):
    assert epoch(make(), 0) != epoch(make(), 1)
    assert epoch(make(seed=0), 0) != epoch(make(seed=1), 0)


def test_bucketed_batches_are_mostly_real_tokens():
    lengths = some_lengths(2000)

    def real(batches) -> float:
        return lengths.sum() / sum(len(part) * lengths[part].max() for part in batches)

    order = rng().permutation(len(lengths))
    assert real(bucketed(lengths, 16, rng())) > 0.9 > 0.6 > real([order[i : i + 16] for i in range(0, len(order), 16)])


def test_batches_of_similar_length_do_not_come_shortest_first():
    longest = [some_lengths(800)[part].max() for part in bucketed(some_lengths(800), 8, rng())]
    assert longest != sorted(longest)


def test_measuring_sees_every_row_once_the_same_way_each_time():
    first, second = ([b.ids.flatten().tolist() for b in in_order(some_lengths(), 8, numbers)] for _ in range(2))
    assert first == second == [part.tolist() for part in by_length(some_lengths(), 8)]
    assert sorted(i for part in first for i in part) == list(range(103))
