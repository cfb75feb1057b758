"""The command line as such: light help, completion, usage."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from headstart.cli import app
from headstart.cli import flags as cli_flags
from headstart.cli.flags import GROUPS, ROWS, flags_of

ROOT = typer.main.get_command(app)
HEAVY = (
    "torch",
    "numpy",
    "pydantic",
    "rich",
    "tokenizers",
    "matplotlib",
    "sklearn",
    "safetensors",
    "pyarrow",
    "asyncio",
)


def verbs(group: typer.core.TyperGroup = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # type: ignore[assignment]
    """Every verb by its words: ("pretrain",), ("data", "check")."""
    for name, command in group.commands.items():
        yield from verbs(command, (*path, name)) if hasattr(command, "commands") else [(*path, name)]


def test_help_of_any_verb_loads_nothing_heavy() -> None:
    code = f"""
import contextlib, io, sys
from headstart.cli import app
for words in {[*verbs(), ()]}:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        app([*words, "--help"])
    assert "Usage: headstart " + " ".join(words) in shown.getvalue()
sys.exit(" ".join(set(sys.modules) & set({HEAVY})) or None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_shows_the_flags_by_groups() -> None:
    for words in verbs():
        shown = CliRunner().invoke(app, [*words, "--help"]).stdout
        titles = re.findall(r"^([A-Z][a-z ]+):$", shown, re.MULTILINE)
        known = ["Arguments", "Options", *GROUPS]
        assert titles == sorted(titles, key=known.index)
        assert titles[-1] == "Other"
    shown = CliRunner().invoke(app, ["pretrain", "--help"]).stdout
    assert shown.index("Data:") < shown.index("--size") < shown.index("Training:") < shown.index("--lr")


def test_the_table_of_flags_knows_its_verbs() -> None:
    assert {verb for flag, _ in ROWS for verb in flag.verbs} <= {" ".join(words) for words in verbs()}
    for words in verbs():
        names = [flag.key for flag, _ in flags_of(" ".join(words))]
        assert len(names) == len(set(names)), f"{words} has a flag twice"


def test_a_verb_asks_only_for_flags_that_it_has() -> None:
    asked = 0
    for file in sorted(Path(cli_flags.__file__).parent.glob("*.py")):
        functions = [node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            verb = [d.args[1].value for d in function.decorator_list if isinstance(d, ast.Call) and len(d.args) == 2]
            known = {flag.name for flag, _ in (flags_of(verb[0]) if verb else ROWS)}
            for node in ast.walk(function):
                if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "given":
                    asked += 1
                    assert ast.literal_eval(node.slice) in known, f"{file.name}, {function.name}: {ast.unparse(node)}"
    assert asked > 100


@pytest.mark.parametrize("words", [[], ["data"]])
def test_no_verb_at_all_shows_the_help(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Usage: {' '.join(['headstart', *words])} [OPTIONS] COMMAND")


def test_the_list_of_verbs_has_whole_sentences() -> None:
    for words in ([], ["data"], ["translate"], ["lab"]):
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout
        assert "\nCommands:\n" in shown
        assert "..." not in shown.split("\nCommands:\n")[1]


def complete(line: str, folder: Path | None = None) -> list[str]:
    """What bash offers when TAB is pressed at the end of `line`."""
    words = line.split(" ")
    env = {**os.environ, "_HEADSTART_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([sys.executable, "-m", "headstart"], env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_completion_knows_verbs_and_flags() -> None:
    assert complete("headstart ") == list(ROOT.commands)  # type: ignore[attr-defined]
    assert complete("headstart data ch") == ["check"]
    assert complete("headstart pretrain --th") == ["--threads"]


def test_completion_knows_runs_and_packs(tmp_path: Path) -> None:
    for name in ("runs/one", "runs/two", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("runs/one", "runs/two"):
        (tmp_path / name / "env.json").touch()
    assert complete("headstart predict ", tmp_path) == ["runs/one", "runs/two"]
    assert complete("headstart finetune rows.csv --base runs/t", tmp_path) == ["runs/two"]
    assert complete("headstart data get movie", tmp_path) == ["movie-reviews"]


# --- docs/verbs.md

PAGE = Path(__file__).parent.parent / "docs" / "verbs.md"
VERBS_PAGE = PAGE.read_text("utf-8")
EVERYWHERE = ("--json", "--debug", "--help", "--no-verify")  # told once, at the top of the page


def flag_table(words: tuple[str, ...]) -> str:
    """The flags of a verb as the page must show them: what --help says, defaults in a column of their own."""
    command: Any = ROOT
    for word in words:
        command = command.commands[word]
    rows = ["| flag | what it says | default |", "|---|---|---|"]
    for param in command.params:
        is_argument = param.param_type_name == "argument"
        name = (param.metavar or param.name.upper()).replace("|", "\\|") if is_argument else param.opts[0]
        told = re.fullmatch(r"(.*?)(?: \[default: (.*)\])?", param.help)
        assert told
        own = "" if param.default is None or param.default is False else str(param.default)
        if name not in EVERYWHERE:
            rows.append(f"| `{name}` | {told[1]} | {told[2] or own} |".replace("  |", " |"))
    return "\n".join(rows) if len(rows) > 2 else "It has no flags of its own."


def test_the_page_has_a_section_for_every_verb() -> None:
    assert sorted(re.findall(r"^## (.+)$", VERBS_PAGE, re.MULTILINE)) == sorted(" ".join(words) for words in verbs())


@pytest.mark.parametrize("words", list(verbs()), ids=" ".join)
def test_the_page_tells_the_flags_of_the_verb(words: tuple[str, ...]) -> None:
    """HEADSTART_GOLDEN=write puts the tables into the page anew."""
    section = re.split(r"^## ", VERBS_PAGE.split(f"\n## {' '.join(words)}\n", 1)[1], flags=re.MULTILINE)[0]
    table = flag_table(words)
    if os.environ.get("HEADSTART_GOLDEN") == "write":
        fresh = re.sub(r"(?:^\|.*\n)+", lambda _: f"{table}\n", section, count=1, flags=re.MULTILINE)
        PAGE.write_text(PAGE.read_text("utf-8").replace(section, fresh), "utf-8")
        return
    assert f"\n\n{table}\n\n" in section, f"docs/verbs.md, {' '.join(words)}, should have:\n\n{table}"
