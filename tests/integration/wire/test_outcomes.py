"""Requests that are answered when a future is done, without a task of their own."""

from __future__ import annotations

import asyncio

from atoll.machinery.wire.exchange import Exchange
from harness.clients.raw_http import until
from harness.servers.in_process.wire_server import Running, Serve

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Follower:
    """A handler that answers each request with the result of a future."""

    def __init__(self) -> None:
        self.outcomes: list[asyncio.Future[bytes]] = []
        self.answered: list[bool] = []

    def __call__(self, exchange: Exchange) -> None:
        outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.outcomes.append(outcome)

        def then(done: asyncio.Future[bytes]) -> None:
            self.answered.append(not done.cancelled())
            if not done.cancelled():
                exchange.reply(200, [], done.result())

        exchange.follow(outcome, then)


async def following(serve: Serve) -> tuple[Follower, Running]:
    handler = Follower()
    running = await serve(handler)
    await (await running.connect()).send(GET)
    await until(lambda: handler.outcomes)
    return handler, running


async def test_the_reply_comes_with_the_outcome_and_the_connection_goes_on(serve: Serve) -> None:
    handler, running = await following(serve)
    client = running.clients[0]
    handler.outcomes[0].set_result(b"first")
    assert (await client.answer()).body == b"first"
    await client.send(GET)
    await until(lambda: len(handler.outcomes) == 2)
    handler.outcomes[1].set_result(b"second")
    assert (await client.answer()).body == b"second"


async def test_a_client_that_leaves_cancels_the_outcome(serve: Serve) -> None:
    handler, running = await following(serve)
    running.clients[0].close()
    await until(handler.outcomes[0].cancelled)
    await until(lambda: handler.answered == [False])


async def test_draining_waits_for_the_outcome(serve: Serve) -> None:
    handler, running = await following(serve)
    draining = asyncio.ensure_future(running.server.drain(300))
    await until(lambda: running.server.draining)
    assert not draining.done()
    handler.outcomes[0].set_result(b"done")
    assert (await running.clients[0].answer()).body == b"done"
    await draining


async def test_an_outcome_past_the_deadline_of_draining_is_cancelled(serve: Serve) -> None:
    handler, running = await following(serve)
    await running.server.drain(0.01)
    assert handler.outcomes[0].cancelled()
