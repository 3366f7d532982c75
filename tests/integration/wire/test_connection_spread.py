"""Connections passed between processes: the fewest first, held while nobody takes them, closed with their channel."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from atoll.machinery.wire.connection_spread import ConnectionSpreader, PassedConnections
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient, until


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


class Worker:
    """The receiving end, without a process."""

    def __init__(self, spreader: ConnectionSpreader, number: int) -> None:
        ours, theirs = socket.socketpair()
        spreader.add(number, ours)
        self.passed = PassedConnections(theirs)
        self.connections: list[socket.socket] = []

    def take(self) -> int:
        """Take what was passed on; return how many connections there are."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.connections.append(self.passed.accept()[0])
        return len(self.connections)

    def close(self) -> None:
        for sock in self.connections:
            sock.close()
        self.passed.close()


async def connect(bound: socket.socket, count: int) -> list[socket.socket]:
    loop, found = asyncio.get_running_loop(), []
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, bound.getsockname())
        found.append(sock)
    return found


async def test_each_connection_goes_to_the_worker_with_the_fewest(bound: socket.socket) -> None:
    spreader = ConnectionSpreader(bound)
    first, second, third = workers = [Worker(spreader, number) for number in range(3)]
    clients = await connect(bound, 33)
    await until(lambda: [worker.take() for worker in workers] == [11, 11, 11])
    first.passed.report(0)
    second.passed.report(11)
    third.passed.report(5)
    await asyncio.sleep(0)
    clients += await connect(bound, 17)
    await until(lambda: [worker.take() for worker in workers] == [11 + 11, 11, 11 + 6])
    spreader.remove(0)
    spreader.remove(0)
    clients += await connect(bound, 5)
    await until(lambda: [worker.take() for worker in workers[1:]] == [11 + 3, 17 + 2])
    for worker in workers:
        worker.close()
    spreader.close()
    for client in clients:
        client.close()


async def test_connections_wait_while_no_worker_takes_them(bound: socket.socket) -> None:
    spreader = ConnectionSpreader(bound)
    gone = Worker(spreader, 1)
    (first,) = await connect(bound, 1)
    await until(lambda: gone.take() == 1)
    gone.close()
    clients = await connect(bound, 3)
    await asyncio.sleep(0)
    worker = Worker(spreader, 2)
    await until(lambda: worker.take() == 3)
    worker.close()
    spreader.close()
    for client in (first, *clients):
        client.close()


async def test_a_worker_that_reads_nothing_does_not_keep_the_others_from_connections(bound: socket.socket) -> None:
    spreader = ConnectionSpreader(bound)
    hung, worker = Worker(spreader, 1), Worker(spreader, 2)
    hung.passed._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    spreader._receivers[1].channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    clients = await connect(bound, 40)

    def has_most() -> bool:
        taken = worker.take()
        worker.passed.report(0)
        return taken > 20

    await until(has_most)
    for each in (hung, worker):
        each.close()
    spreader.close()
    for client in clients:
        client.close()


async def test_a_server_serves_what_is_passed_to_it(bound: socket.socket) -> None:
    spreader = ConnectionSpreader(bound)
    ours, theirs = socket.socketpair()
    server = Server(lambda exchange: exchange.reply(200, [], b"here"), Limits())
    server.accept_from(PassedConnections(theirs))
    spreader.add(1, ours)
    client = await RawClient.connect(bound.getsockname()[1])
    assert (await client.ask("/")).body == b"here"
    client.close()
    await server.drain(1)
    spreader.close()
