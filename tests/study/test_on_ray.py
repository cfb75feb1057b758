"""Cells that are run elsewhere: bytes in, bytes out, the same folder and the same table, whoever dies meanwhile."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import msgpack
import numpy as np
import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.cli.settings import placed_tokenizer
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ModelError
from headstart.jobs.pretrain import pretrain
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.study.classify import planned_cells, prepare_study, run_study
from headstart.study.gather import gather
from headstart.study.grid import run_grid
from headstart.study.match import MATCHERS, MatchGridConfig
from headstart.study.parcel import COPIES, PROCESS, arrive, outgoing, unpack
from headstart.study.plan import StudyConfig
from headstart.study.remote_cell import run_remote_cell
from headstart.study.run import Cells, Outcome, Planned
from tests.clock import without

CLOCK = (
    "seconds",
    "training_seconds",
    "started",
    "command",
    "folder",
    "cost",
    "tokens_per_second",
    "wall",
    "run",
    "preparing_seconds",
)
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
others = [cluster.add_node(num_cpus=1) for _ in range(2)]
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(others.pop(), allow_graceful=False)
    print("killed", flush=True)
cluster.shutdown()
"""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = [f"film {i} was {('dull', 'fine')[i % 2]} to the end,{('bad', 'good')[i % 2]}" for i in range(80)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(rows: Path, **more: Any) -> StudyConfig:
    small = {"model": {"size": "nano"}, "train": {"steps": 4, "threads": 1}}
    given = {"data": {"train": str(rows / "rows.csv")}, "seeds": 1, "rates": (0.001,), "finetune": small, **more}
    return parse(StudyConfig, given)


class Elsewhere(Cells):
    """Every cell by way of bytes, in a folder that knows nothing of this one."""

    def _outcomes(self, missing):
        for cell in missing:
            going = outgoing(cell, self.out)
            parcels = [source.packed() for source in going.sources.values()]
            told = msgpack.unpackb(run_remote_cell(going.message, msgpack.packb(list(going.sources)), *parcels))
            assert told["cell"], told["message"]
            arrive(told["cell"], self.out / "cells" / cell.name)
            yield Outcome(cell.name, told["exit"], told["message"])


def test_a_cell_that_was_run_elsewhere_is_the_same_folder(rows: Path) -> None:
    corpus = rows / "corpus.txt"
    corpus.write_text("the film was fine to the end . \n" * 40)
    base = {
        "data": {"paths": [str(corpus)]},
        "model": {"size": "nano", "context": 48},
        "start": "random",
        "train": {"steps": 1, "threads": 1},
    }
    pretrain(parse(PretrainConfig, base), rows / "base")
    cfg = settings(
        rows,
        bases=(str(rows / "base"),),
        arms=("majority", "frozen", "hybrid", "full", "stack", "zero-shot", "ensemble"),
        prompts=("{text} so",),
        label_words={"good": "good", "bad": "bad"},
        finetune={"train": {"steps": 2, "threads": 1}},
    )
    out = rows / "study"
    run_study(cfg, out)
    here = {path.name: path for path in (out / "cells").iterdir()}
    alone = without(CLOCK, gather(out).plain())
    for path in here.values():
        path.rename(rows / path.name)
    run_study(cfg, out, engine=lambda planned: Elsewhere(out, planned, 1, Watch()))
    assert without(CLOCK, gather(out).plain()) == alone
    assert len(here) == 7
    for name in here:
        before, now = rows / name, out / "cells" / name
        assert {p.relative_to(now) for p in now.rglob("*") if p.name != ".lock"} == {
            p.relative_to(before) for p in before.rglob("*") if p.name != ".lock"
        }
        for file in ("config.toml", "data.json", "receipt.json", "env.json", "result.json"):
            if (before / file).suffix == ".json" and (before / file).exists():
                assert without(CLOCK, json.loads((now / file).read_text())) == without(
                    CLOCK, json.loads((before / file).read_text())
                ), file
            elif (before / file).exists():
                assert (now / file).read_bytes() == (before / file).read_bytes()


@pytest.mark.parametrize("layout", ["folder", "table", "beside", "images"])
def test_images_that_the_table_names_go_along_and_nothing_else(
    layout: str, rows: Path, pictures: Path, towers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(rows / "cache"))
    home, data = rows / "home", {}
    shutil.copytree(pictures / "images", home if layout == "beside" else home / "images")
    shutil.copy(pictures / "pairs.csv", home / "pairs.csv")
    (home / "private.txt").write_text("not named")
    if layout == "images":
        data = {"data": {"images": str(home / "images")}}
        (home / "pairs.csv").rename(rows / "pairs.csv")
    pairs = {"folder": home, "images": rows / "pairs.csv"}.get(layout, home / "pairs.csv")
    train = {"steps": 1, "batch_size": 16, "threads": 1, "tensorboard": False}
    cfg = parse(MatchGridConfig, {"data": str(pairs), "text": [towers["text"]], "image": [towers["image"]], "scope": ["head"], "splits": 1,
                                  "settings": {"space": {"width": 8}, "train": train, **data}})  # fmt: skip
    run_grid(MATCHERS, cfg, rows / "here")
    sent: list[str] = []
    (cell,) = MATCHERS.plan(cfg)
    for source in outgoing(cell, rows / "there").sources.values():
        sent += msgpack.unpackb(source.packed())
    run_grid(MATCHERS, cfg, rows / "there", engine=lambda planned: Elsewhere(rows / "there", planned, 1, Watch()))
    files = [
        [(rows / out / "cells" / cell.name / name).read_bytes() for name in ("config.toml", "data.json")]
        for out in ("here", "there")
    ]
    assert files[0] == files[1]
    assert sum(name.endswith(".png") for name in sent) == 48
    assert "private.txt" not in sent


def test_a_tokenizer_goes_along_whether_pack_or_file(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = rows / "cache" / "packs" / "gpt2"
    pack.mkdir(parents=True)
    (rows / "tok.json").write_text("{}")
    monkeypatch.setenv("HEADSTART_CACHE", str(rows / "cache"))
    monkeypatch.setattr("headstart.study.parcel.get_pack", lambda name: pack)
    monkeypatch.setattr("headstart.study.parcel.pack_folder", lambda name: pack)

    def sent(kind: str) -> dict[str, Path]:
        work = parse(FinetuneConfig, {"base": "gpt", "init": "scratch", "data": {"train": str(rows / "rows.csv")}, "tokenizer": {"kind": kind}})  # fmt: skip
        return {place: source.path for place, source in outgoing(Planned("cell", work), rows / "study").sources.items()}

    assert sent("gpt2-tokenizer")["cache/packs/gpt2"] == pack
    assert Path("tok.json") in sent("tok.json").values()
    (rows / "word").write_text("a file beside")  # which a kind of tokenizer is not
    assert len(sent("word")) == 1
    kinds = {"tok.json": str(rows / "tok.json"), "word": "word", "gpt2-tokenizer": "gpt2-tokenizer"}
    assert {kind: placed_tokenizer(kind) for kind in kinds} == kinds


def test_memory_is_that_of_float32_weights_however_they_are_kept(rows: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for name in ("quantized", "pickled"):
        (rows / name).mkdir()
    (rows / "pickled" / "pytorch_model.bin").write_bytes(b"0" * 4000)
    writer = gguf.GGUFWriter(rows / "quantized" / "model.gguf", "llama")
    quantized = gguf.quantize(np.ones((64, 64), np.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("token_embd.weight", quantized, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def reserved(base: Path) -> int:
        work = parse(FinetuneConfig, {"base": str(base), "data": {"train": str(rows / "rows.csv")}})
        return outgoing(Planned("cell", work), rows / "study").memory - PROCESS

    assert reserved(rows / "quantized") == reserved(rows / "quantized" / "model.gguf") == COPIES * 4 * 64 * 64
    assert reserved(rows / "pickled") == COPIES * 4000


def test_a_cell_that_arrives_half_leaves_the_one_before(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = rows / "cells" / "one"
    cell.mkdir(parents=True)
    (cell / "result.json").write_text("before")
    parcel, replace = msgpack.packb({"result.json": b"now"}), os.replace

    def fails(old: Path, new: Path) -> None:
        if "arriving" in str(old) and new == cell:
            raise OSError("no space left")
        replace(old, new)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space"):
        arrive(parcel, cell)
    assert (cell / "result.json").read_text() == "before"
    monkeypatch.setattr(os, "replace", replace)
    arrive(parcel, cell)
    assert (cell / "result.json").read_text() == "now"
    assert os.listdir(cell.parent) == ["one"]


@pytest.mark.parametrize("name", ["../cell", "/etc/cell", "a/../../cell"])
def test_what_comes_back_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="came back from a node"):
        unpack(msgpack.packb({name: b"data"}), tmp_path / "cells")


def test_another_version_is_refused_on_the_node(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg, out = settings(rows, arms=("majority",)), rows / "study"
    prepare_study(cfg, out, Watch())
    [(_, cell)], _ = planned_cells(cfg, out, {}, 80)
    going = outgoing(cell, out)
    monkeypatch.setattr("headstart.study.parcel.__version__", "0.0.1")
    told = msgpack.unpackb(run_remote_cell(going.message, msgpack.packb([])))
    assert told["exit"] == 4
    assert "this node has Headstart 0.0.1" in told["message"]


@pytest.mark.parametrize("flag", ["--prepare", "--dry-run"])
@pytest.mark.parametrize("verb", [("compare", "rows.csv", "--arms", "majority"), ("match", "compare", "rows.csv")])
def test_a_place_to_run_is_refused_where_nothing_runs(verb: tuple[str, ...], flag: str, rows: Path) -> None:
    done = CliRunner().invoke(app, [*verb, "--out", "study", "--on", "ray", flag])
    assert (done.exit_code, f"leave out --on or {flag}" in done.stderr) == (2, True), done.output
    assert not (rows / "study").exists()


@pytest.mark.parametrize(
    ("on", "code", "message"),
    [("slurm", 2, "--on takes ray or ray:ADDRESS"), ("ray:127.0.0.1:1", 4, "No token for the cluster at 127.0.0.1:1")],
)
def test_a_place_that_cannot_be_used_is_refused_first(
    on: str, code: int, message: str, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(rows))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(app, ["compare", "rows.csv", "--arms", "majority", "--yes", "--out", "study", "--on", on])
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr
    assert not (rows / "study").exists()


def test_an_address_where_nobody_listens_is_told_at_once(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    done = CliRunner().invoke(
        app, ["compare", "rows.csv", "--arms", "majority", "--yes", "--out", "study", "--on", "ray:127.0.0.1:9"]
    )
    assert (done.exit_code, "Nobody answers at 127.0.0.1:9" in done.stderr) == (9, True), done.stderr


def test_without_the_extra_the_message_names_it(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = CliRunner().invoke(
        app, ["compare", "rows.csv", "--arms", "majority", "--yes", "--out", "study", "--on", "ray"]
    )
    assert done.exit_code == 2
    assert "pip install 'headstart[ray]'" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_of_three_nodes_of_which_one_is_killed_makes_the_same_table(rows: Path) -> None:
    words = [sys.executable, "-W", "ignore", "-m", "headstart", "compare", "rows.csv", "--base", "bert", "--arms", "majority,scratch", "--seeds", "4",
             "--rates", "0.001", "--set", "finetune.train.steps=60", "--set", "finetune.train.threads=1", "--set", "finetune.model.size=nano", "--yes", "--quiet"]  # fmt: skip
    subprocess.run([*words, "--out", "alone"], check=True, stdout=subprocess.DEVNULL)
    token = secrets.token_hex(32)
    env = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    cluster = subprocess.Popen([sys.executable, "-W", "ignore", "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)  # fmt: skip
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    try:
        address = next(line for line in cluster.stdout if ":" in line and " " not in line).strip()
        wrong = subprocess.run([*words, "--out", "wrong", "--on", f"ray:{address}"], env={**env, "RAY_AUTH_TOKEN": "0" * 64}, capture_output=True, text=True)  # fmt: skip
        study = subprocess.Popen([*words, "--out", "shared", "--on", f"ray:{address}"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        cells = rows / "shared" / "cells"
        while not list(cells.glob("[a-z]*/result.json")):
            assert study.poll() is None, study.communicate()
            time.sleep(0.02)
        cluster.stdin.write("kill\n")
        cluster.stdin.flush()
        assert cluster.stdout.readline() == "killed\n"
        assert len(list(cells.glob("[a-z]*/result.json"))) < 5, "it was killed half-way"
        _, told = study.communicate(timeout=600)
        assert study.returncode == 0, told
    finally:
        cluster.stdin.close()
        cluster.wait(60)
        cluster.stdout.close()
    read = [without(CLOCK, json.loads((rows / name / "results.json").read_text())) for name in ("alone", "shared")]
    assert read[0] == read[1]
    assert wrong.returncode == 4, wrong.stderr
    assert "does not let this process in" in wrong.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_of_this_machine(rows: Path) -> None:
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "headstart",
        "compare",
        "rows.csv",
        "--arms",
        "majority,tfidf",
        "--yes",
        "--quiet",
        "--out",
        "study",
    ]
    done = subprocess.run([*words, "--on", "ray"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tfidf" in done.stdout
