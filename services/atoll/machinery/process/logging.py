"""structlog for a process: JSON lines, or readable ones on a terminal; to standard error.

Called once by each entry point. Event names are constant lower-case phrases, facts are keys; secrets, tokens and
object bodies are never among them.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import msgspec
import structlog

#: What a process may be told to log from.
LEVELS = ("debug", "info", "warning", "error")


def check_level(level: str) -> None:
    """Raises ValueError for a level that there is not."""
    if level not in LEVELS:
        raise ValueError(f"log-level {level!r} is none of {', '.join(LEVELS)}")


def configure(level: str = "info") -> None:
    """Set structlog up for this process."""
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer(serializer=_json)
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def _json(event: Any, default: Any = repr, **_: Any) -> str:
    """One line. Every write logs one, so it is made by the fast encoder; text it refuses is shown escaped."""
    try:
        return msgspec.json.encode(event, enc_hook=default).decode()
    except UnicodeEncodeError:
        return json.dumps(event, default=default)
