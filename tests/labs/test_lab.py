"""Labs: steps run once and in order, figures and answers picked from their JSON, and the labs that are shipped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, DataError
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import pack_folder
from headstart.labs.lab import Lab, lab_files, open_lab
from headstart.labs.page import write_page
from headstart.labs.results import NotFound, gather, markdown, pick
from headstart.runs.environment import environment
from headstart.schema import parse
from headstart.study.study import Study

ROWS = {f"T{n}" for n in range(1, 8)} | {f"G{n}" for n in range(1, 9)} | {f"A{n}" for n in range(1, 12)}
EXPERIMENTS = [name for name in lab_files() if open_lab(name)[1].step]  # the others are assignments alone
LAB = """
title = "Counting"
question = "How long are the lines?"
verdict = ["check: warnings[0]"]

[rows]
T5 = "lengths"

[[data]]
what = "a text"
files = ["some/text.txt"]
source = "https://example.org"
licence = "public domain"
quick = "the pack small-corpus"

[[step]]
name = "rows"
shows = "A table of lines."
command = "headstart data table {data}/some/text.txt --out {out}/rows.csv"
quick = "headstart data table small-corpus --first 3 --out {out}/rows.csv"

[[step]]
name = "left-out"
shows = "Not with --quick."
command = "headstart data table {data}/some/text.txt --out {out}/more.csv"
quick = false

[[step]]
name = "check"
shows = "Their lengths, counted."
command = "headstart data check {out}/rows.csv --unit sentence --plot {out}/map.png"
quick = "--unit line"

[[figure]]
row = "T5"
what = "rows"
reference = 4
value = "rows: rows"
better = "equal"

[[figure]]
row = "T5"
what = "a part that is not there"
value = "check: layer"

[[table]]
caption = "longest lines"
[table.columns]
rows = "check: splits[*].rows"
words = "check: splits[*].words.max"

[[picture]]
file = "map.png"
caption = "where they are"

[[answer]]
question = "How many?"
text = "There are {rows:,} of them."
[answer.values]
rows = "check: splits.train.rows"
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, cache: None) -> tuple[Path, Path, str]:
    """A lab that was run with --quick: its file, its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "counting.toml").write_text(LAB)
    done = run(folder / "counting.toml", "--quick", "--out", folder / "out", "--quiet")
    assert done.exit_code == 0, done.output
    return folder / "counting.toml", folder / "out", done.stdout


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["lab", *map(str, words)])


def when(out: Path, step: str) -> int:
    """When a step was last run."""
    return (out / "steps" / step / "step.json").stat().st_mtime_ns


def test_a_lab_gives_a_table_results_and_a_page(ran: tuple[Path, Path, str]) -> None:
    _, out, printed = ran
    assert re.search(r"T5 +rows +4 +3 +– +worse", printed)
    results = json.loads((out / "results.json").read_text())
    assert [step["name"] for step in results["steps"]] == ["rows", "check"]
    assert results["steps"][0]["command"] == "headstart data table small-corpus --first 3 --out OUT/rows.csv"
    assert results["figures"][0]["ours"] == 3
    assert "'layer' is not there" in results["figures"][1]["missing"]
    assert results["answers"] == [{"question": "How many?", "text": "There are 3 of them."}]
    assert results["tables"][0]["rows"] == [[3, 4.0]]
    page = (out / "report.html").read_text()
    assert "There are 3 of them." in page
    assert "the pack small-corpus" in page
    assert "data check OUT/rows.csv --unit line --plot" in page
    assert "data:image/png;base64," in page
    assert "http" not in re.sub(r"http-equiv|https://example.org", "", page)  # it asks for nothing


def test_a_step_that_is_done_is_not_run_again(ran: tuple[Path, Path, str]) -> None:
    file, out, _ = ran
    before = [when(out, step) for step in ("rows", "check")]
    done = run(file, "--quick", "--sheet", "--out", out, "--quiet")
    assert done.exit_code == 0, done.output
    assert [when(out, step) for step in ("rows", "check")] == before


def test_a_sheet_has_the_questions_and_no_answers(ran: tuple[Path, Path, str]) -> None:
    file, out, _ = ran
    (out / "report.html").rename(out / "kept.html")
    assert run(file, "--quick", "--sheet", "--out", out, "--quiet").exit_code == 0
    sheet = (out / "sheet.html").read_text()
    assert "How many?" in sheet
    assert "of them" not in sheet
    assert "<h2>Verdict</h2>" not in sheet
    assert not (out / "report.html").exists()
    (out / "kept.html").rename(out / "report.html")


def test_a_table_of_labs_is_markdown(ran: tuple[Path, Path, str]) -> None:
    told = run("table", ran[1]).stdout
    assert "| T5 | rows | 4 | 3 |  | – | worse | rows |  |" in told
    assert f"`headstart lab {ran[0]} --quick`" in told, "as it is run again"
    assert re.search(r" on \w+ \w+, \d+ cores?, headstart ", told), "the machine, without the name of its kernel"
    assert "**This was --quick: " in told


def test_other_commands_do_not_go_on_in_the_same_folder(ran: tuple[Path, Path, str], tmp_path: Path) -> None:
    (tmp_path / "counting.toml").write_text(LAB.replace("--first 3", "--first 4"))
    done = run(tmp_path / "counting.toml", "--quick", "--out", ran[1], "--quiet")
    assert done.exit_code == 4
    assert "other commands (rows)" in done.stderr


def test_what_is_not_this_lab_stays_as_it_is(ran: tuple[Path, Path, str], tmp_path: Path) -> None:
    file, out, _ = ran
    (tmp_path / "results.json").write_text("mine")
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "text.txt").write_text("a\nb\n")
    (tmp_path / "another.toml").write_text(LAB)
    of_data = tmp_path / "of-data"
    of_data.mkdir()
    facts = {**json.loads((out / "lab.json").read_text()), "quick": False}
    (of_data / "lab.json").write_text(json.dumps(facts))
    for lab, folder, words, says in (
        (file, tmp_path, ["--quick"], "is not a lab"),
        (file, out, ["--data", tmp_path], "begun with --quick"),
        (file, of_data, ["--data", tmp_path], "begun without --data"),
        (tmp_path / "another.toml", out, ["--quick"], f"holds the lab {file}"),
    ):
        done = run(lab, "--out", folder, "--quiet", *words)
        assert done.exit_code == 2
        assert says in done.stderr
    assert (tmp_path / "results.json").read_text() == "mine"


def test_an_earlier_error_is_not_told_again(tmp_path: Path, cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    out, file = tmp_path / "out", tmp_path / "counting.toml"
    file.write_text(LAB.replace("data check {out}/rows.csv", "data check {out}/rowz.csv"))
    assert "rowz.csv: no such file" in run(file, "--quick", "--out", out, "--quiet").stderr
    monkeypatch.setattr("headstart.labs.run._run", lambda *_: (137, b""))
    assert "Step 'check' failed: it was killed." in run(file, "--quick", "--out", out, "--quiet").stderr


def test_commands_that_read_below_data_need_it(tmp_path: Path) -> None:
    (tmp_path / "counting.toml").write_text(re.sub(r"(?s)\[\[data\]\].*?(?=\[\[step)", "", LAB))
    done = run(tmp_path / "counting.toml", "--out", tmp_path / "out", "--quiet")
    assert done.exit_code == 3
    assert "reads files below --data DIR, which is not given" in done.stderr


def test_a_step_that_fails_ends_the_lab_with_its_own_sentence_and_code(tmp_path: Path, cache: None) -> None:
    out, file = tmp_path / "out", tmp_path / "counting.toml"
    file.write_text(LAB.replace("data check {out}/rows.csv", "data check {out}/rowz.csv"))
    done = run(file, "--quick", "--out", out, "--quiet")
    assert done.exit_code == 3
    assert "Step 'check' failed: " in done.stderr
    assert "rowz.csv: no such file. Did you mean 'rows.csv'?" in done.stderr
    assert not (out / "results.json").exists()
    assert run("table", out).exit_code == 5
    first = when(out, "rows")
    file.write_text(LAB)
    done = run(file, "--quick", "--out", out, "--quiet")
    assert done.exit_code == 0, done.output
    assert when(out, "rows") == first


def test_a_missing_file_is_told_with_where_it_is_to_be_had(tmp_path: Path) -> None:
    (tmp_path / "counting.toml").write_text(LAB)
    for words, says in (([], "--data DIR is not given"), (["--data", tmp_path], "is not in")):
        done = run(tmp_path / "counting.toml", "--out", tmp_path / "out", *words)
        assert done.exit_code == 3
        assert says in done.stderr
        assert "(some/text.txt). Where to get it: https://example.org. Licence: public domain." in done.stderr
        assert "With --quick it needs no files of yours." in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_quick_run_is_no_way_out_where_nothing_stands_in(tmp_path: Path) -> None:
    (tmp_path / "counting.toml").write_text(LAB.replace('quick = "the pack small-corpus"', ""))
    done = run(tmp_path / "counting.toml", "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "--quick" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_training_is_resumed_by_the_same_command(
    stop: signal.Signals, tmp_path: Path, sentences: Path
) -> None:
    file, out = tmp_path / "long.toml", tmp_path / "out"
    command = (
        "headstart pretrain {data}/SENTENCES --unit line --tokenizer word --size nano --threads 1 --steps 100 "
        "--set train.eval_every=1 --set train.tensorboard=false --out {out}/run"
    )
    command = command.replace("SENTENCES", sentences.name)
    step = f'[[step]]\nname = "train"\nshows = "long"\ncommand = "{command}"\n'
    file.write_text(f'title = "t"\nquestion = "q"\n[rows]\n{step}')
    words = ["lab", str(file), "--data", str(sentences.parent), "--out", str(out), "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headstart", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    log = out / "run" / "log.jsonl"
    while process.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(0.02)
    process.send_signal(stop)
    told = process.communicate()[1]
    assert process.returncode == 128 + stop, told
    assert (
        "Step 'train' failed: it was killed." in told
        if stop == signal.SIGHUP
        else "Stopped in the step 'train'." in told
    )
    assert not (out / "run" / "result.json").exists()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert json.loads((out / "run" / "result.json").read_text())["steps"] == 100


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.b", 1),
        ("list[1].x", 20),
        ("list[-1].x", 20),
        ("list[x=10,y=z].n", 5),
        ("list[*].x", [10, 20]),
        ("seeds[*][max]", [3, 5]),
        ("seeds[*][min]", [1, 5]),
        ("a[*]", [1]),
    ],
)
def test_a_path_picks_one_place_or_several(path: str, found: Any) -> None:
    told = {"a": {"b": 1}, "list": [{"x": 10, "y": "z", "n": 5}, {"x": 20}], "seeds": [[1, 3, 2], [None, 5]]}
    assert pick(told, path) == found


@pytest.mark.parametrize(
    "path",
    ["nothing", "a.c", "list[5]", "list[x=30]", "none[x=30]", "a[0]", "list[?]", "none[max]", "a[max]", "a.b[*]"],
)
def test_a_path_that_leads_nowhere_is_told(path: str) -> None:
    with pytest.raises(NotFound, match=r"is not there|is neither"):
        pick({"a": {"b": 1}, "list": [{"x": 10}], "none": [None]}, path)


ONE_STEP = {
    "title": "t",
    "question": "q",
    "rows": {"T6": "curve"},
    "step": [{"name": "s", "shows": "x", "command": "headstart runs"}],
}


def keep(out: Path, answer: dict[str, Any], quick: bool = False, data: str = "") -> None:
    """The folder of a lab whose one step is done."""
    (out / "steps" / "s").mkdir(parents=True)
    facts = {"lab": "x", "quick": quick, "data_dir": data, "environment": environment()}
    (out / "lab.json").write_text(json.dumps(facts))
    (out / "steps" / "s" / "step.json").write_text('{"words": [], "exit": 0, "seconds": 1.0}')
    (out / "steps" / "s" / "result.json").write_text(json.dumps(answer))


@pytest.mark.parametrize("quick", [False, True])
def test_the_mean_over_seeds_comes_with_its_deviation_and_is_compared_unless_quick(quick: bool, tmp_path: Path) -> None:
    keep(tmp_path, {"by_seed": [[0.1, 0.6], [0.3, 0.8]]}, quick)
    settings: dict[str, Any] = {
        **ONE_STEP,
        "figure": [{"row": "T6", "what": "w", "reference": 0.72, "value": "s: by_seed[*][1]", "better": "higher"}],
        "table": [{"caption": "c", "columns": {"accuracy": "s: by_seed"}}],
    }  # fmt: skip
    results = gather("x", parse(Lab, settings), tmp_path)
    figure = results["figures"][0]
    assert figure["ours"] == pytest.approx(0.7)
    assert figure["sd"] == pytest.approx(0.1414, abs=1e-4)
    assert (figure["seeds"], figure["comparison"]) == (2, "" if quick else "alike")
    assert [row[0] for row in results["tables"][0]["rows"]] == pytest.approx([0.2, 0.7])
    assert quick or '<td class="">alike</td>' in write_page(results, tmp_path).read_text("utf-8")


PACKS_STAND_IN = {"what": "rows", "files": ["r.csv"], "source": "s", "licence": "l", "packs": "the pack bbc-news"}


@pytest.mark.parametrize(("data", "said"), [("", ""), ("DIR", "better")])
def test_figures_on_packs_are_not_compared_with_those_of_other_data(data: str, said: str, tmp_path: Path) -> None:
    keep(tmp_path, {"accuracy": 0.9, "parameters": 7}, data=data)
    figure = {"row": "T6", "what": "w", "reference": 0.8, "value": "s: accuracy", "better": "higher"}
    counted = {"row": "T6", "what": "n", "reference": 7, "value": "s: parameters", "better": "equal"}
    lab = parse(Lab, {**ONE_STEP, "data": [PACKS_STAND_IN], "figure": [figure, counted]})
    results = gather("x", lab, tmp_path)
    assert [f["comparison"] for f in results["figures"]] == [said, "equal"]
    assert results["score"]["compared"] == 1 + bool(said)
    assert ("without --data" in markdown([results])) == (not data)


def test_what_stands_in_is_said_in_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path / "out", {"accuracy": 0.9})
    monkeypatch.setattr(
        "headstart.labs.lab.open_lab", lambda name: (name, parse(Lab, {**ONE_STEP, "data": [PACKS_STAND_IN]}))
    )
    monkeypatch.setattr("headstart.labs.run.run_steps", lambda *_: None)
    done = run("x", "--out", tmp_path / "out", "--quiet")
    assert "rows: the pack bbc-news" in done.stdout
    assert "Do not compare" in done.stdout


@pytest.mark.parametrize("of", ["s: nothing", "s: none"])
def test_an_effect_that_was_not_measured_is_said_to_be_so(of: str, tmp_path: Path) -> None:
    keep(tmp_path, {"none": None, "interval": [0.1, 0.2]})
    effect = {"claim": "Does it help", "of": [of], "interval": "s: interval"}
    results = gather("x", parse(Lab, {**ONE_STEP, "effect": [effect]}), tmp_path)
    assert results["effects"] == []
    assert [said.partition(" (")[0] for said in results["verdict"]] == [f"Does it help? Not measured: {of}"]


def test_the_quick_page_says_what_the_rows_are_that_it_leaves_out(tmp_path: Path) -> None:
    keep(tmp_path, {"a": 1}, quick=True)
    lab = parse(Lab, {**ONE_STEP, "figure": [{"row": "T6", "what": "w", "value": "s: a"}], "rows": {"T6": "curve", "T7": "a map <of> it"}})  # fmt: skip
    page = write_page(gather("x", lab, tmp_path), tmp_path).read_text("utf-8")
    assert "T7 (a map &lt;of&gt; it)" in page


@pytest.mark.parametrize(
    ("places", "told"),
    [(["s: first"], ["It helps."]), (["s: first", "s: second"], ["s: It helps.", "s: It does not."])],
)
def test_a_verdict_says_which_step_it_is_of_where_there_are_others(
    places: list[str], told: list[str], tmp_path: Path
) -> None:
    keep(tmp_path, {"first": "It helps.", "second": "It does not."})
    assert gather("x", parse(Lab, {**ONE_STEP, "verdict": places}), tmp_path)["verdict"] == told


def test_the_points_of_a_verdict_are_a_list_on_the_page_and_in_the_table(tmp_path: Path) -> None:
    keep(tmp_path, {"said": "It helps.\n- By <2> points.\n- For one run."})
    results = gather("x", parse(Lab, {**ONE_STEP, "verdict": ["s: said"]}), tmp_path)
    page = write_page(results, tmp_path).read_text("utf-8")
    assert '<p class="said">It helps.</p>' in page
    assert "<li>By &lt;2&gt; points.</li>" in page
    assert "\n> It helps.\n> - By <2> points.\n> - For one run.\n" in markdown([results])


def test_a_missing_interval_or_list_does_not_cost_what_was_found(tmp_path: Path) -> None:
    keep(tmp_path, {"loss": 0.5, "pair": 3})
    figure = {"row": "T6", "what": "w", "reference": 0.6, "value": "s: loss", "better": "lower"}
    settings: dict[str, Any] = {
        **ONE_STEP,
        "figure": [{**figure, "interval": "s: nothing", "seeds": "s: nothing"}, {**figure, "interval": "s: pair"}],
        "table": [{"caption": "c", "columns": {"loss": "s: loss"}}],
    }
    results = gather("x", parse(Lab, settings), tmp_path)
    assert [(f["ours"], f["interval"], f["comparison"]) for f in results["figures"]] == 2 * [(0.5, None, "better")]
    assert "missing" not in results["figures"][0]
    assert results["tables"][0]["missing"] == ["s: loss: this is no list"]
    assert results["score"] == {"compared": 2, "better": 2, "equal": 0, "alike": 0, "worse": 0}


@pytest.mark.parametrize("found", [None, "a word"])
def test_an_answer_without_its_number_does_not_cost_the_page(found: Any, tmp_path: Path) -> None:
    keep(tmp_path, {"loss": found})
    settings = {**ONE_STEP, "answer": [{"question": "q", "text": "It is {loss:.2f}.", "values": {"loss": "s: loss"}}]}
    (answer,) = gather("x", parse(Lab, settings), tmp_path)["answers"]
    assert answer["text"].startswith("This was not measured (")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"figure": [{"row": "T9", "what": "w", "value": "s: x"}]}, "which is not in \\[rows\\]"),
        ({"figure": [{"row": "T5", "what": "w", "value": "z: x"}]}, "names no step"),
        ({"step": [{"name": "s", "shows": "x", "command": "ls"}]}, "command"),
        ({"step": []}, "one \\[\\[step\\]\\] or more"),
        ({"step": 2 * [{"name": "s", "shows": "x", "command": "headstart runs"}]}, "the same name"),
        ({"step": [{"name": "s", "shows": "x", "command": "headstart runs 'x"}]}, "No closing quotation"),
        ({"answer": [{"question": "q", "text": "t", "values": {}}]}, "values"),
        ({"answer": [{"question": "q", "text": "{rowz:,}", "values": {"rows": "s: x"}}]}, "names \\{rowz\\}"),
        ({"picture": [{"file": "map.jpg", "caption": "c"}]}, "file"),
    ],
)
def test_a_lab_that_contradicts_itself_is_refused(change: dict[str, Any], says: str) -> None:
    settings = {"title": "t", "question": "q", "rows": {"T5": "p"}}
    step = {"step": [{"name": "s", "shows": "x", "command": "headstart runs"}]}
    with pytest.raises(ConfigError, match=says):
        parse(Lab, {**settings, **step, **change})


def test_an_unknown_lab_is_told_with_the_nearest() -> None:
    done = run("pig-latn")
    assert done.exit_code == 4
    assert "There is no lab 'pig-latn'. Did you mean 'pig-latin'?" in done.stderr


# --- the labs that come with Headstart


def test_together_the_labs_cover_every_part_of_the_reference() -> None:
    labs = [open_lab(name)[1] for name in EXPERIMENTS]
    assert len(labs) == 6
    assert {row for lab in labs for row in lab.rows} == ROWS
    for lab in labs:
        assert {figure.row for figure in lab.figure} == set(lab.rows), lab.title  # each part has a figure
        assert lab.answer, lab.title


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_command_of_a_lab_is_one_that_the_command_line_takes(name: str, quick: bool) -> None:
    root = typer.main.get_command(app)
    lab = open_lab(name)[1]
    for words in [*lab.commands("OUT", "DIR", quick).values(), *lab.commands("OUT", "", quick).values()]:
        command: Any = root
        words = list(words)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        context = command.make_context("headstart", [*words, "--json"], resilient_parsing=False)
        assert context.params["json"]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_training_of_a_lab_has_settings_that_go_together(
    name: str, quick: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = []

    def begin(cfg: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Stands in for hours of training: the settings have been taken when it is called."""
        begun.append(cfg)
        return {}

    def found(cfg: Any) -> Any:
        return SimpleNamespace(plain=lambda: begin(cfg))

    monkeypatch.setattr("headstart.jobs.job.run_job", begin)
    monkeypatch.setattr("headstart.study.grid.run_grid", lambda grid, cfg, *_: grid.plan(cfg) and found(cfg))
    monkeypatch.setattr(Study, "run", lambda cfg, *_: Study(tmp_path, found(cfg)))
    monkeypatch.chdir(tmp_path)
    trains = ("compare", "pretrain", "match", "translate train", "translate grid")
    commands = open_lab(name)[1].commands("OUT", "DIR", quick).values()
    wanted = [each for each in commands if " ".join(each).startswith(trains)]
    for each in wanted:
        done = CliRunner().invoke(app, [*each, "--json", "--debug"])
        assert done.exit_code == 0, (each, done.output, done.exception)
    assert len(begun) == len(wanted) > 0


@pytest.mark.parametrize(("quick", "data"), [(True, ""), (False, ""), (False, "DIR")])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_table_of_a_lab_is_made_in_vain(name: str, quick: bool, data: str) -> None:
    commands = list(open_lab(name)[1].commands("OUT", data, quick).values())
    made = [words[words.index("--out") + 1] for words in commands if words[:2] == ["data", "table"]]
    assert [table for table in made if sum(table in words for words in commands) < 2] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_lab_needs_no_data_of_its_own(name: str) -> None:
    _, lab = open_lab(name)
    lab.check_data(None, quick=True)
    assert not [word for words in lab.commands("OUT", "DIR", quick=True).values() for word in words if "DIR" in word]
    if any(needed.files and not needed.packs for needed in lab.data):
        with pytest.raises(DataError, match="Licence"):
            lab.check_data(None, quick=False)
    else:
        lab.check_data(None, quick=False)


def missing_packs(lab: Lab) -> list[str]:
    """Packs that its quick commands name and that have not been fetched yet."""
    words = {word for words in lab.commands("OUT", "DIR", quick=True).values() for word in words}
    named = {name for name in PACKS if PACKS[name].wheels and name in words}
    named |= {"minilm", "efficientnet-lite0"} if "match" in words else set()
    return sorted(name for name in named if not pack_folder(name).exists())


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_lab_measures_everything_it_promises(name: str, tmp_path: Path) -> None:
    if missing := missing_packs(open_lab(name)[1]):
        pytest.skip(f"headstart data get {' '.join(missing)} has not been run here")
    done = run(name, "--quick", "--out", tmp_path / "out", "--quiet", "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert not [figure["missing"] for figure in results["figures"] if "missing" in figure]
    assert not [table["missing"] for table in results["tables"] if table["missing"]]
    assert not [answer for answer in results["answers"] if "was not measured" in answer["text"]]
    assert "This figure was not drawn." not in Path(results["page"]).read_text("utf-8")
    assert results["effects"]
    for effect in results["effects"]:  # each is there: zero lies outside of its interval, on the side of the claim
        assert effect["shown"], effect["sentence"]
    assert len(results["effects"]) == len(open_lab(name)[1].part(quick=True, given=False).effect)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_data_of_a_lab_lies_where_its_commands_look(name: str) -> None:
    folder = os.environ.get("HEADSTART_LAB_DATA")
    if not folder:
        pytest.skip("HEADSTART_LAB_DATA does not name a folder with the data of the labs")
    _, lab = open_lab(name)
    lab.check_data(Path(folder), quick=False)
    words = {word for words in lab.commands("OUT", folder, quick=False).values() for word in words}
    assert all(Path(word).exists() for word in words if word.startswith(folder))
