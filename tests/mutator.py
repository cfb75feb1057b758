"""Files damaged at random: each change is a function of the state of `rng`."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any


def mutate(file: Path, rng: random.Random) -> str:
    """The file becomes something else, and what it becomes is told for a person."""
    data = file.read_bytes()
    chance = rng.random()
    if chance < 0.1:
        how = rng.choice(PLACES)
        file.unlink()
        how(file)
        return how.__name__.strip("_")
    changed = mutated(data, file.suffix, chance < 0.55, rng)
    file.write_bytes(changed)
    at = next((i for i, (a, b) in enumerate(zip(data, changed, strict=False)) if a != b), min(len(data), len(changed)))
    return f"from byte {at}: {data[at : at + 30]!r} became {changed[at : at + 30]!r}"


def mutated(data: bytes, suffix: str, in_words: bool, rng: random.Random) -> bytes:
    """Other bytes: another word, number or node of JSON where `in_words`, else bits and stretches that are changed, lost or repeated."""
    changed = None
    if in_words:
        changed = _json(data, rng) if suffix in (".json", ".jsonl") else _words(data, rng)
    if changed is None or changed == data:
        changed = data
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            changed = rng.choice(BYTES)(changed, rng)
    return changed


def _a_folder(file: Path) -> None:
    file.mkdir()


def _gone(file: Path) -> None:
    pass


def _empty(file: Path) -> None:
    file.touch()


def _a_loop(file: Path) -> None:
    file.symlink_to(file.name)


def _a_pipe(file: Path) -> None:
    os.mkfifo(file)


def _a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


PLACES = (_a_folder, _gone, _empty, _a_loop, _a_pipe, _a_device)
RAW = ("1e999", "-1e999", "9" * 5000, "[" * 50 + "]" * 50, "[" * 100_000, "{" * 1000, '"\\ud800"', "NaN", "-Infinity", "1.0e-400", "")  # fmt: skip
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, "", " ", "x", "0", "\0", "\u202e abc",
    "../../../etc/passwd", "/", "~", "é" * 300, "x" * 100_000, "%s{0}{x}", [], [[]], {}, [None], [0] * 1000, {"": ""}, {"a": {}},
]  # fmt: skip
WORDS = [
    b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\t", b"\"", b"'", b",", b"{", b"]", b"\\", b"-1", b"0", b"1e999", b"nan",
    b"9" * 400, b"99999999999", b"\xe2\x80\xae", b"\xf0\x9f\x91\xa8\xe2\x80\x8d", b"null", b"true", b"[]", b"[[", b"''", b"", b" ",
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\xff" * 8, b"=1+1", b"/dev/zero", b"x" * 70_000,
]  # fmt: skip


def _json(data: bytes, rng: random.Random) -> bytes | None:
    """JSON with one node that is something else; of JSON lines, in one of them."""
    lines = data.splitlines(keepends=True)
    try:
        whole = json.loads(data)
    except RecursionError:
        return None
    except ValueError:
        if len(lines) < 2:
            return None
        at = rng.randrange(len(lines))
        changed = _json(lines[at].rstrip(), rng)
        return None if changed is None else b"".join([*lines[:at], changed, b"\n", *lines[at + 1 :]])
    nodes = list(_nodes(whole)) if isinstance(whole, (dict, list)) else []
    if not nodes:
        return None
    parent, key = rng.choice(nodes)
    raw = rng.choice(RAW) if rng.random() < 0.2 else None
    act = rng.random()
    if act < 0.15:
        del parent[key]
    elif act < 0.25 and isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)
    else:
        parent[key] = "@raw@" if raw is not None else rng.choice(ODD)
    return json.dumps(whole).replace('"@raw@"', raw or "").encode()


def _nodes(value: Any) -> Any:
    """Every place below `value` that something stands in: the shallow ones are as likely as the many deep ones."""
    level = [value]
    while level:
        here = [(v, k) for v in level for k in (v if isinstance(v, dict) else range(len(v)))]
        yield from here[:50]
        level = [v[k] for v, k in here if isinstance(v[k], (dict, list))]


def _words(data: bytes, rng: random.Random) -> bytes | None:
    """A word, a number or a string among text that is another one."""
    found = list(re.finditer(rb"[\w.+-]+|\"[^\"\n]*\"", data[:100_000]))
    if not found:
        return None
    at = rng.choice(found)
    return (
        data[: at.start()] + rng.choice([*WORDS, b'""', b"{}", b'["a"]', b"[1, 2]", b"-3", b"0.5"]) + data[at.end() :]
    )


def _span(data: bytes, rng: random.Random, longest: int = 200) -> tuple[int, int]:
    """Somewhere in the file; heads and tails say what the rest is, so one time in two there."""
    size = len(data)
    start = rng.choice((rng.randrange(size + 1), rng.randrange(size + 1), min(size, rng.randrange(256)), max(0, size - 1 - rng.randrange(256))))  # fmt: skip
    return start, min(size, start + rng.randrange(1, longest))


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: _span(data, rng)[0]]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 8)) if data else 0):
        changed[min(_span(data, rng)[0], len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _delete(data: bytes, rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    start, _ = _span(data, rng)
    return data[:start] + rng.randbytes(rng.choice((1, 4, 64))) + data[start:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 500)) + data[end:]


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    (start, _), word = _span(data, rng), rng.choice(WORDS)
    return data[:start] + word + data[start + len(word) :]


def _swap(data: bytes, rng: random.Random) -> bytes:
    (a, b), (c, d) = sorted((_span(data, rng), _span(data, rng)))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:] if b <= c else data


BYTES = (_cut, _flip, _flip, _delete, _insert, _repeat, _overwrite, _overwrite, _swap)
