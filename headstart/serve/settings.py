"""What the server is started with, and its limits."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from headstart.errors import ConfigError
from headstart.runs.disk import make_folder

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OWN = ".serve"  # below the folder: the token, and what the processes of jobs print


@dataclass(frozen=True)
class Limits:
    body: int = 1 << 20  # bytes of a request
    upload: int = 1 << 30  # bytes of an uploaded file
    depth: int = 20  # of nested JSON
    headers: int = 64
    header_bytes: int = 16 << 10
    queue: int = 64  # requests that wait for a model
    batch: int = 64  # texts of one request, and of one forward pass
    text: int = 100_000  # characters of one text
    tokens: int = 1024  # to generate
    seconds: float = 60.0  # that a request may take
    table: float = 900.0  # seconds that labelling a table may take
    header_seconds: float = 10.0  # until the headers of a request are there
    at_once: int = 256  # requests that are being answered or wait
    stall: float = 30.0  # seconds without a byte of a body
    jobs: int = 1  # that train at once
    job_hours: float = 48.0  # of one core, for each core of the machine
    job_file: int = 64 << 30  # bytes of one file that a job writes
    free_disk: int = 1 << 30  # bytes that must be free when a job starts
    files: int = 200  # that are kept


@dataclass(frozen=True)
class Settings:
    folder: Path
    host: str = "127.0.0.1"
    port: int = 8642
    read_only: bool = False
    token: str | None = None  # None: no token, which is for loopback alone
    names: tuple[str, ...] = ()  # other host names that the server is reached by
    memory: int = 2 << 30  # bytes of weights that stay loaded
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.exposed:
            return
        if self.token is None:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines, so a token is needed. Leave out --no-token, or use --host 127.0.0.1."
            )
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines, which the administrator (root) must not serve. "
                "Start it as another user, or use --host 127.0.0.1."
            )

    @property
    def exposed(self) -> bool:
        return self.host not in LOOPBACK

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that a request may ask for."""
        own = () if self.host in ("0.0.0.0", "::") else (self.host,)
        return frozenset(name.lower().strip("[]") for name in (*LOOPBACK, *own, *self.names))

    @property
    def cookie(self) -> str:
        return f"headstart-{self.port}"  # browsers share the cookies of a host between its ports

    @property
    def address(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "localhost") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def knows(self, given: str | None) -> bool:
        """Whether a token is ours; the time that it takes tells nothing about it."""
        if self.token is None:
            return True
        ours, theirs = (
            hashlib.sha256((word or "").encode("utf-8", "replace")).digest() for word in (self.token, given)
        )
        return given is not None and hmac.compare_digest(ours, theirs)


def kept_token(folder: Path) -> str:
    """The token of a folder, made the first time; only its owner can read the file."""
    make_folder(folder)
    own = folder / OWN
    own.mkdir(mode=0o700, exist_ok=True)
    own.chmod(0o700)
    file = own / "token"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        token = file.read_text("ascii").strip()
        if len(token) >= 32 and not file.is_symlink():
            file.chmod(0o600)
            return token
        raise ConfigError(f"{file} holds no token. Remove it; a new one is made.") from None
    with os.fdopen(descriptor, "w") as opened:
        token = secrets.token_urlsafe(32)
        opened.write(token + "\n")
    return token
