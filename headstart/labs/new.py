"""A new lab from the template: the lab file, its key, stubs and snapshots, with comments. No torch."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from headstart.errors import ConfigError, UserError
from headstart.labs.lab import lab_files
from headstart.runs.disk import write_file


def new_lab(name: str, out: Path) -> list[Path]:
    """The files of a lab called `name`; those that are there are not replaced."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
        raise ConfigError(
            f"'{name[:80]}' is no name for a lab: lower-case letters, digits and hyphens, such as my-lab."
        )
    if name in lab_files():
        raise ConfigError(f"There is a lab '{name}' already. Choose another name.")
    template = Path(str(files("headstart").joinpath("labs"))) / "template"
    made = {
        out / f"{name}.toml": "lab.toml.stub",
        out / f"{name}.key.toml": "key.toml.stub",
        out / name / "work.py": "work.py.stub",
        out / name / "adapters.py": "adapters.py.stub",
        out / name / "snapshots.json": "snapshots.json",
    }
    for path in made:
        if path.exists() or path.is_symlink():
            raise UserError(f"{path} already exists. Choose another name, or another --out.", "RUN_EXISTS")
    for path, source in made.items():
        write_file(path, (template / source).read_text("utf-8").replace("@NAME@", name).encode())
    return list(made)
