"""A lab as notebooks: the student's, the one with solutions, and the source of both in otter-grader's conventions. No torch.

The source (`# ASSIGNMENT CONFIG`, `# BEGIN QUESTION`, `# BEGIN SOLUTION`, `# BEGIN TESTS`) is what `otter assign` reads. The other
two are made from it by otter's rules, so a teacher who does not use otter gets the same notebooks.
Cells of ours carry `headstart` in their metadata: the task that they answer, the file that they belong to, or "check".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headstart.errors import ConfigError
from headstart.labs.assignment import Course, open_course, seed_of, variant_of
from headstart.labs.grade import Key, read_key, right_answer
from headstart.labs.lab import lab_path
from headstart.labs.sheet import PROMPT, answered_where, introduction, section
from headstart.labs.tasks import ADAPTERS, Choose, Explain, Predict, Reach, Task, Written, handed_out_as
from headstart.regular_file import read_regular
from headstart.runs.disk import write_file
from headstart.strict_json import to_json

_BEGIN = re.compile(r"\s*# BEGIN SOLUTION( NO PROMPT)?$")
_LINE = re.compile(r"(?P<name>\w+ =) .*# SOLUTION$")


@dataclass(frozen=True)
class Cell:
    kind: str  # markdown, code or raw
    source: str
    tag: Mapping[str, str] = field(default_factory=dict)  # `headstart` of its metadata
    output: str = ""
    hidden: bool = False  # a test that students do not have


@dataclass(frozen=True)
class Function:
    """A function of a stub or of a solution, cut after its docstring."""

    head: str
    body: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    header: str  # imports, constants, functions that no task asks for
    functions: dict[str, Function]


def write_notebooks(name: str, student: str, key_file: Path | None, out: Path) -> list[Path]:
    """NAME.ipynb in a folder; with a key, NAME-solution.ipynb and NAME-otter.ipynb too."""
    course = open_course(name)
    key = None
    if key_file is not None:
        key, of_key, _ = read_key(key_file)
        if of_key.path.resolve() != lab_path(name).resolve():
            raise ConfigError(f"{key_file} is the key of {of_key.path}, not of {lab_path(name)}.")
        if not key.solution and any(isinstance(task, Written) for task in course.lab.task):
            raise ConfigError(f'{key_file} has no `solution = "FILE.py"`, whose functions the notebook would show.')
    solution = key_file.parent / key.solution if key_file is not None and key is not None and key.solution else None
    source = list(_source(course, name, student, key, solution))
    made = {out / f"{course.name}.ipynb": for_students(source)}
    if key is not None:
        made |= {
            out / f"{course.name}-solution.ipynb": with_solutions(source),
            out / f"{course.name}-otter.ipynb": source,
        }
    for path, cells in made.items():
        write_file(path, notebook(cells))
    return list(made)


def notebook(cells: Sequence[Cell]) -> bytes:
    """Cells as a file of Jupyter's."""
    found = {
        "cells": [_cell(number, cell) for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (to_json(found, indent=1) + "\n").encode()


def _cell(number: int, cell: Cell) -> dict[str, object]:
    made: dict[str, object] = {
        "cell_type": cell.kind,
        "id": f"cell-{number}",
        "metadata": {"headstart": dict(cell.tag)} if cell.tag else {},
        "source": cell.source.splitlines(True),
    }
    if cell.kind == "code":
        made["execution_count"] = None
        made["outputs"] = [{"name": "stdout", "output_type": "stream", "text": [cell.output]}] if cell.output else []
    return made


# --- Otter's rules


def for_students(source: Sequence[Cell]) -> list[Cell]:
    """Without solutions, hidden tests and otter's marks."""
    kept = [cell for cell in source if cell.kind != "raw" and not cell.hidden]
    return [
        Cell("markdown", PROMPT, cell.tag)
        if cell.kind == "markdown" and cell.tag
        else Cell(cell.kind, _without_solution(cell.source), cell.tag)
        for cell in kept
        if not (cell.kind == "code" and not _without_solution(cell.source))
    ]


def with_solutions(source: Sequence[Cell]) -> list[Cell]:
    """With solutions and hidden tests, without otter's marks and prompts."""
    return [
        Cell(cell.kind, _without_prompt(cell.source), cell.tag, cell.output) for cell in source if cell.kind != "raw"
    ]


def _without_solution(text: str) -> str:
    """Lines as a student gets them.

    >>> _without_solution("n = 3  # SOLUTION")
    'n = ...'
    """
    kept, inside = [], False
    for line in text.splitlines():
        if line.endswith(("# BEGIN PROMPT", "# END PROMPT")):
            continue
        if _BEGIN.match(line):
            inside = True
        elif line.endswith("# END SOLUTION"):
            inside = False
        elif not inside:
            kept.append(_LINE.sub(r"\g<name> ...", line))
    return "\n".join(kept).strip("\n")


def _without_prompt(text: str) -> str:
    kept, inside = [], False
    for line in text.splitlines():
        if line.endswith("# BEGIN PROMPT"):
            inside = True
        elif line.endswith("# END PROMPT"):
            inside = False
        elif not inside and not _BEGIN.match(line) and not line.endswith("# END SOLUTION"):
            kept.append(re.sub(r"\s*# SOLUTION$", "", line))
    return "\n".join(kept).strip("\n")


# --- The source


def _source(course: Course, name: str, student: str, key: Key | None, solution: Path | None) -> Iterator[Cell]:
    stubs = {handed_out_as(stub): course.path.parent / stub for stub in course.lab.stubs}
    asked = {task.function for task in course.lab.task if isinstance(task, Written)}
    modules = {file: _module(path, asked) for file, path in stubs.items() if file != ADAPTERS}
    solved = _module(solution, asked) if solution else None
    seed, variants = seed_of(course.name, student), _variants(course, student)
    yield Cell("raw", f"# ASSIGNMENT CONFIG\nname: {course.name}\ninit_cell: true\ncheck_all_cell: true")
    yield Cell("markdown", introduction(course.lab, student, seed))
    yield Cell("code", _setup(name, student), {"part": "check"})
    for file, module in modules.items():
        yield Cell("code", module.header, {"file": file})
    if solved and (more := _helpers(solved, modules)):
        own = {"file": next(iter(modules))}
        yield Cell("code", f"# BEGIN SOLUTION NO PROMPT\n{more}\n# END SOLUTION", own)
    for number, task in enumerate(course.lab.task, start=1):
        manual = isinstance(task, Explain)
        yield Cell("raw", f"# BEGIN QUESTION\nname: {task.name}\npoints: {task.points}\nmanual: {str(manual).lower()}")
        yield Cell("markdown", section(number, task, seed, variants, answered_where(task, in_notebook=True)))
        yield from _answer_cells(task, course, student, key, modules, solved)
        yield Cell("raw", "# END QUESTION")


def _variants(course: Course, student: str) -> dict[str, int]:
    return {t.name: variant_of(course.name, student, t) for t in course.lab.task if isinstance(t, Choose | Predict)}


def _setup(name: str, student: str) -> str:
    return (
        "from headstart.labs.notebook_checks import Checks\n\n"
        f'check = Checks("{name}", student="{student}")  # run the cell below each answer to check it'
    )


def _answer_cells(
    task: Task, course: Course, student: str, key: Key | None, modules: Mapping[str, Module], solved: Module | None
) -> Iterator[Cell]:
    tag, variable = {"task": task.name}, task.name.replace("-", "_")
    match task:
        case Written():
            file = next(file for file, module in modules.items() if task.function in module.functions)
            stub = modules[file].functions[task.function]
            right = solved.functions.get(task.function) if solved else stub
            if right is None or right.arguments != stub.arguments:
                raise ConfigError(f"The solution has no {task.function} with the arguments of the stub.")
            yield from _solution(Cell("code", _marked(stub, right), {"file": file, **tag}))
            yield from _tests(
                Cell("code", f'check("{task.name}", {task.function})', {"part": "check"}, f"{task.name}: passed\n")
            )
        case Choose() | Predict():
            answer = right_answer(task, key, variant_of(course.name, student, task)) if key else None
            yield from _solution(Cell("code", f"{variable} = {answer!r}  # SOLUTION", tag))
            reveal = f" {task.reveal}" if isinstance(task, Predict) and task.reveal else ""
            yield from _tests(
                Cell("code", f'check("{task.name}", {variable})', {"part": "check"}, f"{task.name}: answered.{reveal}\n"),
                Cell("code", f'# HIDDEN\ncheck.right("{task.name}", {variable})', {"part": "check"}, f"{task.name}: right\n", True),
            )  # fmt: skip
        case Explain():
            text = key.answers.get(task.name, "") if key else ""
            yield from _solution(Cell("markdown", str(text).strip() or PROMPT, tag))
        case Reach():
            pass


def _solution(cell: Cell) -> Iterator[Cell]:
    yield Cell("raw", "# BEGIN SOLUTION")
    yield cell
    yield Cell("raw", "# END SOLUTION")


def _tests(*cells: Cell) -> Iterator[Cell]:
    yield Cell("raw", "# BEGIN TESTS")
    yield from cells
    yield Cell("raw", "# END TESTS")


def _marked(stub: Function, right: Function) -> str:
    """A function with both bodies, as otter tells them apart."""
    begin, end = "    # BEGIN SOLUTION NO PROMPT", "    # END SOLUTION"
    return "\n".join([stub.head, begin, right.body, end, '    """ # BEGIN PROMPT', stub.body, '    """ # END PROMPT'])


def _helpers(solved: Module, modules: Mapping[str, Module]) -> str:
    """What a solution has beside the functions that are asked for, and the stubs have not."""
    known = {line for module in modules.values() for line in module.header.splitlines()}
    tree = ast.parse(solved.header)
    lines = solved.header.splitlines()
    parts = ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in tree.body if not _is_text(node)]
    return "\n".join(part for part in parts if not set(part.splitlines()) <= known)


def _module(path: Path, asked: set[str]) -> Module:
    try:
        text = read_regular(path, 1 << 20).decode()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as Python ({error}).") from None
    lines, functions, taken = text.splitlines(), {}, set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in asked:
            functions[node.name] = _function(node, lines)
            taken |= set(range(node.lineno - 1, node.end_lineno or 0))
    header = "\n".join(line for number, line in enumerate(lines) if number not in taken)
    return Module(re.sub(r"\n{3,}", "\n\n\n", header).strip(), functions)


def _function(node: ast.FunctionDef, lines: list[str]) -> Function:
    said = _is_text(node.body[0])
    if said and len(node.body) == 1:
        raise ConfigError(f"The function {node.name} has nothing but a docstring.")
    last = node.body[0].end_lineno if said else node.body[0].lineno - 1
    assert last is not None
    head, body = lines[node.lineno - 1 : last], lines[last : node.end_lineno]
    return Function("\n".join(head), "\n".join(body), tuple(argument.arg for argument in node.args.args))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
