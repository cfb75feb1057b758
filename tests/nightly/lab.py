"""A whole lab: python -m tests.nightly.lab NAME --out DIR [flags of the lab]. It fails where the lab does, or leaves a figure, a table or an answer without its numbers.

An effect that is not shown is told and no fault: what a lab finds is what it finds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def main() -> int:
    words = sys.argv[1:]
    code = subprocess.run([sys.executable, "-m", "headstart", "lab", *words]).returncode
    if code:
        return code
    results = json.loads((Path(words[words.index("--out") + 1]) / "results.json").read_text("utf-8"))
    found = faults(results)
    sys.stdout.write(("; ".join(found) or counts(results)) + "\n")
    return int(bool(found))


def faults(results: Mapping[str, Any]) -> list[str]:
    """What the lab promises and has not measured."""
    found = [
        f"no figure '{figure['what']}' ({figure['missing']})" for figure in results["figures"] if "missing" in figure
    ]
    found += [
        f"no column in '{table['caption']}': {', '.join(table['missing'])}"
        for table in results["tables"]
        if table["missing"]
    ]
    return found + [f"no answer to '{a['question']}'" for a in results["answers"] if "was not measured" in a["text"]]


def counts(results: Mapping[str, Any]) -> str:
    """How the figures stand to those of the reference, and what was shown."""
    score, effects = results["score"], results["effects"]
    told = [f"{score[name]} {name}" for name in ("equal", "alike", "better", "worse") if score[name]]
    compared = f"{score['compared']} compared ({', '.join(told)})" if told else "none compared"
    shown = sum(effect["shown"] for effect in effects)
    return f"{len(results['figures'])} figures, {compared}; {shown} of {len(effects)} effects shown"


if __name__ == "__main__":
    sys.exit(main())
