"""What counts as a fault of a lab."""

from __future__ import annotations

from typing import Any

from tests.nightly.lab import counts, faults

RESULTS: dict[str, Any] = {
    "figures": [{"what": "parameters"}, {"what": "loss"}, {"what": "accuracy"}],
    "tables": [{"caption": "longest", "missing": []}],
    "answers": [{"question": "How many?", "text": "30 of them."}],
    "effects": [{"shown": True}, {"shown": False}],
    "score": {"compared": 2, "equal": 1, "alike": 0, "better": 0, "worse": 1},
}


def test_a_lab_that_has_measured_everything_tells_how_it_stands_to_the_reference() -> None:
    assert faults(RESULTS) == []
    assert counts(RESULTS) == "3 figures, 2 compared (1 equal, 1 worse); 1 of 2 effects shown"
    alone = {**RESULTS, "effects": [], "score": dict.fromkeys(RESULTS["score"], 0)}
    assert counts(alone) == "3 figures, none compared; 0 of 0 effects shown"


def test_what_a_lab_has_not_measured_is_named() -> None:
    lost = {
        **RESULTS,
        "figures": [{"what": "loss", "missing": "no step 'train'"}],
        "tables": [{"caption": "longest", "missing": ["words"]}],
        "answers": [{"question": "How many?", "text": "What this rests on was not measured."}],
    }
    assert faults(lost) == [
        "no figure 'loss' (no step 'train')",
        "no column in 'longest': words",
        "no answer to 'How many?'",
    ]
