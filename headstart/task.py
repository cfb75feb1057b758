"""What is predicted for a row, and what a row has to read, by name. No imports: the help of the command line lists them."""

from __future__ import annotations

from typing import Literal, get_args

# One class, several labels, a number, ordered classes, a tag for each word.
Task = Literal["classify", "multilabel", "regression", "ordinal", "tag"]
Input = Literal["text", "pair"]  # one text, or two that are read together
TASKS: tuple[str, ...] = get_args(Task)
