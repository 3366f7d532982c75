"""The NATS client, whose callback is called whenever it is closed.

`connection` makes one for each connection. The library's own client sends what is left before it closes; where the
server ended the connection first, that raises, and the client calls nobody back and leaves its tasks behind.
"""

from __future__ import annotations

from nats.aio.client import Client


class NatsClient(Client):
    """A client that closes as well where nothing can be sent any more."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        except OSError:
            # Closed already, it would leave out what it has not reached. What was left to send is gone.
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)
