"""A landscape for a text, as a real PNG, with nothing but the standard library."""

from __future__ import annotations

import colorsys
import hashlib
import math
import struct
import zlib
from typing import Final

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
WIDTH: Final = 384
HEIGHT: Final = 240
HILLS: Final = 4


def paint(prompt: str) -> bytes:
    """Return a picture; the same prompt always gives the same one."""
    seed = hashlib.sha256(prompt.encode(errors="replace")).digest()
    hue = seed[0] / 255
    edges = [_hill(layer, *seed[1 + 3 * layer : 4 + 3 * layer]) for layer in range(HILLS)]
    colours = [_colour(hue + 0.08 * layer, 0.55, 0.75 - 0.16 * layer) for layer in range(HILLS)]
    sun = (WIDTH * (40 + seed[20] % 176) // 256, 30 + seed[21] % 60)
    rows = []
    for y in range(HEIGHT):
        sky = _colour(hue + 0.45, 0.5 - 0.4 * y / HEIGHT, 1.0)
        row = [sky] * WIDTH
        half_chord = math.isqrt(max(0, 26**2 - (y - sun[1]) ** 2))
        row[sun[0] - half_chord : sun[0] + half_chord] = [_colour(0.12, 0.35, 1.0)] * (2 * half_chord)
        for edge, colour in zip(edges, colours, strict=True):
            row = [colour if y > top else behind for top, behind in zip(edge, row, strict=True)]
        rows.append(b"".join(row))
    return _png(rows)


def _hill(layer: int, height: int, length: int, shift: int) -> list[float]:
    """Return the upper edge of a hill, for each column; later ones are nearer, and lower."""
    base = HEIGHT * (0.42 + 0.15 * layer)
    rise, waves = 8 + height / 12, 1.5 + length / 128
    return [
        base - rise * math.sin(shift / 40 + waves * math.tau * x / WIDTH) * math.cos(layer + x / WIDTH)
        for x in range(WIDTH)
    ]


def _colour(hue: float, saturation: float, value: float) -> bytes:
    return bytes(round(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, saturation, value))


def _png(rows: list[bytes]) -> bytes:
    """Return rows of red, green and blue, 8 bits each, as a file."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    # Each row begins with the number of its filter, of which 0 is none.
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return PNG_SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
