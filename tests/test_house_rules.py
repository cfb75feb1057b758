"""The house: small files, light imports, public names that exist."""

from __future__ import annotations

import ast
import pickle
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import headstart
from tests.conftest import LONGEST

PACKAGE = Path(headstart.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
FLOORS = ["errors", "quantities", "schema", "shapes", "config", "hub", "text", "show", "images", "models", "tasks", "runs", "bases", "train", "jobs", "use", "labelling", "study", "labs", "serve", "cli"]  # fmt: skip


def floor(file: Path) -> int | None:
    name = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return FLOORS.index(name) if name in FLOORS else None


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_file_is_long(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= 400


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_function_is_long(file: Path) -> None:
    functions = [n for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)]
    assert not [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= 60]


def test_the_files_of_tests_that_begin_first_are_there() -> None:
    root = PACKAGE.parent
    assert [name for name in LONGEST if not (root / name).exists()] == []
    assert "--no-loadscope-reorder" in (root / "Makefile").read_text("utf-8")  # else their order means nothing


def test_few_functions_answer_with_anything_at_all() -> None:
    assert sum(file.read_text("utf-8").count("-> dict[str, Any]") for file in FILES) < 40


@pytest.mark.parametrize("file", [f for f in FILES if floor(f) is not None], ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_point_down(file: Path) -> None:
    here = floor(file)
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            parts = module.split(".")
            if parts[0] == "headstart" and len(parts) > 1 and parts[1] in FLOORS:
                assert FLOORS.index(parts[1]) <= here, f"{file.name} imports {module} from above"


@pytest.mark.parametrize(
    "module",
    ["headstart", "headstart.cli", "headstart.config", "headstart.runs.run", "headstart.study.verdict",
     "headstart.study.statistics", "headstart.study.report", "headstart.study.results", "headstart.study.figures",
     "headstart.study.plots", "headstart.study.arms", "headstart.study.baselines", "headstart.study.study", "headstart.show.view"],
)  # fmt: skip
def test_light_modules_load_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_help_loads_no_torch_and_is_instant() -> None:
    code = "import sys\nfrom headstart.cli import app\ntry: app(['--help'])\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules)"
    times = []
    for _ in range(3):
        began = _processor_seconds()
        assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
        times.append(_processor_seconds() - began)
    assert min(times) < 1.0  # 0.3 s on an idle machine; this one may be busy


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_public_names_exist() -> None:
    assert sorted(headstart.__all__) == sorted(headstart._HOMES)
    found = {name: getattr(headstart, name) for name in headstart.__all__}
    for name, public in found.items():
        assert public.__name__ == headstart._HOMES[name].partition(":")[2]
        assert name == public.__name__ or name.startswith("train_")
    assert len(set(map(id, found.values()))) == len(found)  # one name for one thing


def test_names_of_earlier_releases_still_work_and_warn() -> None:
    for before, now in headstart._BEFORE.items():
        assert before not in headstart.__all__
        with pytest.warns(FutureWarning, match=rf"headstart\.{before} is now headstart\.{now};"):
            assert getattr(headstart, before) is getattr(headstart, now)


def test_the_page_of_the_api_has_every_public_name() -> None:
    page = (PACKAGE.parent / "docs" / "api.md").read_text("utf-8")
    homes = set(headstart._HOMES.values())
    assert {home.replace(":", ".") for home in homes} == set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))


def test_nothing_unpickles() -> None:
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    for file in FILES:
        tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not forbidden & {alias.name.split(".")[0] for alias in node.names}, file
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, file
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "torch.save"):
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert given.get("weights_only") == "True", file  # --allow-pickle: tensors, and nothing that runs


def test_the_tripwire_under_all_tests_catches_a_pickle() -> None:
    with pytest.raises(AssertionError, match="something was unpickled"):
        pickle.loads(pickle.dumps(Path("x")))  # noqa: S301


def test_every_module_is_explained_in_the_tour() -> None:
    tour = (PACKAGE.parent / "docs" / "tour.md").read_text("utf-8")
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", tour, flags=re.MULTILINE)}
    missing = []
    for path in FILES:
        section = tour if path.parent == PACKAGE else sections[path.parent.name]
        if path.name not in ("__init__.py", "__main__.py") and f"`{path.name}`" not in section:
            missing.append(str(path.relative_to(PACKAGE)))
    assert not missing
