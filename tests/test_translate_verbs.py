"""translate train, apply and evaluate from the command line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app

FEW = ["--quiet", "--epochs", "2", "--hidden", "16", "--threads", "1", "--set", "train.tensorboard=false"]
MORE = ["--epochs", "8", "--batch-size", "16", "--set", "model.layers=1", "--set", "model.heads=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, and a run that has seen them for two epochs."""
    here = tmp_path_factory.mktemp("translate")
    rows = [f"{c}{v}{e}\t{v}{e}{c}ay" for c in "bdgklmnprst" for v in "aeio" for e in ("n", "r", "st")]
    (here / "pairs.tsv").write_text("\n".join(rows), "utf-8")
    done = run("translate", "train", here / "pairs.tsv", "--out", here / "run", "--split", "words", *FEW, *MORE)
    assert "validation, 12 sources" in done.stdout
    assert "exact match" in done.stdout
    return here


def run(*words: object, exit_code: int = 0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == exit_code, done.output
    return done


def test_apply_gives_each_source_its_translation_score_and_n_best(folder: Path) -> None:
    done = run("translate", "apply", folder / "run", "ban dor", "gest", "--beam", 4, "--n-best", 3, "--json")
    records = json.loads(done.stdout)
    assert [r["source"] for r in records] == ["ban dor", "gest"]
    for record in records:
        assert record.keys() == {"source", "translation", "score", "n_best"}
        assert len(record["n_best"]) == 3
        assert record["n_best"][0] == {"translation": record["translation"], "score": record["score"]}
        scores = [each["score"] for each in record["n_best"]]
        assert scores == sorted(scores, reverse=True)
    words = json.loads(run("translate", "apply", folder / "run", "ban", "dor", "--beam", 4, "--json").stdout)
    assert records[0]["translation"] == " ".join(r["translation"] for r in words)


def test_apply_draws_what_each_token_looked_at(folder: Path) -> None:
    for name, begins in (("map.png", b"\x89PNG"), ("map.svg", b"<?xml"), ("map.html", b"<!doctype html>")):
        run("translate", "apply", folder / "run", "ban dor", "--attention", folder / name)
        assert (folder / name).read_bytes().lower().startswith(begins.lower())
    page = (folder / "map.html").read_text("utf-8")
    assert "ban → " in page
    assert "dor → " in page
    for words, says in (
        (["ban", "dor"], "--attention draws one translation; 2 texts"),
        (["ban"], "map.gif' does not end with .png"),
    ):
        file = folder / ("map.gif" if len(words) == 1 else "no.png")
        assert says in run("translate", "apply", folder / "run", *words, "--attention", file, exit_code=2).stderr


def test_evaluate_tells_every_score_with_its_interval_and_where_it_fails(folder: Path) -> None:
    scores = json.loads(run("translate", "evaluate", folder / "run", folder / "pairs.tsv", "--json").stdout)
    for name in ("exact_match", "character_error_rate", "token_error_rate", "bleu", "chrf"):
        low, high = scores[name]["interval"]
        assert low <= scores[name]["value"] <= high
    assert scores["rows"] == 132
    assert scores["target_tokens"] == sum(
        len(line.split("\t")[1]) + 1 for line in (folder / "pairs.tsv").read_text().split("\n")
    )
    shown = run("translate", "evaluate", folder / "run", folder / "pairs.tsv").stdout
    for part in ("length of the source", "it begins with", "should be"):
        assert part in shown


def test_two_files_are_one_set_of_pairs(folder: Path) -> None:
    sides = list(zip(*(line.split("\t") for line in (folder / "pairs.tsv").read_text().split("\n")), strict=True))
    for name, side in zip(("a.en", "a.pig"), sides, strict=True):
        (folder / name).write_text("\n".join(side), "utf-8")
    both = [json.loads(run("translate", "evaluate", folder / "run", *files, "--json").stdout)
            for files in ([folder / "pairs.tsv"], [folder / "a.en", folder / "a.pig"])]  # fmt: skip
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("words", "exit_code", "says"),
    [
        (["train", "{here}/nope.tsv"], 3, "nope.tsv: no such file"),
        (["train"], 2, "Missing PAIRS"),
        (["train", "{here}/pairs.tsv", "--model", "rnn"], 4, r"model.kind (--model): "),
        (["train", "{here}/pairs.tsv", "--hidden", "0"], 4, r"model.hidden (--hidden): "),
        (["train", "{here}/pairs.tsv", "--hidden", "18"], 4, "hidden (18) must be a multiple of heads (4)"),
        (["train", "{here}/pairs.tsv", "--level", "syllable"], 4, "Unknown tokenizer 'syllable'"),
        (["train", "{here}/pairs.tsv", "--set", "model.cell=written"], 4, "the written-out cell ('written') is a GRU"),
        (["train", "{here}/a", "{here}/b", "{here}/c"], 4, "data.pairs"),
        (["apply", "{here}/run"], 2, "Nothing to translate"),
        (["apply", "{here}/run", "ban", "--split", "letters"], 2, "--split takes texts or words, not 'letters'"),
        (["apply", "{here}/run", " "], 3, "A text to translate is blank"),
        (["apply", "{here}/run", "ba" * 200], 5, "longer than the 256 that this model can read"),
        (["evaluate", "{here}/run", "a", "b", "c"], 2, "one table or two files, not 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(words: list[str], exit_code: int, says: str, folder: Path, tmp_path: Path) -> None:
    given = [word.replace("{here}", str(folder)) for word in words]
    out = ["--out", str(tmp_path / "out"), *FEW[:3]] if words[0] == "train" else []
    assert says in run("translate", *given, *out, exit_code=exit_code).stderr
    assert not (tmp_path / "out").exists()


def test_other_verbs_say_that_a_run_is_a_translator(folder: Path) -> None:
    for words in (["predict", folder / "run", "ban"], ["generate", folder / "run", "ban"],
                  ["evaluate", folder / "run", folder / "pairs.tsv"]):  # fmt: skip
        assert "headstart translate" in run(*words, exit_code=5).stderr
    assert json.loads(run("params", folder / "run", "--json").stdout)["total"] > 1000


def test_a_dry_run_writes_nothing(folder: Path, tmp_path: Path) -> None:
    done = run("translate", "train", folder / "pairs.tsv", "--out", tmp_path / "out", "--dry-run", "--json")
    assert json.loads(done.stdout)["job"] == "translate"
    assert not (tmp_path / "out").exists()


def test_inspect_shows_the_attention_of_a_translator(folder: Path) -> None:
    page = folder / "inside.html"
    done = run("inspect", folder / "run", "ban dor", "--html", page, "--layer", 1)
    assert done.stdout.count("cross-attention, layer 1 of 1, mean of 2 heads") == 2  # a word each
    assert done.stdout.count("encoder attention, layer 1 of 1") == 2
    assert done.stdout.count("decoder attention, layer 1 of 1") == 2
    assert page.read_text("utf-8").count('data-view="attention"') == 6
    (told,) = json.loads(run("inspect", folder / "run", "ban", "--json").stdout)
    assert [maps["kind"] for maps in told["attention"]] == ["cross-attention", "encoder attention", "decoder attention"]
    refused = run("inspect", folder / "run", "ban", "--before", folder / "run", exit_code=2)
    assert "RUN is a translator" in refused.stderr


def test_scores_on_what_was_learned_are_told_as_such_even_quietly(folder: Path, tmp_path: Path) -> None:
    pairs = folder / "pairs.tsv"
    done = run("translate", "train", pairs, "--test", pairs, "--out", tmp_path / "run", *FEW, "--model", "gru")
    assert "! 119 test pairs have a source that is also in the training pairs." in done.stdout


def test_what_a_translation_lacks_is_named(folder: Path) -> None:
    done = run("translate", "apply", folder / "run", "ban Box", "b7n")
    assert "Note: This model has never seen 'B', 'x', '7'." in done.stderr


def test_a_misspelled_choice_and_run_get_a_hint(folder: Path) -> None:
    done = run("translate", "train", folder / "pairs.tsv", "--model", "gru-additve", exit_code=4)
    assert "(got 'gru-additve'). Did you mean 'gru-additive'?" in done.stderr.replace("\n", " ")
    done = run("translate", "apply", folder / "rn", "ban", exit_code=5)
    assert f"Did you mean '{folder / 'run'}'?" in done.stderr.replace("\n", "")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "cut short": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "other JSON": lambda file: file.write_text('{"headstart": {}}'),
    "a list": lambda file: file.write_text("[]"),
    "nested": lambda file: file.write_text("[" * 100_000),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "target_tokenizer.json"])
def test_a_translator_with_a_damaged_file_is_refused_in_one_sentence(name, damage, folder, tmp_path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    DAMAGES[damage](tmp_path / "run" / "model" / name)
    for words in (["translate", "apply", tmp_path / "run", "ban"], ["params", tmp_path / "run"]):
        if words[0] == "params" and name.endswith("tokenizer.json"):
            continue  # it counts without them
        said = run(*words, exit_code=5).stderr
        assert said.startswith("error[MODEL")
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden": 10**6},
        {"hidden": -1},
        {"layers": 10**6},
        {"vocab": 10**9},
        {"kind": "evil"},
        {"heads": 7},
        {"hidden": "x"},
    ],
    ids=str,
)
def test_a_translator_of_a_shape_that_its_weights_do_not_have_is_refused(changed, folder, tmp_path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    file = tmp_path / "run" / "model" / "config.json"
    described = json.loads(file.read_text("utf-8"))
    described["headstart"]["model"] |= changed
    file.write_text(json.dumps(described))
    assert run("translate", "apply", tmp_path / "run", "ban", exit_code=5).stderr.startswith("error[MODEL")
