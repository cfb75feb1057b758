"""Requests that a fuzzer makes of the schema: none is answered with a 5xx, or with what the schema does not name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from starlette.testclient import TestClient

from headstart.serve.problems import Refused

schemathesis = pytest.importorskip("schemathesis")
jsonschema = pytest.importorskip("jsonschema_rs")
CASES = 15  # of each operation


@pytest.mark.parametrize("cases", [CASES, pytest.param(50, marks=pytest.mark.slow)])
def test_no_request_is_answered_with_a_fault_or_outside_of_the_schema(
    cases: int, folder: Path, client_of: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_job(*_: Any) -> str:
        raise Refused("no job is started here", "JOB_LIMIT")

    monkeypatch.setattr("headstart.serve.jobs.Jobs.start", no_job)
    client = client_of(folder, token=None)
    schema = client.get("/openapi.json").json()
    operations = [found.ok() for found in schemathesis.openapi.from_dict(schema).get_all_operations()]
    asked = [
        fuzzed(client, schema, one, cases) for one in operations if one.path != "/api/plans"
    ]  # which starts processes
    assert sum(asked) > 200


def fuzzed(client: TestClient, schema: Any, operation: Any, cases: int) -> int:
    """Send requests of one operation; how many could be sent."""
    known, sent = operation.definition.raw["responses"], 0

    @settings(
        max_examples=cases,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        nonlocal sent
        how = case.as_transport_kwargs(base_url="http://127.0.0.1:8642")
        how = {k: v for k, v in how.items() if k in ("method", "url", "params", "headers", "json", "content", "data")}
        if "data" in how:
            how["content"] = how.pop("data")
        try:
            answer = client.request(**how, follow_redirects=False)
        except (ValueError, TypeError, httpx2.InvalidURL):  # not even this client can send it
            return
        sent += 1
        place = (operation.method, operation.path, answer.status_code, answer.text[:300])
        assert answer.status_code < 500, place
        assert str(answer.status_code) in known, place
        content = known[str(answer.status_code)].get("content", {}).get("application/json", {})
        if content.get("schema") and answer.headers["content-type"].startswith("application/json"):
            shape = {**content["schema"], "components": schema["components"]}
            assert jsonschema.validator_for(shape).is_valid(answer.json()), place

    ask()
    return sent
