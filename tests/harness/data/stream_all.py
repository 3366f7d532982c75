"""A policy of request bodies for parsers in tests: every body is streamed, all within the limit."""

from __future__ import annotations

from atoll.machinery.wire.exchange import HttpRequest


class StreamAll:
    """A `BodyPolicy`."""

    min_bytes = 0

    def streams(self, request: HttpRequest) -> bool:
        return True

    def unlimited(self, request: HttpRequest) -> bool:
        return False
