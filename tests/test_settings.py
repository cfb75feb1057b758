"""Settings from a file, flags and --set: who wins, what the messages name, and help that tells the real defaults."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from headstart.cli import app
from headstart.cli.flags import FLAGS, Given, flags_of
from headstart.cli.settings import file_settings, nested_settings, study_settings
from headstart.cli.study import study_config
from headstart.config import FinetuneConfig, MatchConfig, PretrainConfig, TranslateConfig
from headstart.jobs.job import run_job
from headstart.runs.kinds import KINDS as JOBS
from headstart.runs.run import Run
from headstart.schema import Frozen, parse, read_toml, tables, to_toml
from headstart.shapes import TransformerConfig
from headstart.study.match import MatchGridConfig
from headstart.study.plan import StudyConfig
from headstart.study.translate import TranslateGridConfig

EXAMPLES = Path(__file__).parent.parent / "examples"
ROOT = typer.main.get_command(app)
KINDS: dict[str, type[Frozen]] = {
    "pretrain": PretrainConfig,
    "finetune": FinetuneConfig,
    "translate train": TranslateConfig,
    "match train": MatchConfig,
}
REQUIRED: dict[type[Frozen], dict[str, Any]] = {
    PretrainConfig: {"data": {"paths": ["a"]}},
    FinetuneConfig: {"data": {"train": "a"}, "base": "b"},
    TranslateConfig: {"data": {"pairs": ["a"]}},
    MatchConfig: {"data": {"pairs": "a"}},
}
REQUIRED_NAMES = ("data.paths", "data.train", "data.pairs", "base")
NO_SETTINGS = {
    "--out",
    "--config",
    "--set",
    "--resume",
    "--dry-run",
    "--minutes",
    "--processes",
    "--json",
    "--quiet",
    "--debug",
    "--no-verify",
}


def names(kind: type[Frozen], prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name."""
    for name in kind.model_fields:
        inner = tables(kind).get(name)
        yield from names(inner, f"{prefix}{name}.") if inner else [prefix + name]


def default(kind: type[Frozen], name: str) -> Any:
    value: Any = parse(kind, REQUIRED[kind])
    for part in name.split("."):
        value = getattr(value, part)
    return value


# --- flags and the help about them


def flags(verb: str) -> dict[str, Any]:
    command: Any = ROOT
    for word in verb.split():
        command = command.commands[word]
    return {(p.metavar if p.param_type_name == "argument" else p.opts[0]): p for p in command.params}


@pytest.mark.parametrize("verb", KINDS)
def test_every_flag_stands_for_a_setting_or_is_known_not_to(verb: str) -> None:
    of_verb = {FLAGS[name] for name in names(KINDS[verb]) if name in FLAGS}
    assert flags(verb).keys() - NO_SETTINGS <= of_verb


@pytest.mark.parametrize(
    ("verb", "name"),
    [(verb, name) for verb, kind in KINDS.items() for name in names(kind) if FLAGS.get(name) in flags(verb)],
)
def test_help_tells_the_default_of_the_setting(verb: str, name: str) -> None:
    flag = FLAGS[name]
    value = default(KINDS[verb], name) if name not in REQUIRED_NAMES else None
    told = re.search(r"\[default: (.*)\]$", flags(verb)[flag].help)
    depends = name in (
        "model.context",
        "context",
        "train.threads",
        "tokenizer.vocab",
        "data.labels",
        "data.max_line_bytes",
        *(["train.lr"] if verb == "finetune" else []),
    )  # a number is not the answer
    if name in REQUIRED_NAMES or value is False:
        assert told is None
    elif value is None or value in ((), {}) or depends:
        assert told, f"{flag} says nothing of its default"
        assert not re.match(r"\d", told[1])
    else:
        shown = repr(value[0]) if isinstance(value, tuple) else str(value)
        assert told, f"{flag} says nothing of its default"
        assert told[1].split(";")[0] == shown


STUDIES: dict[str, type[Frozen]] = {
    "compare": StudyConfig,
    "translate grid": TranslateGridConfig,
    "match compare": MatchGridConfig,
}


@pytest.mark.parametrize("verb", STUDIES)
def test_help_tells_what_a_study_varies_by_default(verb: str) -> None:
    fields = STUDIES[verb].model_fields
    varied = {
        flag: fields[flag.setting].get_default(call_default_factory=True)
        for flag, _ in flags_of(verb)
        if flag.setting in fields and not flag.required
    }
    counted = {flag: value for flag, value in varied.items() if value not in (False, (), {})}
    assert len(counted) >= 3
    for flag, value in counted.items():
        told = re.search(r"\[default: (.*)\]$", flag.help)
        assert told, f"{flag.name} says nothing of its default"
        shown = "all" if value == (0,) else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert told[1].replace(" ", "") == shown


def given(verb: str, *words: str) -> Given:
    """What a verb gets from these words."""
    command: Any = ROOT
    for word in verb.split():
        command = command.commands[word]
    values = command.make_context(verb, list(words)).params
    return Given(verb, {flag.name: values[flag.key] for flag, _ in flags_of(verb)})


def test_a_flag_of_a_study_is_for_itself_its_pretraining_or_its_fine_tuning() -> None:
    own = ["--seeds", "2", "--labels", "50, all", "--rates", "0.1,1e-2", "--arms", "scratch", "--strict-leakage"]
    tuned = [
        "--epochs",
        "3",
        "--batch-size",
        "4",
        "--class-weights",
        "--long",
        "window",
        "--set",
        "finetune.train.clip=0.5",
    ]
    shape = ["--size", "nano", "--context", "32", "--vocab", "300"]
    shaped = {"model": {"size": "nano", "context": 32}, "tokenizer": {"vocab": 300}}
    tuning = {"epochs": 3, "class_weights": True, "long": "window", "train": {"batch_size": 4, "clip": 0.5}}
    fresh = study_config(given("compare", "rows.csv", "--base", "gpt", *own, *tuned, *shape))
    assert (fresh.bases, fresh.seeds, fresh.labels, fresh.rates) == (("gpt",), 2, (50, 0), (0.1, 0.01))
    assert (fresh.arms, fresh.strict_leakage, fresh.data.train) == (
        ("scratch",),
        True,
        str(Path("rows.csv").absolute()),
    )
    assert (fresh.pretrain, fresh.finetune) == ({}, tuning | shaped)
    pretraining = ["--corpus", "a.txt", "--corpus", "b.txt", "--steps", "9", "--unit", "line", "--start", "random"]
    cfg = study_config(given("compare", "rows.csv", *pretraining, *tuned, *shape, "--objective", "causal, masked"))
    data = {"paths": tuple(str(Path(name).absolute()) for name in ("a.txt", "b.txt")), "unit": "line"}
    assert cfg.pretrain == {"data": data, "start": "random", "train": {"steps": 9}} | shaped
    assert (cfg.finetune, cfg.objectives) == (tuning, ("causal", "masked"))


def test_device_and_threads_of_a_study_are_for_its_pretraining_and_its_fine_tuning(tmp_path: Path) -> None:
    machine = ("--device", "cuda", "--threads", "1")
    settings = {"train": {"device": "cuda", "threads": 1}}
    assert study_config(given("compare", "rows.csv", "--base", "b", *machine)).finetune == settings
    assert study_config(given("compare", "rows.csv", "--base", "b", *machine)).pretrain == {}
    cfg = study_config(given("compare", "rows.csv", "--corpus", "a.txt", *machine))
    assert (cfg.finetune, cfg.pretrain["train"]) == (settings, settings["train"])
    file = tmp_path / "study.toml"
    file.write_text('[data]\ntrain = "rows.csv"\n[pretrain.data]\npaths = ["a.txt"]\n')
    assert study_config(given("compare", "--config", str(file), *machine)).pretrain["train"] == settings["train"]


WRONG = [
    ("pretrain", "--objective", "sideways"), ("pretrain", "--preset", "zzz"), ("pretrain", "--size", "huge"),
    ("pretrain", "--context", "1"), ("pretrain", "--unit", "page"), ("pretrain", "--vocab", "-1"),
    ("pretrain", "--steps", "-1"), ("pretrain", "--batch-size", "0"), ("pretrain", "--lr", "-1"),
    ("pretrain", "--seed", "-1"), ("pretrain", "--threads", "-1"), ("finetune", "--init", "zzz"),
    ("finetune", "--train", "zzz"), ("finetune", "--pool", "zzz"), ("finetune", "--epochs", "0"),
    ("finetune", "--batch-size", "0"), ("finetune", "--lr", "-1"), ("translate train", "--model", "rnn"),
    ("match train", "--train", "last:1"), ("match train", "--pool", "zzz"), ("match train", "--epochs", "0"),
    ("translate train", "--hidden", "0"), ("translate train", "--split", "letters"), ("translate train", "--beam", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "flag", "value"), WRONG)
def test_a_wrong_value_is_told_by_setting_and_flag(verb: str, flag: str, value: str) -> None:
    base = ["--base", "runs/base"] if verb == "finetune" else []
    done = CliRunner().invoke(app, [*verb.split(), "data.csv", *base, f"{flag}={value}"])
    assert done.exit_code == 4, done.output
    setting = next(name for name, known in FLAGS.items() if known == flag and name in set(names(KINDS[verb])))
    assert f"{setting} ({flag}): " in done.stderr


# --- files


@pytest.mark.parametrize("verb", KINDS)
def test_the_example_holds_every_setting_with_its_default(verb: str) -> None:
    kind, file = KINDS[verb], EXAMPLES / f"{verb.split()[0]}.toml"
    settings, text = read_toml(file), file.read_text("utf-8")
    needed = {"pretrain": "paths", "finetune": "train", "translate train": "pairs", "match train": "pairs"}[verb]
    required = {"data": {needed: settings["data"][needed]}} | ({"base": settings["base"]} if "base" in settings else {})
    assert parse(kind, settings) == parse(kind, required)
    tables = re.split(r"^\[(\w+)\](?: +#.*)?$", text, flags=re.MULTILINE)
    found = {
        prefix + name
        for prefix, part in zip(["", *(f"{t}." for t in tables[1::2])], tables[::2], strict=True)
        for name in re.findall(r"^(?:# )?(\w+) += ", part, flags=re.MULTILINE)
    }
    elsewhere = (
        ("model.", "tokenizer.") if verb == "finetune" else ("model.vocab", "model.target_vocab", "model.longest")
    )
    assert found == {name for name in names(kind) if name != "job" and not name.startswith(elsewhere)}


def test_what_the_example_says_of_the_model_is_the_preset() -> None:
    lines = re.findall(
        r"^# (\w+ += [^#\n]+)", (EXAMPLES / "pretrain.toml").read_text("utf-8").split("[model]")[1], re.MULTILINE
    )
    path = "\n".join(line for line in lines if not line.startswith("size"))
    shown, real = tomllib.loads(path), TransformerConfig.model_validate({}).model_dump()
    assert shown == {name: real[name] for name in shown}
    assert len(shown) > 15


def test_set_wins_over_flags_and_flags_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('data.paths = ["x.txt"]\n[train]\nlr = 0.1\nsteps = 5\nbatch_size = 3\n')
    nested = nested_settings(
        {"train.lr": 0.2, "train.steps": 6, "train.seed": None},
        ["train.lr=0.3"],
        file_settings(PretrainConfig, str(file)),
    )
    cfg = parse(PretrainConfig, nested)
    assert (cfg.train.lr, cfg.train.steps, cfg.train.batch_size) == (0.3, 6, 3)


def test_paths_in_a_file_are_seen_from_where_the_command_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "a.toml").write_text('base = "base"\n[data]\ntrain = "rows.csv"\n')
    settings = file_settings(FinetuneConfig, "a.toml")
    assert (settings["base"], settings["data"]["train"]) == (str(tmp_path / "base"), str(tmp_path / "rows.csv"))


def test_paths_of_a_study_file_mean_the_same_from_wherever_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("known.vec", "rows.csv", "text.txt"):
        Path(name).write_text("a 1\n")
    Path("teacher").mkdir()
    Path("a.toml").write_text(
        'data = {train = "rows.csv"}\n[pretrain]\nvectors = "known.vec"\nteacher = "teacher"\ndata = {paths = ["text.txt"]}\n'
    )
    settings = study_settings(Path("a.toml"))
    assert settings["data"]["train"] == str(tmp_path / "rows.csv")
    assert settings["pretrain"]["vectors"] == str(tmp_path / "known.vec")
    assert settings["pretrain"]["teacher"] == str(tmp_path / "teacher")
    assert settings["pretrain"]["data"]["paths"] == [str(tmp_path / "text.txt")]
    Path("a.toml").write_text('[pretrain]\nvectors = "french-vectors"\n')
    assert study_settings(Path("a.toml"))["pretrain"]["vectors"] == "french-vectors"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[train]\nlr = 0.1\nsteps 5\n", r"a.toml is not valid TOML: .*line 3, column 7"),
        ("[train]\nstepz = 5\n", r"a.toml: unknown setting 'stepz' in \[train\]. Did you mean 'steps'\?"),
        ("[train]\nlearnrate = 0.1\n", r"unknown setting 'learnrate' in \[train\]. Did you mean 'lr'\?"),
        ("[train]\nzzz = 1\n", r"unknown setting 'zzz' in \[train\]. Known: steps, batch_size, .*keep_checkpoints\."),
        ('[train]\nsteps = "x"\n', r"a.toml: train.steps \(--steps\): .*'x'"),
        ('job = "finetune"\n', r"a.toml holds the settings of headstart finetune, not of headstart pretrain"),
        ("data = 3\n", r"Missing a CORPUS"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_by_its_name(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(text)
    Path("x.txt").write_text("some text")
    words = [] if "data" in text else ["x.txt"]
    done = CliRunner().invoke(app, ["pretrain", *words, "--config", "a.toml"])
    assert done.exit_code in (2, 4), done.output
    assert re.search(says, done.stderr)
    assert not Path("runs").exists()


def test_a_missing_file_is_told() -> None:
    done = CliRunner().invoke(app, ["pretrain", "--config", "nope.toml"])
    assert (done.exit_code, done.stderr) == (
        4,
        "error[CONFIG]: nope.toml cannot be read (No such file or directory).\n",
    )


def test_a_resumed_run_takes_no_file() -> None:
    done = CliRunner().invoke(app, ["pretrain", "--config", "a.toml", "--resume"])
    assert done.exit_code == 2
    assert "A resumed run keeps its own settings. Leave out --config." in done.stderr


def test_a_preset_as_base_is_the_preset_of_the_model() -> None:
    settings = {"base": "bert", "init": "scratch", "data": {"train": "a.csv"}}
    assert parse(FinetuneConfig, settings).model.preset == "bert"


# --- config.toml of a run


@pytest.fixture
def base(sentences: Path, tmp_path: Path) -> Path:
    train = {"steps": 20, "batch_size": 8, "threads": 1, "tensorboard": False}
    data = {"paths": [str(sentences)], "unit": "line"}
    model = {"size": "nano", "context": 16, "dropout": 0.0}
    run_job(parse(PretrainConfig, {"data": data, "model": model, "train": train, "samples": []}), tmp_path / "base")
    return tmp_path / "base"


SHORT = {"threads": 1, "tensorboard": False}


@pytest.fixture
def asked(base: Path, reviews: Path, pictures: Path, towers: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """Settings of one short run of every job."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{c}{v}{e}\t{v}{e}{c}ay\n" for c in "bdgklm" for v in "aeio" for e in "nr"), "utf-8")
    return {
        "finetune": {"base": str(base), "epochs": 2, "data": {"train": str(reviews)}, "train": SHORT},
        "few": {"base": str(base), "data": {"train": str(reviews), "labels": 20}, "epochs": 3, "train": SHORT},
        "translate": {"epochs": 2, "data": {"pairs": [str(pairs)]}, "model": {"hidden": 8}, "train": {**SHORT, "batch_size": 16}},
        "match": {
            "epochs": 2, "data": {"pairs": str(pictures)}, **towers, "space": {"width": 16}, "train": {**SHORT, "batch_size": 16}
        },
    }  # fmt: skip


@pytest.mark.parametrize("name", ["pretrain", "finetune", "few", "translate", "match"])
def test_a_run_of_the_settings_of_another_is_the_same_run(
    name: str, base: Path, asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    kind, first, again = JOBS["finetune" if name == "few" else name], tmp_path / "first", tmp_path / "again"
    if name == "pretrain":
        first = base
    else:
        run_job(parse(kind.config, asked[name]), first)
    words = [*kind.verb.split(), "--config", str(first / "config.toml"), "--quiet"]
    done = CliRunner().invoke(app, [*words, "--out", str(again)])
    assert done.exit_code == 0, done.output
    assert Run(again).read_json("env.json")["asked"] == Run(first).read_json("env.json")["asked"]
    for file in ("model/model.safetensors", "config.toml"):
        assert (again / file).read_bytes() == (first / file).read_bytes()
    if name not in ("pretrain", "few"):
        done = CliRunner().invoke(app, [*words, "--epochs", "3", "--out", str(tmp_path / "longer"), "--json"])
        assert done.exit_code == 0, done.output
        steps = Run(first).read_json("result.json")["steps"]
        assert Run(tmp_path / "longer").read_json("result.json")["steps"] == steps * 3 // 2


def test_epochs_beside_the_settings_of_a_run_win_over_its_steps(asked: dict[str, Any], tmp_path: Path) -> None:
    given = {**asked["finetune"], "train": {**SHORT, "steps": 3}}
    run_job(parse(FinetuneConfig, given), tmp_path / "run")
    words = ["finetune", "--config", str(tmp_path / "run" / "config.toml"), "--epochs", "3", "--quiet", "--json"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "longer")])
    assert json.loads(done.stdout)["steps"] == 3 * 4  # 52 training rows, 16 at a time


def test_flags_beside_the_settings_of_a_run_change_what_depends_on_them(base: Path) -> None:
    settings = file_settings(PretrainConfig, str(base / "config.toml"))
    given = {"model.size": "mini", "train.steps": 500, "objective": "masked"}
    cfg = parse(PretrainConfig, nested_settings(given, None, settings))
    assert (cfg.model.layers, cfg.model.width, cfg.model.ff) == (6, 192, 768)
    assert (cfg.model.preset, cfg.model.causal) == ("bert", False)
    assert (cfg.model.context, cfg.model.dropout) == (16, 0.0)  # set by hand in the run, so kept
    assert (cfg.train.eval_every, cfg.train.batch_size) == (0, 8)


def test_the_recipe_of_a_run_is_short(base: Path) -> None:
    short = Run.open(base).config.asked_settings()
    assert short["model"] == {"size": "nano", "context": 16, "dropout": 0.0}
    assert short["train"] == {"steps": 20, "batch_size": 8, "threads": 1, "tensorboard": False}
    assert "job" not in short
    assert len(to_toml(parse(PretrainConfig, short)).splitlines()) > 40
