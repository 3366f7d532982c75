"""structlog for a process: JSON lines for programs or text for people, on standard error.

Called once by each entry point. Event names are constant lower-case phrases, facts are keys; secrets, tokens and
object bodies are never among them. Lines of requests are many: on a terminal only slow and failed requests are shown,
and for programs those of one turn of the event loop are written at once (`FrequentLines`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO, cast

import msgspec
import structlog

#: Values of `--log-level`, `--log-format` and `--log-requests`.
LEVELS = ("debug", "info", "warning", "error")
AUTO, JSON, TEXT = "auto", "json", "text"
FORMATS = (AUTO, JSON, TEXT)
NONE, WRITES, ALL = "none", "writes", "all"
REQUESTS = (AUTO, NONE, WRITES, ALL)

_EVENT_WIDTH = 32
#: Lines that wait for the end of the turn at most.
_MAX_LINES = 256


def check(level: str, log_format: str = AUTO, requests: str = AUTO) -> None:
    """Raise ValueError for a value that does not exist."""
    settings = (("log-level", level, LEVELS), ("log-format", log_format, FORMATS), ("log-requests", requests, REQUESTS))
    for name, value, values in settings:
        if value not in values:
            raise ValueError(f"{name} {value!r} is none of {', '.join(values)}")


def resolved_format(log_format: str) -> str:
    """`text` or `json`: what `auto` means for this process's standard error."""
    if log_format != AUTO:
        return log_format
    return TEXT if sys.stderr.isatty() else JSON


def resolved_requests(requests: str, log_format: str) -> str:
    """`none`, `writes` or `all`: what `auto` means with this format."""
    if requests != AUTO:
        return requests
    return NONE if resolved_format(log_format) == TEXT else WRITES


class LogStream:
    """Standard error as a log: lines that its disk or its reader does not take are lost, and who logs goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or lose it."""
        with suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        """Write what waits, as far as it is taken."""
        with suppress(OSError):
            self._stream.flush()


class FrequentLines:
    """JSON lines at level info as structlog makes them, without its chain of processors, each as soon as it is known.

    They are written at the end of the turn of the event loop; outside of one, at once. One thread uses it.
    """

    def __init__(self, stream: TextIO | LogStream) -> None:
        self._stream = stream
        self._lines: list[str] = []

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Add a line; `facts` is the line's own from now on."""
        facts["event"], facts["level"] = event, "info"
        facts["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        lines = self._lines
        lines.append(_line(facts))
        if len(lines) == 1:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:
                self.flush()
        elif len(lines) == _MAX_LINES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._stream.write("\n".join([*lines, ""]))
            self._stream.flush()


#: Those of this process; none where lines are text, or of higher levels.
_frequent: list[FrequentLines] = []


def frequent() -> Callable[[str, dict[str, Any]], None]:
    """Return what writes a line of an event that is frequent, at level info, as `configure` said."""
    if _frequent:
        return _frequent[0].write
    write = structlog.get_logger().bind().info
    return lambda event, facts: write(event, **facts)


def flush() -> None:
    """Write the lines that wait: the process ends before the turn of its event loop does."""
    for lines in _frequent:
        lines.flush()


def configure(level: str = "info", log_format: str = AUTO) -> None:
    """Set structlog up for this process."""
    is_text = resolved_format(log_format) == TEXT
    stream = LogStream(sys.stderr)
    _frequent[:] = [] if is_text or level not in ("debug", "info") else [FrequentLines(stream)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *(_text() if is_text else _json()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, stream)),
        cache_logger_on_first_use=True,
    )


def _json() -> list[structlog.typing.Processor]:
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=_line),
    ]


def _text() -> list[structlog.typing.Processor]:
    """Local time, level, event, facts, then a traceback; colours on a terminal unless NO_COLOR is set."""
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderer = structlog.dev.ConsoleRenderer(
        colors=colours, sort_keys=False, pad_event_to=_EVENT_WIDTH, exception_formatter=structlog.dev.plain_traceback
    )
    return [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False), renderer]


def _line(event: Any, default: Any = repr, **_: Any) -> str:
    """One JSON line. Every write logs one, hence the fast encoder; it refuses lone surrogates, which are escaped."""
    try:
        return msgspec.json.encode(event, enc_hook=default).decode()
    except UnicodeEncodeError:
        return json.dumps(event, default=default)
