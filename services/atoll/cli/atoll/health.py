"""`atoll health`: whether a process serves, for health checks of containers, which need neither a shell nor curl.

`https://HOST:PORT/readyz` is any process of Atoll, `tls://HOST:PORT` or `nats://HOST:PORT` a NATS server. Invariant:
nothing is sent but the question, without a credential.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlsplit

from atoll.cli.atoll.output import fail
from atoll.machinery.stream.server.process import read_server_info

_TIMEOUT_S = 5.0


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
    context = ssl.create_default_context(cafile=ca_file or None)
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with urllib.request.build_opener(*handlers).open(url, timeout=_TIMEOUT_S) as answer:
        return "" if answer.status == 200 else f"it answers {answer.status}"


def _nats(url: str) -> str:
    """The same of a NATS server, by the line that it sends to everybody. Raises ValueError."""
    parts = urlsplit(url)
    info = asyncio.run(read_server_info(parts.hostname or "", parts.port or 4222))
    if info is None:
        return "no answer"
    return "" if info.jetstream else "it runs without JetStream"
