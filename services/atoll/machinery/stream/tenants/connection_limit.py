"""How many connections an identity may have at a server: who has that many is turned away.

`gateway` asks it for each client that shows a good token. A server is asked for the number of connections only where
the last answer, less all that were let in since, leaves no room: an identity with few connections costs one question.
Invariant: nobody is let in on a question without an answer, and who was just let in counts though no server tells it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from typing import Final

import structlog

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.tenants.connection_kicks import connections_of
from atoll.machinery.stream.tenants.subscriber_permissions import CONNECTIONS_SUBJECT

log = structlog.get_logger()

_TIMEOUT_S: Final = 2.0
#: How long a client that was let in may take to be a connection that a server tells.
_ENTERING_S: Final = 0.5
#: Identities whose room is remembered. Who is forgotten is asked about again.
_MAX_IDENTITIES: Final = 4096


class _Room:
    """What is left for an identity, and when the last of it were let in."""

    def __init__(self, limit: int) -> None:
        self.left = 0
        self.entered: deque[float] = deque(maxlen=limit)


class ConnectionLimit:
    """Serves one connection of a gateway; several gateways count what each lets in between two questions."""

    def __init__(self, connection: Connection, limit: int) -> None:
        self._connection, self._limit = connection, limit
        self._rooms: OrderedDict[str, _Room] = OrderedDict()
        self._asking = asyncio.Lock()

    async def has_room(self, name: str) -> bool:
        """Whether one more may be let in whose connections have this name; it counts from now on."""
        room = self._rooms.get(name) or self._rooms.setdefault(name, _Room(self._limit))
        self._rooms.move_to_end(name)
        if len(self._rooms) > _MAX_IDENTITIES:
            self._rooms.popitem(last=False)
        if room.left <= 0:
            async with self._asking:
                # Another one may have asked meanwhile.
                if room.left <= 0:
                    room.left = await self._ask(name, room)
        if room.left <= 0:
            return False
        room.left -= 1
        room.entered.append(time.monotonic())
        return True

    async def _ask(self, name: str, room: _Room) -> int:
        question = encode_json({"user": name, "auth": True, "limit": self._limit})
        began_s = time.monotonic()
        try:
            answer = await self._connection.client.request(CONNECTIONS_SUBJECT, question, timeout=_TIMEOUT_S)
            told = len(connections_of(answer.data))
        except Exception as error:
            log.warning("connections of a subscriber not counted", error=repr(error))
            return 0
        return self._limit - told - sum(entered_s > began_s - _ENTERING_S for entered_s in room.entered)
