"""The verbs that compare many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from headstart.cli.app import Debug, Json, Quiet, app
from headstart.cli.terminal import Bar, guarded, piece, show, show_json, show_table


@app.command()
@guarded
def demo(
    out: Annotated[str, Option(help="Where the runs and the page go.")] = "runs/demo",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the main job on public film reviews: pretrain, fine-tune, compare, conclude. About five minutes."""
    from headstart.study.demo import run_demo

    result = run_demo(Path(out), Bar(quiet))
    if as_json:
        show_json(result)
        return
    rows = [
        [arm["name"], "  ".join(f"{x:.3f}" for x in arm["accuracies"]), f"{arm['mean']:.3f}", f"{arm['seconds']:.0f} s"]
        for arm in result["arms"]
    ]
    show_table(["arm", "test accuracy by seed", "mean", "time"], rows, right=(2, 3))
    show()
    for record in result["predictions"]:
        show(f"{record['label']:>8} {max(record['probabilities'].values()):.2f}  {record['text']}")
    show()
    show(
        "generated: " + " ".join(f"{piece(t['token'])}[{t['probability']:.2f}]" for t in result["generated"]["tokens"])
    )
    show()
    show(result["verdict"])
    show(f"curves: {result['page']}")
