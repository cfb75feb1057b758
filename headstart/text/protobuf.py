"""Protocol buffers read field by field, by number, without a library that knows their messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Bytes = bytes | memoryview


def fields(data: Bytes) -> Iterator[tuple[int, int | float | Bytes]]:
    """(number, value) of each field of a message; of a memoryview, what is inside is not copied."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
        elif wire == 5:
            yield number, struct.unpack_from("<f", data, place)[0]
            place += 4
        elif wire == 1:
            place += 8
        elif wire == 2:
            length, place = _varint(data, place)
            if place + length > len(data):
                raise ValueError("it is cut short")
            yield number, data[place : place + length]
            place += length
        else:
            raise ValueError(f"a field of the unknown kind {wire}")


def _varint(data: Bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if shift > 70:
            raise ValueError("a number has more than 64 bits")
        if not byte & 0x80:
            return value, place
