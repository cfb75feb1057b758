"""The verb that labels texts: on the terminal, or a whole table into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.cli.app import app, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_notes
from headstart.errors import DataError, UserError
from headstart.quantities import counted

if TYPE_CHECKING:
    from headstart.task import Input
    from headstart.text.files import Reading
    from headstart.use.labels import LabelledText
    from headstart.use.onnx import OnnxClassifier
    from headstart.use.predict import LoadedClassifier


@verb(app, "predict")
def predict(given: Given) -> None:
    """Label each TEXT with the classifier in RUN. Or with several, side by side; or a whole table, into a file."""
    from headstart.text.inputs import in_words
    from headstart.use.label_sets import doubt_of
    from headstart.use.labels import without_text

    if given["--out"]:
        _label_file(given)
        return
    _refuse_alone(given)
    run, texts, also, reading = given["RUN"], given["TEXT..."] or [], given["--also"] or [], reading_of(given)
    if not texts and not given["--file"]:
        raise UserError(f"Nothing to label: '{run}' is taken for the run. Give the run first, then texts or --file.")
    if any(not text.strip() for text in texts):
        raise DataError("A text to label is blank.", "DATA_BLANK")
    doubts = {name: doubt_of(name, given["--abstain-below"], given["--coverage"]) for name in [run, *also]}
    models = {name: _classifier(name) for name in doubts}
    for name, model in models.items():
        doubts[name].must_suit(model.target)
    if len(found := {model.reads for model in models.values()}) > 1:
        raise UserError(f"Some of these runs read {', and some '.join(in_words(found))}. Ask them one by one.")
    asked = _asked(given, reading, models[run].reads)
    show_notes(reading.notes())
    said = {name: model.predict(asked) for name, model in models.items()}
    for name, records in said.items():
        doubts[name].applied(records)
    if given["--json"]:
        records = said[run]
        for i, record in enumerate(records if also else []):
            record["also"] = {name: without_text(said[name][i]) for name in also}
        show_json(records)
        return
    for several in zip(*said.values(), strict=True):
        in_text = [model.target.in_text(record) for model, record in zip(models.values(), several, strict=True)]
        if any(in_text):
            show("\t".join(in_text))
            continue
        told = "\t".join(f"{_answer(r)}\t{_ranked(r['probabilities'])}" for r in several)
        text = several[0]["text"]
        show(f"{told}\t{text if len(text) <= 200 else text[:200] + ' ...'}")


def _asked(given: Given, reading: Reading, reads: Input) -> list[str]:
    """What the model reads, from the command line and from --file."""
    from headstart.hub.packs import located
    from headstart.text.inputs import INPUTS
    from headstart.text.read import read_inputs

    texts: list[str] = given["TEXT..."] or []
    asked = list[str](INPUTS[reads].from_texts(texts))
    if given["--file"]:
        asked += read_inputs(located(given["--file"]), reads, given["--text-column"], reading)
    return asked


def _refuse_alone(given: Given) -> None:
    """Flags of a file to write say nothing without one."""
    for_files = {
        "--prefix": given["--prefix"],
        "--all-probabilities": given["--all-probabilities"],
        "--skip-blank": given["--skip-blank"],
        "--overwrite": given["--overwrite"],
    }
    if alone := [flag for flag, value in for_files.items() if value]:
        raise UserError(f"{alone[0]} is for a file to write: give --out.")


def _label_file(given: Given) -> None:
    from headstart.hub.packs import located
    from headstart.use.label_file import Columns, label_file
    from headstart.use.label_sets import doubt_of

    if given["TEXT..."] or given["--also"]:
        raise UserError("--out writes the rows of --file, labelled by one run. Leave out the texts and --also.")
    if not given["--file"]:
        raise UserError("--out needs a table to label: give --file.")
    reading, doubt = reading_of(given), doubt_of(given["RUN"], given["--abstain-below"], given["--coverage"])
    result = label_file(
        lambda: _classifier(given["RUN"]),
        located(given["--file"]),
        given["--out"],
        Columns(given["--prefix"], given["--all-probabilities"], doubt),
        given["--text-column"],
        reading,
        given["--skip-blank"],
        given["--overwrite"],
        Bar(given["--quiet"]),
    )
    show_notes(reading.notes(), given["--quiet"])
    if given["--json"]:
        show_json(result)
        return
    told = ", ".join(f"{label} {count}" for label, count in list(result["labels"].items())[:10])
    blank = f"; {counted(result['blank'], 'row')} without a text" if result["blank"] else ""
    unsure = f"; abstained in {counted(result['abstained'], 'row')}" if result["abstained"] else ""
    show(f"{result['file']}: {counted(result['rows'], 'row')}; labels: {told or 'none'}{unsure}{blank}")


def _classifier(run: str) -> LoadedClassifier | OnnxClassifier:
    if run.endswith(".onnx"):
        from headstart.use.onnx import OnnxClassifier  # loads no torch

        return OnnxClassifier.load(run)
    from headstart.use.predict import LoadedClassifier

    return LoadedClassifier.load(run)


def _answer(record: LabelledText) -> str:
    label = "(abstained)" if record["label"] is None else _written(record["label"])
    return f"{label}\t{{{', '.join(record['label_set'])}}}" if "label_set" in record else label


def _written(label: str | list[str] | float) -> str:
    return label if isinstance(label, str) else f"{label:.4g}" if isinstance(label, float) else ", ".join(label) or "-"


def _ranked(probabilities: dict[str, float]) -> str:
    return "  ".join(f"{label} {p:.2f}" for label, p in probabilities.items())
