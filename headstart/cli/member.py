"""One of the processes that `--processes` starts: it trains, or follows the one that does."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from headstart.cli.terminal import Bar
from headstart.errors import UserError, first_line, out_of_memory
from headstart.runs.parent import PARENT, end_with_parent
from headstart.runs.place import here
from headstart.strict_json import to_json


def work(folder: Path) -> None:
    from headstart.jobs.job import follow_job, run_job
    from headstart.runs.kinds import parse_run_config

    place, task = here(), json.loads((folder / "job.json").read_text("utf-8"))
    if not place.leads:
        follow_job(task["out"], place)
        return
    config = parse_run_config(task["config"], "the settings")
    run_job(config, task["out"], task["resume"], Bar(task["quiet"]), place=place)


def main(folder: Path) -> int:
    """The exit code. What the process fails with is written where the one that started it looks."""
    try:
        work(folder)
    except UserError as error:
        code, message, exit_code = error.code, str(error), error.exit_code
    except KeyboardInterrupt:
        code, message, exit_code = "STOPPED", "Stopped.", 130
    except Exception as error:
        if out_of_memory(error):
            code, message, exit_code = "MEMORY", "Out of memory. Try a smaller --batch-size, --context or --size.", 6
        else:
            with tempfile.NamedTemporaryFile("w", prefix="headstart-crash-", suffix=".txt", delete=False) as file:
                file.write(traceback.format_exc())
            cause = f"{type(error).__name__}: {first_line(error)}"
            code, message = "BUG", f"This is a bug in Headstart, not in your input ({cause}). Details: {file.name}"
            exit_code = 1
    else:
        return 0
    failure = {"code": code, "message": message, "exit": exit_code}
    (folder / f"failure-{here().rank}.json").write_text(to_json(failure), "utf-8")
    return exit_code


if __name__ == "__main__":
    end_with_parent(int(os.environ.pop(PARENT)))
    sys.exit(main(Path(sys.argv[1])))
