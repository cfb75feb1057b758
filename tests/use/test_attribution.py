"""What a classifier used: the evidence is complete, agrees with occlusion, and names the words that decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.show.attribution import Attribution, ClassAttribution
from headstart.text.read import Example
from headstart.use.attribution import attribute
from headstart.use.inspect import Inspector, inspect

TEXT = "film 8 was awful from end to end"


class Letters:
    """A tokenizer of six letters, as far as attribution needs one."""

    start, end, mask, unk, pad = 0, 1, 2, None, 0

    def piece(self, i: int) -> str:
        return "abcdef"[i]


def attribution(run: Path, text: str = TEXT, **settings: str) -> Attribution:
    found = inspect(run, text, **settings)["attribution"]
    assert isinstance(found, Attribution)
    return found


@pytest.mark.parametrize("run", ["full", "frozen"])
def test_the_evidence_is_complete(runs: dict[str, Path], run: str) -> None:
    for text in (TEXT, "film 7 was lovely from end to end", "lovely"):
        found = attribution(runs[run], text)
        assert abs(found.gap) < 0.01 * max(abs(found.difference), 0.1)
        assert found.gap == pytest.approx(sum(found.evidence) - found.difference, abs=1e-9)
        assert found.complete


def test_the_difference_is_that_of_the_log_odds(runs: dict[str, Path]) -> None:
    found, inspector = attribution(runs["full"]), Inspector.load(runs["full"])
    p = inspect(runs["full"], TEXT)["labels"].data()[found.label]
    assert found.log_odds == pytest.approx(float(torch.tensor(p).logit()), abs=1e-4)
    ids, _ = inspector._read(TEXT)
    blank = [i if i == inspector.tokenizer.start else inspector.tokenizer.mask for i in ids]
    row = torch.tensor([blank])
    with torch.no_grad():
        logits = inspector.model(row, torch.ones_like(row, dtype=torch.bool))[0]
    number = inspector.labels.index(found.label)
    assert found.log_odds - found.difference == pytest.approx(float(logits[number] - logits[1 - number]), abs=1e-4)


def test_the_word_that_decides_has_the_most_evidence(runs: dict[str, Path]) -> None:
    found = attribution(runs["full"])
    assert (found.label, found.tokens[0]) == ("negative", "<s>")
    strongest = max(range(len(found.tokens)), key=lambda t: found.evidence[t])
    assert found.tokens[strongest].strip() == "awful"
    assert found.occlusion[strongest] == max(found.occlusion)
    assert found.agreement is not None
    assert found.agreement > 0.8
    assert found.evidence[0] == 0  # the start token stands on both ends of the way


def test_of_a_linear_model_the_evidence_is_exact(tiny: Callable[..., TransformerConfig]) -> None:
    """Without layers that do anything, mean pooling and a linear head: weight times way, divided by the tokens."""
    model = build_model(tiny("classic", vocab=6, causal=False), HeadSpec("classify", ("x", "y"), pool="mean")).eval()
    with torch.no_grad():
        for block in model.base.blocks:
            block.forward = lambda x, *given: (x, None)
    found = attribute(model, Letters(), [0, 3, 4], ("x", "y"), "y")
    table, direction = model.base.embedding.weight, model.head.linear.weight[1] - model.head.linear.weight[0]
    expected = (table[[0, 3, 4]] - table[[0, 2, 2]]) @ direction * model.base.scale / 3
    assert found.evidence == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.occlusion == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.baseline == "c"


def test_the_evidence_is_complete_where_the_model_changes_its_mind_at_once(
    tiny: Callable[..., TransformerConfig],
) -> None:
    """With queries and keys this large, attention jumps from one token to another on a tiny stretch of the way."""
    torch.manual_seed(3)
    model = build_model(tiny("gpt", vocab=6), HeadSpec("classify", ("x", "y"))).eval()
    with torch.no_grad():
        for block in model.base.blocks:
            block.attention.qkv.weight[:32] *= 150
            block.attention.qkv.weight[32:] *= 20
            block.attention.out.weight *= 50
    found = attribute(model, Letters(), [0, 3, 4, 5, 3], ("x", "y"), "y")
    assert found.steps > 16
    assert found.complete, found.summary


def test_a_label_can_be_chosen_and_the_evidence_turns(runs: dict[str, Path]) -> None:
    pro, contra = attribution(runs["full"], label="positive"), attribution(runs["full"], label="negative")
    assert contra.evidence == pytest.approx([-e for e in pro.evidence], abs=1e-3)
    with pytest.raises(ConfigError, match=r"no label 'positiv'.*Did you mean 'positive'"):
        attribution(runs["full"], label="positiv")


def test_over_a_class_the_words_of_its_rows_lead(runs: dict[str, Path]) -> None:
    rows = [Example(f"film {i} was {word} to end", label) for i in range(3)
            for word, label in (("lovely", "positive"), ("warm", "positive"), ("awful", "negative"))]  # fmt: skip
    found = Inspector.load(runs["full"]).inspect_rows(rows, "rows", ("classes",))["classes"]
    assert isinstance(found, ClassAttribution)
    by_label = {evidence.label: evidence for evidence in found.classes}
    assert by_label["negative"].tokens[0].token.strip() == "awful"
    assert (by_label["positive"].texts, by_label["negative"].texts, by_label["negative"].incomplete) == (6, 3, 0)
    with pytest.raises(ConfigError, match="can be shown: probes"):
        Inspector.load(runs["lm"]).inspect_rows(rows, views=("classes",))


def test_the_verb_shows_a_text_and_a_class(runs: dict[str, Path], tmp_path: Path) -> None:
    argv = ["inspect", str(runs["full"]), TEXT, "--data", str(runs["reviews.csv"]), "--rows", "2"]
    page = tmp_path / "seen.html"
    done = CliRunner().invoke(app, [*argv, "--html", str(page), "--png", str(tmp_path / "seen.png")])
    assert done.exit_code == 0, done.output
    assert "evidence for 'negative' in log-odds, by integrated gradients from " in done.stdout
    assert "(every token <mask>)" in done.stdout
    assert "mean evidence for 'negative' in 2 texts" in done.stdout
    assert page.read_text("utf-8").count("data-told=") == 9
    seen, classes = json.loads(CliRunner().invoke(app, [*argv, "--json"]).stdout)
    assert seen["attribution"]["tokens"][0]["token"] == "<s>"
    assert set(classes["classes"]) == {"positive", "negative"}
