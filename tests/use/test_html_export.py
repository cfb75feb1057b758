"""A model as one page: in Chromium, without network, it gives the tokens, probabilities and texts that Headstart gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.models.decode import Sampling
from headstart.use.html_export import export_html
from headstart.use.language import LoadedLanguageModel
from headstart.use.predict import LoadedClassifier

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
TEXTS = [
    "A warm, funny film.",
    "  two  spaces,\n\nlines\tand tabs \n",
    "Ça coûte 5 € — l'été, don't you think?! ΣΑΣ",
    "这部电影 🎬👨‍👩‍👧 x^2 <mask> </s> a\u00a0b",
    "",
    "word " * 40,
]
SHAPE = ["--set", "model.layers=2", "--set", "model.heads=2", "--set", "model.width=16", "--set", "model.ff=24", "--context", "24",
         "--set", "train.steps=3", "--set", "train.batch_size=4", "--threads", "1", "--quiet"]  # fmt: skip


@pytest.fixture(scope="module")
def browse() -> Iterator[Callable[..., Any]]:
    """A page from a file, offline; whatever it complains of or asks for is collected."""
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])

        def open_page(file: Path, **how: Any) -> Any:
            page = browser.new_context(offline=True, **how).new_page()
            page.faults = []
            page.on("console", lambda told: page.faults.append(told.text) if told.type == "error" else None)
            page.on("pageerror", lambda error: page.faults.append(str(error)))
            page.on("request", lambda asked: page.faults.append(asked.url) if asked.url != file.as_uri() else None)
            page.goto(file.as_uri())
            return page

        yield open_page
        browser.close()


def run(*words: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == exit_code, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("html")
    torch.set_num_threads(1)
    (made / "corpus.txt").write_text("\n".join([*TEXTS[:4], *(f"film {i} was {w} to the end." for i in range(40) for w in ("dull", "fine"))]))  # fmt: skip
    rows = [f"film {i} was {('dull', 'fine')[i % 2]} to the end,{('bad', 'good')[i % 2]}" for i in range(60)]
    (made / "rows.csv").write_text("\n".join(["text,label", *rows]))
    return made


KINDS = {"bpe": "gpt", "word": "classic", "char": "gpt", "wordpiece": "bert", "unigram": "classic"}


@pytest.mark.parametrize(("kind", "lower"), [*((kind, False) for kind in KINDS), ("word", True)])
def test_a_page_gives_the_tokens_and_probabilities_of_the_run(
    folder: Path, browse: Callable[..., Any], kind: str, lower: bool
) -> None:
    preset, out = KINDS[kind], folder / f"{kind}-{lower}"
    objective = "masked" if preset == "bert" else "causal"
    run("pretrain", str(folder / "corpus.txt"), "--unit", "line", "--preset", preset, "--objective", objective, "--tokenizer", kind,
        "--set", f"tokenizer.lower={str(lower).lower()}", *SHAPE, "--out", f"{out}-base")  # fmt: skip
    run("finetune", str(folder / "rows.csv"), "--base", f"{out}-base", "--set", "train.steps=3", "--threads", "1", "--quiet",
        "--out", str(out))  # fmt: skip
    made = export_html(out, out.with_suffix(".html"))
    assert made["bytes"] == out.with_suffix(".html").stat().st_size
    page, model = browse(out.with_suffix(".html")), LoadedClassifier.load(out)
    tokens = [model.saved.tokenizer.encode([text], boundaries=False)[0].tolist() for text in TEXTS]
    assert page.evaluate("texts => texts.map(t => headstart.tokenizer.encode(t))", TEXTS) == tokens
    found = page.evaluate("texts => texts.map(t => headstart.probabilities(t))", TEXTS)
    assert np.abs(np.array(found) - model.probabilities(TEXTS)).max() < 1e-3
    page.fill("#text", "film 3 was dull")
    playwright.expect(page.locator("#words > span")).to_have_count(4)  # the example has more words
    shown = page.locator("#labels output").all_inner_texts()
    assert [float(p.split()[0]) / 100 for p in shown] == pytest.approx(
        model.probabilities(["film 3 was dull"])[0], abs=1.5e-3
    )
    assert page.faults == []
    if objective == "causal":
        _generates(folder, browse, Path(f"{out}-base"))


def _generates(folder: Path, browse: Callable[..., Any], base: Path) -> None:
    export_html(base, base.with_suffix(".html"))
    page, model = browse(base.with_suffix(".html")), LoadedLanguageModel.load(base)
    wanted = model.generate("film", 40, Sampling(), top=1)["tokens"]  # beyond the context of 24
    found = page.evaluate("[...headstart.generated('film', 40, {temperature: 0})].map(t => t.probability)")
    assert found == pytest.approx([token["probability"] for token in wanted][: len(found)], abs=1e-3)
    page.click("#go")
    page.wait_for_selector("#written span", state="attached")
    assert page.faults == []


def test_what_a_page_cannot_compute_is_refused_in_one_sentence(folder: Path) -> None:
    out = folder / "masked"
    run("pretrain", str(folder / "corpus.txt"), "--unit", "line", "--preset", "bert", "--objective", "masked", *SHAPE, "--out", str(out))  # fmt: skip
    assert "does not generate" in run("export", str(out), "--to", "html", "--out", str(folder / "m.html"), exit_code=5)
    assert "ends in .html" in run("export", str(out), "--to", "html", "--out", str(folder / "m"), exit_code=2)
