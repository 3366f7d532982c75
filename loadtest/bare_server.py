"""A server that does of a create only what no server can leave out, in a process of its own: the floor of its cost.

`scenarios.floor` measures it at three depths. It checks nothing, knows nobody and keeps no promise but that an object
is synced before it is answered. Requests of the load arrive in one piece.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast
from uuid import uuid4

import lmdb
import msgspec
import uvloop
from google_crc32c import value as crc32c

from atoll.machinery.process import pki, tls
from loadtest.bench import FILLING
from loadtest.http import END_OF_HEAD

#: Depths: answer a fixed object; decode and encode the one that was sent; store it too.
REPLY, JSON, STORE = "reply", "json", "store"
_ADDRESS = "127.0.0.1"
_HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_FIXED = b'{"data":{"x":"%s"}}' % FILLING.encode()
_ANSWER = _HEAD % len(_FIXED) + _FIXED
_MAP_BYTES = 4 << 30
_COUNTER = struct.Struct(">QQQ")

Serve = Callable[[asyncio.Transport, bytes], None]


class BareServer(msgspec.Struct, frozen=True):
    """One that runs."""

    pid: int
    port: int
    ca: bytes

    @property
    def tls(self) -> ssl.SSLContext:
        """What a client trusts."""
        return ssl.create_default_context(cadata=self.ca.decode())


@asynccontextmanager
async def running(place: Path, depth: str, cores: set[int]) -> AsyncIterator[BareServer]:
    """A bare server on some cores; ended with the context."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_process, args=(theirs, place, depth, cores))
    process.start()
    try:
        port, ca = await asyncio.to_thread(ours.recv)
        yield BareServer(process.pid or 0, port, ca)
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _process(output: Connection, place: Path, depth: str, cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)
    uvloop.run(_serve(output, place, depth))


async def _serve(output: Connection, place: Path, depth: str) -> None:
    serve = {REPLY: _reply, JSON: _reply_object}.get(depth) or _Rows(place).store
    ca = pki.make_ca("bare server")
    context = tls.server_context(pki.make_serving(ca, [_ADDRESS, "localhost"]))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(serve), _ADDRESS, 0, ssl=context)
    output.send((server.sockets[0].getsockname()[1], ca.certificate))
    await asyncio.Event().wait()


class _Connection(asyncio.Protocol):
    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._serve(self._transport, data)


def _reply(transport: asyncio.Transport, _data: bytes) -> None:
    transport.write(_ANSWER)


def _object(data: bytes) -> tuple[str, bytes]:
    """Return the name and the stored form of what a request creates."""
    obj = msgspec.json.decode(data[data.index(END_OF_HEAD) + len(END_OF_HEAD) :])
    metadata, uid = obj["metadata"], str(uuid4())
    name = metadata["name"] = metadata["generateName"] + uid[:5]
    metadata.update(uid=uid, namespace="default", creationTimestamp="2026-01-01T00:00:00Z", resourceVersion="0" * 16)
    return name, msgspec.json.encode(obj, order="sorted")


def _reply_object(transport: asyncio.Transport, data: bytes) -> None:
    _, value = _object(data)
    transport.write(_HEAD % len(value) + value)


class _Rows:
    """The rows of a write: object, log entry, version, two counters. A loop turn is one synced transaction."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._env = lmdb.open(str(place), map_size=_MAP_BYTES, max_dbs=4)
        self._objects, self._log, self._versions, self._counters = (
            self._env.open_db(name) for name in (b"objects", b"log", b"versions", b"counters")
        )
        self._waiting: list[tuple[asyncio.Transport, str, bytes]] = []
        self._revision = time.time_ns() // 1000

    def store(self, transport: asyncio.Transport, data: bytes) -> None:
        """Store an object with the others of this loop turn; then answer."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._commit)
        self._waiting.append((transport, *_object(data)))

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        with self._env.begin(write=True) as txn:
            for _, name, value in waiting:
                self._revision += 1
                key, revision = b"cluster\0default\0" + name.encode(), self._revision.to_bytes(8, "big")
                txn.put(key, value, db=self._objects)
                txn.put(revision, key, db=self._log, append=True)
                txn.put(key + revision, crc32c(value).to_bytes(4, "big"), db=self._versions)
            counter = _COUNTER.pack(self._revision, len(waiting), 0)
            for row in (b"cluster", b"all"):
                txn.put(row, counter, db=self._counters)
        for transport, _, value in waiting:
            transport.write(_HEAD % len(value) + value)
