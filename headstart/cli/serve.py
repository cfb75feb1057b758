"""The verb that opens the studio: pages and an HTTP API over a folder of runs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from headstart.cli.app import app, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import show_json
from headstart.errors import ConfigError, ResourceError

NEEDED = ("fastapi", "uvicorn", "httptools", "uvloop")


@verb(app, "serve")
def serve(given: Given) -> None:
    """Open the runs below DIR in the browser. With an HTTP API to use their models."""
    if not all(map(find_spec, NEEDED)):
        raise ConfigError("headstart serve needs FastAPI and uvicorn: pip install 'headstart[serve]'.", "NOT_INSTALLED")
    from headstart.serve.app import serve as run
    from headstart.serve.settings import OWN, Settings, kept_token

    folder = Path(given["DIR"]).absolute()
    token = None if given["--no-token"] else kept_token(folder)
    settings = Settings(
        folder, given["--host"], given["--port"], given["--read-only"], token, tuple(given["--allow-host"] or ()),
        int(given["--memory"] * 2**30),
    )  # fmt: skip
    _must_be_free(settings.host, settings.port)
    address = settings.address + (f"?token={token}" if token else "")
    if settings.exposed:
        sys.stderr.write(f"Warning: --host {settings.host} can be reached from other machines, without encryption.\n")
    if given["--json"]:
        show_json({"address": settings.address, "token_file": str(folder / OWN / "token") if token else None})
    else:
        sys.stderr.write(f"{folder}: open {address} (Ctrl-C ends the server; jobs go on)\n")
    sys.stdout.flush()
    if given["--open"]:
        import webbrowser

        webbrowser.open(address)
    run(settings)


def _must_be_free(host: str, port: int) -> None:
    import socket

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
    except OSError as error:
        raise ResourceError(
            f"{host}:{port} cannot be opened ({error.strerror or error}). Choose another --port.", "PORT"
        ) from None
