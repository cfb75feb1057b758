"""The command of a script that is forked behaves as the installed one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.forked import Shell

SCRIPT = """
headstart data list --json | head -c 1
HEADSTART_CACHE=there headstart data get no-such-pack 2> said.txt || echo " exit code $?"
mkdir below && cd below
headstart data check ../rows.csv --json > ../checked.json &
wait $!
grep -c rows ../checked.json
"""


def test_a_forked_command_has_the_streams_the_folder_and_the_exit_code_of_the_script(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,b\nc,d\n")
    shell = Shell(tmp_path_factory.mktemp("shell"))
    done = shell.run(SCRIPT, tmp_path, os.environ, 60)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first in ("[ exit code 3", "{ exit code 3")
    assert int(second) >= 1
    assert "no-such-pack" in (tmp_path / "said.txt").read_text()
    assert shell.run("headstart nope", tmp_path, os.environ, 60).returncode == 2
    with pytest.raises(TimeoutError):
        shell.run("sleep 60", tmp_path, os.environ, 0.1)
