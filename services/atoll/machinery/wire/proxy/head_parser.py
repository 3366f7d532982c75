"""Requests as soon as their heads are there, for who passes bodies on instead of reading them.

`passing.StreamingConnection` feeds it. All limits and refusals are `RequestParser`'s, in one place, so that what passes
here is what a server of ours takes, byte for byte. Invariant: a body that ended is what its framing said; parts of one
body never get into another's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.parser import IDLE, ParsedRequest, RequestParser, body_too_large


class RequestBody:
    """One request's body on its way in.

    `length_bytes` is what Content-Length says, None for a chunked body; `parts` what arrived and was not taken yet;
    `ended` is true once all of it arrived.
    """

    __slots__ = ("awaits_continue", "behind", "ended", "held_bytes", "length_bytes", "parts", "said", "upgrades")

    def __init__(self, length_bytes: int | None, *, said: bool, upgrades: bool, awaits_continue: bool) -> None:
        self.length_bytes = length_bytes
        #: The request has a framing header, be the body empty or not.
        self.said = said
        #: The client asks to go on in another protocol.
        self.upgrades = upgrades
        #: The client waits for `100 Continue` before it sends the body.
        self.awaits_continue = awaits_continue
        self.parts: list[bytes] = []
        self.held_bytes = 0
        self.ended = False
        #: What came behind a request that upgrades, and is of whatever comes then.
        self.behind = b""

    def take(self) -> bytes:
        """All that was not taken yet, joined."""
        parts, self.parts, self.held_bytes = self.parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


class HeadParser(RequestParser):
    """As RequestParser, with a request in `ready` once its head is whole, and its body in `inflows`, in step."""

    __slots__ = ("_inflow", "_keeps", "inflows")

    _inflow: RequestBody

    def __init__(self, limits: Limits, peer: Peer, account: Callable[[int], None]) -> None:
        super().__init__(limits, peer, account)
        self.inflows: deque[RequestBody] = deque()
        self._keeps = False

    def close(self) -> None:
        super().close()
        self.inflows.clear()

    # Callbacks of httptools

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        parser = self._parser
        upgrades: bool = parser.should_upgrade()
        self._keeps = parser.should_keep_alive() and not upgrades
        headers = self._headers
        length = headers.get("content-length")
        chunked = "transfer-encoding" in headers
        inflow = self._inflow = RequestBody(
            None if chunked else int(length[0]) if length else 0,
            said=chunked or length is not None,
            upgrades=upgrades,
            awaits_continue=self.awaits_continue,
        )
        # Whoever answers decides whether the body is wanted.
        self.awaits_continue = False
        request = HttpRequest(self._method, self._target, headers, b"", self._peer)
        self.ready.append(ParsedRequest(request, self._keeps, self._old))
        self.inflows.append(inflow)

    def on_body(self, part: bytes) -> None:
        size = self.body_bytes + len(part)
        if size > self._limits.body_bytes:
            raise body_too_large(self._limits.body_bytes)
        self.body_bytes = size
        self._inflow.awaits_continue = False
        self._inflow.parts.append(part)
        self._inflow.held_bytes += len(part)
        self._account(len(part))

    def on_message_complete(self) -> None:
        self._inflow.ended = True
        self.phase = IDLE
        self.ended = not self._keeps
        self._reset()

    def _behind_upgrade(self, data: bytes | memoryview) -> None:
        self._inflow.behind = bytes(data)
