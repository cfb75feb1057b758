"""The verbs that put a finished run to work: generate, evaluate, params; predict is in predict.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.cli.app import app, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.settings import nested_settings
from headstart.cli.summary import perplexity, task_scores
from headstart.cli.terminal import accuracy_line, share, show, show_json, show_notes, show_table, write_drawings
from headstart.errors import ConfigError, UserError, did_you_mean
from headstart.show.table import label


@verb(app, "generate")
def generate(given: Given) -> None:
    """Continue PROMPT with the language model in RUN. Shows how sure it was of each token."""
    from headstart.models.decode import Sampling
    from headstart.use.language import LoadedLanguageModel

    how = Sampling(given["--temperature"], given["--top-k"], given["--top-p"], given["--seed"])
    top, plot = given["--top"], given["--plot"]
    result = LoadedLanguageModel.load(given["RUN"]).generate(
        given["prompt"], given["--tokens"], how, max(top, 6 if plot else 0)
    )
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


@verb(app, "evaluate")
def evaluate(given: Given) -> None:
    """Score the model in RUN on DATA, with intervals."""
    from headstart.config import PretrainConfig
    from headstart.hub.packs import located
    from headstart.runs.run import Run

    run, data, reading, text_column = given["RUN"], given["data"], reading_of(given), given["--text-column"]
    of_text = isinstance(Run.open(run).config, PretrainConfig)
    if of_text:
        from headstart.use.language import LoadedLanguageModel

        files = [located(path) for path in data]
        scores: Mapping[str, Any] = LoadedLanguageModel.load(run).evaluate(files, given["--unit"], text_column, reading)
    elif len(data) != 1:
        raise UserError("A classifier is scored on one file or folder of labelled rows.")
    else:
        from headstart.use.predict import LoadedClassifier

        scores = LoadedClassifier.load(run).evaluate(located(data[0]), text_column, given["--label-column"], reading)
    show_notes(reading.notes())
    if given["--json"]:
        show_json({**scores.get("scores", {}), **scores} if "task" in scores else scores)
    elif of_text:
        show(f"loss {scores['loss']:.4f} nats per token, perplexity {perplexity(scores)}; {scores['tokens']} tokens")
        if "entropy" in scores:
            floor = f"{scores['entropy']:.4f} (no model can have a lower loss on it)"
            show(f"entropy of the text itself given the prefix: {floor}")
    elif "task" in scores:
        show(f"{task_scores(scores['task'], scores['scores'])}; {scores['scores']['rows']} rows")
        rows = [[name, str(c["rows"]), *(share(c[key]) for key in ("precision", "recall", "f1"))] for name, c in scores["classes"].items()]  # fmt: skip
        if rows:
            show_table(["label", "rows", "precision", "recall", "F1"], rows)
    else:
        _show_classes(scores)


def _show_classes(scores: Mapping[str, Any]) -> None:
    show(accuracy_line("accuracy", scores) + f", macro-F1 {scores['macro_f1']:.4f}")
    show()
    rows = [
        [label, *map(str, counts), *(share(scores["classes"][label][name]) for name in ("precision", "recall", "f1"))]
        for label, counts in zip(scores["labels"], scores["confusion"], strict=True)
    ]
    show_table(["true \\ said", *scores["labels"], "precision", "recall", "F1"], rows)


@verb(app, "params")
def params(given: Given) -> None:
    """Show where the parameters are. Each number has the product behind it."""
    from headstart.shapes import PRESETS, TRANSLATORS

    target, head, labels = given["RUN|PRESET"], given["--head"], given["--labels"]
    if head not in ("lm", "classify"):
        raise UserError(f"--head takes lm or classify, not '{head}'.{did_you_mean(head, ('lm', 'classify'))}")
    own = {"model.preset": target} if target in PRESETS else {"model.kind": target, "model.hidden": given["--hidden"]}
    nested = nested_settings({**own, "model.vocab": given["--vocab"], **given.settings()}, given["--set"])
    if target in (*PRESETS, *TRANSLATORS) and nested.keys() - {"model"}:
        raise ConfigError(f"params knows only settings of the model, not {', '.join(nested.keys() - {'model'})}.")
    if target in PRESETS:
        from headstart.use.preset_parameters import preset_parameters  # loads no torch

        result = preset_parameters(nested["model"], head, labels)
    else:
        from headstart.use.params import run_parameters, translator_parameters

        result = translator_parameters(nested["model"]) if target in TRANSLATORS else run_parameters(target)
    write_drawings(given.values, result.html, result.picture)
    if given["--json"]:
        show_json(result.data())
        return
    show(result.tree() if given["--tree"] else str(result))
