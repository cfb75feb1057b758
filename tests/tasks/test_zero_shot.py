"""Label words are scored as transformers scores the same strings, whole words and all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headstart.bases.pretrained import open_base
from headstart.config import TokenizerConfig
from headstart.prompts import Prompt
from headstart.shapes import HuggingFaceConfig
from headstart.tasks.zero_shot import matching_bias, word_biases, word_scores, zero_shot_logits
from headstart.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
TEXTS = ["the soup was cold and we left", "lovely", "the tea was good good good", "cold soup , bad tea"]
WORDS = {"neg": "bad", "pos": "good good", "mixed": "good bad tea"}  # one token, two, three
CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "bert": "BertForMaskedLM"}


@pytest.fixture
def folder(tmp_path: Path, elsewhere: Callable[..., HuggingFaceConfig]) -> Callable[[str], Path]:
    def make(model_type: str) -> Path:
        torch.manual_seed(0)
        tokenizer = Tokenizer.train([*TEXTS, "Review : Sentiment it was ."] * 2, TokenizerConfig(kind="bpe", vocab=320))
        kind = getattr(transformers, CLASSES[model_type])
        model = kind(kind.config_class(**elsewhere(model_type, vocab_size=tokenizer.size).settings))
        with torch.no_grad():  # away from where they begin, so that any slip shows
            for p in model.parameters():
                p.add_(0.3 * torch.randn_like(p))
        model.save_pretrained(tmp_path / model_type)
        (tmp_path / model_type / "tokenizer.json").write_text(tokenizer.to_json())
        return tmp_path / model_type

    return make


def theirs(folder: Path, name: str) -> Any:
    return getattr(transformers, CLASSES[name]).from_pretrained(folder).eval()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.inference_mode()
def test_words_have_the_log_probabilities_of_the_whole_string(name: str, folder: Callable[[str], Path]) -> None:
    where = folder(name)
    saved, model = open_base(str(where)), theirs(where, name)
    prompt = Prompt(template="Review: {text}\nSentiment:", words=WORDS)
    found = word_scores(saved.model, saved.tokenizer, TEXTS, prompt)
    backend = saved.tokenizer.backend
    for i, text in enumerate(TEXTS):
        before = backend.encode(f"Review: {text}\nSentiment:", add_special_tokens=False).ids
        for c, word in enumerate(WORDS.values()):
            whole = backend.encode(f"Review: {text}\nSentiment: {word}", add_special_tokens=False).ids
            assert whole[: len(before)] == before, "the parts are cut into tokens as the whole string is"
            ids = torch.tensor([[saved.tokenizer.start, *whole]])
            logits = model(input_ids=ids).logits[0].log_softmax(-1)
            places = range(len(before), len(whole))
            expected = sum(float(logits[place, whole[place]]) for place in places)
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-4)


@torch.inference_mode()
def test_a_masked_model_fills_its_masks_from_left_to_right(folder: Callable[[str], Path]) -> None:
    where = folder("bert")
    saved, model, tokenizer = open_base(str(where)), theirs(where, "bert"), open_base(str(where)).tokenizer
    found = word_scores(saved.model, tokenizer, TEXTS, Prompt(template="{text} it was {label}.", words=WORDS))
    for i, text in enumerate(TEXTS):
        for c, word in enumerate(WORDS.values()):
            pieces = tokenizer.encode([f" {word}"], boundaries=False)[0].tolist()
            expected = 0.0
            for n, piece in enumerate(pieces):
                inside = tokenizer.encode([text], False)[0].tolist() + tokenizer.encode([" it was"], False)[0].tolist()
                row = [tokenizer.start, *inside, *pieces[:n], *[tokenizer.mask] * (len(pieces) - n)]
                row += [*tokenizer.encode(["."], False)[0].tolist(), tokenizer.end]
                place = 1 + len(inside) + n
                ids = torch.tensor([row])
                expected += float(model(input_ids=ids, attention_mask=ids >= 0).logits[0, place].log_softmax(-1)[piece])
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", CLASSES)
def test_long_texts_are_cut_and_the_template_is_kept(name: str, folder: Callable[[str], Path]) -> None:
    saved = open_base(str(folder(name)))
    prompt = Prompt(template="{text} it was {label}.", words=WORDS)
    long = " ".join(["the soup was cold"] * 200)
    cut = word_scores(saved.model, saved.tokenizer, [long], prompt)
    windows = word_scores(saved.model, saved.tokenizer, [long, "lovely"], prompt, "window")
    assert cut.isfinite().all()
    assert windows.isfinite().all()
    assert windows.shape == (2, 3)


def test_calibration_removes_what_a_model_prefers_whatever_the_text() -> None:
    def score(texts: Any, prompt: Prompt) -> torch.Tensor:
        return torch.tensor([[5.0 + len(text), 0.0] for text in texts])

    prompt = Prompt(template="{text}", words={"a": "a", "b": "b"})
    biases, seen = word_biases(score, [prompt, prompt], ["xx", "xxxx"])
    assert seen.softmax(1).mean(0).tolist() == pytest.approx([0.5, 0.5], abs=1e-3)
    found = zero_shot_logits(score, [prompt, prompt], ["x", "xxxxx"], biases)
    assert found.argmax(1).tolist() == [1, 0], "without calibration both would be the first class"
    assert zero_shot_logits(score, [prompt], ["x"], torch.zeros(1, 2)).argmax(1).tolist() == [0]


@pytest.mark.parametrize("shares", [[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]])
def test_the_bias_gives_unlabelled_texts_the_shares(shares: list[float]) -> None:
    torch.manual_seed(0)
    logits = 8 * torch.randn(300, 3) + torch.tensor([20.0, 0.0, -5.0])
    found = (logits + matching_bias(logits, torch.tensor(shares))).softmax(1).mean(0)
    assert_close(found, torch.tensor(shares), atol=2e-3, rtol=0)


def test_a_model_that_is_certain_of_one_class_does_not_break_it() -> None:
    bias = matching_bias(torch.tensor([[1000.0, 0.0]] * 5), torch.tensor([0.5, 0.5]))
    assert bias.isfinite().all()
