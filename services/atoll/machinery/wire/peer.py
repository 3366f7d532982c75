"""The client of a connection, as its requests know it."""

from __future__ import annotations

import asyncio

from atoll.machinery.wire.exchange import Peer

#: Name under which a transport has it ready (`get_extra_info`): the streams of one connection share it.
PEER = "atoll.peer"


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """The client at the other end of a transport."""
    ready = transport.get_extra_info(PEER)
    if isinstance(ready, Peer):
        return ready
    tls = transport.get_extra_info("ssl_object")
    name = transport.get_extra_info("peername")
    address, port = (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("unix", 0)
    return Peer(address, port, tls.getpeercert(True) if tls is not None else None)
