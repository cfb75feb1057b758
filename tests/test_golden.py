"""What refactoring must not change: losses and weights of every job, the keys of every answer, and every --help.

    HEADSTART_GOLDEN=write python -m pytest tests/test_golden.py

writes tests/golden/jobs.json and help.txt anew. Losses hold on every machine, within rounding. The SHA-256 of
losses and weights hold on a processor that they were recorded on, with the same torch: elsewhere the last bits may differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from typer.testing import CliRunner

from headstart.cli import app
from headstart.jobs import curves
from headstart.show import picture

GOLDEN = Path(__file__).parent / "golden"
# Relative, where 1e-3 is too little: the singular values of so few words are nearly equal, and another processor turns their vectors.
ROUNDED = {"cooccurrence": 0.05}
SHORT = "--set train.log_every=1 --set train.tensorboard=false --threads 1 --quiet --json"
PRETRAIN = f"pretrain {{sentences}} --unit line --size nano --context 16 --batch-size 8 --steps 4 {SHORT}"
FINETUNE = f"finetune {{reviews}} --set train.steps=3 --set train.eval_every=2 {SHORT}"
PAIRS = f"--hidden 8 --batch-size 16 --set train.steps=4 --set train.eval_every=2 {SHORT}"
MATCH = f"match train {{pictures}} --batch-size 16 --set train.steps=3 --set train.eval_every=2 {SHORT}"
TOWERS = "--text {text} --image {image} --set space.width=16"
STUDY = "--threads 1 --set train.tensorboard=false --quiet --json"
# In this order: the later ones use what the earlier ones made, by name.
JOBS = {
    "causal": f"{PRETRAIN} --sample I",
    "masked": f"{PRETRAIN} --objective masked",
    "classic": f"{PRETRAIN} --preset classic --tokenizer word",
    "accumulated": f"{PRETRAIN} --set train.accumulate=2 --set train.clip=0.5",
    "cooccurrence": f"{PRETRAIN} --start cooccurrence --tokenizer word",
    "distill": f"{PRETRAIN} --objective distill --teacher {{masked}}",
    "continued": f"pretrain {{sentences}} --base {{causal}} --unit line --batch-size 8 --steps 3 {SHORT}",
    "full": f"{FINETUNE} --base {{causal}}",
    "frozen": f"{FINETUNE} --base {{causal}} --train head",
    "last": f"{FINETUNE} --base {{masked}} --train last:1 --class-weights",
    "lora": f"{FINETUNE} --base {{bert}} --train lora --set fit_head=false",
    "external": f"{FINETUNE} --base {{bert}} --pool cls --long window --context 8",
    "scratch": f"{FINETUNE} --base bert --init scratch --size nano --context 16",
    "few": f"{FINETUNE} --base {{masked}} --labels 20",
    "contrastive": f"{FINETUNE} --base {{bert}} --objective contrastive",
    "tag": f"{FINETUNE} --base {{masked}}".replace("reviews", "tagged"),
    "tag-frozen": f"{FINETUNE} --base {{causal}} --train head".replace("reviews", "tagged"),
    "multilabel": f"{FINETUNE} --base {{masked}}".replace("reviews", "several"),
    "regression": f"{FINETUNE} --base {{causal}}".replace("reviews", "numbers"),
    "ordinal": f"{FINETUNE} --base {{causal}} --train head".replace("reviews", "stars"),
    "text-pairs": f"{FINETUNE} --base {{bert}}".replace("reviews", "sentences_and_others"),
    **{
        kind: f"translate train {{pairs}} --model {kind} --sample ban {PAIRS}"
        for kind in ("gru", "lstm", "gru-additive", "lstm-additive", "attention", "transformer")
    },
    "match-head": f"{MATCH} {TOWERS}",
    "match-random": f"{MATCH} {TOWERS} --set space.start=random",
    "match-full": f"{MATCH} {TOWERS} --train full",
    "match-patches": f"{MATCH} --text {{text}} --image transformer --train full --set space.width=16 --set patches.size=16 "
    "--set patches.patch=4 --set patches.layers=1 --set patches.width=32 --set patches.heads=2",
    "compare": "compare {reviews} --base {causal} --base {masked} --arms majority,tfidf,scratch,frozen,full --labels 40,all --seeds 2 "
    "--rates 0.001,0.003 --set least_steps=3 --set finetune.train.steps=3 --set finetune.train.threads=1 --yes --quiet --json",
    "grid": f"translate grid {{pairs}} --model gru --model attention --hidden 8 --seeds 2 --epochs 1 {STUDY}",
    "towers": f"match compare {{pictures}} {TOWERS} --splits 2 --set train.steps=3 {STUDY}",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, pictures: Path, towers: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What each job came to: losses as logged, the SHA-256 of its weights, the keys of its files and of its answer."""
    folder = tmp_path_factory.mktemp("golden")
    places = {**_data(folder), "pictures": str(pictures), **towers, "bert": str(_bert(folder))}
    found: dict[str, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(folder / "cache"))
        patch.setattr(curves, "axes", picture.axes)  # of every kind of job they are drawn here
        patch.chdir(folder)
        torch.set_num_threads(1)
        for name, words in JOBS.items():
            argv = [re.sub(r"\{(\w+)\}", lambda m: places[m[1]], word) for word in words.split()]
            done = CliRunner().invoke(app, [*argv, "--out", f"runs/{name}"])
            assert done.exit_code == 0, f"{name}: {done.output}"
            places[name] = f"runs/{name}"
            found[name] = _facts(folder / "runs" / name, json.loads(done.stdout))
    if os.environ.get("HEADSTART_GOLDEN") == "write":
        _record(found)
    return found


def _data(folder: Path) -> dict[str, str]:
    sentences = [
        f"{who} {verb} the {pet}." for who in ("I", "She", "He") for verb in ("hold", "rub", "see") for pet in ("dog", "cat", "bird")
    ]  # fmt: skip
    good, bad = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
    rows = [
        f"film {i} was {(good if i % 2 else bad)[i // 2 % 4]} to the end,{'yes' if i % 2 else 'no'}" for i in range(80)
    ]
    tagged = [f"I O\nhold O\nthe O\n{pet} B-PET\n{i} O\n" for i in range(30) for pet in ("dog", "cat")]
    said = [f"film {i} was {good[i // 2 % 4]} and {bad[i % 4]}" for i in range(80)]
    labels = {
        "several": ("label", [("", "a|b", "b|c", "a|c")[i % 4] for i in range(80)]),
        "numbers": ("label", [str(i * 1.5 % 7) for i in range(80)]),
        "stars": ("stars", [str(i % 5) for i in range(80)]),
    }
    others = [f"film {i} was {(good if i % 2 else bad)[i % 4]},it was {(good if i // 2 % 2 else bad)[i % 4]},{'yes' if i % 2 == i // 2 % 2 else 'no'}" for i in range(80)]  # fmt: skip
    pairs = [f"{c}{v}{e}\t{v}{e}{c}ay" for c in "bdgklm" for v in "aeio" for e in ("n", "r")]
    files = {"sentences": ("sentences.txt", sentences), "reviews": ("rows.csv", ["text,label", *rows]), "pairs": ("pairs.tsv", pairs), "tagged": ("tagged.conll", tagged), "sentences_and_others": ("two.csv", ["sentence1,sentence2,label", *others])}  # fmt: skip
    for task, (column, cells) in labels.items():
        files[task] = (
            f"{task}.csv",
            [f"text,{column}", *(f"{text},{cell}" for text, cell in zip(said, cells, strict=True))],
        )
    for name, lines in files.values():
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    return {key: str(folder / name) for key, (name, _) in files.items()}


def _bert(folder: Path) -> Path:
    """A model of transformers with random weights, and a vocabulary that knows some of the words."""
    transformers = pytest.importorskip("transformers")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "film",
        "was",
        "lovely",
        "awful",
        "cold",
        "warm",
        "the",
        "end",
    ]
    words += [*"abcdefghijklmnopqrstuvwxyz0123456789", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")]
    (folder / "vocab.txt").write_text("\n".join(words), "utf-8")
    torch.manual_seed(0)
    shape = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=24
    )  # fmt: skip
    transformers.BertModel(shape).save_pretrained(folder / "bert")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    return folder / "bert"


def _facts(run: Path, answer: Any) -> dict[str, Any]:
    log, weights = run / "log.jsonl", run / "model" / "model.safetensors"
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
    names = ("result.json", "results.json", "data.json", "env.json", "receipt.json", "study.json")
    losses = [[r["split"], r["step"], r["loss"]] for r in records if "loss" in r]
    facts: dict[str, Any] = {
        "losses": losses,
        "sha256": hashlib.sha256(
            (weights.read_bytes() if weights.exists() else b"") + repr(losses).encode()
        ).hexdigest(),
        "keys": {n: sorted(set(_keys(json.loads((run / n).read_text("utf-8"))))) for n in names if (run / n).exists()},
        "answer": sorted(set(_keys(answer))),
        "files": sorted({p.name for p in run.iterdir() if p.name not in (".lock", "crash.txt")}),
    }
    if "arms" in answer:
        facts["scores"] = [[a["name"], a["labels"], a["scores"]] for a in answer["arms"]]
    if "table" in answer:
        facts["scores"] = [
            [row.get("model", row.get("trained")), row.get("losses", row.get("recall@5"))] for row in answer["table"]
        ]
    return facts


def _keys(value: Any, path: str = "") -> Iterator[str]:
    """Every key of a JSON value by its dotted name; the elements of a list count as one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _keys(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _keys(inner, f"{path}[]")
    else:
        yield path


def _processor() -> str:
    """What decides the last bits of a product: the processor (virtual ones of several families share a name) and torch."""
    file = Path("/proc/cpuinfo")
    known = dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", file.read_text().partition("\n\n")[0], re.MULTILINE)) if file.exists() else {}  # fmt: skip
    name = ", ".join([known.get("model name", "unknown"), *(f"{k} {known[k]}" for k in ("cpu family", "model") if k in known)])  # fmt: skip
    return f"{name}; torch {torch.__version__.partition('+')[0]}"


def _recorded() -> dict[str, Any]:
    file = GOLDEN / "jobs.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {"jobs": {}, "sha256": {}}


def _record(made: dict[str, dict[str, Any]]) -> None:
    weights = {name: facts["sha256"] for name, facts in made.items()}
    jobs = {name: {key: value for key, value in facts.items() if key != "sha256"} for name, facts in made.items()}
    lines = json.dumps({"jobs": jobs, "sha256": {**_recorded()["sha256"], _processor(): weights}}, indent=1)
    short = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r",\s+", ", ", m[1]) + "]", lines)
    (GOLDEN / "jobs.json").write_text(short + "\n", "utf-8")
    (GOLDEN / "help.txt").write_text(_help(), "utf-8")


@pytest.mark.parametrize("name", JOBS)
def test_losses_and_scores_are_those_recorded(name: str, made: dict[str, dict[str, Any]]) -> None:
    recorded = _recorded()["jobs"][name]
    assert [loss[:2] for loss in made[name]["losses"]] == [loss[:2] for loss in recorded["losses"]]
    assert [loss[2] for loss in made[name]["losses"]] == pytest.approx(
        [loss[2] for loss in recorded["losses"]], rel=ROUNDED.get(name, 1e-3), abs=1e-6
    )
    for now, then in zip(made[name].get("scores", []), recorded.get("scores", []), strict=True):
        assert now[:-1] == then[:-1]
        assert now[-1] == pytest.approx(then[-1], rel=1e-3)


@pytest.mark.parametrize("name", [name for name in JOBS if name not in ("compare", "grid", "towers")])
def test_losses_and_weights_are_those_recorded_to_the_last_bit(name: str, made: dict[str, dict[str, Any]]) -> None:
    recorded = _recorded()["sha256"].get(_processor())
    if recorded is None or name not in recorded:
        pytest.skip("no weights were recorded on this processor; their losses were compared")
    assert made[name]["sha256"] == recorded[name]


@pytest.mark.parametrize("name", JOBS)
def test_files_and_answers_have_the_keys_recorded(name: str, made: dict[str, dict[str, Any]]) -> None:
    recorded = _recorded()["jobs"][name]
    for what in ("files", "keys", "answer"):
        assert made[name][what] == recorded[what]


def test_every_help_is_the_one_recorded() -> None:
    assert _help() == (GOLDEN / "help.txt").read_text("utf-8")


def _help() -> str:
    width = {"COLUMNS": "110", "TERMINAL_WIDTH": "110"}
    verbs = _verbs(typer.main.get_command(app))
    return "\n".join(CliRunner().invoke(app, [*words, "--help"], env=width).stdout for words in verbs)


def _verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from _verbs(command, (*path, name))
