"""The verbs that put a finished run to work: generate, predict, evaluate, params."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from headstart.cli.app import (
    BadBytes,
    CleanLabels,
    Context,
    Debug,
    Encoding,
    Json,
    LabelColumn,
    LongestLine,
    NoVerify,
    RunArgument,
    Set,
    Size,
    SkipBlank,
    StripNul,
    TextColumn,
    app,
    reading_for,
    reading_settings,
    row_settings,
)
from headstart.cli.settings import nested_settings
from headstart.cli.terminal import accuracy_line, guarded, share, show, show_json, show_notes, show_table
from headstart.cli.usage import ends
from headstart.show.table import label

if TYPE_CHECKING:
    from headstart.use.onnx import OnnxClassifier
    from headstart.use.predict import LoadedClassifier


@app.command()
@guarded
def generate(
    run: RunArgument,
    prompt: Annotated[str, Argument(help="The text to continue.", show_default=False)] = "",
    tokens: Annotated[int, Option(min=1, help="Most tokens to add.")] = 40,
    temperature: Annotated[
        float, Option(min=0.0, help="0 takes the most probable token; 1 samples as the model believes.")
    ] = 0.0,
    top_k: Annotated[int, Option(min=0, help="Sample among the K most probable tokens; 0 = all.")] = 0,
    top_p: Annotated[
        float, Option(min=0.0, max=1.0, help="Sample among the tokens that hold this much probability.")
    ] = 1.0,
    seed: Annotated[int, Option(min=0, help="Of the sampling.")] = 0,
    top: Annotated[int, Option(min=0, help="Show the K most probable tokens at each place.")] = 0,
    plot: Annotated[Path | None, Option(help="Draw the table of tokens and probabilities to this file.")] = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Continue PROMPT with the language model in RUN. Shows how sure it was of each token."""
    from headstart.models.decode import Sampling
    from headstart.use.language import LoadedLanguageModel

    how = Sampling(temperature, top_k, top_p, seed)
    result = LoadedLanguageModel.load(run).generate(prompt, tokens, how, max(top, 6 if plot else 0))
    if plot:
        from headstart.study.plots import plot_tokens

        plot_tokens(result, plot)
    if as_json:
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


@app.command()
@guarded
def predict(
    run: RunArgument,
    texts: Annotated[list[str] | None, Argument(metavar="TEXT...", help="Texts to label.", show_default=False)] = None,
    file: Annotated[str | None, Option(help="Texts to label: one a line, or a table.")] = None,
    also: Annotated[
        list[str] | None, Option(help="Another run, or .onnx file, to set beside it; may be given several times.")
    ] = None,
    text_column: TextColumn = None,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Label each TEXT with the classifier in RUN. Or with several, side by side."""
    from headstart.errors import DataError, UserError
    from headstart.hub.packs import located
    from headstart.text.read import read_lines

    asked = list(texts or [])
    reading = reading_for(reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes))
    if file:
        asked += read_lines(located(file), text_column, reading)
    show_notes(reading.notes())
    if not asked:
        raise UserError(f"Nothing to label: '{run}' is taken for the run. Give the run first, then texts or --file.")
    if any(not text.strip() for text in texts or []):
        raise DataError("A text to label is blank.", "DATA_BLANK")
    said = {name: _classifier(name).predict(asked) for name in [run, *(also or [])]}
    if as_json:
        records = said[run]
        for i, record in enumerate(records if also else []):
            record["also"] = {
                name: {"label": said[name][i]["label"], "probabilities": said[name][i]["probabilities"]}
                for name in also or []
            }
        show_json(records)
        return
    for several in zip(*said.values(), strict=True):
        told = "\t".join(f"{r['label']}\t{_ranked(r['probabilities'])}" for r in several)
        text = several[0]["text"]
        show(f"{told}\t{text if len(text) <= 200 else text[:200] + ' ...'}")


def _classifier(run: str) -> LoadedClassifier | OnnxClassifier:
    if run.endswith(".onnx"):
        from headstart.use.onnx import OnnxClassifier  # loads no torch

        return OnnxClassifier.load(run)
    from headstart.use.predict import LoadedClassifier

    return LoadedClassifier.load(run)


def _ranked(probabilities: dict[str, float]) -> str:
    return "  ".join(f"{label} {p:.2f}" for label, p in probabilities.items())


@app.command()
@guarded
def evaluate(
    run: RunArgument,
    data: Annotated[
        list[str], Argument(help="Labelled rows for a classifier, text for a language model.", show_default=False)
    ],
    unit: Annotated[
        str | None, Option(help="For text: line, sentence or document; as in training if not given.")
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    skip_blank: SkipBlank = False,
    clean_labels: CleanLabels = False,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Score the model in RUN on DATA, with intervals."""
    from headstart.config import PretrainConfig
    from headstart.errors import UserError
    from headstart.hub.packs import located
    from headstart.runs.run import Run

    how = reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    reading = reading_for(how | row_settings(skip_blank, clean_labels))
    if isinstance(Run.open(run).config, PretrainConfig):
        from headstart.use.language import LoadedLanguageModel

        scores = LoadedLanguageModel.load(run).evaluate([located(path) for path in data], unit, text_column, reading)
        show_notes(reading.notes())
        if as_json:
            show_json(scores)
            return
        bits = f", {scores['bits_per_byte']:.3f} bits a byte" if scores["bits_per_byte"] else ""
        show(
            f"loss {scores['loss']:.4f} nats a token, perplexity {scores['perplexity']:.2f}{bits}; {scores['tokens']} tokens"
        )
        if "entropy" in scores:
            show(
                f"entropy of the text itself given the prefix: {scores['entropy']:.4f} (no model can have a lower loss on it)"
            )
        return
    if len(data) != 1:
        raise UserError("A classifier is scored on one file or folder of labelled rows.")
    from headstart.use.predict import LoadedClassifier

    found = LoadedClassifier.load(run).evaluate(located(data[0]), text_column, label_column, reading)
    show_notes(reading.notes())
    if as_json:
        show_json(found)
        return
    show(accuracy_line("accuracy", found) + f", macro-F1 {found['macro_f1']:.4f}")
    show()
    rows = [
        [label, *map(str, counts), share(each["precision"]), share(each["recall"]), share(each["f1"])]
        for (label, each), counts in zip(found["classes"].items(), found["confusion"], strict=True)
    ]
    show_table(["true \\ said", *found["labels"], "precision", "recall", "F1"], rows)


@app.command()
@guarded
def params(
    target: Annotated[
        str,
        Argument(
            metavar="RUN|PRESET", help="A run; gpt, bert or classic; or a model of translate train.", show_default=False
        ),
    ],
    vocab: Annotated[int | None, Option(help="For a preset: entries of its vocabulary.")] = None,
    head: Annotated[str, Option(help="For a preset: lm or classify.")] = "lm",
    labels: Annotated[int, Option(min=2, help="For --head classify: how many.")] = 2,
    hidden: Annotated[int | None, Option(help="For a model of translate train: its width. [default: 64]")] = None,
    size: Size = None,
    context: Context = None,
    settings: Set = None,
    tree: Annotated[bool, Option("--tree", help="As a tree, each module with the sum of what is inside.")] = False,
    html: Annotated[
        Path | None, Option(help="Write a page with the treemap to this file.", callback=ends(".html", ".htm"))
    ] = None,
    png: Annotated[Path | None, Option(help="Draw the treemap to this file.", callback=ends(".png"))] = None,
    svg: Annotated[Path | None, Option(help="Draw the treemap to this file.", callback=ends(".svg"))] = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show where the parameters are. Each number has the product behind it."""
    from headstart.errors import ConfigError, UserError, did_you_mean
    from headstart.shapes import PRESETS

    if head not in ("lm", "classify"):
        raise UserError(f"--head takes lm or classify, not '{head}'.{did_you_mean(head, ('lm', 'classify'))}")
    from headstart.runs.disk import write_file
    from headstart.use.params import TRANSLATORS, preset_parameters, run_parameters, translator_parameters

    if target in (*PRESETS, *TRANSLATORS):
        own = {"model.preset": target} if target in PRESETS else {"model.kind": target, "model.hidden": hidden}
        given = {**own, "model.vocab": vocab, "model.size": size, "model.context": context}
        nested = nested_settings(given, settings)
        if nested.keys() - {"model"}:
            raise ConfigError(f"params knows only settings of the model, not {', '.join(nested.keys() - {'model'})}.")
        model = nested["model"]
        result = preset_parameters(model, head, labels) if target in PRESETS else translator_parameters(model)
    else:
        result = run_parameters(target)
    if html:
        write_file(html, result.html().encode())
    if png:
        write_file(png, result.picture().png())
    if svg:
        write_file(svg, result.picture().svg().encode())
    if as_json:
        show_json(result.data())
        return
    show(result.tree() if tree else str(result))
