"""The verbs that compare many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from headstart.cli.app import Debug, Json, Quiet, app
from headstart.cli.terminal import Bar, guarded, piece, show, show_json, show_table


@app.command()
@guarded
def runs(
    folder: Annotated[str, Argument(metavar="DIR", help="Where to look.")] = "runs",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List what has been trained below DIR, with its scores."""
    from headstart.train.run import runs_in

    records = [run.summary() for run in runs_in(folder)]
    if as_json:
        show_json(records)
        return
    names = ("valid_loss", "valid_accuracy", "test_accuracy")
    rows = [
        [r["run"], r["job"] or "?", r["state"], *("" if r[n] is None else f"{r[n]:.4f}" for n in names),
         "" if r["seconds"] is None else f"{r['seconds']:.0f} s"]
        for r in records
    ]  # fmt: skip
    header = ["run", "job", "state", "validation loss", "accuracy", "test accuracy", "time"]
    show_table(header, rows, right=(3, 4, 5, 6))


@app.command()
@guarded
def demo(
    out: Annotated[str, Option(help="Where the runs and the page go.")] = "runs/demo",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the main job on public film reviews: pretrain, fine-tune, compare, conclude. About three minutes."""
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
