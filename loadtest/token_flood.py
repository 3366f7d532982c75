"""A flood by a stolen syncer token, from a process of its own, as fast as its connections take answers.

A quarter of the connections each writes statuses, brings objects up, makes Events, and lists; watches are opened
beside them. The process runs when nothing else wants its core: an attacker has a machine of his own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from multiprocessing.connection import Connection as Pipe

import msgspec
import uvloop

from atoll.machinery.edge.names import GROUP, UPSYNCED, VERSION
from atoll.machinery.meta.objects import Object, encode_json
from loadtest.bench import FILLING
from loadtest.http import Connection, Load, Origin, closed_loop, connect

EDGE, NAMESPACE = f"/apis/{GROUP}/{VERSION}", "/api/v1/namespaces/default"
ITEMS, STATUS = f"{EDGE}/downsyncitems", f"{EDGE}/syncerconfigs/the-one/status"
MERGE = "application/merge-patch+json"
_START_S = 30.0


class Target(msgspec.Struct, frozen=True):
    """The server, its authority, and the mailbox view with a token of it."""

    host: str
    port: int
    authority: str
    token: str
    prefix: str

    @property
    def origin(self) -> Origin:
        return Origin(self.host, self.port, ssl.create_default_context(cadata=self.authority), self.token)


class Answers(msgspec.Struct):
    """What a flood was answered: how many requests, and how many of them were refused."""

    count: int = 0
    refused: int = 0
    wall_s: float = 0.0


@asynccontextmanager
async def flooding(
    target: Target, connections: int, watches: int, seconds: float
) -> AsyncIterator[asyncio.Task[Answers]]:
    """A flood that runs for so long once the block is entered; the task has what it was answered."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_process, args=(theirs, target, connections, watches, seconds))
    process.start()
    try:
        assert await asyncio.to_thread(ours.poll, _START_S), "the flood did not begin"
        ours.recv()
        yield asyncio.create_task(asyncio.to_thread(ours.recv))
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _process(output: Pipe, target: Target, *sizes: float) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    uvloop.run(_flood(output, target, *sizes))


async def _flood(output: Pipe, target: Target, connections: float, watches: float, seconds: float) -> None:
    origin, kinds = target.origin, (_statuses, _objects, _events, _lists)
    watch = origin.request("GET", f"{target.prefix}{ITEMS}?watch=1")
    # A watch that is refused, or ends, is none that is opened again.
    opened = await connect(origin, int(watches), lambda: Connection(lambda *answer: None))
    for each in opened:
        each.write(watch)
    output.send(None)
    loads: list[Load] = await asyncio.gather(
        *(closed_loop(origin, kind(origin, target.prefix), int(connections) // len(kinds), seconds) for kind in kinds)
    )
    answers = Answers(sum(each.answers for each in loads), sum(each.errors for each in loads), seconds)
    for each in opened:
        each.abort()
    output.send(answers)


def _statuses(origin: Origin, prefix: str) -> Iterator[bytes]:
    for number in count():
        body = encode_json({"status": {"appliedRevision": str(number)}})
        yield origin.request("PATCH", prefix + STATUS, body, MERGE)


def _objects(origin: Origin, prefix: str) -> Iterator[bytes]:
    for number in count():
        name = f"up-{number}"
        metadata = {"name": name, "annotations": {UPSYNCED: f"ConfigMap/default/{name}"}}
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": FILLING}}
        yield origin.request("POST", f"{prefix}{NAMESPACE}/configmaps", encode_json(body))


def _events(origin: Origin, prefix: str) -> Iterator[bytes]:
    involved = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "default"}
    head: Object = {"apiVersion": "v1", "kind": "Event", "involvedObject": involved, "reason": "Flood"}
    for number in count():
        body = {**head, "metadata": {"name": f"e-{number}"}, "source": {"component": "kubestellar-syncer"}}
        yield origin.request("POST", f"{prefix}{NAMESPACE}/events", encode_json(body))


def _lists(origin: Origin, prefix: str) -> Iterator[bytes]:
    while True:
        yield origin.request("GET", prefix + ITEMS)
