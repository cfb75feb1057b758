"""The log once more, for TensorBoard. Written without its background thread, whose errors nobody could catch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from headstart.errors import ResourceError
from headstart.runs.disk import attempt, make_folder
from headstart.runs.log import Log
from headstart.runs.run import Run
from headstart.runs.watch import Watch


class Events:
    def __init__(self, run: Run, wanted: bool, step: int, watch: Watch) -> None:
        """Events of a run that goes on from `step`; what an earlier process wrote after it is purged."""
        self.watch, self._log = watch, None
        if not wanted:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = run.path / "tensorboard"
        file = folder / f"events.out.tfevents.{step:07d}"  # read in the order of their names: by step, not by clock
        make_folder(folder)
        for later in [path for path in folder.iterdir() if path.name > file.name]:
            attempt(later, later.unlink)
        self._log = Log(file, 0)
        self._event, self._summary = Event, Summary
        self._records = RecordWriter(SimpleNamespace(write=self._log.add))
        self._write(file_version="brain.Event:2")
        if step:
            self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, split: str, scores: Mapping[str, Any], step: int) -> None:
        numbers = {name: value for name, value in scores.items() if isinstance(value, (int, float))}
        values = [self._summary.Value(tag=f"{n}/{split}", simple_value=v) for n, v in numbers.items() if self._log]
        if values:
            self._write(step=step, summary=self._summary(value=values))

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is None:
            return
        try:
            self._log.sync()
        except ResourceError as refusal:
            self.watch.note(f"Note: {refusal}")
        self._log.close()

    def _write(self, **fields: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
