"""Attention as plain data: mean, rollout, and a display for any tokens that look at any others."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.errors import UserError
from headstart.show.attention import AttentionMaps, causal_mask

LOOK_BACK = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32)


def test_rollout_follows_what_was_looked_at_back_to_the_input() -> None:
    maps = AttentionMaps("abc", "abc", np.stack([LOOK_BACK[None], LOOK_BACK[None]]), causal_mask(3))
    half_way = 0.5 * LOOK_BACK + 0.5 * np.eye(3)
    np.testing.assert_allclose(maps.rollout(), np.stack([half_way, half_way @ half_way]), atol=1e-6)
    np.testing.assert_allclose(maps.rollout()[1, 2], [0.25, 0.5, 0.25], atol=1e-6)
    assert maps.map(2, "rollout") == pytest.approx(maps.rollout()[1])


def test_the_mean_is_over_the_heads_of_a_layer() -> None:
    weights = np.stack([np.stack([LOOK_BACK, np.eye(3, dtype=np.float32)])])
    maps = AttentionMaps("abc", "abc", weights, causal_mask(3))
    np.testing.assert_allclose(maps.map(1, "mean"), (LOOK_BACK + np.eye(3)) / 2)
    np.testing.assert_allclose(maps.data()["mean"][0], (LOOK_BACK + np.eye(3)) / 2)


def test_targets_may_look_at_other_sources() -> None:
    weights = np.array([[[[0.9, 0.1], [0.3, 0.7], [0.05, 0.95]]]], dtype=np.float32)
    maps = AttentionMaps(["le", "chat"], ["the", "cat", "."], weights, cross=True)
    assert str(maps).splitlines()[2:] == [
        "        1 2",
        "  1 the █ ░",
        "  2 cat ▒ ▓",
        "  3 .     █",
        "columns: 1 le 2 chat",
    ]
    assert "rollout" not in maps.ways
    assert "Cross-attention" in maps._repr_html_()
    assert "may not be seen" not in maps._repr_html_()
    assert maps.picture().png().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="give 1 to 1, or mean"):
        AttentionMaps(["le", "chat"], ["the", "cat", "."], weights, cross=True, head="rollout")


def test_one_head_is_drawn_once() -> None:
    one, two = (
        AttentionMaps("abc", "abc", np.stack([np.stack([LOOK_BACK] * heads)]), causal_mask(3)) for heads in (1, 2)
    )
    assert one.drawn == ["1", "rollout"]
    assert two.drawn == ["1", "2", "mean", "rollout"]
    assert "one head" in str(one)
