from __future__ import annotations

from collections.abc import Callable

import torch
from torch.testing import assert_close

from headstart.config import TransformerConfig
from headstart.models.decode import LanguageStep, Sampling, generate
from headstart.models.heads import LanguageHead, Model
from headstart.models.transformer import Transformer

PROMPT = torch.tensor([[3, 1, 4, 1, 5]])


def model(tiny: Callable[..., TransformerConfig]) -> Model:
    torch.manual_seed(0)
    cfg = tiny("gpt")
    base = Transformer(cfg)
    made = Model(base, LanguageHead(cfg, base.tokens)).eval()
    with torch.no_grad():
        base.tokens.weight.mul_(20)  # sharp enough that the most probable token is clear
    return made


def test_greedy_text_is_that_of_reading_everything_again_each_time(tiny: Callable[..., TransformerConfig]) -> None:
    m = model(tiny)
    choices = list(generate(LanguageStep(m), PROMPT, 12, None, Sampling(), top=3))
    ids = PROMPT
    for choice in choices:
        p = m(ids, torch.ones_like(ids, dtype=torch.bool))[0, -1].softmax(-1).detach()
        assert choice.id == int(p.argmax())
        assert_close(choice.probability, float(p[choice.id]), atol=1e-5, rtol=1e-4)
        assert [i for i, _ in choice.top] == p.topk(3).indices.tolist()
        ids = torch.cat([ids, torch.tensor([[choice.id]])], dim=1)


def test_beyond_the_context_the_later_half_is_read_again(tiny: Callable[..., TransformerConfig]) -> None:
    m = model(tiny)  # a context of 24
    step, ids = LanguageStep(m), torch.arange(24)[None] % 50
    with torch.inference_mode():
        step(ids)
        logits = step(torch.tensor([[7]]))  # the 25th token does not fit
        kept = torch.cat([ids, torch.tensor([[7]])], dim=1)[:, -12:]
        expected = m(kept, torch.ones_like(kept, dtype=torch.bool))[:, -1]
        assert_close(logits, expected, atol=1e-5, rtol=1e-4)
        long = torch.arange(40)[None] % 50
        expected = m(long[:, -12:], torch.ones(1, 12, dtype=torch.bool))[:, -1]
        assert_close(LanguageStep(m)(long), expected, atol=1e-5, rtol=1e-4)


def test_sampling_follows_its_seed_and_the_probabilities(tiny: Callable[..., TransformerConfig]) -> None:
    fixed = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()

    def drawn(how: Sampling) -> list[int]:
        return [c.id for c in generate(lambda ids: fixed, PROMPT, 2000, None, how)]

    assert drawn(Sampling(1.0, seed=1)) == drawn(Sampling(1.0, seed=1))
    assert drawn(Sampling(1.0, seed=1)) != drawn(Sampling(1.0, seed=2))
    share = drawn(Sampling(1.0, seed=3)).count(0) / 2000
    assert abs(share - 0.5) < 0.04
    assert set(drawn(Sampling(1.0, top_k=2))) == {0, 1}
    assert set(drawn(Sampling(1.0, top_p=0.6))) == {0, 1}  # the token that crosses the line stays
    assert set(drawn(Sampling(1.0, top_p=0.0))) == {0}
    assert set(drawn(Sampling(0.0))) == {0}


def test_generation_stops_at_the_end_token() -> None:
    sure = torch.tensor([[0.0, 9.0]])
    assert [c.id for c in generate(lambda ids: sure, PROMPT, 5, 1, Sampling())] == [1]
