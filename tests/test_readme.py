"""What the README promises: its commands run as they stand, and its table of verbs is the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from headstart.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
SHELLS = ("bash", "console", "sh", "shell")
TIME_LIMIT = 240  # seconds for one block; the whole walk takes about a minute

# ```bash no-test is shown and not run; ```text is output.
FENCES = re.findall(r"^```(\S*)([^\n]*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
BLOCKS = [body for language, mark, body in FENCES if language == "bash" and "no-test" not in mark]


@pytest.mark.timeout(600)
def test_the_walk_runs_as_it_stands(tmp_path: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for number, block in enumerate(BLOCKS, start=1):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIME_LIMIT,
        )  # fmt: skip
        assert done.returncode == 0, (
            f"block {number} of the README exited with {done.returncode}:\n\n{block}\n"
            f"stdout:\n{done.stdout[-2000:]}\nstderr:\n{done.stderr[-2000:]}"
        )


def test_every_shell_block_is_run_or_marked() -> None:
    assert len(BLOCKS) >= 8
    assert {language for language, _, _ in FENCES if language in SHELLS} == {"bash"}
    assert {mark.strip() for language, mark, _ in FENCES if language == "bash"} == {"", "no-test"}


def test_the_table_of_verbs_is_the_command_line() -> None:
    section = README.split("## The verbs\n", 1)[1].split("\n## ", 1)[0]
    written = re.findall(r"^\| `([a-z-]+)` \|", section, flags=re.MULTILINE)
    assert sorted(written) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
