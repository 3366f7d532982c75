"""The metrics of a whole shard: each of its processes gathers those of the others when it is scraped.

With API workers the processes listen on Unix sockets `m<number>` in one directory, 0 the main process; a connection is
sent the process's own metrics and closed. Counters, histograms and gauges are summed: what a gauge shows of the shard
itself, one process shows; of times and limits the least counts. Invariant: a scrape waits ANSWER_S at most; a process
that does not answer is left out and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, generate_latest

from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.process.time_slicing import in_parts

ANSWER_S = 1.0
_SOCKETS = "m[0-9]*"
#: Ends of names of times and limits, of which the least counts.
_LEAST = ("_created", "process_start_time_seconds", "process_max_fds")
#: Unread bytes of one answer.
_BUFFER = 1 << 20


class ShardMetrics:
    """The metrics of one process, and of all after `join`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._socket: Path | None = None
        self._server: asyncio.Server | None = None
        self._missing: Counter | None = None

    async def join(self, directory: Path, number: int) -> None:
        """Answer the other processes of the shard. The main process, 0, does so first."""
        for stale in _sockets(directory) if not number else ():
            stale.unlink()
        self._missing = Counter(
            "atoll_shard_metrics_missing_total", "Processes left out of a scrape.", registry=self._registry
        )
        self._socket = directory / f"m{number}"
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, self._socket, limit=_BUFFER)
        self._socket.chmod(0o600)

    async def close(self) -> None:
        """Answer no more."""
        if self._server is not None and self._socket is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def text(self) -> bytes:
        """Return what a scrape of this process shows."""
        if self._socket is None or self._missing is None:
            return generate_latest(self._registry)
        others = [path for path in _sockets(self._socket.parent) if path != self._socket]
        found = await asyncio.gather(*map(_metrics_of, others))
        self._missing.inc(found.count(b""))
        texts = [generate_latest(self._registry), *filter(None, found)]
        return await in_slices(lambda: merged(texts))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(generate_latest(self._registry))
            await writer.drain()
            writer.close()


def _sockets(directory: Path) -> list[Path]:
    return list(directory.glob(_SOCKETS))


async def _metrics_of(socket: Path) -> bytes:
    """Return the metrics of one process; empty if it does not answer in time."""
    writer = None
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(socket, limit=_BUFFER)
            return await reader.read()
    except (OSError, TimeoutError):
        return b""
    finally:
        if writer is not None:
            writer.close()


def merged(texts: Sequence[bytes]) -> bytes:
    """Return the sums of several expositions of the same families, in the order of the first."""
    #: By the line of help, which begins a family: its series, and its line of type without a value.
    families: dict[str, dict[str, float | None]] = {}
    for text in texts:
        family = dict[str, float | None]()
        for line in in_parts(text.decode().splitlines()):
            if line.startswith("# HELP "):
                family = families.setdefault(line, {})
            elif line.startswith("#"):
                family[line] = None
            else:
                series, _, value = line.rpartition(" ")
                family[series] = _joined(series, family.get(series), float(value))
    lines = [line for head, family in families.items() for line in (head, *map(_line, family.items()))]
    return "\n".join([*lines, ""]).encode()


def _joined(series: str, one: float | None, other: float) -> float:
    if one is None:
        return other
    return min(one, other) if series.partition("{")[0].endswith(_LEAST) else one + other


def _line(item: tuple[str, float | None]) -> str:
    series, value = item
    return series if value is None else f"{series} {value!r}"
