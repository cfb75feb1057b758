"""What a student reads and fills in: README.md and answers.toml of the folder that `lab start` makes. No torch."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence

from headstart.labs.lab import Lab
from headstart.labs.tasks import ADAPTERS, Choose, Explain, Predict, Reach, Task, Written
from headstart.quantities import counted

PROMPT = "_Type your answer here, replacing this text._"  # in a notebook, as otter-grader has it


def readme(lab: Lab, student: str, seed: int, variants: Mapping[str, int], stubs: Sequence[str]) -> str:
    code = f" Functions go into {', '.join(f'`{stub}`' for stub in stubs if stub != ADAPTERS)}." if stubs else ""
    parts = [
        introduction(lab, student, seed),
        f"Write answers into `answers.toml`.{code} `headstart lab check .` reports what is missing and which checks fail, as often "
        "as you like. Hand in the whole folder. Do not edit `lab.toml`, `snapshots.json` or `assignment.json`.",
    ]
    parts += [section(n, task, seed, variants, answered_where(task)) for n, task in enumerate(lab.task, start=1)]
    return "\n\n".join(parts) + "\n"


def introduction(lab: Lab, student: str, seed: int) -> str:
    """What the lab asks, how long it takes, what it teaches and what it needs."""
    points, minutes = sum(t.points for t in lab.task), sum(t.minutes or 0 for t in lab.task)
    about = f", about {counted(minutes, 'minute')}" if minutes else ""
    parts = [
        f"# {lab.title}",
        lab.question,
        f"Student: {student}. {counted(len(lab.task), 'task')}, {counted(points, 'point')}"
        f"{about}. Your seed is {seed}: it and your version of each question "
        "are derived from your id.",
    ]
    for title, lines in (("Goals", lab.goals), ("You need", lab.prerequisites)):
        if lines:
            parts += [f"{title}:", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts)


def answered_where(task: Task, in_notebook: bool = False) -> str:
    """Where an answer goes, and how it is checked."""
    match task:
        case Explain():
            place = "below" if in_notebook else "in `answers.toml`"
            return f"At least {task.words} words, {place}. Graded by hand."
        case Written():
            return "" if in_notebook else f"The checks call `{task.function}` of `adapters.py`."
        case Predict():
            return "Answer before you try it."
        case _:
            return ""


def section(number: int, task: Task, seed: int, variants: Mapping[str, int], where: str) -> str:
    """A task with its points, goal, question and hint; `where` says where the answer goes."""
    about = [task.kind, counted(task.points, "point"), *([counted(task.minutes, "minute")] if task.minutes else [])]
    lines = [f"## {number}. {task.name} ({', '.join(about)})"]
    lines += [f"*Goal: {task.goal}*"] if task.goal else []
    lines.append(question(task, variants))
    match task:
        case Choose() | Predict():
            lines += [options(task)] if task.options else []
        case Reach():
            bound = f"at least {task.least}" if task.least is not None else f"at most {task.most}"
            command = task.command.replace("{seed}", str(seed))
            lines.append(f"Run this here, in this folder; `{task.score}` of `{task.run}/result.json` must be {bound}:")
            lines.append(f"    {command}")
        case _:
            pass
    lines += [where] if where else []
    lines += [f"<details><summary>Hint</summary>{task.hint}</details>"] if task.hint else []
    return "\n\n".join(lines)


def question(task: Task, variants: Mapping[str, int]) -> str:
    return task.asked(variants[task.name]) if isinstance(task, Choose | Predict) else task.ask


def options(task: Choose | Predict) -> str:
    return "\n".join(
        f"- {letter}) {option}" for letter, option in zip(string.ascii_lowercase, task.options, strict=False)
    )


def answers_toml(lab: Lab, student: str, variants: Mapping[str, int]) -> str:
    lines = [
        "# Your answers. README.md has the questions; `headstart lab check .` reports what is missing.",
        f"student = {json.dumps(student)}",
        "",
        "[answers]",
    ]
    for task in lab.task:
        match task:
            case Choose() | Predict():
                kind = "a letter" if task.options else "a number"
                lines += [
                    "",
                    *_comment(question(task, variants)),
                    *_comment(options(task)),
                    f"# {kind}:",
                    f'{task.name} = ""',
                ]
            case Explain():
                lines += ["", *_comment(task.ask), f"# {task.words} words or more:", f'{task.name} = """', '"""']
            case _:
                pass
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in text.splitlines()]
