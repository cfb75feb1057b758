"""The verbs that put a finished run to work: generate, predict, evaluate, params."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from headstart.cli.app import RunArgument, app, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.settings import nested_settings
from headstart.cli.summary import perplexity
from headstart.cli.terminal import accuracy_line, share, show, show_json, show_notes, show_table
from headstart.cli.usage import ends
from headstart.show.table import label

if TYPE_CHECKING:
    from headstart.use.onnx import OnnxClassifier
    from headstart.use.predict import Classifier


@verb(app, "generate")
def generate(
    run: RunArgument,
    given: Given,
    prompt: Annotated[str, Argument(help="The text to continue.", show_default=False)] = "",
    tokens: Annotated[int, Option(min=1, help="Maximum tokens to generate.")] = 40,
    temperature: Annotated[
        float, Option(min=0.0, help="0 takes the most probable token; 1 samples from the model's distribution.")
    ] = 0.0,
    top_k: Annotated[int, Option(min=0, help="Sample among the K most probable tokens; 0 = all.")] = 0,
    top_p: Annotated[
        float, Option(min=0.0, max=1.0, help="Sample among the tokens that hold this much probability.")
    ] = 1.0,
    seed: Annotated[int, Option(min=0, help="Seed of the sampling.")] = 0,
    top: Annotated[int, Option(min=0, help="Show the K most probable tokens at each place.")] = 0,
    plot: Annotated[Path | None, Option(help="Draw the table of tokens and probabilities to this file.")] = None,
) -> None:
    """Continue PROMPT with the language model in RUN. Shows how sure it was of each token."""
    from headstart.models.decode import Sampling
    from headstart.use.language import LanguageModel

    how = Sampling(temperature, top_k, top_p, seed)
    result = LanguageModel.load(run).generate(prompt, tokens, how, max(top, 6 if plot else 0))
    if plot:
        from headstart.study.plots import plot_tokens

        plot_tokens(result, plot)
    if given["--json"]:
        show_json(result)
        return
    show(result["text"])
    if not top:
        sure = [t["probability"] for t in result["tokens"]]
        show(f"\n{len(sure)} tokens, mean probability {sum(sure) / max(1, len(sure)):.2f}; --top 6 shows each of them")
        return
    for first in range(0, len(result["tokens"]), 8):
        part = result["tokens"][first : first + 8]
        show()
        rows = [["chosen", *(f"{label(t['token'])} {t['probability']:.2f}" for t in part)]]
        for k in range(top):
            best = [t["top"][k] if k < len(t["top"]) else None for t in part]
            rows.append([str(k + 1), *(f"{label(b['token'])} {b['probability']:.2f}" if b else "" for b in best)])
        show_table(["", *(str(first + i + 1) for i in range(len(part)))], rows)


@verb(app, "predict")
def predict(
    run: RunArgument,
    given: Given,
    texts: Annotated[list[str] | None, Argument(metavar="TEXT...", help="Texts to label.", show_default=False)] = None,
    file: Annotated[str | None, Option(help="Texts to label: one per line, or a table.")] = None,
    also: Annotated[
        list[str] | None, Option(help="Another run, or .onnx file, to compare; may be given several times.")
    ] = None,
) -> None:
    """Label each TEXT with the classifier in RUN. Or with several, side by side."""
    from headstart.errors import DataError, UserError
    from headstart.hub.packs import located
    from headstart.text.read import read_lines

    asked = list(texts or [])
    reading = reading_of(given)
    if file:
        asked += read_lines(located(file), given["--text-column"], reading)
    show_notes(reading.notes())
    if not asked:
        raise UserError(f"Nothing to label: '{run}' is taken for the run. Give the run first, then texts or --file.")
    if any(not text.strip() for text in texts or []):
        raise DataError("A text to label is blank.", "DATA_BLANK")
    said = {name: _classifier(name).predict(asked) for name in [run, *(also or [])]}
    if given["--json"]:
        records = said[run]
        for i, record in enumerate(records if also else []):
            record["also"] = {
                name: {key: said[name][i][key] for key in ("label", "probabilities")} for name in also or []
            }
        show_json(records)
        return
    for several in zip(*said.values(), strict=True):
        told = "\t".join(f"{r['label']}\t{_ranked(r['probabilities'])}" for r in several)
        text = several[0]["text"]
        show(f"{told}\t{text if len(text) <= 200 else text[:200] + ' ...'}")


def _classifier(run: str) -> Classifier | OnnxClassifier:
    if run.endswith(".onnx"):
        from headstart.use.onnx import OnnxClassifier  # loads no torch

        return OnnxClassifier.load(run)
    from headstart.use.predict import Classifier

    return Classifier.load(run)


def _ranked(probabilities: dict[str, float]) -> str:
    return "  ".join(f"{label} {p:.2f}" for label, p in probabilities.items())


@verb(app, "evaluate")
def evaluate(
    run: RunArgument,
    data: Annotated[
        list[str], Argument(help="Labelled rows for a classifier, text for a language model.", show_default=False)
    ],
    given: Given,
    unit: Annotated[
        str | None, Option(help="For text: line, sentence or document; as in training if not given.")
    ] = None,
) -> None:
    """Score the model in RUN on DATA, with intervals."""
    from headstart.config import PretrainConfig
    from headstart.errors import UserError
    from headstart.hub.packs import located
    from headstart.runs.run import Run

    reading, text_column = reading_of(given), given["--text-column"]
    of_text = isinstance(Run.open(run).config, PretrainConfig)
    if of_text:
        from headstart.use.language import LanguageModel

        scores = LanguageModel.load(run).evaluate([located(path) for path in data], unit, text_column, reading)
    elif len(data) != 1:
        raise UserError("A classifier is scored on one file or folder of labelled rows.")
    else:
        from headstart.use.predict import Classifier

        scores = Classifier.load(run).evaluate(located(data[0]), text_column, given["--label-column"], reading)
    show_notes(reading.notes())
    if given["--json"]:
        show_json(scores)
    elif of_text:
        show(f"loss {scores['loss']:.4f} nats per token, perplexity {perplexity(scores)}; {scores['tokens']} tokens")
        if "entropy" in scores:
            floor = f"{scores['entropy']:.4f} (no model can have a lower loss on it)"
            show(f"entropy of the text itself given the prefix: {floor}")
    else:
        _show_classes(scores)


def _show_classes(scores: dict[str, Any]) -> None:
    show(accuracy_line("accuracy", scores) + f", macro-F1 {scores['macro_f1']:.4f}")
    show()
    rows = [
        [label, *map(str, counts), *(share(scores["classes"][label][name]) for name in ("precision", "recall", "f1"))]
        for label, counts in zip(scores["labels"], scores["confusion"], strict=True)
    ]
    show_table(["true \\ said", *scores["labels"], "precision", "recall", "F1"], rows)


@verb(app, "params")
def params(
    target: Annotated[
        str,
        Argument(
            metavar="RUN|PRESET", help="A run; gpt, bert or classic; or a model of translate train.", show_default=False
        ),
    ],
    given: Given,
    vocab: Annotated[int | None, Option(help="For a preset: entries of its vocabulary.")] = None,
    head: Annotated[str, Option(help="For a preset: lm or classify.")] = "lm",
    labels: Annotated[int, Option(min=2, help="For --head classify: how many.")] = 2,
    hidden: Annotated[int | None, Option(help="For a model of translate train: its width. [default: 64]")] = None,
    tree: Annotated[bool, Option("--tree", help="As a tree, each module with the sum of what is inside.")] = False,
    html: Annotated[
        Path | None, Option(help="Write a page with the treemap to this file.", callback=ends(".html", ".htm"))
    ] = None,
    png: Annotated[Path | None, Option(help="Draw the treemap to this file.", callback=ends(".png"))] = None,
    svg: Annotated[Path | None, Option(help="Draw the treemap to this file.", callback=ends(".svg"))] = None,
) -> None:
    """Show where the parameters are. Each number has the product behind it."""
    from headstart.errors import ConfigError, UserError, did_you_mean
    from headstart.shapes import PRESETS, TRANSLATORS

    if head not in ("lm", "classify"):
        raise UserError(f"--head takes lm or classify, not '{head}'.{did_you_mean(head, ('lm', 'classify'))}")
    if target in (*PRESETS, *TRANSLATORS):
        own = {"model.preset": target} if target in PRESETS else {"model.kind": target, "model.hidden": hidden}
        nested = nested_settings({**own, "model.vocab": vocab, **given.settings()}, given["--set"])
        if nested.keys() - {"model"}:
            raise ConfigError(f"params knows only settings of the model, not {', '.join(nested.keys() - {'model'})}.")
    if target in PRESETS:
        from headstart.use.preset_parameters import preset_parameters  # loads no torch

        result = preset_parameters(nested["model"], head, labels)
    else:
        from headstart.use.params import run_parameters, translator_parameters

        result = translator_parameters(nested["model"]) if target in TRANSLATORS else run_parameters(target)
    from headstart.runs.disk import write_file

    if html:
        write_file(html, result.html().encode())
    if png:
        write_file(png, result.picture().png())
    if svg:
        write_file(svg, result.picture().svg().encode())
    if given["--json"]:
        show_json(result.data())
        return
    show(result.tree() if tree else str(result))
