"""Every fault of catalogue.toml gives one sentence and the right exit code, and costs the user nothing."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.text.visible import shown

TABLE = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))["case"]
CASES = [
    pytest.param(case, command, id=f"{case['id']}: {command[0]}" if len(case["commands"]) > 1 else case["id"])
    for case in TABLE
    for command in case["commands"]
]
SHORT = ["--set", "train.steps=1", "--set", "train.tensorboard=false"]  # should a fault go unseen, not for long


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, matcher: Path, towers: dict[str, str]) -> dict[str, Path]:
    """A causal and a masked language model and a classifier, each after two steps; and what matches pictures."""
    from headstart.jobs.finetune import finetune
    from headstart.jobs.pretrain import pretrain

    folder = tmp_path_factory.mktemp("runs")
    corpus, reviews = _corpus(folder), _reviews(folder)
    train = {"steps": 2, "batch_size": 4, "eval_every": 2, "threads": 1, "tensorboard": False}
    common: dict[str, Any] = {"data": {"paths": [str(corpus)], "unit": "line"}, "train": train, "samples": []}
    shape = {"size": "nano", "context": 32}
    pretrain(parse(PretrainConfig, {**common, "model": shape}), folder / "lm")
    pretrain(parse(PretrainConfig, {**common, "model": shape, "objective": "masked"}), folder / "mlm")
    settings = {"base": str(folder / "lm"), "data": {"train": str(reviews)}, "train": train}
    finetune(parse(FinetuneConfig, settings), folder / "clf")
    made = {name: folder / name for name in ("lm", "mlm", "clf")}
    return {**made, "matcher": matcher, "encoder": Path(towers["image"])}


@pytest.mark.parametrize(("case", "command"), CASES)
def test_a_fault_gives_one_sentence_and_costs_nothing(case, command, runs, tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("crash")))  # a bug's report is no run's file
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.chdir(tmp_path)
    places = _make(case, tmp_path, runs)
    argv = [_placed(argument, places) for argument in _whole(command)]
    before = [_tree(tmp_path), _tree(runs["lm"].parent)]

    plain, as_json = (CliRunner().invoke(app, [*argv, *form]) for form in ([], ["--json"]))

    assert [_tree(tmp_path), _tree(runs["lm"].parent)] == before, "files changed"
    assert (plain.exit_code, as_json.exit_code) == (case["exit"], case["exit"]), plain.stderr
    assert "Traceback" not in plain.output
    message = _only_sentence(plain, case["code"])
    assert re.search(case["says"], message), message
    assert shown(_in_json(as_json, case["code"])) == message


@pytest.mark.parametrize(
    "command",
    [
        ["pretrain", "{corpus}", "--unit", "line", "--size", "nano"],
        ["finetune", "{reviews}", "--base", "{lm}"],
        ["predict", "{clf}", "--file", "{corpus}"],
        ["evaluate", "{lm}", "{corpus}"],
        ["evaluate", "{clf}", "{reviews}"],
        ["data", "check", "{corpus}"],
        ["data", "check", "{reviews}"],
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_what_had_to_be_changed_in_a_file_is_told_and_kept(command, runs, tmp_path):
    """D8 and D11: three bytes that are no UTF-8 and two NUL characters."""
    places = _make({}, tmp_path, runs)
    for name in ("corpus", "reviews"):
        data = Path(places[name]).read_bytes()
        Path(places[name]).write_bytes(data.replace(b"d", b"\xe9", 3).replace(b"w", b"\0", 2))
    argv = [_placed(argument, places) for argument in _whole(command)]
    done = CliRunner().invoke(app, [*argv, "--on-bad-bytes", "replace", "--strip-nul"])
    assert done.exit_code == 0, done.stderr
    assert "Note: 3 places that could not be decoded were replaced by U+FFFD.\n" in done.stderr
    assert "Note: 2 NUL characters were left out.\n" in done.stderr
    if "finetune" in argv or "pretrain" in argv:
        kept = json.loads((tmp_path / "run" / "data.json").read_text("utf-8"))
        assert kept["reading"] == {"replaced": 3, "nuls_removed": 2}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["predict", "{clf}", "--file", "small-corpus"], 0),
        (["evaluate", "{lm}", "small-corpus"], 0),
        (["evaluate", "{clf}", "verbal-arithmetic"], 3),  # it is found; its labels are others
    ],
)
def test_a_data_set_is_known_by_its_name_to_whoever_uses_a_run(command, code, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    done = CliRunner().invoke(app, [_placed(argument, _make({}, tmp_path, runs)) for argument in command])
    assert done.exit_code == code, done.stderr
    assert code == 0 or "labels that this model does not know" in done.stderr


def test_a_score_is_shown_with_and_without_the_rows_that_were_learned_from(runs, tmp_path, monkeypatch):
    """D19"""
    monkeypatch.chdir(tmp_path)
    rows = _reviews(tmp_path).read_text("utf-8").splitlines()
    Path("test.csv").write_text("\n".join([*rows[:4], "another thing altogether,pos", "and one more of those,neg"]))
    words = ["finetune", "reviews.csv", "--base", str(runs["lm"]), "--test", "test.csv", "--out", "run", *SHORT]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert re.search(r"! 3 of the 5 test rows also .*\n  without them \d.* 2 rows\)", done.stdout)
    test = json.loads(Path("run/result.json").read_text("utf-8"))["test"]
    assert (test["rows"], test["without_overlap"]["rows"]) == (5, 2)
    predictions = [json.loads(line) for line in Path("run/predictions.jsonl").read_text("utf-8").splitlines()]
    clean = [p["label"] == p["prediction"] for p in predictions[3:]]
    assert test["without_overlap"]["accuracy"] == sum(clean) / 2


def test_scores_of_a_class_without_rows_are_undefined(runs, tmp_path):
    """D18"""
    (tmp_path / "a.csv").write_text("text,label\nfilm one was good,pos\n")
    words = ["evaluate", str(runs["clf"]), str(tmp_path / "a.csv")]
    table = CliRunner().invoke(app, words).stdout
    assert re.search(r"^neg .* undefined ", table, flags=re.MULTILINE)
    classes = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["classes"]
    assert classes["neg"]["recall"] is None
    assert classes["pos"]["recall"] in (0.0, 1.0)


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_directory_in_use_is_busy(resume, tmp_path):
    corpus = _corpus(tmp_path)
    config = parse(PretrainConfig, {"data": {"paths": [str(corpus)]}})
    with Run.start(tmp_path / "run", False, config, 1) as held:
        before = _tree(tmp_path)
        words = ["--resume"] if resume else [str(corpus), *SHORT]
        result = CliRunner().invoke(app, ["pretrain", "--out", str(held.path), *words])
        assert result.exit_code == 8, result.stderr
        assert re.search(rf"in use by pid {os.getpid()} on ", _only_sentence(result, "RUN_BUSY"))
        assert _tree(tmp_path) == before


@pytest.mark.parametrize("name", ["with space", "🧀 é", "two\nlines", "--set", "{x}%s$HOME*", "x" * 200])
def test_any_name_of_a_file_and_of_a_run_works(name, tmp_path, monkeypatch):
    """C3"""
    monkeypatch.chdir(tmp_path)
    _corpus(tmp_path).rename(f"{name}.txt")
    words = [*SHORT, "--unit", "line", "--size", "nano", "--quiet"]
    done = CliRunner().invoke(app, ["pretrain", *words, "--out", f"./{name}", "--", f"{name}.txt"])
    assert done.exit_code == 0, done.stderr
    done = CliRunner().invoke(app, ["generate", "--json", "--", name, "I"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["text"].startswith("I")


def test_a_lock_whose_owner_is_gone_holds_nobody_up(tmp_path):
    config = parse(PretrainConfig, {"data": {"paths": ["a.txt"]}})
    with Run.start(tmp_path / "run", False, config, 1) as run:
        run.log({})  # begun, so that it is kept
    assert (tmp_path / "run" / ".lock").exists()
    Run.start(tmp_path / "run", True, config, 1).close()


def test_the_table_names_no_case_twice():
    names = [case["id"] for case in TABLE]
    assert len(names) == len(set(names))


def _only_sentence(result: Result, code: str) -> str:
    """The message, when stderr ends in its only line `error[CODE]: message` and stdout is empty."""
    assert result.stdout == ""
    assert result.stderr.count("error[") == 1
    found = re.fullmatch(r"(?:[^\n]*\n)*error\[([A-Z_]+)\]: ([^\n]+)\n", result.stderr)
    assert found, result.stderr
    assert found[1] == code, result.stderr
    return found[2]


def _in_json(result: Result, code: str) -> str:
    assert result.stdout == ""
    answer = json.loads(result.stderr.splitlines()[-1])
    assert answer == {"error": {"code": code, "message": answer["error"]["message"]}}
    return answer["error"]["message"]


def _whole(command: list[str]) -> list[str]:
    """A training command with --out, and short; its own settings come last and win."""
    verb, *rest = command
    if verb not in ("pretrain", "finetune"):
        return command
    out = [] if "--out" in rest else ["--out", "{out}"]
    return [verb, *out, *([] if "--resume" in rest else SHORT), *rest]


def _placed(argument: str, places: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: places[found[1]], argument)


def _tree(folder: Path) -> dict[str, Any]:
    """Everything in a folder, to the byte; the lock file aside, which names its last owner."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else path.lstat().st_mode
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


def _corpus(folder: Path) -> Path:
    path = folder / "corpus.txt"
    lines = (
        f"{who} {verb} a {what}."
        for who in ("I", "She")
        for verb in ("hold", "see")
        for what in ["cat", "dog", "cow", "hen"]
    )
    path.write_text("\n".join(lines), "utf-8")
    return path


def _reviews(folder: Path) -> Path:
    path = folder / "reviews.csv"
    rows = (f"film {i} was {'good' if i % 2 else 'bad'},{'pos' if i % 2 else 'neg'}\n" for i in range(40))
    path.write_text("text,label\n" + "".join(rows), "utf-8")
    return path


def _make(case: dict[str, Any], here: Path, runs: dict[str, Path]) -> dict[str, str]:
    """The input of a case, in `here`, and what its placeholders stand for."""
    corpus, reviews, file = _corpus(here), _reviews(here), here / case.get("file", "a.txt")
    if "text" in case:
        file.write_text(case["text"], "utf-8", newline="")
    if "hex" in case:
        file.write_bytes(bytes.fromhex(case["hex"]))
    if "make" in case:
        MAKERS[case["make"]](here, runs)
    named = {
        "here": here,
        "file": file,
        "corpus": corpus,
        "reviews": reviews,
        "out": here / "run",
        "made": here / "made",
    }
    return {name: str(path) for name, path in {**named, **runs}.items()} | {
        "long": "x" * 300,
        "surrogate": "a \udce9 b",
        "digits": "9" * 5000,
    }


def _pipe(here: Path, runs: dict[str, Path]) -> None:
    for name in ("pipe.txt", "pipe.csv", "pipe.toml", "pipe.tar"):
        os.mkfifo(here / name)


def _archives(here: Path, runs: dict[str, Path]) -> None:
    """One with damaged xz, one with a name that leads out of it, and a table that is there already."""
    for name, inside in (("damaged", "a.txt"), ("evil", "../../a.txt")):
        with tarfile.open(here / f"{name}.tar", "w:xz") as archive:
            entry = tarfile.TarInfo(inside)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"text"))
    (here / "damaged.tar").write_bytes((here / "damaged.tar").read_bytes()[:60] + bytes(40))
    (here / "mine.csv").write_text("mine")


def _loop(here: Path, runs: dict[str, Path]) -> None:
    for name in ("loop.txt", "loop.csv"):
        (here / name).symlink_to(name)


def _unreadable(here: Path, runs: dict[str, Path]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    for name in ("closed.txt", "closed.csv"):
        (here / name).write_text("text,label\n")
        (here / name).chmod(0)


def _folder(here: Path, runs: dict[str, Path]) -> None:
    (here / "made").mkdir()


def _folder_with_a_strange_name(here: Path, runs: dict[str, Path]) -> None:
    (here / "made").mkdir()
    (here / "made" / "q\udce9.txt").write_text("some text")


def _folder_among_texts(here: Path, runs: dict[str, Path]) -> None:
    for name in ("pos/1.txt", "neg"):
        (here / "made" / name).mkdir(parents=True)


def _unequal_pairs(here: Path, runs: dict[str, Path]) -> None:
    (here / "a.en").write_text("the dog\na cat\none egg\n")
    (here / "a.fr").write_text("le chien\nun chat\n")
    rows = [("the dog sees", "le chien voit"), ("a cat sleeps", "un chat dort"), ("one egg is here", "un oeuf est ici")]
    (here / "good.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    (here / "swapped.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in rows))


def _bad_images(here: Path, runs: dict[str, Path]) -> None:
    """A bomb, a file cut short, an empty one and a drawing, each with a caption."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0), b"IDAT", b"IEND"]
    bomb = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    (here / "made").mkdir()
    Image.effect_noise((64, 64), 50).save(here / "made" / "cut.jpg")
    (here / "made" / "cut.jpg").write_bytes((here / "made" / "cut.jpg").read_bytes()[:-300])
    for name, data in (("bomb.png", b"\x89PNG\r\n\x1a\n" + bomb), ("empty.webp", b""), ("drawing.svg", b"<svg/>")):
        (here / "made" / name).write_bytes(data)
    _caption(here / "made")


def _one_bad_image(here: Path, runs: dict[str, Path]) -> None:
    _bad_images(here, runs)
    for name in ("bomb.png", "empty.webp", "drawing.svg"):
        (here / "made" / name).unlink()
    Image.new("RGB", (8, 8), "red").save(here / "made" / "good.png")
    _caption(here / "made")


def _caption(folder: Path) -> None:
    files = sorted(path.name for path in folder.iterdir() if path.suffix != ".csv")
    (folder / "pairs.csv").write_text(
        "".join(f"{line}\n" for line in ["file,caption", *(f"{f},a thing" for f in files)])
    )


def _run_with(**changes: Any):
    """A copy of a finished run with files replaced, or removed where the new content is None."""

    def make(here: Path, runs: dict[str, Path], kind: str = "lm") -> None:
        shutil.copytree(runs[kind], here / "made")
        for name, content in changes.items():
            path = here / "made" / name.replace("__", "/").replace("_", ".")
            if content is None or content in (os.mkdir, os.mkfifo):
                path.unlink()
                content and content(path)
            elif callable(content):
                path.write_bytes(content(path.read_bytes()))
            else:
                path.write_bytes(content)

    return make


def _damaged_checkpoints(here: Path, runs: dict[str, Path]) -> None:
    _run_with(result_json=None)(here, runs)
    for step in ("1", "2"):
        (here / "made" / "checkpoints" / f"step-000000{step}").mkdir(parents=True)
    (here / "made" / "checkpoints" / "step-0000002" / "MANIFEST.json").write_text("{")


def _two_tokens_swapped(data: bytes) -> bytes:
    swapped = {b'"!"': b'"?"', b'"?"': b'"!"'}
    return re.sub(rb'"[!?]"', lambda found: swapped[found[0]], data)


def _words_for_scores(data: bytes) -> bytes:
    return re.sub(rb'"accuracy": [\d.]+', b'"accuracy": "high"', data)


def _newer(data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "format": 999, "versions": {"headstart": "9.9"}}).encode()


def _strange_setting(data: bytes) -> bytes:
    return b'from_the_future = "yes"\n' + data


MAKERS = {
    "pipe": _pipe,
    "loop": _loop,
    "archives": _archives,
    "unreadable": _unreadable,
    "folder": _folder,
    "files of two and three lines": _unequal_pairs,
    "bad images": _bad_images,
    "one bad image": _one_bad_image,
    "folder among texts": _folder_among_texts,
    "folder with a name that is no UTF-8": _folder_with_a_strange_name,
    "unfinished run": _run_with(result_json=None),
    "run with changed data": lambda here, runs: _run_with(
        result_json=None, data_json=lambda data: re.sub(rb'"sha256": "\w+"', b'"sha256": "0"', data)
    )(here, runs),
    "unfinished run with another tokenizer": _run_with(result_json=None, model__tokenizer_json=_two_tokens_swapped),
    "unfinished run with damaged checkpoints": _damaged_checkpoints,
    "run of a newer format": _run_with(env_json=_newer),
    "unfinished run of a newer format": _run_with(env_json=_newer, config_toml=_strange_setting, result_json=None),
    "run with a damaged env.json": _run_with(env_json=b"{"),
    "run with a strange env.json": _run_with(env_json=b"[]"),
    "run with a folder for env.json": _run_with(env_json=os.mkdir),
    "run with a pipe for env.json": _run_with(env_json=os.mkfifo),
    "run with a pipe for config.toml": _run_with(config_toml=os.mkfifo),
    "run with a list for result.json": lambda here, runs: _run_with(result_json=b"[]")(here, runs, "clf"),
    "run with a word for a score": lambda here, runs: _run_with(result_json=_words_for_scores)(here, runs, "clf"),
    "run with a folder for data.json": lambda here, runs: _run_with(data_json=os.mkdir)(here, runs, "clf"),
    "run with a receipt cut short": lambda here, runs: _run_with(receipt_json=lambda data: data[:90])(
        here, runs, "clf"
    ),
    "unfinished run with a pipe for its data": _run_with(result_json=None, data_json=os.mkfifo),
    "run without config.toml": _run_with(config_toml=None),
    "run with a damaged config.toml": _run_with(config_toml=b"job = "),
    "run without weights": _run_with(model__model_safetensors=None),
    "run with weights cut short": _run_with(model__model_safetensors=lambda data: data[: len(data) // 2]),
    "run without a tokenizer": _run_with(model__tokenizer_json=None),
    "run with a damaged tokenizer": _run_with(model__tokenizer_json=b"{}"),
    "run with a damaged model config": _run_with(model__config_json=b"[]"),
    "run with a flipped bit": _run_with(
        model__model_safetensors=lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
    ),
    "run with weights of NaN": _run_with(model__model_safetensors=lambda data: data[:-4] + b"\0\0\xc0\x7f"),
}
