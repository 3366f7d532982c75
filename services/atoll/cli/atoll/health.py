"""`atoll health`: whether a process serves, for health checks of containers, which need neither a shell nor curl.

`https://HOST:PORT/readyz` is any process of Atoll, `tls://HOST:PORT` or `nats://HOST:PORT` a NATS server. Checks run
every few seconds for each container, so this imports little. Invariant: nothing is sent but the question, without a
credential.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from atoll.cli.atoll.output import fail

_TIMEOUT_S = 5.0
_LINE_BYTES = 65_536


def run(arguments: Sequence[str]) -> int:
    """Ask once. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="atoll health", description="Ask a process whether it serves: exit code 0, or 1.", allow_abbrev=False
    )
    parser.add_argument("url", help="https://HOST:PORT/readyz, or tls://HOST:PORT of a NATS server")
    parser.add_argument("--ca-file", default="", help="PEM file with the authority of its certificate")
    found = parser.parse_args(list(arguments))
    try:
        reason = _nats(found.url) if urlsplit(found.url).scheme in {"nats", "tls"} else _https(found.url, found.ca_file)
    except (OSError, ValueError) as error:
        reason = str(error)
    return fail(f"{found.url}: {reason}") if reason else 0


def _https(url: str, ca_file: str) -> str:
    """Why a process does not serve; empty if it does. Raises OSError, ValueError."""
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=ca_file or None)
    question = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
    with _connected(url, 443) as raw, context.wrap_socket(raw, server_hostname=parts.hostname) as stream:
        stream.sendall(question.encode())
        version, _, status = _line(stream).partition(b" ")
    if not version.startswith(b"HTTP/1."):
        return "it does not answer in HTTP"
    return "" if status[:3] == b"200" else f"it answers {status.decode(errors='replace').strip()}"


def _nats(url: str) -> str:
    """The same of a NATS server, by the line that it sends to everybody. Raises OSError, ValueError."""
    with _connected(url, 4222) as stream:
        line = _line(stream)
    if not line.startswith(b"INFO "):
        return "it is no NATS server"
    return "" if json.loads(line[5:]).get("jetstream") else "it runs without JetStream"


def _connected(url: str, port: int) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or port), timeout=_TIMEOUT_S)


def _line(stream: socket.socket) -> bytes:
    """The first line that a server sends; empty if it sends none."""
    with stream.makefile("rb") as lines:
        return lines.readline(_LINE_BYTES)
