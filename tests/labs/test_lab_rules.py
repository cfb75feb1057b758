"""Labs from strangers: what their steps may do, where they may read and write, and what gets onto their page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from pydantic import BaseModel
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig, MatchConfig, PretrainConfig, TranslateConfig
from headstart.errors import ConfigError, ModelError
from headstart.labs.lab import Lab, lab_files, open_lab
from headstart.labs.page import embedded
from headstart.labs.rules import VERBS, WORD_SETTINGS, Folders, check_command
from headstart.schema import parse
from headstart.study.match import MatchGridConfig
from headstart.study.plan import StudyConfig
from headstart.study.translate import TranslateGridConfig

LINES = "the first line\nthe second line\nthe third line\n"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><text onclick="alert(2)">drawn</text></svg>'


def lab_of(*commands: str) -> str:
    steps = [f"[[step]]\nname = 's{n}'\nshows = 'x'\ncommand = '''{command}'''\n" for n, command in enumerate(commands)]
    return f"title = 't'\nquestion = 'q'\n[rows]\na = 'b'\n{''.join(steps)}"


def run(folder: Path, *commands: str, words: tuple[str, ...] = ()) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "lines.txt").write_text(LINES)
    (folder / "x.toml").write_text(lab_of(*commands))
    return CliRunner().invoke(app, ["lab", str(folder / "x.toml"), "--out", str(folder / "out"), "--quiet", *words])


@pytest.mark.parametrize(
    "command",
    [
        "headstart lab list",
        "headstart lab run x.toml",
        "headstart --install-completion bash",
        "headstart runs --install-completion",
        "headstart --help",
        "headstart demo",
        "headstart serve",
        "headstart runs --debug",
        "headstart data check lines.txt -- --x",
        "headstart finetune lines.txt --base minilm --out {out}/r --allow-pickle",
        "headstart finetune lines.txt --base minilm --out {out}/r --set allow_pickle=true",
        "headstart finetune lines.txt --base minilm --out {out}/r --set base=/tmp",
        "headstart finetune lines.txt --base minilm --out {out}/r --set 'data={test=\"/etc/passwd\"}'",
        "headstart pretrain lines.txt --out {out}/r --set 'data.paths=[[\"/etc/passwd\"]]'",
        "headstart pretrain lines.txt --out {out}/r --config other.toml",
        "headstart pretrain lines.txt",  # writes to a place of its own choice
        "headstart data table lines.txt",
        "headstart compare lines.txt --out {out}/s --jobs 500",
    ],
)
def test_a_step_has_only_the_verbs_and_flags_that_are_listed(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHELL", "/bin/bash")
    (tmp_path / "home").mkdir()
    done = run(tmp_path / "lab", command)
    assert done.exit_code == 4, done.output
    assert "a lab " in done.stderr
    assert not (tmp_path / "lab" / "out").exists()
    assert not list((tmp_path / "home").iterdir())


def test_what_quick_puts_in_its_place_is_held_to_the_same() -> None:
    step = {"name": "s", "shows": "x", "command": "headstart runs", "quick": "headstart lab list"}
    with pytest.raises(ConfigError, match="a lab has no step 'lab'"):
        parse(Lab, {"title": "t", "question": "q", "rows": {}, "step": [step]})


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("headstart data table lines.txt --out {outside}/rows.csv", "writes to a place that is not its own"),
        ("headstart data table lines.txt --out rows.csv", "writes to a place that is not its own"),
        ("headstart data table lines.txt --out {out}", "writes to a place that is not its own"),
        ("headstart data table lines.txt --out {out}/steps/s0/step.json", "writes to a place that is not its own"),
        ("headstart data table lines.txt --out {out}/rows.csv --out {outside}/rows.csv", "writes to a place"),
        ("headstart data check lines.txt --plot={outside}/map.png", "writes to a place that is not its own"),
        ("headstart data table lines.txt --out {out}/../rows.csv", "names a file by '..' or '~'"),
        ("headstart data check {outside}/secret.txt", "reads outside its own folder"),
        ("headstart data check ../outside/secret.txt", "names a file by '..' or '~'"),
        ("headstart data check ~/secret.txt", "names a file by '..' or '~'"),
        ("headstart data check link.txt", "reads outside its own folder"),
        ("headstart data check folder", "reads outside its own folder"),
        ("headstart data check loop.txt", "names a file that cannot be found"),
        ("headstart data check hf:someone/something", "from the hub"),
    ],
)
def test_a_step_reads_and_writes_in_folders_of_its_own(command: str, says: str, tmp_path: Path) -> None:
    outside, lab = tmp_path / "outside", tmp_path / "lab"
    (lab / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text(LINES)
    (lab / "link.txt").symlink_to(outside / "secret.txt")
    (lab / "folder" / "link.txt").symlink_to(outside / "secret.txt")
    (lab / "loop.txt").symlink_to(lab / "loop.txt")
    done = run(lab, command.replace("{outside}", str(outside)))
    assert done.exit_code == 4, done.output
    assert "error[LAB_REFUSED]: Step 's0' of this lab " in done.stderr
    assert says in done.stderr
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]
    assert not (lab / "rows.csv").exists()


def test_a_step_may_read_beside_the_lab_and_below_data_wherever_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "more.txt").write_text(LINES)
    commands = (
        "headstart data table lines.txt --out {out}/rows.csv",
        "headstart data check {data}/more.txt {out}/rows.csv",
    )
    done = run(tmp_path / "lab", *commands, words=("--data", str(tmp_path / "data"), "--json"))
    assert done.exit_code == 0, done.output


def test_python_files_beside_a_lab_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "typer.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(lab)
    done = run(lab, "headstart data list")
    assert not (tmp_path / "ran").exists()
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("file", ["../secret.png", "/tmp/secret.png", "a/../../secret.svg"])
def test_a_picture_is_named_below_the_folder_of_the_lab(file: str) -> None:
    step = {"name": "s", "shows": "x", "command": "headstart runs"}
    with pytest.raises(ConfigError, match="is not below the folder of the lab"):
        parse(
            Lab,
            {"title": "t", "question": "q", "rows": {}, "step": [step], "picture": [{"file": file, "caption": "c"}]},
        )


@pytest.mark.parametrize("file", ["link.png", "pipe.png", "folder.png", "text.png", "large.png"])
def test_a_picture_is_a_regular_file_of_the_lab(file: str, tmp_path: Path) -> None:
    out, secret = tmp_path / "out", tmp_path / "secret.png"
    out.mkdir()
    secret.write_bytes(b"\x89PNG secret")
    (out / "link.png").symlink_to(secret)
    (out / "folder.png").mkdir()
    (out / "text.png").write_text("secret")
    os.mkfifo(out / "pipe.png")
    (out / "large.png").touch()
    os.truncate(out / "large.png", 1 << 30)
    with pytest.raises(ModelError, match=r"leads out of|cannot be shown as a figure"):
        embedded(out, {"file": file, "caption": "c"})


def test_an_svg_cannot_run_its_scripts(tmp_path: Path) -> None:
    (tmp_path / "drawn.svg").write_text(SVG)
    shown = str(embedded(tmp_path, {"file": "drawn.svg", "caption": "<b>c</b>"}))
    assert shown.startswith('<img src="data:image/svg+xml;base64,')
    assert "script" not in shown
    assert 'alt="&lt;b&gt;c&lt;/b&gt;"' in shown


@pytest.mark.parametrize(
    "field",
    [
        "{a:>9000000}",
        "{a:09000000d}",
        "{a:.9000000f}",
        "{a.__class__}",
        "{a[0]}",
        "{a:{a}}",
        "{a!s:>9}",
        "{}",
        "{0}",
        "{a",
    ],
)
def test_a_format_says_how_many_digits_and_no_more(field: str) -> None:
    answer = {"question": "q", "text": f"It is {field}.", "values": {"a": "s: x", "0": "s: x", "": "s: x"}}
    step = {"name": "s", "shows": "x", "command": "headstart runs"}
    with pytest.raises(ConfigError, match="answer"):
        parse(Lab, {"title": "t", "question": "q", "rows": {}, "step": [step], "answer": [answer]})


def test_a_lab_has_a_size(tmp_path: Path) -> None:
    assert run(tmp_path, *["headstart data list"] * 101).exit_code == 4
    (tmp_path / "x.toml").write_text(lab_of("headstart data list") + "#" * (4 << 20))
    done = CliRunner().invoke(app, ["lab", str(tmp_path / "x.toml")])
    assert done.exit_code == 4
    assert "more than 4,194,304 bytes" in done.stderr


def test_a_step_ends_with_the_lab_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(LINES * 10)
    command = (
        "headstart pretrain lines.txt --unit line --tokenizer word --size nano --threads 1 --steps 100000 "
        "--set train.tensorboard=false --set data.valid_fraction=0 --set train.log_every=1 --out {out}/run"
    )
    (tmp_path / "x.toml").write_text(lab_of(command))
    argv = [
        sys.executable,
        "-m",
        "headstart",
        "lab",
        str(tmp_path / "x.toml"),
        "--out",
        str(tmp_path / "out"),
        "--quiet",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "out" / "run" / "log.jsonl"
    until(lambda: process.poll() is not None or (log.exists() and log.stat().st_size > 0))
    (child,) = (
        pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if state(pid)[1:2] == [str(process.pid)]
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    try:
        until(lambda: not alive(child))
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)


def until(true: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    return state(pid)[:1] not in ([], ["Z"])


def state(pid: int) -> list[str]:
    """State and parent of a process, and more; nothing once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


# --- the rules themselves


@pytest.mark.parametrize("name", VERBS)
def test_the_rules_have_flags_that_the_command_line_has(name: str) -> None:
    command: Any = typer.main.get_command(app)
    for word in name.split():
        command = command.commands[word]
    verb = VERBS[name]
    options = [p for p in command.params if p.param_type_name == "option"]
    with_value = {flag for p in options if not getattr(p, "is_flag", False) for flag in p.opts}
    without = {flag for p in options if getattr(p, "is_flag", False) for flag in p.opts}
    assert {*verb.read.split(), *verb.write.split(), *verb.text.split()} <= with_value
    assert set(verb.switch.split()) <= without
    assert bool(verb.arguments) == any(p.param_type_name == "argument" for p in command.params)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", lab_files())
def test_the_labs_that_come_with_headstart_keep_the_rules(name: str, quick: bool, tmp_path: Path) -> None:
    folders = Folders(lab_files()[name].parent, tmp_path / "out", tmp_path / "data")
    commands = open_lab(name)[1].commands(str(tmp_path / "out"), str(tmp_path / "data"), quick)
    for step, words in commands.items():
        folders.check(step, check_command(words))


def test_settings_that_hold_words_are_known_to_be_files_or_none() -> None:
    files = {
        "base",
        "bases",
        "data",
        "features",
        "image",
        "images",
        "kind",
        "pairs",
        "paths",
        "teacher",
        "test",
        "text",
    }
    files |= {"static_vectors", "train", "valid", "vectors"}
    others = {"chosen", "job", "model_type", "off"}  # nobody sets these in a lab
    found: set[str] = set()
    seen: set[type[BaseModel]] = set()

    def walk(model: type[BaseModel]) -> None:
        seen.add(model)
        for name, field in model.model_fields.items():
            inside = list(kinds(field.annotation))
            found.update([name] if str in inside or any(isinstance(kind, str) for kind in inside) else [])
            for kind in inside:
                if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
                    walk(kind)

    def kinds(annotation: Any) -> Any:
        yield annotation
        for each in get_args(annotation):
            yield from kinds(each)

    for job in (
        PretrainConfig,
        FinetuneConfig,
        TranslateConfig,
        MatchConfig,
        StudyConfig,
        TranslateGridConfig,
        MatchGridConfig,
    ):
        walk(job)
    settings = {"finetune", "pretrain", "settings"}  # tables of these
    assert found - settings == WORD_SETTINGS | files | others
