"""`python -m headstart` is `headstart`; started by a lab, it ends with it."""

import os

from headstart.runs.parent import PARENT, end_with_parent

if parent := os.environ.pop(PARENT, None):
    end_with_parent(int(parent))

from headstart.cli import app  # after the watch began: this is slow

app()
