"""The command line: each verb reads its arguments, calls one function and prints the answer.

Results go to stdout, progress and notes to stderr. Heavy imports stay inside the verbs, so --help is instant.
"""

from headstart.cli import (
    audit,
    data,
    embed,
    export,
    inspect,
    lab,
    lab_tasks,
    label,
    learn,
    look,
    match,
    predict,
    serve,
    study,
    translate,
    verify,
    which,
)
from headstart.cli.app import app

__all__ = [
    "app",
    "audit",
    "data",
    "embed",
    "export",
    "inspect",
    "lab",
    "lab_tasks",
    "label",
    "learn",
    "look",
    "match",
    "predict",
    "serve",
    "study",
    "translate",
    "verify",
    "which",
]
