"""The command line: each verb reads its arguments, calls one function and prints the answer.

Results go to stdout, progress and notes to stderr. Heavy imports stay inside the verbs, so --help is instant.
"""

from headstart.cli import data, export, inspect, lab, learn, look, match, serve, study, translate, which
from headstart.cli.app import app

__all__ = ["app", "data", "export", "inspect", "lab", "learn", "look", "match", "serve", "study", "translate", "which"]
