"""Headers of messages as a stream stores them."""

from __future__ import annotations


def parse_headers(block: bytes) -> dict[str, str]:
    """Headers of a stored message: a status line, then `name: value` lines. Empty for an empty block."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}
