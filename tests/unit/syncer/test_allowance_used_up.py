"""A large edge cluster that fills its mailbox: it waits where the mailbox says so, and nobody is told of a failure.

Time is the loop's own, which jumps to what is due next; the mailbox gives its real turns.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.wire.client import ClientResponse
from atoll.syncer.state import State
from atoll.syncer.syncer import WORKERS
from atoll.syncer.upsync import Upsync
from atoll.virtualworkspaces.edge.loop_time import BURST_S, RATE, LoopTime, TurnPending
from atoll.virtualworkspaces.edge.refusals import Refusals
from harness.jumping_loop import JumpingLoop

OBJECTS = 5000
UPSYNC_SET = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}
CONFIG: Object = {"kind": "SyncerConfig", "metadata": {"name": "the-one"}, "spec": {"upsync": [UPSYNC_SET]}}
VIEW = "/services/mailbox/clusters/box"
#: For how long a request of any kind holds the loop of the mailbox; a new object takes two: it is looked for, and made.
HOLD_S = 0.001


class MailboxServer:
    """The HTTP connection of a client to the mailbox view, with the turns of its user."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.stored: dict[str, Object] = {}
        self.waited = 0
        self._loop, self._turns = loop, LoopTime(Refusals(loop.time), loop.time).of("box", "syncer")

    async def request(self, method: str, target: str, headers: object, body: bytes) -> ClientResponse:
        await asyncio.sleep(0.002)
        info, http = parse(method, target.removeprefix(VIEW).encode()), cast(Any, object())
        try:
            self._turns.take(http)
        except TurnPending as pending:
            self.waited += 1
            await pending.fetch()
            self._turns.take(http)
        self._loop.now_s += HOLD_S
        self._turns.took(HOLD_S)
        if method == "GET" and info.name not in self.stored:
            return _answer(404, {"kind": "Status", "reason": "NotFound", "code": 404, "message": "none"})
        if method == "POST":
            obj = decode(body)
            obj["metadata"] |= {"uid": "u", "resourceVersion": "1"}
            self.stored[obj["metadata"]["name"]] = obj
            return _answer(201, obj)
        return _answer(200, self.stored[info.name])


def _answer(code: int, obj: Object) -> ClientResponse:
    return ClientResponse(code, {}, encode_json(obj))


class EdgeCluster:
    """The edge cluster and what its mailbox asks of it."""

    uid, is_complete = "edge", True
    carried = sync_set([CONFIG])

    def refs(self) -> list[ObjectRef]:
        return [ObjectRef("", "configmaps", "logs", f"c{number}") for number in range(OBJECTS)]

    def get(self, ref: ObjectRef) -> Object:
        metadata = {"name": ref.name, "namespace": ref.namespace, "uid": ref.name, "resourceVersion": "5"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}

    def is_read(self, kind: tuple[str, str]) -> bool:
        return True


async def fill(loop: JumpingLoop) -> tuple[MailboxServer, float]:
    """Bring all objects up; return the mailbox, and the seconds that it took."""
    server, edge = MailboxServer(loop), cast(Any, EdgeCluster())
    client = Client(Target("center", 443, VIEW, None), http=cast(Any, server))
    upsync = Upsync(client, edge, edge, State("s", "edge", None), lambda: True)
    upsync.queue = WorkQueue(loop.time)
    upsync.all()
    began_s, before = loop.time(), -1
    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work("upsync", upsync.queue, upsync.reconcile)) for _ in range(WORKERS)]
        while len(upsync.queue):
            await asyncio.sleep(5.0)
            assert upsync.failures == {}, "nothing is reported"
            assert len(server.stored) > before, "it goes on"
            before = len(server.stored)
        took_s = loop.time() - began_s
        for each in workers:
            each.cancel()
    return server, took_s


def test_five_thousand_objects_come_up_as_fast_as_their_time_lets_them_and_without_a_refusal() -> None:
    loop = JumpingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        server, took_s = runner.run(fill(loop))
    assert len(server.stored) == OBJECTS
    assert server.waited > 0, "what it may take at once was used up"
    least_s = (2 * OBJECTS * HOLD_S - BURST_S) / RATE
    assert least_s <= took_s < 1.5 * least_s
