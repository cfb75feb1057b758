"""The cells of a study as tasks of a Ray cluster (--on ray[:ADDRESS]): made of this machine for the study alone, or an existing one. No torch.

A task is one cell: bytes in, bytes out (parcel.py). A node or a worker that dies costs its cells, which are begun again elsewhere.
Access is by token, always. Ray itself is loaded when it is used.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack

from headstart.errors import ConfigError, NetworkError, ResourceError, UserError, first_line
from headstart.quantities import data_size
from headstart.runs.watch import Watch
from headstart.study.parcel import Source, arrive, outgoing, unpack
from headstart.study.remote_cell import run_remote_cell
from headstart.study.run import KILLED, Cells, Outcome, Planned

TRIES = 3  # more, of a cell whose worker or node died
TOKEN = "RAY_AUTH_TOKEN"
QUIET = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_task_oom_retries": str(TRIES),
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
# Of a cluster that is made here: Ray listens on loopback alone, on any system, and workers have the priority of other processes.
OURS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
THERE = {"RAY_NUM_REDIS_GET_RETRIES": "3"}  # of a cluster that answers: to be let in
PATIENCE = 5.0  # seconds to connect


def address_in(asked: str) -> str:
    """What --on names: an address, or none.

    >>> address_in("ray"), address_in("ray:10.0.0.1:6379")
    ('', '10.0.0.1:6379')
    """
    name, colon, address = asked.partition(":")
    if name != "ray" or (colon and not address):
        raise UserError(f"--on takes ray or ray:ADDRESS, not '{asked}'.")
    return address


@contextmanager
def cluster(address: str) -> Iterator[None]:
    """Connected to the cluster at `address`; without one, to one that is made of this machine and ends with the block."""
    before = dict(os.environ)
    os.environ.update(QUIET)
    if not address:
        os.environ.update({TOKEN: secrets.token_hex(32), **OURS})
    elif not _has_token():
        raise ConfigError(
            f"No token for the cluster at {address}. Set {TOKEN} to the one that its nodes were started with (RAY_AUTH_MODE=token).",
            "CLUSTER_TOKEN",
        )
    else:
        os.environ.update(THERE)
    try:
        ray = _ray()
        _connect(ray, address)
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        for name in {*QUIET, *OURS, *THERE, TOKEN}:
            os.environ.pop(name, None) if name not in before else os.environ.update({name: before[name]})


def _has_token() -> bool:
    return bool(os.environ.get(TOKEN) or os.environ.get("RAY_AUTH_TOKEN_PATH") or Path("~/.ray/auth_token").expanduser().exists())  # fmt: skip


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("--on ray needs the library ray: pip install 'headstart[ray]'.", "NOT_INSTALLED") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    _must_answer(address)
    try:
        ray.init(
            address=address or "local", log_to_driver=False, logging_level="CRITICAL", configure_logging=True,
            **({} if address else {"include_dashboard": False}),
        )  # fmt: skip
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if not address:
            raise ResourceError(f"Ray does not start on this machine: {first_line(error)}.", "CLUSTER") from None
        raise ConfigError(
            f"The cluster at {address} answers, but does not let this process in ({first_line(error)}). Set {TOKEN} to the token that its "
            "nodes were started with, and run this on one of its nodes (ray start --address).",
            "CLUSTER_TOKEN",
        ) from None


def _must_answer(address: str) -> None:
    """An address where nobody listens is found at once; Ray would try it for many minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise NetworkError(
            f"Nobody answers at {address} ({first_line(error)}). Give the address of the cluster's head node, such as HOST:6379.",
            "CLUSTER",
        ) from None


class RayCells(Cells):
    """Runs each cell as a task of the cluster, as many at once as it has room for."""

    def __init__(
        self, out: Path, planned: Sequence[Planned], watch: Watch, expected: Mapping[str, float] | None = None
    ) -> None:
        self.ray = _ray()
        super().__init__(out, planned, self._room(1), watch, expected)
        self.task = self.ray.remote(run_remote_cell)
        self.sent: dict[Source, Any] = {}  # parcels in the cluster's memory, each sent once
        self.features: dict[str, Any] = {}  # likewise, of frozen bases, by the name of the file

    def _outcomes(self, missing: Sequence[Planned]) -> Iterator[Outcome]:
        left, waiting = list(missing), dict[Any, Planned]()
        while left or waiting:
            while left and len(waiting) < self._room(1):
                cell = left.pop(0)
                waiting[self._started(cell)] = cell
            done, _ = self.ray.wait(list(waiting), timeout=None)
            for reference in done:
                yield self._ended(waiting.pop(reference), reference)

    def _started(self, cell: Planned) -> Any:
        going = outgoing(cell, self.out)
        self._must_fit(going.threads, going.memory)
        parcels = {place: self._parcel(source, "study/cells" in place) for place, source in going.sources.items()}
        if going.features:
            parcels |= {f"study/features/{name}": parcel for name, parcel in self.features.items()}
        task = self.task.options(num_cpus=going.threads, memory=going.memory, max_retries=TRIES, name=cell.name)
        return task.remote(going.message, bytes(msgpack.packb(list(parcels))), *parcels.values())

    def _parcel(self, source: Source, cell: bool) -> Any:
        if cell:  # it changes
            return self.ray.put(source.packed(checkpoints=True))
        if source not in self.sent:
            self.sent[source] = self.ray.put(source.packed())
        return self.sent[source]

    def _ended(self, cell: Planned, reference: Any) -> Outcome:
        errors = self.ray.exceptions
        try:
            told = msgpack.unpackb(self.ray.get(reference))
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        ) as error:
            why = "needs more memory than its node has" if isinstance(error, errors.OutOfMemoryError) else f"was lost {TRIES + 1} times with its worker or node"  # fmt: skip
            return Outcome(cell.name, KILLED, f"it {why}")
        except errors.RayError as error:  # Headstart is not installed there, or another one
            return Outcome(cell.name, 4, f"a node cannot run it: {_last_line(error)}")
        for name, parcel in told["features"].items():
            self.features.setdefault(name, self.ray.put(parcel))
            with suppress(OSError):  # whoever goes on here need not make them again
                unpack(parcel, self.out / "features" / Path(name).name)
        if told["cell"] is not None:
            arrive(told["cell"], self.out / "cells" / cell.name)
        return Outcome(cell.name, told["exit"], told["message"])

    def _room(self, threads: int) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) // threads)

    def _must_fit(self, threads: int, memory: int) -> None:
        """A task that fits on no node would wait for ever."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= threads and node.get("memory", 0) >= memory for node in nodes):
            raise ResourceError(
                f"No node of the cluster has {threads} CPU and {data_size(memory)} of memory, which a cell needs.",
                "CLUSTER_SMALL",
            )


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
