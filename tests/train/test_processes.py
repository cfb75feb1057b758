"""One model on many processes: the same weights, to the last bit, on any number of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import JobConfig, TrainConfig
from headstart.errors import ConfigError
from headstart.runs.place import Place, here, must_have_parts, must_have_work
from headstart.train.processes import unconnected
from headstart.train.sharded import must_be_divisible
from tests.forked import Forked
from tests.train.together import run_all

SHORT = "--set train.log_every=1 --set train.eval_every=2 --set train.tensorboard=false --threads 1 --quiet --json"
PRETRAIN = f"pretrain {{sentences}} --unit line --size nano --context 16 --batch-size 3 --steps 5 --set train.accumulate=4 {SHORT}"
FINETUNE = f"finetune {{reviews}} --batch-size 4 --set train.steps=5 --set train.accumulate=4 {SHORT}"
MATCH = f"match train {{pictures}} --text {{text}} --image {{image}} --set space.width=16 --batch-size 4 --set train.steps=4 --set train.accumulate=4 {SHORT}"
JOBS = {
    "causal": f"{PRETRAIN} --sample I",
    "masked": f"{PRETRAIN} --objective masked",
    "distill": f"{PRETRAIN} --objective distill --teacher {{base}}",
    "full": f"{FINETUNE} --base {{base}}",
    "frozen": f"{FINETUNE} --base {{base}} --train head --set fit_head=false",
    "lora": f"{FINETUNE} --base {{base}} --train lora",
    "contrastive": f"{FINETUNE} --base {{base}} --objective contrastive",
    "translate": f"translate train {{pairs}} --hidden 8 --batch-size 3 --set train.steps=5 --set train.accumulate=4 {SHORT}",
    "gru": f"translate train {{pairs}} --model gru --hidden 8 --batch-size 3 --set train.steps=4 --set train.accumulate=3 {SHORT}",
    "match": f"{MATCH} --train full",
    "match-head": f"{MATCH} --set space.start=random",
}
REDUCED = f"{JOBS['causal']} --set train.gradients=all-reduce"
SHARDED = {f"sharded {name}": f"{JOBS[name]} --shard --set train.keep_checkpoints=true" for name in ("causal", "full", "frozen", "lora")}  # fmt: skip
SHARDED["sharded again"] = f"{JOBS['causal']} --shard --checkpoint-layers"
QUICK = ("causal", "translate")  # in four processes; the rest when there is more time
REST = [name for name in JOBS if name not in (*QUICK, "gru")]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, pictures: Path, towers: dict[str, str]) -> dict[str, str]:  # fmt: skip
    """Data in which micro-batches count different numbers of tokens, and a base."""
    folder = tmp_path_factory.mktemp("data")
    sentences = [f"{who} {verb} the {'old ' * (i % 4)}{pet}." for who in ("I", "She", "He") for verb in ("hold", "rub")
                 for i, pet in enumerate(("dog", "cat", "bird", "fish"))]  # fmt: skip
    rows = [
        f"film {i} was {('dull', 'fine')[i % 2]} {'to the end ' * (i % 3)},{('bad', 'good')[i % 2]}" for i in range(70)
    ]
    pairs = [f"{c}{v}{e}\t{v}{e}{c}ay" for c in "bdgk" for v in "aeio" for e in ("n", "rrr")]
    for name, lines in {"sentences.txt": sentences, "reviews.csv": ["text,label", *rows], "pairs.tsv": pairs}.items():
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    found = {name.partition(".")[0]: str(folder / name) for name in ("sentences.txt", "reviews.csv", "pairs.tsv")}
    found |= {"pictures": str(pictures), **towers, "base": str(folder / "base"), "cache": str(folder / "cache")}
    _alone(f"pretrain {{sentences}} --unit line --size nano --context 16 --steps 2 {SHORT}", Path(found["base"]), found)
    return found


def _words(job: str, places: dict[str, str]) -> list[str]:
    return [word.format(**places) for word in job.split()]


def _alone(job: str, out: Path, places: dict[str, str]) -> None:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", places["cache"])
        done = CliRunner().invoke(app, [*_words(job, places), "--out", str(out)])
    assert done.exit_code == 0, done.output


def _together(
    jobs: dict[str, tuple[str, str]], count: int, places: dict[str, str], where: pytest.TempPathFactory | Path
) -> dict[str, Path]:
    """Run jobs (words and fault) one after the other in `count` processes; their folders."""
    folder = where if isinstance(where, Path) else where.mktemp("together")
    listed = [
        {"words": _words(job, places), "fault": fault, "out": str(folder / name)} for name, (job, fault) in jobs.items()
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HEADSTART_CACHE": places["cache"]}

    def member(rank: int) -> Forked:
        def work() -> None:
            os.environ.update({**common, **Place(rank, count, rank, count).environment()})
            run_all(listed)

        return Forked(work)

    started = [member(rank) for rank in range(count)]
    told = ["".join(process.communicate(timeout=280)) for process in started]
    assert [process.returncode for process in started] == [0] * count, told
    return {name: folder / name for name in jobs}


@pytest.fixture(scope="module")
def alone(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of every job in one process."""
    made = {name: tmp_path_factory.mktemp("alone") / name for name in JOBS}
    for name, out in made.items():
        _alone(JOBS[name], out, places)
    return made


@pytest.fixture(scope="module")
def two(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every job in two processes; with all-reduce and with a fault too."""
    faults = {fault: (JOBS["causal"], fault) for fault in ("mean of means", "another order")}
    return _together(
        {
            **{name: (job, "") for name, job in JOBS.items()},
            "reduced": (REDUCED, ""),
            **faults,
            **{name: (job, "") for name, job in SHARDED.items()},
        },
        2,
        places,
        tmp_path_factory,
    )


@pytest.fixture(scope="module")
def four(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _together(
        {**{name: (JOBS[name], "") for name in QUICK}, "reduced": (REDUCED, "")}, 4, places, tmp_path_factory
    )


@pytest.fixture(scope="module")
def four_more(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _together({name: (JOBS[name], "") for name in REST}, 4, places, tmp_path_factory)


def weights(run: Path) -> str:
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def logged(run: Path) -> list[Any]:
    """What was logged, without the clock."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "wall"} for record in records]


def result(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())


@pytest.mark.parametrize("name", JOBS)
def test_two_processes_learn_what_one_does(alone: dict[str, Path], two: dict[str, Path], name: str) -> None:
    """Of gru, they have different numbers of micro-batches."""
    assert logged(two[name]) == logged(alone[name])
    assert weights(two[name]) == weights(alone[name])


@pytest.mark.parametrize("name", QUICK)
def test_four_processes_learn_what_one_does(alone: dict[str, Path], four: dict[str, Path], name: str) -> None:
    assert logged(four[name]) == logged(alone[name])
    assert weights(four[name]) == weights(alone[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_four_processes_learn_the_rest_as_one_does(
    alone: dict[str, Path], four_more: dict[str, Path], name: str
) -> None:
    assert logged(four_more[name]) == logged(alone[name])
    assert weights(four_more[name]) == weights(alone[name])


def test_all_reduce_has_the_same_losses_within_rounding(alone, two, four) -> None:
    one, *several = (
        [r["loss"] for r in logged(run) if "loss" in r] for run in (alone["causal"], two["reduced"], four["reduced"])
    )
    for losses in several:
        assert losses == pytest.approx(one, abs=1e-5)


@pytest.mark.parametrize("name", SHARDED)
def test_a_sharded_model_has_the_same_losses_and_weights_within_rounding(alone, two, name: str) -> None:
    one, several = alone["causal" if name == "sharded again" else name.removeprefix("sharded ")], two[name]
    for key, rounding in {
        "loss": {"abs": 1e-5},
        "grad_norm": {"rel": 1e-4},
    }.items():  # a scaled gradient moves Adam little
        expected, found = ([record[key] for record in logged(run) if key in record] for run in (one, several))
        assert len(expected) >= 5
        assert found == pytest.approx(expected, **rounding)
    told = result(several)
    assert (told["processes"], told["gradients"]) == (2, "sharded")
    assert json.loads((several / "env.json").read_text())["asked"]["train"]["shard"] is True
    must_be_near(several / "model", one / "model")


def must_be_near(some: Path, others: Path) -> None:
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (some, others))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["causal", "full"])
def test_a_sharded_run_goes_on_in_one_process(name: str, alone, two, places, tmp_path: Path) -> None:
    """Its checkpoints have whole weights and moments, and know of no processes."""
    run, kept = tmp_path / "run", two[f"sharded {name}"] / "checkpoints" / "step-0000004"
    shutil.copytree(two[f"sharded {name}"], run)
    for path in (run / "checkpoints").iterdir():
        if path.name > kept.name:
            shutil.rmtree(path)
    (run / "result.json").unlink()
    _alone(f"{JOBS[name]} --set train.keep_checkpoints=true --set train.shard=false --resume", run, places)
    assert [r["loss"] for r in logged(run) if "loss" in r] == pytest.approx(
        [r["loss"] for r in logged(alone[name]) if "loss" in r], abs=1e-5
    )
    must_be_near(run / "model", alone[name] / "model")
    assert json.loads((run / "env.json").read_text())["not_bit_identical"] == ["processes 2 (sharded) -> 1 (ordered)"]


def test_a_run_goes_on_sharded(alone, places, tmp_path: Path, tmp_path_factory) -> None:
    """With the moments that were whole before, divided."""
    half = tmp_path_factory.mktemp("half") / "run"
    _alone(f"{JOBS['full']} --set train.keep_checkpoints=true", half, places)
    for path in (half / "checkpoints").iterdir():
        if path.name > "step-0000004":
            shutil.rmtree(path)
    (half / "result.json").unlink()
    job = f"{JOBS['full']} --set train.keep_checkpoints=true --shard --resume"
    _together({"run": (job, "")}, 2, places, half.parent)
    assert [r["loss"] for r in logged(half) if "loss" in r] == pytest.approx(
        [r["loss"] for r in logged(alone["full"]) if "loss" in r], abs=1e-5
    )
    must_be_near(half / "model", alone["full"] / "model")


def test_what_cannot_be_sharded_is_refused() -> None:
    cfg = JobConfig(job="pretrain", train=TrainConfig(shard=True, accumulate=4))
    must_have_parts(2, cfg)
    must_have_parts(1, JobConfig(job="pretrain"))
    with pytest.raises(ConfigError, match="for pretrain and finetune, not for match"):
        must_have_parts(2, cfg.model_copy(update={"job": "match"}))
    with pytest.raises(ConfigError, match=r"there is one\. Add --processes N"):
        must_have_parts(1, cfg)
    with pytest.raises(ConfigError, match=r"\(train.accumulate, 4\) must be a multiple of the processes \(3\)"):
        must_have_parts(3, cfg)
    for beside in ({"compile": True}, {"gradients": "ordered"}):
        with pytest.raises(ValueError, match="Leave out one of them"):
            TrainConfig(shard=True, **beside)
    model = torch.nn.Linear(2, 2)
    must_be_divisible(model)
    model.temperature = torch.nn.Parameter(torch.tensor(1.0))
    with pytest.raises(ConfigError, match="cannot be divided"):
        must_be_divisible(model)


@pytest.mark.parametrize("fault", ["mean of means", "another order"])
def test_a_planted_fault_changes_the_weights(alone: dict[str, Path], two: dict[str, Path], fault: str) -> None:
    assert weights(two[fault]) != weights(alone["causal"])


def test_the_receipt_says_how_gradients_were_added(alone: dict[str, Path], two: dict[str, Path]) -> None:
    assert "processes" not in result(alone["causal"])
    for name, how in {"causal": "ordered", "reduced": "all-reduce"}.items():
        told = result(two[name])
        assert (told["processes"], told["gradients"]) == (2, how)
    receipt = json.loads((two["full"] / "receipt.json").read_text())
    assert (receipt["processes"], receipt["gradients"]) == (2, "ordered")
    assert json.loads((two["causal"] / "env.json").read_text())["threads"] == 1


def test_an_idle_process_is_refused() -> None:
    must_have_work(4, 4)
    with pytest.raises(ConfigError, match=r"2 micro-batches .* 1 of them would be idle"):
        must_have_work(3, 2)


def test_where_processes_cannot_meet_the_interface_is_named() -> None:
    assert "GLOO_SOCKET_IFNAME" in str(unconnected(RuntimeError("Gloo connectFullMesh failed with ...")))


def test_one_process_is_alone_whatever_the_environment_says() -> None:
    assert here({}).leads
    assert here({"RANK": "3", "WORLD_SIZE": "4"}).count == 1  # nobody to meet
    assert here({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a"}).count == 1
    with pytest.raises(ConfigError, match="torchrun"):
        here({"RANK": "x", "WORLD_SIZE": "4", "MASTER_ADDR": "a"})
