"""The matcher for whoever names none: the newest run of `match train`, or one trained on emoji, once."""

from __future__ import annotations

import os
from pathlib import Path

from headstart.config import MatchConfig
from headstart.hub.packs import get_pack, pack_folder
from headstart.jobs.match import match
from headstart.runs.run import Run, runs_in
from headstart.runs.watch import Watch
from headstart.schema import parse

EMOJI_SIZE = 96  # pixels that the tower reads of an emoji, which has 72: more would take longer and show no more


def default_matcher(folder: Path, watch: Watch) -> str:
    """The newest run of `match train` in runs/; for emoji, or where there is none, one trained on emoji, once."""
    found = [run.summary() for run in runs_in("runs")] if os.path.isdir("runs") else []
    ours = [Path(run["run"]) for run in found if (run["job"], run["state"]) == ("match", "finished")]
    if ours and not folder.is_relative_to(pack_folder("emoji")):
        newest = max(ours, key=lambda path: (path / "result.json").stat().st_mtime_ns)
        watch.note(f"Model: {newest}, the newest run of match train. Another: --model.")
        return str(newest)
    run = Run(pack_folder("emoji").parent.parent / "runs" / pack_folder("emoji").name)
    if not run.finished:
        watch.note(
            "A model is trained on emoji and their names, once (about a minute); it knows little of photos. Give another "
            "with --model."
        )
        settings = {"data": {"pairs": str(get_pack("emoji"))}, "image_size": EMOJI_SIZE}
        match(parse(MatchConfig, settings), run.path, run.there, watch)
    watch.note(f"Model: trained on emoji, {run.path}")
    return str(run.path)
