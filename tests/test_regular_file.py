"""Only regular files are opened, whatever lies under the name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError
from headstart.regular_file import open_regular, read_regular
from headstart.schema import read_toml

CONFIGURED = [["pretrain", "--config"], ["finetune", "--config"], ["translate", "train", "--config"], ["lab"]]


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def link_to_a_device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


def listening(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # the whole path would be too long for a socket
    return path


@pytest.mark.parametrize("make", [pipe, link_to_a_device, listening])
def test_a_pipe_a_device_and_a_socket_are_refused_at_once(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = make(tmp_path / "a.toml")
    with pytest.raises(OSError, match="not a regular file but a pipe, socket or device"):
        open_regular(path)
    with pytest.raises(ConfigError, match=r"a\.toml cannot be read \(not a regular file"):
        read_toml(path)


def test_a_folder_is_told_as_one(tmp_path):
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_file_is_read_through_links_and_only_so_far(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to("a")
    assert read_regular(tmp_path / "b") == read_regular(tmp_path / "b", most=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "a", most=4)


def test_settings_of_more_than_a_few_megabytes_are_refused(tmp_path):
    with (tmp_path / "a.toml").open("wb") as file:
        file.truncate(10**9)  # a file of holes
    with pytest.raises(ConfigError, match=r"a\.toml cannot be read \(more than [\d,]+ bytes\)"):
        read_toml(tmp_path / "a.toml")


@pytest.mark.parametrize("command", CONFIGURED, ids=" ".join)
def test_no_command_waits_for_a_pipe(command, tmp_path):
    done = CliRunner().invoke(app, [*command, str(pipe(tmp_path / "pipe.toml"))])
    assert done.exit_code == 4, done.output
    assert "pipe.toml cannot be read (not a regular file but a pipe, socket or device)." in done.stderr
