"""What a syncer serves to its own cluster, in plain HTTP: /livez, /readyz, /metrics. No object is named there.

Invariant: a lost link to the center is a detail of /readyz, not a failure: the edge goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from atoll.machinery.wire.exchange import Exchange

_TEXT = "text/plain; charset=utf-8"

#: Why something is not in order; empty if it is.
Check = Callable[[], str]


class HealthServer:
    """The handler. `ready` has to hold for /readyz; `details` are only told there."""

    def __init__(self, registry: CollectorRegistry, ready: Mapping[str, Check], details: Mapping[str, Check]) -> None:
        self._registry, self._ready, self._details = registry, ready, details

    def __call__(self, exchange: Exchange) -> None:
        """Answer a request."""
        request = exchange.request
        status, body, content_type = self._answer(request.method, request.target.decode("latin-1").partition("?")[0])
        exchange.reply(status, [("content-type", content_type)], body)

    def _answer(self, method: str, path: str) -> tuple[int, bytes, str]:
        if method not in {"GET", "HEAD"}:
            return 405, b"method not allowed\n", _TEXT
        if path == "/livez":
            return 200, b"ok", _TEXT
        if path == "/readyz":
            return self._readiness()
        if path == "/metrics":
            return 200, generate_latest(self._registry), CONTENT_TYPE_LATEST
        return 404, b"not found\n", _TEXT

    def _readiness(self) -> tuple[int, bytes, str]:
        reasons = {name: check() for name, check in {**self._ready, **self._details}.items()}
        lines = [f"[-]{name}: {reason}" if reason else f"[+]{name} ok" for name, reason in reasons.items()]
        is_ready = not any(reasons[name] for name in self._ready)
        return (200 if is_ready else 503), "\n".join([*lines, ""]).encode(), _TEXT
