"""A large edge cluster that fills its mailbox: it waits where the mailbox says so, and nobody is told of a failure.

Time is the loop's own, which jumps to what is due next; the mailbox counts by the real allowance.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any, cast

from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import TooManyRequests
from atoll.machinery.wire.client import ClientResponse
from atoll.syncer.state import State
from atoll.syncer.syncer import WORKERS
from atoll.syncer.upsync import Upsync
from atoll.virtualworkspaces.edge.allowance import REQUESTS, Allowances, cost_of

OBJECTS = 5000
UPSYNC_SET = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}
CONFIG: Object = {"kind": "SyncerConfig", "metadata": {"name": "the-one"}, "spec": {"upsync": [UPSYNC_SET]}}
VIEW = "/services/mailbox/clusters/box"
#: What a new object takes: it is looked for, and made.
COST = 3.0


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only while it has nothing to do."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        jumping = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                jumping.now_s += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now_s


class MailboxServer:
    """The HTTP connection of a client to the mailbox view, with its allowance."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.stored: dict[str, Object] = {}
        self.refused = 0
        self._allowances = Allowances(loop.time)

    async def request(self, method: str, target: str, headers: object, body: bytes) -> ClientResponse:
        await asyncio.sleep(0.002)
        info = parse(method, target.removeprefix(VIEW).encode())
        try:
            self._allowances.take("box", "syncer", *cost_of(_request(info, body), lambda: len(self.stored)))
        except TooManyRequests as error:
            self.refused += 1
            return ClientResponse(429, {"retry-after": [str(error.details.retry_after_s)]}, b"")
        if method == "GET" and info.name not in self.stored:
            return _answer(404, {"kind": "Status", "reason": "NotFound", "code": 404, "message": "none"})
        if method == "POST":
            obj = decode(body)
            obj["metadata"] |= {"uid": "u", "resourceVersion": "1"}
            self.stored[obj["metadata"]["name"]] = obj
            return _answer(201, obj)
        return _answer(200, self.stored[info.name])


def _request(info: object, body: bytes) -> Any:
    class Request:
        http = type("Http", (), {"body": body})

    found: Any = Request
    found.info = info
    return found


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


def test_five_thousand_objects_come_up_as_fast_as_the_allowance_lets_them_and_without_a_failure() -> None:
    loop = JumpingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        server, took_s = runner.run(fill(loop))
    assert len(server.stored) == OBJECTS
    assert server.refused > 0, "the allowance was used up"
    least_s = (COST * OBJECTS - REQUESTS.burst) / REQUESTS.per_s
    assert least_s <= took_s < 2 * least_s
