"""The readiness checks of the shard's main process, in its API workers.

`standalone.worker_pool` sends a line of JSON on a worker's standard input when a result changes, and the first one when
all workers serve. Invariant: a worker is not ready before that line, and never ready while the main process is not.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.serving.health import Check, CheckResult, Health, Notice

_SERVING = "workers"
_decoder = msgspec.json.Decoder(dict[str, CheckResult])


def encode(results: dict[str, CheckResult]) -> bytes:
    """Return the line that `ParentHealth.receive` reads."""
    return msgspec.json.encode(results) + b"\n"


class ParentHealth:
    """The last results, as checks of a worker."""

    def __init__(self) -> None:
        self._results: dict[str, CheckResult] | None = None
        self._begun = b""
        self._health: Health | None = None
        self._own: frozenset[str] = frozenset()

    def add_to(self, health: Health) -> None:
        """Add the checks, and those that come later, but for those that the worker has itself."""
        self._health, self._own = health, frozenset(health.endpoints["readyz"])
        health.add(_SERVING, lambda: "not all workers serve" if self._results is None else None)
        self._add_checks()

    def receive(self, data: bytes) -> None:
        """Take what was read from the pipe. Raises msgspec.DecodeError for a line that is none of `encode`."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        if lines:
            self._results = _decoder.decode(lines[-1])
            self._add_checks()

    def _add_checks(self) -> None:
        if self._health is not None:
            for name, result in (self._results or {}).items():
                if name not in self._own:
                    check = self._check(name)
                    self._health.add(name, Notice(check) if result.is_notice else check)

    def _check(self, name: str) -> Check:
        def check() -> str | None:
            result = (self._results or {}).get(name)
            return result.reason if result is not None else None

        return check
