"""What speaks on a connection until its TLS handshake has chosen a protocol: then streams, or HTTP alone.

Servers that accept streams make one for each socket, and so do clients that offer them. Invariant: a peer that did not
choose streams is spoken to as before there were any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from atoll.machinery.wire.multiplex.frames import ALPN


class ChosenProtocol(asyncio.Protocol):
    """`chosen` is the protocol once the handshake is over."""

    def __init__(self, http: Callable[[], asyncio.Protocol], streams: Callable[[], asyncio.Protocol]) -> None:
        self._http, self._streams = http, streams
        self.chosen: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        make = self._streams if tls is not None and tls.selected_alpn_protocol() == ALPN else self._http
        self.chosen = make()
        cast(asyncio.Transport, transport).set_protocol(self.chosen)
        self.chosen.connection_made(transport)
