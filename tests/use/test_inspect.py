"""What is shown of a model is what the model computes, and what transformers would."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, ModelError, UserError
from headstart.models.decode import Sampling
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.show.attention import AttentionMaps
from headstart.show.probabilities import TokenProbabilities
from headstart.tasks.language import continuation
from headstart.text.tokenizer import Tokenizer
from headstart.use.inspect import Inspector, attention_maps, inspect
from headstart.use.language import LoadedLanguageModel

TEXT = "film 7 was lovely from end to end"


def probabilities(run: Path, text: str = TEXT, **settings: Any) -> TokenProbabilities:
    found = inspect(run, text, **settings)["probabilities"]
    assert isinstance(found, TokenProbabilities)
    return found


def test_probabilities_are_those_of_transformers_causal(runs: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(runs["lm"] / "model").eval()
    seen = probabilities(runs["lm"], top=3)
    ids = torch.tensor([[place.id for place in seen.places[:-1]]])
    expected = theirs(ids).logits[0].softmax(-1).detach()
    assert seen.places[0].beliefs == ()
    for t, place in enumerate(seen.places[1:-1]):
        assert seen.probability(place) == pytest.approx(float(expected[t, place.id]), abs=1e-5)
    following = seen.belief(seen.places[-1])
    assert following is not None
    assert following.top == pytest.approx(expected[-1].topk(3).values.tolist(), abs=1e-5)
    assert following.probability is None


def test_probabilities_are_those_of_transformers_masked(runs: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertForMaskedLM.from_pretrained(runs["mlm"] / "model").eval()
    inspector = Inspector.load(runs["mlm"])
    seen = probabilities(runs["mlm"])
    assert seen.hidden
    ids = [place.id for place in seen.places]
    assert [place.beliefs == () for place in seen.places] == [True] + [False] * (len(ids) - 2) + [True]
    for t, place in enumerate(seen.places[1:-1], start=1):
        hidden = torch.tensor([[*ids[:t], inspector.tokenizer.mask, *ids[t + 1 :]]])
        expected = theirs(hidden).logits[0, t].softmax(-1)[place.id].detach()
        assert seen.probability(place) == pytest.approx(float(expected), abs=1e-5)


def test_attention_is_that_of_transformers(runs: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(runs["lm"] / "model", attn_implementation="eager").eval()
    seen = inspect(runs["lm"], TEXT)["attention"]
    assert isinstance(seen, AttentionMaps)
    ids, _ = Inspector.load(runs["lm"])._read(TEXT)
    expected = torch.stack([a[0] for a in theirs(torch.tensor([ids]), output_attentions=True).attentions])
    assert_close(torch.from_numpy(seen.weights), expected, atol=1e-5, rtol=1e-4)


def test_generated_tokens_have_the_probabilities_that_generate_told(runs: dict[str, Path]) -> None:
    told = LoadedLanguageModel.load(runs["lm"]).generate("film 7", 6, Sampling(), 6)["tokens"]
    seen = probabilities(runs["lm"], "film 7", tokens=6)
    made = [place for place in seen.places if place.generated]
    assert [place.token for place in made] == [t["token"] for t in told]
    assert [seen.probability(place) for place in made] == pytest.approx([t["probability"] for t in told], abs=1e-5)
    assert [list(place.top) for place in made] == [[g["token"] for g in t["top"]] for t in told]


def test_what_no_text_has_is_written_nowhere(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    lm = LoadedLanguageModel.load(runs["lm"])
    model, tokenizer = lm.saved.model, lm.saved.tokenizer
    word = tokenizer.encode(["lovely"], False)[0].tolist()[0]
    monkeypatch.setattr(Tokenizer, "suppressed", property(lambda self: [i for i in range(self.size) if i != word]))
    assert {t["id"] for t in lm.generate("film 7", 6, Sampling(), 0)["tokens"]} == {word}
    assert {p.id for p in probabilities(runs["lm"], "film 7", tokens=6).places if p.generated} == {word}
    assert set(
        continuation("film 7", model, tokenizer, lm.config.data.boundaries, 40, Sampling())
        .removeprefix("film 7")
        .split()
    ) == {"lovely"}


def test_the_perplexity_is_that_of_the_tokens(runs: dict[str, Path]) -> None:
    seen = probabilities(runs["lm"])
    surprises = [-math.log(seen.probability(place)) for place in seen.places[1:-1]]
    assert seen.data()["predicted"] == len(surprises)  # n + 1 tokens are n predictions
    assert seen.perplexity == pytest.approx(math.exp(sum(surprises) / len(surprises)))


def test_temperature_sharpens_and_flattens(runs: dict[str, Path]) -> None:
    place = probabilities(runs["lm"]).places[3]
    entropies = [belief.entropy for belief in place.beliefs]
    assert entropies == sorted(entropies)
    cold, plain = probabilities(runs["lm"], temperature=0.6), probabilities(runs["lm"])
    logits = torch.tensor([plain.belief(p).top[:2] for p in plain.places[1:]]).log()
    tempered = torch.tensor([cold.belief(p).top[:2] for p in cold.places[1:]]).log()
    assert_close(tempered[:, 0] - tempered[:, 1], (logits[:, 0] - logits[:, 1]) / 0.6, atol=1e-4, rtol=1e-4)


def test_a_planted_model_is_shown_as_planted(tiny: Callable[..., TransformerConfig]) -> None:
    """Queries of zero look at everything alike; a head of zero believes in its bias."""
    model = build_model(tiny("classic", vocab=6), HeadSpec("language")).eval()
    planted = torch.tensor([0.05, 0.05, 0.1, 0.1, 0.2, 0.5])
    with torch.no_grad():
        for block in model.base.blocks:
            block.attention.qkv.weight[:16].zero_()
            block.attention.qkv.bias[:16].zero_()
        model.head.weight.zero_()
        model.head.bias.copy_(planted.log())
    maps = attention_maps(model, [1, 2, 3, 4], ["a", "b", "c", "d"])
    expected = np.tri(4) / np.arange(1, 5)[:, None]
    np.testing.assert_allclose(maps.weights, np.broadcast_to(expected, (2, 2, 4, 4)), atol=1e-6)
    assert str(maps).splitlines()[2:] == [
        "      1 2 3 4",
        "  1 a █ · · ·",
        "  2 b ▓ ▓ · ·",
        "  3 c ▒ ▒ ▒ ·",
        "  4 d ▒ ▒ ▒ ▒",
    ]  # fmt: skip
    from headstart.use.inspect import token_probabilities

    class Letters:
        start, end, mask = 0, 1, None

        def piece(self, i: int) -> str:
            return "abcdef"[i]

    seen = token_probabilities(model, Letters(), [0, 5, 4], top=2)
    assert [seen.probability(p) for p in seen.places] == [None, pytest.approx(0.5), pytest.approx(0.2), None]
    assert [place.rank for place in seen.places] == [None, 1, 2, None]
    assert seen.places[1].top == ("f", "e")
    entropy = -float((planted * planted.log()).sum())
    assert seen.belief(seen.places[1]).entropy == pytest.approx(entropy)
    assert "f 0.50  e 0.20" in str(seen)


def test_a_classifier_shows_its_labels(runs: dict[str, Path]) -> None:
    seen = inspect(runs["full"], TEXT)
    told = CliRunner().invoke(app, ["predict", str(runs["full"]), TEXT, "--json"])
    assert seen["labels"].data() == pytest.approx(json.loads(told.stdout)[0]["probabilities"], abs=1e-6)
    maps = seen["attention"]
    assert isinstance(maps, AttentionMaps)
    assert maps.targets[0] == "<s>"
    assert maps.allowed is not None


def test_a_two_way_model_has_no_square_mask(runs: dict[str, Path]) -> None:
    maps = inspect(runs["mlm"], TEXT)["attention"]
    assert isinstance(maps, AttentionMaps)
    assert maps.allowed is None
    assert (maps.weights > 0).all()


def test_what_does_not_fit_into_the_context_is_told(runs: dict[str, Path]) -> None:
    for name in ("lm", "full"):
        seen = inspect(runs[name], "film " * 39 + "film")
        assert seen.notes == ("9 tokens beyond the 32 that this model reads are left out.",)
    two_way = probabilities(runs["mlm"], "film " * 39 + "film")
    assert [two_way.places[t].token for t in (0, -1)] == ["<s>", "</s>"]  # as it was in training


@pytest.mark.parametrize(
    ("run", "settings", "error", "says"),
    [
        ("lm", {"views": ["labels"]}, ConfigError, "can be shown: probabilities, attention, lens; not .labels."),
        ("lm", {"temperature": 0.0}, ConfigError, "above 0"),
        ("lm", {"temperature": math.nan}, ConfigError, "above 0, not nan"),
        ("lm", {"tokens": 40}, ConfigError, "23 can follow"),
        ("lm", {"layer": 3}, UserError, "this model has 2"),
        ("lm", {"head": "third"}, UserError, "give 1 to 2, or mean, rollout"),
        ("mlm", {"tokens": 3}, ModelError, "Only a causal"),
        ("full", {"tokens": 3}, ModelError, "Only a causal"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    runs: dict[str, Path], run: str, settings: dict[str, Any], error: type[UserError], says: str
) -> None:
    with pytest.raises(error, match=says):
        inspect(runs[run], TEXT, **settings)


def test_looking_loads_nothing_slow_before_it_is_needed() -> None:
    code = "import sys, headstart.use.inspect; sys.exit(' '.join({'scipy', 'matplotlib', 'captum', 'sklearn'} & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_at_a_prompt_it_shows_itself_as_in_a_terminal(runs: dict[str, Path]) -> None:
    seen = inspect(runs["lm"], "film 7")
    assert repr(seen) == str(seen)
    assert repr(seen["attention"]) == str(seen["attention"])


def test_the_verb_prints_draws_and_writes(runs: dict[str, Path], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("seen.html", "seen.png", "seen.svg")]
    flags = [word for file in files for word in (f"--{file.suffix[1:]}", str(file))]
    done = CliRunner().invoke(app, ["inspect", str(runs["lm"]), "film 7 was", "--tokens", "2", *flags])
    assert done.exit_code == 0, done.output
    assert "attention, layer 2 of 2, mean of 2 heads" in done.stdout
    assert files[0].read_text("utf-8").startswith("<!doctype html>")
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert "film" in files[2].read_text("utf-8")
    told = json.loads(CliRunner().invoke(app, ["inspect", str(runs["lm"]), "film 7 was", "--json"]).stdout)
    weights = np.array(told[0]["attention"]["weights"])
    assert weights.shape == (2, 2, 4, 4)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert [len(t.get("top", [])) for t in told[0]["probabilities"]["tokens"]] == [0, 6, 6, 6, 6]
