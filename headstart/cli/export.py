"""The verb that hands a finished model on: export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.cli.app import app, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import accuracy_line, show, show_json
from headstart.errors import UserError, did_you_mean
from headstart.quantities import data_size


@verb(app, "export")
def export(given: Given) -> None:
    """Write the model in RUN for use without Headstart. Checks that it gives the same logits."""
    from headstart.hub.packs import located

    run, to, out, int8 = given["RUN"], given["--to"], given["--out"], given["--int8"]
    if to not in ("hf", "onnx", "html"):
        raise UserError(f"--to takes hf, onnx or html, not '{to}'.{did_you_mean(to, ('hf', 'onnx', 'html'))}")
    if int8 and to != "onnx":
        raise UserError("--int8 is for --to onnx.")
    if to == "hf":
        from headstart.use.export import export_transformers

        result: Mapping[str, Any] = export_transformers(run, out)
    elif to == "html":
        from headstart.use.html_export import export_html

        result = export_html(run, out)
    else:
        from headstart.use.onnx_export import export_onnx, rows_to_score

        rows = rows_to_score(run, located(int8), given["--text-column"], given["--label-column"]) if int8 else None
        result = export_onnx(run, out, rows)
    if given["--json"]:
        show_json(result)
        return
    if to == "html":
        kept = (
            f"{result['bits']}-bit weights, probabilities within {result['largest_difference']:.1g} of those in {run}"
        )
        show(f"{result['out']} ({data_size(result['bytes'])}): {kept}. Open it in a browser; it needs no network.")
        return
    made = f" ({result['class']})" if to == "hf" else f" ({data_size(result['bytes'])})"
    show(f"{result['out']}{made}: the same logits as in {run}, within {result['largest_difference']:.1g}")
    if to == "onnx":
        show(f"{result['example']}: its use without Headstart")
    if int8:
        small = result["int8"]
        show(f"{small['out']} ({data_size(small['bytes'])})")
        show(accuracy_line("accuracy in 32 bits", small["single"]))
        show(accuracy_line("accuracy in 8 bits ", small["int8"]))
