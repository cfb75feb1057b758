"""Tasks of labs: answers and their hashes, students' folders, student code that misbehaves, and labs of one's own."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, DataError, ModelError, UserError
from headstart.labs.assignment import Course, open_course, read_assignment, seed_of, start, variant_of
from headstart.labs.check import check
from headstart.labs.grade import grade
from headstart.labs.lab import lab_files
from headstart.labs.new import new_lab
from headstart.labs.snapshots import Case, difference, read_snapshots
from headstart.labs.student_code import Call, faults
from headstart.labs.tasks import Choose, Predict, Written, hashed, is_right
from headstart.labs.validate import validate

SALT = "5a" * 8
COURSE = open_course("attention")

# --- Answers


def number(tolerance: float = 0.0, step: float = 1.0) -> Predict:
    return Predict(name="n", ask="?", points=1, tolerance=tolerance, step=step)


@pytest.mark.parametrize("by_hash", [False, True])
@pytest.mark.parametrize(
    ("task", "right", "given", "good"),
    [
        (number(), 36, 36, True),
        (number(), 36, " 36 ", True),
        (number(), 36, 36.0, True),
        (number(), 36, 35, False),
        (number(), 36, 37, False),
        (number(0.05, 0.01), 6.91, 6.86, True),
        (number(0.05, 0.01), 6.91, 6.96, True),
        (number(0.05, 0.01), 6.91, 6.85, False),
        (number(0.05, 0.01), 6.91, 6.97, False),
        (number(0.05, 0.01), -1.5, "-1.54", True),
        (number(0.05, 0.01), -1.5, 1.5, False),
        (Choose(name="c", ask="?", points=1, options=("x", "y", "z")), "b", "B)", True),
        (Choose(name="c", ask="?", points=1, options=("x", "y", "z")), "b", "c", False),
    ],
)
def test_an_answer_is_right_within_its_tolerance(
    task: Choose | Predict, right: object, given: object, good: bool, by_hash: bool
) -> None:
    digest, answer = (hashed(task, right, SALT), None) if by_hash else ("", right)  # type: ignore[arg-type]
    assert is_right(task, given, digest, answer) is good  # type: ignore[arg-type]


def test_a_hash_depends_on_its_salt_and_its_task() -> None:
    other = Predict(name="m", ask="?", points=1)
    assert len({hashed(number(), 3, SALT), hashed(number(), 3, "00" * 8), hashed(other, 3, SALT)}) == 3


def test_no_answer_stands_in_the_public_file() -> None:
    text = lab_files()["attention"].read_text("utf-8")
    assert not re.search(r"^answers? *=", text, re.MULTILINE)
    assert len(set(re.findall(r'sha256 = "(\w+):', text))) == 17  # each with a salt of its own


def test_students_get_different_versions_and_always_the_same() -> None:
    task = COURSE.lab.task[0]
    assert isinstance(task, Predict)
    students = [f"s{n}" for n in range(400)]
    seen = Counter(variant_of("attention", student, task) for student in students)
    assert len(seen) == len(task.variant)
    assert min(seen.values()) > 20  # of 50
    assert len({seed_of("attention", student) for student in students}) > 390
    assert (seed_of("attention", "alice"), variant_of("attention", "alice", task)) == (
        581242,
        2,
    )  # folders outlive versions


# --- The folder of a student


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return start("attention", "alice", tmp_path / "alice")


def test_a_folder_that_is_there_stays_as_it_is(alice: Path) -> None:
    (alice / "answers.toml").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        start("attention", "alice", alice)
    assert (alice / "answers.toml").read_text() == "mine"


def test_a_stub_that_is_a_link_to_another_file_is_not_handed_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the user")
    new_lab("mine", tmp_path / "lab")
    (tmp_path / "lab" / "mine" / "work.py").unlink()
    (tmp_path / "lab" / "mine" / "work.py").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="leads out of its folder"):
        start(str(tmp_path / "lab" / "mine.toml"), "zoe", tmp_path / "zoe")
    assert not (tmp_path / "zoe").exists()


@pytest.mark.parametrize(
    ("file", "text", "kind", "says"),
    [
        ("assignment.json", "{", ModelError, "assignment.json is damaged"),
        ("assignment.json", "[]", ModelError, "assignment.json is damaged"),
        ("assignment.json", '{"student": "=cmd()"}', ModelError, "assignment.json is damaged"),
        ("predicted.json", '{"a": []}', ModelError, "predicted.json is damaged"),
        ("answers.toml", "student = ", DataError, "answers.toml is not valid TOML"),
        ("answers.toml", "[answers]", DataError, "student: Field required"),
        ("answers.toml", "student = 'alice'\n[answers]\na = [1]", DataError, "answers.a"),
        ("answers.toml", "student = 'alice'\n[answers]\na = nan", DataError, "answers.a"),
    ],
)
def test_a_damaged_file_of_a_student_is_told(
    file: str, text: str, kind: type[UserError], says: str, alice: Path
) -> None:
    (alice / file).write_text(text)
    with pytest.raises(kind, match=re.escape(says)):
        read_assignment(alice)


def test_a_pipe_in_place_of_answers_does_not_keep_the_teacher_waiting(alice: Path) -> None:
    (alice / "answers.toml").unlink()
    os.mkfifo(alice / "answers.toml")
    with pytest.raises(DataError, match="not a regular file"):
        read_assignment(alice)


@pytest.mark.parametrize(
    ("answers", "task", "state", "note"),
    [
        ("allowed-pairs = 'many'", "allowed-pairs", "wrong", "the answer is a number, not 'many'"),
        ("allowed-pairs = ' '", "allowed-pairs", "missing", ""),
        ("allowed-pairs = 7", "allowed-pairs", "answered", ""),
        ("why-scale = 'e'", "why-scale", "wrong", "the answer is a letter from a to d, not 'e'"),
        ("why-zero = 'because'", "why-zero", "missing", "1 of 30 words"),
    ],
)
def test_a_check_tells_what_an_answer_lacks_and_not_whether_it_is_right(
    answers: str, task: str, state: str, note: str, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.labs.check.faults", lambda calls: [[] for _ in calls])
    (alice / "answers.toml").write_text(f"student = 'alice'\n[answers]\n{answers}")
    (found,) = [each for each in check(alice) if each.task == task]
    assert (found.state, found.note) == (state, note)
    assert bool(found.reveal) == (state == "answered")
    assert (alice / "predicted.json").exists() == (state == "answered")


def test_a_folder_of_another_lab_is_not_graded_with_this_key(tmp_path: Path, alice: Path) -> None:
    new_lab("mine", tmp_path)
    with pytest.raises(ConfigError, match="is a folder of the lab attention; the key is for mine"):
        grade([alice], tmp_path / "mine.key.toml")


# --- Student code


CASE = Case(what="two", args=(2,), expects=4)


@pytest.mark.timeout(200)
def test_code_that_misbehaves_harms_no_other(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text(
        """
import os, signal, sys, time
import torch
print("noise on stdout")
def right(n): return 2 * n
def endless(n):
    while True: pass
def asleep(n): time.sleep(1000)
def greedy(n): return torch.zeros(10**9)
def leaves(n): sys.exit(0)
def dies(n): os._exit(0)
def kills(n): os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)
def large(n): open("large", "wb").write(bytes(10**8))
def curious(n): return os.environ.get("SECRET", "nothing")
def odd(n): return object()
""",
        "utf-8",
    )
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapters.py").write_text("def (")
    names = ["right", "endless", "asleep", "greedy", "leaves", "dies", "kills", "large", "curious", "odd", "none"]
    wanted = [Call(tmp_path, name, (CASE,), seconds=1, megabytes=300) for name in names]
    os.environ["SECRET"] = "of the teacher"
    try:
        found = faults([*wanted, Call(tmp_path / "broken", "right", (CASE,)), Call(tmp_path, "right", (CASE,))])
    finally:
        del os.environ["SECRET"]
    told = dict(zip([*names, "broken", "right again"], found, strict=True))
    assert told["right"] == told["right again"] == []
    assert told["endless"] == ["it used more than 1 CPU seconds"]
    assert told["asleep"] == ["it took longer than 3 seconds"]
    assert "memory" in told["greedy"][0]
    assert told["leaves"] == ["two: SystemExit: 0"]
    assert told["dies"] == told["kills"] == ["its process ended early"]
    assert told["large"]
    assert (tmp_path / "large").stat().st_size <= 8 << 20
    assert told["curious"] == ["two: it returns 'nothing', which is wrong"]
    assert "which is wrong" in told["odd"][0]
    assert told["none"] == ["AttributeError: module 'adapters' has no attribute 'none'"]
    assert told["broken"][0].startswith("SyntaxError")
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("expects", "output", "says"),
    [
        (4, 4, ""),
        (4, 4.0, ""),
        (4, True, "wrong"),
        ("a", "a", ""),
        ([1, [2.0, None]], [1, [2.0, None]], ""),
        ([1, 2], [1, 3], "wrong"),
        ([{"tensor": [1.0], "dtype": "float32"}], [{"tensor": [1.0000001], "dtype": "float32"}], ""),
        ([{"tensor": [1.0], "dtype": "float32"}], [{"tensor": [1.1], "dtype": "float32"}], "wrong"),
        ([{"tensor": [1.0], "dtype": "float32"}], [{"tensor": [1], "dtype": "int64"}], "wrong"),
        ({"tensor": [1.0], "dtype": "float32"}, {"tensor": [1.0], "dtype": "bfloat16"}, ""),
        ({"tensor": [1.0], "dtype": "float32"}, {"tensor": [1], "dtype": "int64"}, "it is of type int64, not float32"),
        ({"tensor": [True], "dtype": "bool"}, {"tensor": [1], "dtype": "int64"}, "it is of type int64, not bool"),
        (
            {"tensor": [1.0], "dtype": "float32"},
            {"tensor": [float("nan")], "dtype": "float32"},
            "at [0] is wrong (nan)",
        ),
        ({"tensor": [float("-inf")], "dtype": "float32"}, {"tensor": [float("-inf")], "dtype": "float32"}, ""),
        ({"tensor": [[1], [2]], "dtype": "int64"}, {"tensor": [[1], [2, 3]], "dtype": "int64"}, "wrong"),
        ({"tensor": [1.0], "dtype": "float32"}, None, "it returns None, not a tensor"),
    ],
)
def test_an_output_is_compared_by_shape_kind_and_value(expects: object, output: object, says: str) -> None:
    found = difference(Case(what="x", expects=expects), output)
    assert says in found if says else found == ""


def test_every_function_of_the_lab_has_cases() -> None:
    functions = {task.function for task in COURSE.lab.task if isinstance(task, Written)}
    assert functions == set(COURSE.snapshots)
    assert all(len(cases) >= 2 for cases in COURSE.snapshots.values())


@pytest.mark.parametrize("text", ["[]", '{"f": [{"what": "x"}]}', "{", '{"f": 1}'])
def test_damaged_snapshots_are_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "snapshots.json").write_text(text)
    with pytest.raises(ConfigError, match=r"snapshots\.json"):
        read_snapshots(tmp_path / "snapshots.json")


# --- A lab of one's own


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    new_lab("mine", tmp_path)
    return tmp_path / "mine.toml"


def test_a_new_lab_is_sound_and_can_be_graded(mine: Path) -> None:
    lab, _ = validate(str(mine), None)
    assert {task.kind for task in lab.task} == {"predict", "choose", "implement", "explain"}
    folder = start(str(mine), "zoe", mine.parent / "zoe")
    n = int(re.findall(r"causal mask of (\d+) tokens", (folder / "README.md").read_text("utf-8"))[0])
    (folder / "answers.toml").write_text(
        f'student = "zoe"\n[answers]\nguess = {n}\npick = "b"\nwhy = "{"word " * 10}"\n'
    )
    (folder / "work.py").write_text("def double(number):\n    return 2 * number\n")
    (found,) = grade([folder], mine.parent / "mine.key.toml")
    assert [task.points for task in found.tasks] == [1, 1, 2, None]
    assert (found.by_hand, found.findings) == (2, [])


def test_the_task_of_the_template_that_is_left_out_is_sound_too(mine: Path) -> None:
    text = mine.read_text("utf-8")
    before, mark, after = text.partition("# [[task]]")
    mine.write_text(before + re.sub(r"^# ", "", mark + after, flags=re.MULTILINE))
    assert [task.kind for task in validate(str(mine), None)[0].task][-1] == "reach"


def test_a_key_gives_the_hashes_of_a_public_file(mine: Path) -> None:
    done = CliRunner().invoke(
        app, ["lab", "validate", str(mine), "--key", str(mine.with_suffix(".key.toml")), "--json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["hashes"]
    assert list(found) == ["guess, variant 1", "guess, variant 2", "pick"]
    task = next(task for task in open_course(str(mine)).lab.task if isinstance(task, Choose))
    assert is_right(task, "b", found["pick"], None)
    assert not is_right(task, "a", found["pick"], None)


@pytest.mark.parametrize("name", lab_files())
def test_the_labs_that_come_with_headstart_find_what_they_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    validate(name, None)


def ran(folder: Path, rows: dict[str, object]) -> Path:
    """A folder as `lab run` leaves it."""
    step = folder / "steps" / "lengths"
    step.mkdir(parents=True)
    versions = {"headstart": "0", "torch": "0"}
    facts = {
        "lab": "mine",
        "quick": False,
        "data_dir": "",
        "environment": {"started": "", "machine": "", "versions": versions},
    }
    (folder / "lab.json").write_text(json.dumps(facts))
    (step / "step.json").write_text(json.dumps({"words": [], "exit": 0, "seconds": 1.0}))
    (step / "result.json").write_text(json.dumps(rows))
    return folder


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("lengths: splits.train.rows", ""),
        ("lengths: splits.train.row", "'row' is not there (rows). Did you mean 'rows'?"),
        ("lengths: split.train.rows", "Did you mean 'splits'?"),
        ("lengths: arms[name=ful].mean", "[name=ful] is not there. Did you mean 'full'?"),
        ("lengths: arms[7].mean", "[7] is not there."),
    ],
)
def test_a_place_that_finds_nothing_is_an_error_with_a_suggestion(place: str, says: str, mine: Path) -> None:
    mine.write_text(mine.read_text("utf-8").replace("lengths: splits.train.rows", place))
    found = {"splits": {"train": {"rows": 208}}, "arms": [{"name": "full", "mean": 0.5}]}
    run = ran(mine.parent / "run", found)
    if not says:
        assert validate(str(mine), run)[1] == []
        return
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        validate(str(mine), run)
    assert f"'{place}' finds nothing" in str(caught.value)


def test_the_place_of_the_template_is_where_the_step_puts_it(mine: Path) -> None:
    done = CliRunner().invoke(app, ["data", "check", "small-corpus", "--unit", "line", "--json"])
    assert done.exit_code == 0, done.output
    assert validate(str(mine), ran(mine.parent / "run", json.loads(done.stdout)))[1] == []


@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [
        ("mine.toml", 'function = "double"', 'function = "doubel"', "adapters.py has no doubel. Did you mean 'double'?"),
        ("mine.toml", 'function = "double"', 'function = "doubel"', "no case for doubel. Did you mean 'double'?"),
        ("mine.toml", '"mine/work.py"', '"mine/works.py"', "the stub mine/works.py cannot be read (No such file or directory). Did you mean 'mine/work.py'?"),
        ("mine/work.py", "def double", "def def", "the stub mine/work.py is not Python"),
    ],
)  # fmt: skip
def test_a_task_that_lacks_something_is_told(file: str, before: str, after: str, says: str, mine: Path) -> None:
    path = mine.parent / file
    path.write_text(path.read_text("utf-8").replace(before, after, 1))
    with pytest.raises(ConfigError, match=re.escape(says)):
        validate(str(mine), None)


def test_files_that_are_there_are_not_replaced_by_a_template(mine: Path) -> None:
    shutil.rmtree(mine.parent / "mine")
    with pytest.raises(UserError, match=r"mine\.toml already exists"):
        new_lab("mine", mine.parent)
    assert not (mine.parent / "mine").exists()


def test_a_lab_with_tasks_keeps_its_files_beside_it() -> None:
    course: Course = COURSE
    assert set(course.kept) == {"lab.toml", "snapshots.json"}
