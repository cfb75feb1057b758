"""`python -m headstart` is `headstart`."""

from headstart.cli import app

app()
