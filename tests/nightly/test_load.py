"""What counts as a fault of a server under load."""

from __future__ import annotations

from tests.nightly.load import counts, faults

PAGE = """2000 texts of 3 to 60 words, 32.3 on average.

| server | clients | requests/s | p50, ms | p99, ms | errors | server, ms of processor | client | texts per pass |
|---|---|---|---|---|---|---|---|---|
| Headstart, requests joined | 32 | 916 | 30.2 | 37.7 | 0 | 4.06 | 0.26 | 32.0 |
| Headstart, one client | 1 | 261 | 2.4 | 51.1 | 0 | 2.18 | 0.05 | 1.0 |
| FastAPI and a transformers pipeline | 32 | 212 | 142.8 | 267.4 | 3 | 5.06 | 0.07 |  |

2560 clients for 15 s: answers by status {200: 609, 429: 24102}; refused after 1508 ms (median); memory 288 MB before.
"""


def test_requests_that_are_answered_or_refused_are_no_fault_nor_are_those_of_others() -> None:
    assert faults(PAGE) == []
    told = (
        "requests/s: requests joined 916, one client 261; no errors; with too many clients 609 answered, 24,102 refused"
    )
    assert counts(PAGE) == told


def test_errors_silence_and_other_statuses_are_faults() -> None:
    assert faults(PAGE.replace("51.1 | 0 |", "51.1 | 7 |")) == ["Headstart, one client: 7 errors at 261 requests/s"]
    assert faults(PAGE.replace("| 916 |", "| 0 |")) == ["Headstart, requests joined: 0 errors at 0 requests/s"]
    assert faults(PAGE.replace("429: ", "500: ")) == ["24102 answers with the status 500"]
    assert faults("") == faults(PAGE.partition("2560")[0]) == ["the benchmark printed no table"]
