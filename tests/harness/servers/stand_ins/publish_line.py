"""A connection to NATS on which a test's writer of a stream publishes: it is never lost by itself, and answers as told.

class Line(PublishLine):
    async def send(self, frames: Sequence[bytes]) -> None: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any


class PublishLine:
    """What a writer does on its connection beside `send`, which is the test's own."""

    async def subscribe(self, _: str, answer: Callable[[Any], Awaitable[None]]) -> None:
        self._answer = answer

    async def acknowledge(self, data: bytes) -> None:
        """Answer a message."""
        await self._answer(SimpleNamespace(data=data))

    async def unsubscribe(self, _: object) -> None:
        return

    def inbox(self) -> str:
        return "inbox"

    def on_lost(self, _: object) -> None:
        return

    forget = on_lost
