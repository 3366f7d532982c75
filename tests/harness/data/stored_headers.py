"""Headers of messages as a stream stores them."""

from __future__ import annotations

from atoll.machinery.stream import signatures
from atoll.machinery.stream.events import Event, header_lines, key_path


def encode_headers(event: Event) -> dict[str, str]:
    """The headers of an event, those of its signature included, without those of the transport."""
    signed = signatures.header_lines(event.signature) if event.signature is not None else []
    return parse_headers("\r\n".join(["NATS/1.0", *header_lines(event, key_path(event.key)), *signed]).encode())


def parse_headers(block: bytes) -> dict[str, str]:
    """Headers of a stored message: a status line, then `name: value` lines. Empty for an empty block."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}
