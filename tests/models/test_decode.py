from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

from headstart.models.decode import LanguageStep, Sampling, generate, search
from headstart.models.heads import LanguageHead, Model
from headstart.models.transformer import Transformer
from headstart.shapes import TransformerConfig

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


@pytest.mark.parametrize("temperature", [5e-324, 1e-40, 1e-7, 1e-5])
def test_a_temperature_near_zero_takes_the_most_probable_token(
    tiny: Callable[..., TransformerConfig], temperature: float
) -> None:
    m = model(tiny)
    greedy, cold = (list(generate(LanguageStep(m), PROMPT, 8, None, Sampling(t))) for t in (0.0, temperature))
    assert [c.id for c in cold] == [c.id for c in greedy]


def test_tokens_that_no_text_has_are_never_said(tiny: Callable[..., TransformerConfig]) -> None:
    m = model(tiny)
    said = {c.id for c in generate(LanguageStep(m), PROMPT, 12, None, Sampling())}
    for how in (Sampling(), Sampling(temperature=1.0, top_k=3)):
        others = list(generate(LanguageStep(m), PROMPT, 12, None, how, top=1, never=sorted(said)))
        assert not said & {c.id for c in others}
    assert others[0].top[0][0] in said  # what the model holds of them is still told


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


# --- search

END = 0


class Table:
    """A step function whose next-token logits are a fixed function of all tokens so far."""

    def __init__(self, vocab: int, texts: int) -> None:
        self.vocab, self.rows = vocab, [(text,) for text in range(texts)]

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        self.rows = [(*row, *new) for row, new in zip(self.rows, ids.tolist(), strict=True)]
        return torch.stack([self.logits(row) for row in self.rows])

    def logits(self, row: tuple[int, ...]) -> torch.Tensor:
        return 2 * torch.randn(self.vocab, generator=torch.Generator().manual_seed(abs(hash(row)) % 2**31))

    def keep(self, rows: torch.Tensor) -> None:
        self.rows = [self.rows[i] for i in rows.tolist()]


def every_sequence(table: Table, text: int, tokens: int) -> list[tuple[float, list[int]]]:
    """All sequences that end within `tokens`, with their log probabilities, best first."""
    found, open_ = [], [((text, 1), 0.0)]
    for _ in range(tokens):
        further = []
        for row, total in open_:
            for token, logp in enumerate(table.logits(row).log_softmax(-1).tolist()):
                if token == END:
                    found.append((total + logp, list(row[2:])))
                else:
                    further.append(((*row, token), total + logp))
        open_ = further
    return sorted(found, reverse=True)


def test_a_wide_enough_beam_finds_what_looking_everywhere_finds() -> None:
    start = torch.ones(3, 1, dtype=torch.long)
    found = search(Table(4, 3), start, 4, END, beams=200, length_penalty=0.0)
    for text, best in enumerate(found):
        expected = every_sequence(Table(4, 3), text, 4)
        assert [h.ids for h in best if h.finished][:20] == [ids for _, ids in expected[:20]]
        assert_close([h.log_probability for h in best[:20]], [p for p, _ in expected[:20]], atol=1e-4, rtol=1e-4)


def test_one_beam_is_greedy_and_texts_do_not_disturb_each_other() -> None:
    start = torch.ones(5, 1, dtype=torch.long)
    for text, best in enumerate(search(Table(6, 5), start, 12, END)):
        row, ids = (text, 1), []
        while len(ids) < 12 and (token := int(Table(6, 5).logits(row).argmax())) != END:
            row, ids = (*row, token), [*ids, token]
        assert [h.ids for h in best] == [ids]
        assert best[0].finished == (len(ids) < 12)


def test_the_best_come_first_and_the_length_penalty_favours_longer_ones() -> None:
    start = torch.ones(4, 1, dtype=torch.long)
    means = []
    for penalty in (0.0, 2.0):
        found = search(Table(5, 4), start, 8, END, beams=4, length_penalty=penalty)
        for best in found:
            assert len({tuple(h.ids) for h in best}) == len(best) == 4
            scores = [h.score for h in best if h.finished]
            assert scores == sorted(scores, reverse=True)
            assert_close([h.log_probability / (len(h.ids) + 1) ** penalty for h in best if h.finished], scores)
        means.append(sum(len(best[0].ids) for best in found))
    assert means[0] < means[1]


def test_a_language_model_can_be_searched_too(tiny: Callable[..., TransformerConfig]) -> None:
    m = model(tiny)
    with torch.no_grad():  # what was read before must matter as much as the last token
        for p in m.base.blocks.parameters():
            p.add_(0.5 * torch.randn_like(p))
    best = search(LanguageStep(m), PROMPT, 6, end=52, beams=3)[0]
    greedy = [c.id for c in generate(LanguageStep(m), PROMPT, 6, 52, Sampling())]
    assert search(LanguageStep(m), PROMPT, 6, end=52)[0][0].ids == [i for i in greedy if i != 52]
    for h in best:
        ids = torch.tensor([[*PROMPT[0].tolist(), *h.ids, *([52] if h.finished else [])]])
        logp = m(ids, torch.ones_like(ids, dtype=torch.bool)).log_softmax(-1)[0, 4:-1].detach()
        assert_close(float(logp.gather(1, ids[0, 5:, None]).sum()), h.log_probability, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("preset", ["gpt", "classic"])  # without a bias, and with one
def test_the_scores_of_generation_are_the_logits_of_the_head(preset: str) -> None:
    cfg = TransformerConfig.model_validate({"preset": preset, "size": "nano", "vocab": 50, "context": 8})
    torch.manual_seed(0)
    head = LanguageHead(cfg, Transformer(cfg).tokens)
    if head.bias is not None:
        torch.nn.init.normal_(head.bias)
    for rows in (1, 3):
        hidden = torch.randn(rows, cfg.width)
        assert_close(head.scorer()(hidden), head.logits(hidden), atol=1e-6, rtol=1e-5)


def test_the_first_of_equally_probable_tokens_is_written() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0]])
    assert next(generate(lambda ids: logits, PROMPT, 1, None, Sampling())).id == 1
    assert next(generate(lambda ids: logits, PROMPT, 1, None, Sampling(), never=(1,))).id == 3
    assert next(generate(lambda ids: logits.bfloat16(), PROMPT, 1, None, Sampling(), never=(1,))).id == 3
