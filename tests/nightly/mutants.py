"""Small faults in central modules, one at a time: do the tests about the module fail? python -m tests.nightly.mutants [MODULE ...] [--out DIR].

cosmic-ray makes the faults, of which HEADSTART_MUTANTS are drawn for each module: first the places, evenly, then what becomes of
each. They stand in a copy of the code. The tests are run in a fork of this process, which has torch loaded, but nothing of
Headstart. A mutant is killed if a test fails or takes far too long. Survivors are told with their line, and may well mean the same
as the code: the exit code is 1 only where fewer than LEAST of a module's mutants are killed, or its tests fail by themselves.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import ndiff
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("HEADSTART_MUTANTS_SEED", "0")
COUNT = int(os.environ.get("HEADSTART_MUTANTS", 5))
LEAST = 0.5  # of the mutants of a module
PRELOADED = ("torch", "numpy", "scipy.stats", "sklearn.linear_model", "pydantic", "typer.testing", "matplotlib.figure", "PIL.Image", "safetensors.torch", "tokenizers", "pyarrow")  # fmt: skip
COPIED = ("headstart", "tests", "examples", "docs", "README.md", "pyproject.toml", "constraints.txt", "Makefile")
Verdict = Literal["killed", "survived"]
MODULES = {
    "study/statistics.py": ("study/test_statistics.py", "study/test_verdict.py"),
    "models/heads.py": ("models/test_contract.py", "tasks/test_windows.py", "bases/test_linear_probe.py"),
    "models/loss.py": ("models/test_loss.py",),
    "models/block.py": ("models/test_contract.py", "models/test_parity.py", "models/test_seq2seq.py"),
    "text/batch.py": ("text/test_batch.py", "train/test_loop.py"),
    "text/split.py": ("text/test_split.py", "text/test_classes.py", "text/test_label_columns.py"),
    "targets/class_scores.py": ("tasks/test_metrics.py", "tasks/test_calibration.py", "targets/test_targets.py"),
    "train/optim.py": ("train/test_optim.py", "train/test_loop.py"),
    "tasks/metrics.py": ("tasks/test_metrics.py",),
    "tasks/zero_shot.py": ("tasks/test_zero_shot.py",),
    "runs/manifest.py": ("runs/test_manifest.py",),
}


@dataclass(frozen=True)
class Mutant:
    code: str
    line: int
    change: str  # what stood there, and what stands there now


def mutants(code: str, count: int, rng: random.Random) -> Iterator[Mutant]:
    """So many mutants of a module that do not mean the same to Python."""
    places: dict[tuple[int, int], list[tuple[Any, int]]] = {}
    for operator in [get_operator(name)() for name in _operators()]:
        found = [start for node in ast_nodes(get_ast(code)) for start, _ in operator.mutation_positions(node)]
        for number, start in enumerate(found):
            places.setdefault(start, []).append((operator, number))
    left = sorted(places)
    rng.shuffle(left)
    for variants in places.values():
        rng.shuffle(variants)
    same = _meaning(code)
    for place in cycle(left):
        if not count or not any(places.values()):
            return
        while variants := places[place]:
            mutated = mutate_code(code, *variants.pop())
            if mutated and (meaning := _meaning(mutated)) and meaning != same:
                changed = [
                    line[2:].strip() for line in ndiff(code.splitlines(), mutated.splitlines()) if line[:1] in "-+"
                ]
                yield Mutant(mutated, place[0], " -> ".join(changed))
                count -= 1
                break


def _operators() -> list[str]:
    """Those without settings."""
    return [name for name in operator_names() if not name.startswith("core/Variable")]


def _meaning(code: str) -> str:
    """The code without what is never run: the annotations of functions. Nothing where it is no code at all."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            function.returns = None
            for node in ast.walk(function):
                if isinstance(node, (ast.arg, ast.AnnAssign)):
                    node.annotation = ast.Constant("")
    return ast.dump(tree)


def tests_pass(copy: Path, tests: Sequence[str], limit: float) -> bool:
    """Whether the tests of a copy of the code pass, in a fork of this process, within so many seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads should not be forked
        child = os.fork()
    if not child:
        _run_tests(copy, tests)
    until = time.monotonic() + limit
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid or time.monotonic() > until:
            break
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with whatever its tests have started
    if not pid:
        os.waitpid(child, 0)
    return bool(pid) and os.waitstatus_to_exitcode(status) == 0


def _run_tests(copy: Path, tests: Sequence[str]) -> None:
    """Never comes back."""
    code = 70
    try:
        os.setsid()
        os.chdir(copy)
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "headstart")]:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in str(finder)]
        sys.path[:] = [str(copy), *(path for path in sys.path if path not in ("", str(ROOT)))]
        os.environ["PYTHONPATH"] = str(copy)
        out = os.open(copy / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def judge(copy: Path, module: str, code: str, tests: Sequence[str], limit: float, number: int) -> Verdict:
    """What becomes of one mutant of a file of the copy, which is put back."""
    path = copy / module
    before = path.read_text("utf-8")
    path.write_text(code, "utf-8")
    os.utime(path, (number, number))  # so that no compiled file seems to be of it
    try:
        return "survived" if tests_pass(copy, tests, limit) else "killed"
    finally:
        path.write_text(before, "utf-8")


def examine(copy: Path, module: str, tests: Sequence[str], count: int) -> dict[str, Any]:
    """How many mutants of a module are killed, and which survive."""
    began = time.monotonic()
    if not tests_pass(copy, tests, 900):
        raise SystemExit(
            f"{module}: its tests fail without a mutant.\n{(copy / 'tests.log').read_text('utf-8')[-3000:]}"
        )
    limit = 30 + 4 * (time.monotonic() - began)
    found: dict[str, Any] = {"module": module, "mutants": 0, "killed": 0, "survivors": []}
    code = (copy / module).read_text("utf-8")
    for number, mutant in enumerate(mutants(code, count, random.Random(f"{SEED} {module}")), start=1):
        verdict = judge(copy, module, mutant.code, tests, limit, number)
        told = f"{module}:{mutant.line}: {mutant.change}"
        _tell(f"{verdict:8}  {told}")
        found["mutants"] += 1
        found["killed"] += verdict == "killed"
        found["survivors"] += [told] * (verdict == "survived")
    return found | {"seconds": round(time.monotonic() - began)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)}; all")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants", help="the folder of results.json")
    args = parser.parse_args()
    if strange := sorted(set(args.modules) - set(MODULES)):
        parser.error(f"unknown: {', '.join(strange)}. Known: {', '.join(MODULES)}.")
    for name in PRELOADED:
        importlib.import_module(name)
    args.out.mkdir(parents=True, exist_ok=True)
    record = args.out / f"results-{COUNT}-{SEED}.json"
    results: dict[str, Any] = json.loads(record.read_text("utf-8")) if record.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        for name in COPIED:
            place, found = ROOT / name, copy / name
            shutil.copytree(
                place, found, ignore=shutil.ignore_patterns("__pycache__")
            ) if place.is_dir() else shutil.copy(place, found)
        for module in args.modules or MODULES:
            if module not in results:  # a night that was cut off goes on
                tests = [f"headstart/{module}", *(f"tests/{name}" for name in MODULES[module])]  # with its doctests
                results[module] = examine(copy, f"headstart/{module}", tests, COUNT)
                draft = record.with_suffix(".draft")
                draft.write_text(json.dumps(results, indent=1), "utf-8")
                os.replace(draft, record)
    chosen = [results[module] for module in args.modules or MODULES]
    for found in chosen:
        _tell(f"{found['module']:40} {found['killed']:3} of {found['mutants']:3} killed, {found['seconds']} s")
    worst = min(chosen, key=lambda found: found["killed"] / found["mutants"])
    killed, count = sum(found["killed"] for found in chosen), sum(found["mutants"] for found in chosen)
    _tell(f"{killed} of {count} mutants killed in {len(chosen)} modules; the fewest in {worst['module']}, {worst['killed']} of {worst['mutants']}")  # fmt: skip
    return int(worst["killed"] / worst["mutants"] < LEAST)


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
