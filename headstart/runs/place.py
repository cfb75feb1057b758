"""Which of the processes that train one model this one is, as torchrun's environment variables say. No torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.config import JobConfig

WHOLE = ("translate", "match")  # a decoder prepares all layers before they run, and a temperature cannot be divided
LISTENING = "HEADSTART_LISTEN_FD"  # environment variable: the socket, bound already, that the first process listens on


@dataclass(frozen=True)
class Place:
    rank: int = 0  # 0 leads: it alone writes
    count: int = 1
    local_rank: int = 0  # on its machine
    local_count: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def one_machine(self) -> bool:
        return self.local_count == self.count

    def environment(self) -> dict[str, str]:
        """The variables that `here` reads."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return dict(zip(names, map(str, (self.rank, self.count, self.local_rank, self.local_count)), strict=True))


ALONE = Place()


def here(environment: Mapping[str, str] = os.environ) -> Place:
    """The place of this process; alone, where nobody has started several.

    >>> here({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a"}).leads
    False
    """
    if "RANK" not in environment or "MASTER_ADDR" not in environment:
        return ALONE
    try:
        rank, count = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        local = int(environment.get("LOCAL_RANK", rank)), int(environment.get("LOCAL_WORLD_SIZE", count))
    except (KeyError, ValueError):
        raise ConfigError("RANK and WORLD_SIZE in the environment are not those of torchrun. Unset them.") from None
    return Place(rank, count, *local) if count > 1 else ALONE


def must_have_work(processes: int, micro_batches: int) -> None:
    """Refuse more processes than a step has micro-batches: some would never have anything to do."""
    if processes > micro_batches:
        raise ConfigError(
            f"{processes} processes, but a step has {micro_batches} micro-batch{'es' if micro_batches > 1 else ''} "
            f"(train.accumulate), so {processes - micro_batches} of them would be idle. Give --processes {micro_batches}, or in a "
            f"new run --set train.accumulate={processes} with a smaller --batch-size."
        )


def must_have_parts(processes: int, cfg: JobConfig) -> None:
    """Refuse idle processes; and to shard where there is nothing to share, or where a process would miss what all compute together."""
    train = cfg.train
    must_have_work(processes, train.accumulate)
    if not train.shard:
        return
    if cfg.job in WHOLE:
        raise ConfigError(
            f"--shard is for pretrain and finetune, not for {cfg.job}: its models are always whole. Leave it out."
        )
    if processes == 1:
        raise ConfigError(
            "--shard divides a model among several processes, and there is one. Add --processes N, or leave out --shard (of a run that is resumed: --set train.shard=false)."
        )
    if train.accumulate % processes:
        raise ConfigError(
            f"With --shard all processes compute together, so the micro-batches of a step (train.accumulate, {train.accumulate}) must be a "
            f"multiple of the processes ({processes}). Change one of them, or leave out --shard."
        )
