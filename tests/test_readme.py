"""What the README, the tutorial and docs/verbs.md promise: their commands run as they stand, and give what they show."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from headstart import LanguageModel
from headstart.cli import app
from tests.forked import Shell

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
VERBS = (ROOT / "docs" / "verbs.md").read_text("utf-8")
SHELLS = ("bash", "console", "sh", "shell")
TIME_LIMIT = 240  # seconds for one block; the whole walk takes about a minute

# ```bash no-test is shown and not run; ```text is output.
FENCES = re.findall(r"^```(\S*)([^\n]*)\n(.*?)^```$", README + TUTORIAL, flags=re.MULTILINE | re.DOTALL)
BLOCKS = [body for language, mark, body in FENCES if language == "bash" and "no-test" not in mark]

# In verbs.md, output follows its command; ```text varies is output of which more than the numbers may differ.
EXAMPLES = re.findall(
    r"^```bash\n(.*?)^```\n(?:\n```text( varies)?\n(.*?)^```$)?", VERBS, flags=re.MULTILINE | re.DOTALL
)


@pytest.mark.timeout(600)
def test_the_walk_and_the_examples_of_the_verbs_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    walk(tmp_path, Shell(tmp_path_factory.mktemp("shell")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    for commands, varies, shown in EXAMPLES:
        done = [CliRunner().invoke(app, shlex.split(line)[1:]) for line in commands.splitlines()]
        assert [d.exit_code for d in done] == [0] * len(done), f"{commands}\n{done[-1].output}"
        if not varies:
            assert without_numbers("".join(d.stdout for d in done)) == without_numbers(shown), commands


@pytest.mark.parametrize("command", re.findall(r"^(?:\|[^|]*\| `)?(headstart [^`\n]+)", README, flags=re.MULTILINE))
def test_a_command_of_the_readme_is_one_that_the_command_line_accepts(command: str) -> None:
    verb, *words = shlex.split(command)[1:]
    found = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    if words and words[0] in getattr(found, "commands", ()):
        verb, words, found = words[0], words[1:], found.commands[words[0]]
    with found.make_context(verb, list(words)) as context:
        assert context.params


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for a base and a study that take seconds."""
    block = re.findall(r"^```python no-test\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)[0]
    small = 'base=base, seeds=1, arms=("tfidf", "full"), least_steps=2, finetune={"epochs": 1, "train": {"threads": 1}}'
    assert block.count('base="minilm", seeds=5') == block.count('base="minilm").fit') == 1
    code = block.replace('base="minilm", seeds=5', small).replace(
        'base="minilm"', 'base=base, epochs=1, settings={"train": {"threads": 1}}'
    )
    texts = [f"The {what} was {how}." for what in ("tea", "cake", "soup") for how in ("lovely", "fine", "cold", "bad")]
    labels = [text.split()[-1] in ("lovely.", "fine.") for text in texts]
    monkeypatch.chdir(tmp_path)
    settings = {"model": {"size": "nano"}, "train": {"threads": 1}}
    LanguageModel(steps=2, unit="line", settings=settings).fit(texts).save("base")
    Path("readme.py").write_text(code)
    made = runpy.run_path("readme.py", {"texts": texts, "labels": labels, "base": "base"})
    assert made["study"].verdict


@pytest.mark.parametrize("target", ["demo", "test"])
def test_how_long_a_target_takes_is_one_number_wherever_it_is_told(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    told = re.findall(rf"^{target}: .*\((about \w+ minutes)\)$", makefile, re.MULTILINE)
    told += re.findall(rf"^`make {target}` .*?(about\s\w+\sminutes)", README, re.MULTILINE | re.DOTALL)
    if target == "demo":
        told += re.findall(r"as `make demo` runs it: (about\s\w+\sminutes)", VERBS)
        told += re.findall(r"(about \w+ minutes)", CliRunner().invoke(app, ["demo", "--help"]).stdout)
    assert len(told) == {"demo": 4, "test": 2}[target]
    assert len(set(told)) == 1, told


def without_numbers(text: str) -> list[str]:
    """The lines of an output, numbers, how long it took and the width of columns left out."""
    text = re.sub(r"< 0\.1 s|(\d+ h )?\d+ min( \d+ s)?", "0 s", text)
    return [" ".join(re.sub(r"[\d.,]*\d", "0", line).replace("-", " ").split()) for line in text.splitlines()]


def walk(tmp_path: Path, shell: Shell) -> None:
    """The command of most blocks is forked, which saves the imports; where one is killed, it is the installed one."""
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for number, block in enumerate(BLOCKS, start=1):
        if "kill " in block:
            words = ["bash", "-euo", "pipefail", "-c", block]
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIME_LIMIT)
        else:
            done = shell.run(block, tmp_path, env, TIME_LIMIT)
        assert done.returncode == 0, (
            f"block {number} of the tutorial exited with {done.returncode}:\n\n{block}\n"
            f"stdout:\n{done.stdout[-2000:]}\nstderr:\n{done.stderr[-2000:]}"
        )


def test_every_shell_block_is_run_or_marked() -> None:
    assert len(BLOCKS) >= 8
    assert {language for language, _, _ in FENCES if language in SHELLS} == {"bash"}
    assert {mark.strip() for language, mark, _ in FENCES if language == "bash"} == {"", "no-test"}


def test_every_example_of_the_verbs_is_a_plain_command_with_its_output() -> None:
    # pretrain and search have two; demo and serve are not run
    assert len(EXAMPLES) == VERBS.count("\n```bash\n") == VERBS.count("\n## ")
    assert all(line.startswith("headstart ") for commands, _, _ in EXAMPLES for line in commands.splitlines())
    assert all(shown for _, _, shown in EXAMPLES)


def test_the_table_of_verbs_is_the_command_line() -> None:
    section = VERBS.split("\n## ", 1)[0]
    written = re.findall(r"^\| `([a-z-]+)` \|", section, flags=re.MULTILINE)
    assert sorted(written) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
