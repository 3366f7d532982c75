"""structlog for a process: JSON lines for programs or text for people, on standard error.

Called once by each entry point. Event names are constant lower-case phrases, facts are keys; secrets, tokens and
object bodies are never among them. Lines of requests are many: on a terminal only slow and failed requests are shown.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import msgspec
import structlog

#: Values of `--log-level`, `--log-format` and `--log-requests`.
LEVELS = ("debug", "info", "warning", "error")
AUTO, JSON, TEXT = "auto", "json", "text"
FORMATS = (AUTO, JSON, TEXT)
NONE, WRITES, ALL = "none", "writes", "all"
REQUESTS = (AUTO, NONE, WRITES, ALL)

_EVENT_WIDTH = 32


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


def configure(level: str = "info", log_format: str = AUTO) -> None:
    """Set structlog up for this process."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *(_text() if resolved_format(log_format) == TEXT else _json()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
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
