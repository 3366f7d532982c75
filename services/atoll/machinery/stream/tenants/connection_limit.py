"""How many connections an identity may have at a server: who has that many is turned away.

`gateway` asks it for each client that shows a good token. Servers are asked for the number of connections only where
the last answer, less all that were let in since, leaves no room: an identity with few connections costs one question.
All servers of a cluster answer; that one counts whose client it is. Invariant: nobody is let in on a question without
an answer, and who was just let in counts though no server tells it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from itertools import count
from typing import TYPE_CHECKING, Final

import structlog

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.stream.connection import Connection, Unavailable
from atoll.machinery.stream.tenants.connection_kicks import connections_of
from atoll.machinery.stream.tenants.subscriber_permissions import CONNECTIONS_SUBJECT

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = structlog.get_logger()

_TIMEOUT_S: Final = 2.0
#: How long a client that was let in may take to be a connection that a server tells.
_ENTERING_S: Final = 0.5
#: Identities whose room at a server is remembered. Who is forgotten is asked about again.
_MAX_IDENTITIES: Final = 4096


class _Room:
    """What is left for an identity, and when the last of it were let in."""

    def __init__(self, limit: int) -> None:
        self.left = 0
        self.entered: deque[float] = deque(maxlen=limit)


class _Question:
    """A question to all servers: whose answer counts, and what it is."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class ConnectionLimit:
    """Serves one connection of a gateway; several gateways count what each lets in between two questions."""

    def __init__(self, connection: Connection, limit: int) -> None:
        self._connection, self._limit = connection, limit
        self._rooms: OrderedDict[tuple[str, str], _Room] = OrderedDict()
        self._asking = asyncio.Lock()
        self._inbox, self._numbers = connection.inbox(), count()
        #: By the subject of the answers.
        self._open: dict[str, _Question] = {}

    async def listen(self) -> None:
        """Begin to listen for answers. Raises Unavailable."""
        await self._connection.subscribe(f"{self._inbox}.*", self._take)

    async def has_room(self, name: str, server: str) -> bool:
        """Whether one more may be let in at a server whose connections have this name; it counts from now on."""
        room = self._rooms.setdefault((name, server), _Room(self._limit))
        self._rooms.move_to_end((name, server))
        if len(self._rooms) > _MAX_IDENTITIES:
            self._rooms.popitem(last=False)
        if room.left <= 0:
            async with self._asking:
                # Another one may have asked meanwhile.
                if room.left <= 0:
                    room.left = await self._ask(name, server, room)
        if room.left <= 0:
            return False
        room.left -= 1
        room.entered.append(time.monotonic())
        return True

    async def _ask(self, name: str, server: str, room: _Room) -> int:
        content = encode_json({"user": name, "auth": True, "limit": self._limit})
        reply, question = f"{self._inbox}.{next(self._numbers)}", _Question(server)
        self._open[reply] = question
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._connection.publish(CONNECTIONS_SUBJECT, content, reply)
                answered = await question.answered
        except (Unavailable, TimeoutError) as error:
            log.warning("connections of a subscriber not counted", error=repr(error))
            return 0
        finally:
            del self._open[reply]
        return self._limit - answered - sum(entered_s > began_s - _ENTERING_S for entered_s in room.entered)

    async def _take(self, message: Msg) -> None:
        """Take in what one server told."""
        question = self._open.get(message.subject)
        try:
            page = connections_of(message.data)
        except ValueError:
            log.warning("connections of a subscriber not told", size_bytes=len(message.data))
            return
        if question is not None and page.server_id == question.server and not question.answered.done():
            question.answered.set_result(len(page.connections))
