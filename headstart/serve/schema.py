"""The routes as the page of the API lists them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypedDict


class Operation(TypedDict):
    method: str
    path: str
    about: str
    fields: list[str]


def operations(schema: dict[str, Any]) -> dict[str, list[Operation]]:
    """The operations of a schema by tag, with the names of what their bodies and queries hold."""
    groups: defaultdict[str, list[Operation]] = defaultdict(list)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            names = [p["name"] for p in operation.get("parameters", []) if p["in"] == "query"]
            for name in _references(body):
                names += schema["components"]["schemas"].get(name, {}).get("properties", {})
            about = operation.get("description") or operation.get("summary", "")
            groups[(operation.get("tags") or ["other"])[-1]].append(
                {"method": method.upper(), "path": path, "about": about, "fields": list(dict.fromkeys(names))}
            )
    return dict(groups)


def _references(schema: dict[str, Any]) -> list[str]:
    found = [schema["$ref"]] if "$ref" in schema else []
    found += [part["$ref"] for part in schema.get("oneOf", []) if "$ref" in part]
    return [reference.rpartition("/")[2] for reference in found]
