"""The security rules, each under its name: R1 to R20 of the design, and those that other servers taught."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import headstart.serve
from headstart.errors import ConfigError
from headstart.serve.guard import OPEN, depth_of
from headstart.serve.requests import Body
from headstart.serve.settings import Limits, Settings, kept_token
from tests.serve.conftest import ADDRESS, TOKEN

SOURCE = Path(headstart.serve.__file__).parent
UPLOAD = {"content-type": "application/octet-stream"}
HOSTILE = [
    "<script>document.title='owned'</script>", "</textarea><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "\u202egnp.exe", "\x1b[31mred",
    "'\"><svg onload=alert(1)>", "javascript:alert(1)", "a\r\nSet-Cookie: x=1", "\x00", "${7*7}", "😀👩\u200d🚀", "../../etc/passwd",
]  # fmt: skip
TRAVERSALS = [
    "../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "//etc/passwd", "file:///etc/passwd", "....//....//etc/passwd",
    "..\\..\\etc\\passwd", "C:\\windows\\win.ini", "~/.ssh/id_rsa", "/proc/self/environ", "base/../../etc", ".serve", ".serve/token", "%00", "base%00.json",
    "..;/etc/passwd", "%252e%252e%252fetc", "\u2025/etc/passwd", "..%c0%af..", "base/", "./.serve/token", "con", "-", "http://169.254.169.254/", "\\\\host\\share", "*", "{base}",
]  # fmt: skip


def routes(client: TestClient) -> Iterator[tuple[str, str]]:
    """Every method and path of the application, with something in place of ids."""
    for route in flat(client.app.app.routes):
        path = re.sub(r"\{\w+(:\w+)?\}", "x-00000000", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, path


def flat(found: Any) -> Iterator[Route]:
    for route in found:
        if isinstance(route, Route):
            yield route
        else:
            inner = getattr(route, "original_router", None) or getattr(route, "router", None) or route
            yield from flat(inner.routes)


def send(client: TestClient, method: str, path: str, **how: Any) -> Any:
    headers = how.pop("headers", {})
    if method == "PUT":
        how, headers = {"content": b"x", **how}, {**UPLOAD, **headers}
    elif method != "GET":
        how = {"json": {}, **how} if "content" not in how else how
    return client.request(method, path, headers=headers, follow_redirects=False, **how)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org"])
def test_R1_another_host_than_loopback_needs_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="so a token is needed"):
        Settings(tmp_path, host=host)


def test_R1_the_server_listens_on_loopback_by_default(tmp_path: Path) -> None:
    assert Settings(tmp_path).host == "127.0.0.1"
    assert not Settings(tmp_path).exposed


@pytest.mark.parametrize("given", [None, "", "wrong", TOKEN.upper(), TOKEN[:-1], TOKEN + " x", "é" * 43])
def test_R2_every_route_needs_the_token(shared: TestClient, given: str | None) -> None:
    asked = 0
    for method, path in routes(shared):
        if path in OPEN or path.startswith("/static/"):
            continue
        headers = {"authorization": (f"Bearer {given}" if given is not None else "").encode("utf-8")}
        answer = send(shared, method, path, headers=headers)
        assert answer.status_code == 401, (method, path)
        assert answer.json()["error"]["code"] == "TOKEN"
        asked += 1
    assert asked > 35


def test_R2_the_token_comes_once_in_the_address_and_then_in_a_cookie(shared: TestClient) -> None:
    anyone = TestClient(shared.app, ADDRESS)
    page = {"accept": "text/html"}
    assert anyone.get("/", headers=page).status_code == 401
    wrong = anyone.get("/?token=wrong", headers=page, follow_redirects=False)
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    answer = anyone.get(f"/?token={TOKEN}", headers=page, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert anyone.get("/", headers=page).status_code == 200
    assert (
        anyone.get(f"/jobs?token={TOKEN}", headers=page).status_code == 200
    )  # by the cookie; elsewhere it means nothing
    assert TestClient(shared.app, ADDRESS).get(f"/jobs?token={TOKEN}").status_code == 401


def test_R2_and_R20_the_token_is_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        token = kept_token(tmp_path / "runs")
    finally:
        os.umask(before)
    file = tmp_path / "runs" / ".serve" / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert len(token) >= 43
    assert kept_token(tmp_path / "runs") == token


def test_R2_no_token_in_logs_and_errors(
    client: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(client.app.app.state.studio.registry.__class__, "entries", lambda self: 1 / 0)
    answer = client.get(f"/api/runs?token={TOKEN}")
    assert answer.status_code == 500
    client.get(f"/?token={TOKEN}")
    ours = "".join(
        f"{record.getMessage()} {record.exc_text}" for record in caplog.records if record.name.startswith("headstart")
    )
    assert "ZeroDivisionError" in ours
    assert '"path": "/"' in ours
    assert TOKEN not in ours + answer.text


def test_R3_only_health_and_static_files_are_open(shared: TestClient) -> None:
    assert OPEN == ("/healthz", "/ping")
    anyone = TestClient(shared.app, ADDRESS)
    opened = {path for method, path in routes(shared) if send(anyone, method, path).status_code != 401}
    assert opened == {"/healthz", "/ping", "/static/x-00000000"}
    for path in (
        "/healthz/../v1/models",
        "/static/../v1/models",
        "//v1/models",
        "/v1/models/",
        "/HEALTHZ",
        "/healthz/",
        "/%2e/v1/models",
    ):
        assert send(anyone, "GET", path).status_code in (401, 404), path
        assert "headstart" not in send(anyone, "GET", path).text.lower() or send(anyone, "GET", path).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8642", 200), ("localhost:8642", 200), ("[::1]:8642", 200), ("localhost", 200), ("LOCALHOST:9000", 200), ("127.0.0.1:1", 200),
        ("evil.com", 403), ("127.0.0.1.evil.com", 403), ("evil.com:8642", 403), ("localhost.evil.com", 403), ("0.0.0.0:8642", 403), ("127.0.0.2", 403), ("192.168.0.1", 403),
        ("[::ffff:127.0.0.1]", 403), ("127.1", 403), ("2130706433", 403), ("localhost.", 403), ("xlocalhost", 403),
        ("localhost@evil.com", 400), ("foo/../", 400), ("localhost:", 400), ("localhost:0", 400), ("localhost:99999", 400), ("localhost:8642:1", 400), ("local host", 400), ("", 400),
        ("localhost,evil.com", 400), ("http://localhost", 400), ("localhost#", 400), ("[::1", 400), ("localhost:80a", 400), ("*", 400),
    ],
)  # fmt: skip
def test_R4_host_names_that_are_not_ours_are_refused(shared: TestClient, host: str, status: int) -> None:
    assert shared.get("/v1/models", headers={"host": host}).status_code == status


def test_R4_two_hosts_are_none(shared: TestClient) -> None:
    import httpx2

    doubled = httpx2.Headers([("host", "127.0.0.1"), ("host", "evil.com")])
    assert shared.get("/healthz", headers=doubled).status_code == 400


def test_R4_another_name_can_be_allowed(folder: Path, client_of: Callable[..., TestClient]) -> None:
    client = client_of(folder, names=("studio.example.org",))
    assert client.get("/v1/models", headers={"host": "studio.example.org:443"}).status_code == 200


SITES: list[tuple[dict[str, str], bool]] = [
    ({}, True), ({"sec-fetch-site": "same-origin"}, True), ({"sec-fetch-site": "none"}, True), ({"origin": ADDRESS}, True),
    ({"sec-fetch-site": "cross-site"}, False), ({"sec-fetch-site": "same-site"}, False), ({"sec-fetch-site": "nonsense"}, False),
    ({"origin": "null"}, False), ({"origin": "http://evil.com"}, False), ({"origin": "http://127.0.0.1:9999"}, False), ({"origin": ""}, False),
    ({"sec-fetch-site": "cross-site", "origin": ADDRESS}, False),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "allowed"), SITES)
def test_R5_requests_of_other_origins_are_refused_on_every_route_events_too(
    shared: TestClient, headers: dict[str, str], allowed: bool
) -> None:
    for method, path in routes(shared):
        if path == "/static/x-00000000":
            continue
        answer = send(shared, method, path, headers=headers)
        refused = answer.status_code == 403 and answer.json()["error"]["code"] == "ORIGIN"
        assert refused is not allowed, (method, path, answer.status_code)


def test_R5_following_a_link_is_allowed_but_framing_and_posting_are_not(shared: TestClient) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert shared.get("/", headers=link).status_code == 200
    assert shared.get("/", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403
    assert send(shared, "POST", "/api/jobs", headers=link).status_code == 403


def test_R15_the_notices_of_a_study_name_no_path(folder: Path, client_of: Callable[..., TestClient]) -> None:
    results = json.loads((folder / "study" / "results.json").read_text())
    place = folder / "files" / ("0" * 64) / "rows.csv"
    results["notices"] = [f"{place}: the columns are separated by semicolons."]
    (folder / "study" / "results.json").write_text(json.dumps(results))
    client = client_of(folder)
    (study,) = (entry["id"] for entry in client.get("/api/runs").json() if entry["name"] == "study")
    page, data = client.get(f"/studies/{study}"), client.get(f"/api/studies/{study}")
    assert (page.status_code, data.status_code) == (200, 200)
    assert "rows.csv: the columns are separated by semicolons." in page.text
    assert data.json()["notices"] == ["rows.csv: the columns are separated by semicolons."]
    assert str(folder) not in page.text + data.text


def test_R5_a_link_of_another_origin_comes_again_with_its_cookie(shared: TestClient) -> None:
    """The browser keeps a strict cookie back from such a link, and sends it when the page asks again."""
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
        "accept": "text/html",
    }
    nobody = {**link, "authorization": ""}
    again = '<meta http-equiv="refresh" content="0">'
    first, second = (
        shared.get("/labs", headers={**nobody, "sec-fetch-site": site}) for site in ("cross-site", "same-origin")
    )
    assert (first.status_code, again in first.text) == (401, True)
    assert (second.status_code, again in second.text) == (401, False)  # so that it ends


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/json"]
)
def test_R5_only_json_is_taken(shared: TestClient, kind: str) -> None:
    for method, path in routes(shared):
        if method == "POST":
            answer = shared.post(path, content=b"{}", headers={"content-type": kind})
            assert answer.status_code == 415, path


def test_R5_no_cors(shared: TestClient) -> None:
    asked = {"origin": "http://evil.com", "access-control-request-method": "POST"}
    answer = shared.options("/v1/completions", headers=asked)
    assert answer.status_code in (403, 405)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def disk(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}" for path in files}


def test_R5_every_get_has_no_effect(client: TestClient, folder: Path, ids: dict[str, str], rows_csv: bytes) -> None:
    file = client.put("/api/files?name=a.csv", content=rows_csv, headers=UPLOAD).json()["id"]
    cell = next(m["id"] for m in client.get("/v1/models").json()["data"] if "cells" in m["name"])
    lab = _finished_lab(folder)
    before, called = disk(folder), 0
    given = {"file": file, "name": "studio.js", "lab": client.app.app.state.studio.registry.id_of(lab)}
    places = {"job": "base", "run": "base", "study": "study", "model": "tuned", "labelling": "topics"}
    for route in flat(client.app.app.routes):
        if "GET" not in route.methods:
            continue
        path = re.sub(
            r"\{(\w+)\}",
            lambda found: given.get(found[1]) or ids[places[found[1]]],
            route.path,
        )
        query = "?text=the+soup" if path.endswith("/inside") else ""
        for accept in ("text/html", "*/*"):
            answer = client.get(path + query, headers={"accept": accept})
            assert answer.status_code == 200, (path, answer.text)
            called += 1
    client.get(f"/api/models/{cell}/archive?to=transformers")
    assert called > 50
    after = disk(folder)
    assert after == before


def _finished_lab(folder: Path) -> Path:
    """The least that a lab leaves behind."""
    lab = folder / "labs" / "mine"
    lab.mkdir(parents=True)
    machine = {"started": "2026-01-01", "machine": "here", "versions": {"headstart": "1", "torch": "2"}}
    facts = {"lab": "mine", "quick": True, "data_dir": "data", "environment": machine}
    results = {"title": "Mine", "question": "Does it help?", "seconds": 1.0, "verdict": [], "figures": [], "steps": []}
    (lab / "lab.json").write_text(json.dumps(facts))
    (lab / "results.json").write_text(json.dumps({**facts, **results}))
    (lab / "report.html").write_text("<h1>Mine</h1>")
    return lab


def test_R6_ids_are_looked_up_and_never_joined(shared: TestClient) -> None:
    opened: list[str] = []
    root = str(shared.app.app.state.studio.registry.folder)

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[0], str):
            opened.append(os.path.abspath(arguments[0]))

    watching = True
    sys.addaudithook(listen)
    try:
        for word in TRAVERSALS:
            for method, path in routes(shared):
                if method == "GET" and "x-00000000" in path:
                    answer = shared.get(path.replace("x-00000000", word))
                    assert answer.status_code in (400, 404, 422), (path, word, answer.status_code)
            for path, body in (("/predict", {"inputs": "a", "model": word}), ("/v1/completions", {"model": word}), ("/tokenize", {"prompt": "a", "model": word}),
                               ("/api/jobs", {"verb": "compare", "data": word}), ("/api/jobs", {"verb": "finetune", "data": "0" * 64, "base": word}), ("/api/plans", {"verb": "pretrain", "corpus": [word]}),
                               ("/api/jobs", {"verb": "compare", "data": "0" * 64, "name": word})):  # fmt: skip
                assert shared.post(path, json=body).status_code in (404, 422), (path, word)
    finally:
        watching = False
    known = (root, str(SOURCE.parent), sys.prefix, sys.base_prefix, "/usr/", "/etc/localtime", "/proc/")
    strange = [path for path in opened if not path.startswith(known)]
    assert not [path for path in strange if "passwd" in path or "environ" in path or ".ssh" in path], strange


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "x.pkl",
        "x.pt",
        "x.bin",
        "x.onnx",
        "x.zip",
        "x.tar.gz",
        "x.py",
        "x",
        ".csv",
        "x.csv.exe",
        "x.gguf",
    ],
)
def test_R6_an_upload_is_text_or_a_table_never_a_model_or_an_archive(
    client: TestClient, name: str, folder: Path
) -> None:
    answer = client.put("/api/files", params={"name": name}, content=b"x", headers=UPLOAD)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "DATA_FORMAT"
    assert not (folder / "files").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.csv",
        "/etc/cron.d/x.csv",
        "a\x00.csv",
        "con.csv",
        "-rf.csv",
        "é\u202e.csv",
        "x" * 190 + ".csv",
        "~/x.csv",
        "$(id).csv",
    ],
)
def test_R6_an_upload_is_kept_under_its_hash_whatever_it_is_called(client: TestClient, name: str, folder: Path) -> None:
    data = b"text,label\na,b\n"
    answer = client.put("/api/files", params={"name": name}, content=data, headers=UPLOAD)
    assert answer.json()["id"] == hashlib.sha256(data).hexdigest()
    (kept,) = (folder / "files" / hashlib.sha256(data).hexdigest()).glob("*.csv")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*\.csv", kept.name)
    assert not [
        path
        for path in folder.parent.rglob("*.csv")
        if path != kept and folder not in path.parents and path.name != "rows.csv"
    ]


def test_R6_links_that_leave_the_folder_are_not_followed(client: TestClient, folder: Path, made: Path) -> None:
    before = {m["name"] for m in client.get("/v1/models").json()["data"]}
    (folder / "linked").symlink_to(made / "base")
    outside = folder / "half"
    outside.mkdir()
    for name in ("env.json", "result.json", "config.toml", ".lock"):
        (outside / name).write_bytes((made / "base" / name).read_bytes())
    (outside / "model").symlink_to(made / "base" / "model")
    assert {m["name"] for m in client.get("/v1/models").json()["data"]} == before
    secret = folder.parent / "secret.txt"
    secret.write_text("secret")
    (folder / "base" / "model" / "secret.txt").symlink_to(secret)
    tuned = next(m["id"] for m in client.get("/v1/models").json()["data"] if m["name"] == "base")
    assert b"secret" not in client.get(f"/api/models/{tuned}/archive").content


def test_R7_nothing_here_can_unpickle() -> None:
    for file in SOURCE.glob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not names & {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle", "yaml"}, file


def test_R8_no_request_makes_the_server_connect_anywhere(client: TestClient, rows_csv: bytes) -> None:
    connected: list[Any] = []

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "socket.connect":
            connected.append(arguments[1])

    watching = True
    sys.addaudithook(listen)
    file = client.put("/api/files?name=a.csv", content=rows_csv, headers=UPLOAD).json()["id"]
    for base in ("hf-gpt2", "hf:gpt2", "http://evil.com/x"):
        assert client.post("/api/jobs", json={"verb": "finetune", "data": file, "base": base}).status_code == 422
    for arms in ([], ["tfidf", "full"]):  # the command itself would get a base
        assert client.post("/api/jobs", json={"verb": "compare", "data": file, "arms": arms}).status_code == 422
    client.post("/predict", json={"inputs": "http://evil.com/a.png"})
    watching = False
    assert not [place for place in connected if isinstance(place, tuple) and place[0] not in ("127.0.0.1", "::1")]


def test_R9_bodies_are_strict_and_know_no_other_keys() -> None:
    found = list(every_subclass(Body))
    assert len(found) > 12
    for kind in found:
        assert kind.model_config["strict"] is True
        assert kind.model_config["extra"] == "forbid"
        assert kind.model_config["allow_inf_nan"] is False


def every_subclass(kind: type) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from every_subclass(one)


@pytest.mark.parametrize("value", ["5", True, 1e400, "NaN", -1, 2**31 * 1.0, 10**9, None, [], {}, 1.5])
@pytest.mark.parametrize("field", ["max_tokens", "n", "logprobs", "seed", "top_k"])
def test_R9_numbers_out_of_bounds_or_of_other_types_are_refused(shared: TestClient, field: str, value: Any) -> None:
    content = json.dumps({"prompt": "the", "max_tokens": 1, field: value})
    answer = shared.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    fine = value is None or (field == "seed" and value in (-1, 10**9) and value is not True)
    assert (answer.status_code == 200) is fine, answer.text
    assert answer.status_code < 500


@pytest.mark.parametrize(
    "content",
    [
        "[" * 10_000,
        '{"a":' * 5000,
        "[" * 21 + "]" * 21,
        '{"prompt": ' + "9" * 5000 + "}",
        '{"prompt": "\\ud800"}',
        '{"prompt": NaN}',
        "\xff",
        "{",
        "",
    ],
)
def test_R9_and_R10_deep_long_and_broken_json_is_refused(shared: TestClient, content: str) -> None:
    answer = shared.post(
        "/v1/completions", content=content.encode("latin-1"), headers={"content-type": "application/json"}
    )
    assert 400 <= answer.status_code < 500
    assert (answer.json()["error"]["code"] == "DEPTH") is (depth_of(content.encode("latin-1")) > 20)


def test_R10_depth_is_counted_outside_of_strings() -> None:
    assert depth_of(b'{"a": "[[[[[[[[[[", "b": [[]]}') == 3
    assert depth_of(b'["\\"[[[["]') == 1


def test_R10_bytes_are_counted_as_they_come_and_the_length_decides_nothing(
    folder: Path, client_of: Callable[..., TestClient]
) -> None:
    client = client_of(folder, limits=Limits(body=1000, upload=5000))
    sent = []

    def parts(total: int) -> Iterator[bytes]:
        for i in range(total):
            sent.append(i)
            yield b"x" * 100

    answer = client.post(
        "/predict", content=parts(200), headers={"content-type": "application/json", "content-length": "10"}
    )
    assert answer.status_code == 413
    answer = client.put("/api/files?name=a.csv", content=parts(200), headers={**UPLOAD, "content-length": "10"})
    assert answer.status_code == 413
    assert not list((folder / "files").glob("*/*.csv"))
    assert not list((folder / ".serve" / "uploads").iterdir())
    assert client.put("/api/files?name=a.csv", content=b"y" * 4999, headers=UPLOAD).status_code == 201


def test_R10_compressed_bodies_and_too_many_headers_are_refused(shared: TestClient) -> None:
    assert shared.post("/predict", json={}, headers={"content-encoding": "gzip"}).status_code == 415
    assert shared.get("/healthz", headers={f"x-{i}": "1" for i in range(70)}).status_code == 431


@pytest.mark.parametrize(("field", "most"), [("inputs", 64)])
def test_R10_batches_are_bounded(shared: TestClient, field: str, most: int) -> None:
    assert shared.post("/predict", json={field: ["a"] * most}).status_code == 200
    assert shared.post("/predict", json={field: ["a"] * (most + 1)}).status_code == 422


def test_R11_a_generation_ends_with_its_client(client: TestClient) -> None:
    studio = client.app.app.state.studio
    steps, ended = [], threading.Event()

    def endless() -> Iterator[int]:
        for i in range(10**6):
            steps.append(i)
            yield i

    generation = studio.worker.generate(
        endless, lambda step, error, over: step is not None and step >= 50 and ended.set()
    )
    assert ended.wait(30)
    generation.cancelled.set()
    studio.worker.submit("after", lambda items: items, [1]).result(30)
    count = len(steps)
    studio.worker.submit("after", lambda items: items, [1]).result(30)
    assert len(steps) <= count + 1


def test_R12_a_full_queue_answers_at_once_and_health_goes_on(
    folder: Path, client_of: Callable[..., TestClient]
) -> None:
    client = client_of(folder, limits=Limits(queue=2))
    worker, hold = client.app.app.state.studio.worker, threading.Event()
    busy = worker.submit("hold", lambda items: (hold.wait(60), items)[1], [1])
    while worker.waiting:
        pass
    waiting = [worker.submit(f"wait {i}", lambda items: items, [1]) for i in range(2)]
    refused = client.post("/predict", json={"inputs": "the soup was cold"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "OVERLOADED"
    assert client.get("/healthz").json() == {"status": "ok"}
    hold.set()
    assert [one.result(60) for one in (busy, *waiting)] == [[1]] * 3
    assert client.post("/predict", json={"inputs": "the soup was cold"}).status_code == 200


def test_R13_every_answer_has_the_strict_headers(shared: TestClient, ids: dict[str, str]) -> None:
    pages = [
        "/",
        "/new",
        "/jobs",
        "/docs",
        f"/runs/{ids['base']}",
        f"/studies/{ids['study']}",
        f"/models/{ids['tuned']}",
        f"/jobs/{ids['base']}",
        "/nothing",
        "/v1/models",
        "/static/studio.js",
    ]
    for path in pages:
        headers = shared.get(path, headers={"accept": "text/html"}).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"


def test_R13_documents_with_inline_styles_have_an_origin_of_their_own(shared: TestClient, ids: dict[str, str]) -> None:
    for path in (f"/studies/{ids['study']}/report", f"/models/{ids['tuned']}/inside?text=the+soup"):
        policy = shared.get(path).headers["content-security-policy"]
        assert "sandbox" in policy
        assert "allow-same-origin" not in policy
        assert "connect-src" not in policy
        assert "script-src 'unsafe-inline'" not in policy


def test_R13_no_script_writes_markup_and_no_page_has_inline_script() -> None:
    for script in (SOURCE / "static").glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|setTimeout\(['\"]|https?://(?!www\.w3\.org/2000/svg)",
            script.read_text("utf-8"),
        ), script
    for page in (SOURCE / "pages").glob("*.j2"):
        text = page.read_text("utf-8")
        assert not re.search(
            r"\|\s*safe|Markup|\bon\w+=|<style|style=|<script(?! type=\"module\" src=\"/static/)|https?://", text
        ), page
    assert not re.search(r"Markup\(", "".join(file.read_text("utf-8") for file in SOURCE.glob("*.py")))


@pytest.mark.parametrize("text", HOSTILE)
def test_R13_names_of_others_are_text_on_every_page(client: TestClient, folder: Path, text: str) -> None:
    name = text.replace("/", "_").replace("\x00", "_")[:60]
    (folder / "base").rename(folder / name)
    for entry in client.get("/api/runs").json():
        for path in (
            "/",
            f"/runs/{entry['id']}",
            f"/jobs/{entry['id']}",
            f"/models/{entry['id']}",
            f"/studies/{entry['id']}",
        ):
            page = client.get(path, headers={"accept": "text/html"}).text
            assert name not in page or not re.search(r"[<>\"\x1b\u202e\r]", name), (path, name)
    file = client.put("/api/files", params={"name": f"{text}.csv"}, content=b"text,label\na,b\n", headers=UPLOAD)
    assert file.status_code in (201, 422)
    assert "set-cookie" not in file.headers


def test_R15_errors_hold_no_path_and_no_traceback(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "base" / "model" / "model.safetensors").write_bytes(b"damaged")
    damaged = client.post("/embed", json={"inputs": "a", "model": "base"})
    assert damaged.status_code == 422
    assert "base/model is damaged" in damaged.json()["error"]["message"]
    monkeypatch.setattr("headstart.serve.studio.Studio.model", lambda *_: 1 / 0)
    failed = client.post("/embed", json={"inputs": "a"})
    assert failed.status_code == 500
    assert failed.json()["error"]["request_id"] == failed.headers["x-request-id"]
    for answer in (damaged, failed):
        assert not re.search(r'0x[0-9a-f]{6}|File "|Traceback|/tmp|/home|/usr|ZeroDivision', answer.text)
        assert str(folder) not in answer.text


@pytest.mark.parametrize("text", [*HOSTILE, "--help", "-x", "; rm -rf /", "$(id)", "`id`", "a b", "--out=/tmp/x", "%s"])
def test_R16_a_job_is_a_list_of_words_and_no_value_becomes_a_flag(
    client: TestClient, rows_csv: bytes, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = client.put("/api/files?name=a.csv", content=rows_csv, headers=UPLOAD).json()["id"]
    started: list[list[str]] = []
    monkeypatch.setattr(
        "headstart.serve.jobs.Jobs.start",
        lambda self, words, out: started.append(list(words)) or self.registry.id_of(out),
    )
    monkeypatch.setattr("headstart.serve.jobs.Jobs.get", lambda self, wanted: {"id": wanted})
    asked = {"verb": "compare", "data": file, "text_column": text, "label_column": text, "arms": ["tfidf"]}
    if client.post("/api/jobs", json=asked).status_code == 202:
        (words,) = started
        assert f"--text-column={text}" in words
        assert [word.partition("=")[0] for word in words[2:]] == [
            "--arms",
            "--yes",
            "--text-column",
            "--label-column",
            "--seeds",
            "--out",
        ]
    for field in ("arms", "bases", "corpus"):
        assert client.post("/api/jobs", json={"verb": "compare", "data": file, field: [text]}).status_code == 422
    assert client.post("/api/jobs", json={"verb": "compare", "data": file, "name": text}).status_code == 422


def test_R16_the_process_of_a_job_has_a_group_of_its_own_and_no_shell() -> None:
    source = (SOURCE / "jobs.py").read_text("utf-8") + (SOURCE / "api.py").read_text("utf-8")
    assert source.count("start_new_session=True") == 2
    assert "shell=" not in source
    assert "os.system" not in source


def test_R17_a_model_whose_files_were_changed_is_not_served(client: TestClient, folder: Path) -> None:
    tokenizer = folder / "tuned" / "model" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text("utf-8").replace("soup", "soap"), "utf-8")
    answer = client.post("/predict", json={"inputs": "the soup", "model": "tuned"})
    assert answer.status_code == 422
    assert "was changed by hand" in answer.json()["error"]["message"]


def test_websockets_are_closed(shared: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), shared.websocket_connect("/api/jobs/x/events"):
        pass


def test_events_are_those_of_one_job(shared: TestClient, ids: dict[str, str]) -> None:
    for last in ("../../x:5", "cells/../../base:0", "/etc/passwd:0", "9" * 30, "x\ny"):
        text = shared.get(f"/api/jobs/{ids['base']}/events", headers={"last-event-id": last.replace("\n", " ")}).text
        assert '"state": "finished"' in text
    assert shared.get("/api/jobs/none-00000000/events").status_code == 404
