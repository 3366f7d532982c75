"""One log line for each reconcile that succeeded: controller, key, duration, and what it did.

Processes with few reconciles wrap theirs in `logged`; those of a shard are counted alone. What fails is told by
`worker`. Invariant: a reconcile is one line, whatever it calls; `note` outside of one does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from contextvars import ContextVar
from typing import TypeVar

import structlog

from atoll.machinery.control.queue import Requeue
from atoll.machinery.control.worker import Reconcile

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
Facts = dict[str, str | int]
_facts: ContextVar[Facts | None] = ContextVar("facts of the reconcile under way", default=None)


def note(**facts: str | int) -> None:
    """Add to the line of the reconcile under way."""
    found = _facts.get()
    if found is not None:
        found.update(facts)


def logged(name: str, reconcile: Reconcile[K]) -> Reconcile[K]:
    """Return a reconcile that logs what it did. It raises what the other one raises, and logs nothing then."""

    async def run(key: K) -> Requeue:
        facts: Facts = {}
        token, started = _facts.set(facts), time.monotonic()
        try:
            requeue = await reconcile(key)
        finally:
            _facts.reset(token)
        duration_ms = round((time.monotonic() - started) * 1000, 2)
        log.info("reconcile", controller=name, key=str(key), duration_ms=duration_ms, **facts)
        return requeue

    return run
