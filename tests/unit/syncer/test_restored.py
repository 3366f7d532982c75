"""An edge cluster that was restored from an older state of itself is read again, and its reports count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import EDGE_REVISION, GROUP, THE_ONE, ObjectRef
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.edge.upsync import PutCopy, plan_upsync, upsync_copy
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.wire.exchange import Exchange
from atoll.syncer.credentials import target
from atoll.syncer.edge import Edge
from atoll.syncer.mailbox import Mailbox, item_name
from atoll.syncer.rate import RateLimit
from atoll.syncer.returns import Returns
from harness.clients.api import configmap
from harness.servers.stand_ins.canned_api import JSON, CannedApi, serving
from harness.waits import until
from unit.machinery.edge.test_returns import carried
from unit.syncer.test_applied import CONFIGMAPS, SERVED, item

BOATS = Resource("x.dev", "v1", "boats")
BOAT, CONFIG = ObjectRef("x.dev", "boats", "default", "b"), ObjectRef(GROUP, "syncerconfigs", "", THE_ONE)
PATH = "/clusters/root/api/v1/configmaps"


def boat(revision: str, **fields: Any) -> Object:
    metadata = {"name": "b", "namespace": "default", "uid": "u", "resourceVersion": revision}
    return {"apiVersion": "x.dev/v1", "kind": "Boat", "metadata": metadata, **fields}


class Cluster:
    """Serves ConfigMaps: lists at its revision, and watches that end when told."""

    def __init__(self, api: CannedApi) -> None:
        self.revision, self.names = 10, ["old", "new"]
        self.lists, self.watches = list[dict[str, str]](), list[str]()
        self._ended = asyncio.Event()
        api.on(f"GET {PATH}", self._answer)

    def end(self) -> None:
        """Break the watch."""
        self._ended.set()

    async def _answer(self, exchange: Exchange) -> None:
        query = dict(each.split("=") for each in exchange.request.target.decode().partition("?")[2].split("&"))
        if "watch" not in query:
            self.lists.append(query)
            rows = [configmap(each, namespace="default", resourceVersion="7") for each in self.names]
            metadata = {"resourceVersion": str(self.revision)}
            body = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": rows}
            exchange.reply(200, JSON, encode_json(body))
            return
        self.watches.append(query["resourceVersion"])
        self._ended.clear()
        exchange.start(200, JSON)
        await self._ended.wait()
        exchange.abort()


async def test_a_watch_is_not_resumed_from_a_revision_that_the_cluster_has_not_reached(tmp_path: Path) -> None:
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        cluster, edge = Cluster(api), Edge(client, "uid", RateLimit(100.0, 100))
        edge.follow({("", "configmaps"): CONFIGMAPS}, (("", "configmaps"),))
        told = list[str]()
        edge.changed = lambda ref: told.append(ref.name)

        def watched(*revisions: str) -> Callable[[], Awaitable[bool]]:
            async def look() -> bool:
                return cluster.watches == list(revisions)

            return look

        await until(watched("10"), "it is watched from the revision of its list")
        cluster.end()
        await until(watched("10", "10"), "it goes on where it was")
        assert [each.get("limit") for each in cluster.lists] == ["250", "1"]
        cluster.revision, cluster.names = 8, ["old"]
        cluster.end()
        await until(watched("10", "10", "8"), "it was read again")
        assert [each.get("limit") for each in cluster.lists] == ["250", "1", "1", "250"]
        assert told == ["new"], "what is gone is told, and what is as it was is not"
        await edge.close()


async def test_a_status_that_is_older_than_the_mailboxs_goes_there_if_the_cluster_itself_answers_it(
    tmp_path: Path,
) -> None:
    (config,) = plan_parts(specs_of({BOAT: "v1"}, []), (), 1).create
    held = {**boat("5"), "status": {"n": 9}}
    held["metadata"]["annotations"] = {EDGE_REVISION: "edge/900"}
    status = "/clusters/root/apis/x.dev/v1/namespaces/default/boats/b"
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        served = {**SERVED, "name": "boats", "kind": "Boat"}
        api.on("GET /clusters/root/apis/x.dev/v1", {"kind": "APIResourceList", "resources": [served]})
        api.on("GET /clusters/root/apis/x.dev/v1/boats", _list(boat("800", status={"n": 8})))
        api.on(f"PATCH {status}/status", {**held, "status": {"n": 8}})
        mailbox, edge = Mailbox(client), Edge(client, "uid", RateLimit(100.0, 100))
        edge.uid = "edge"
        edge.follow({BOAT.kind: BOATS}, ())

        async def is_read() -> bool:
            return edge.is_read(BOAT.kind)

        await until(is_read, "the kind was read")
        mailbox.changed(item(BOAT, held, "5"))
        mailbox.changed(item(CONFIG, config, "6"))
        mailbox.complete({("", item_name(BOAT)), ("", item_name(CONFIG))})
        returns = Returns(client, mailbox, edge, lambda: True)
        api.on(f"GET {status}", boat("900", status={"n": 9}))
        await returns.reconcile(BOAT)
        assert returns.writes == 0, "its watch was behind"
        api.on(f"GET {status}", boat("800", status={"n": 8}))
        await returns.reconcile(BOAT)
        assert returns.writes == 1
        await edge.close()


def test_a_copy_that_is_newer_than_its_object_is_replaced_if_the_cluster_itself_answers_it() -> None:
    ref, live = ObjectRef("", "configmaps", "logs", "c"), configmap("c", {"n": "1"}, namespace="logs")
    live["metadata"]["resourceVersion"] = "800"
    newer = {**live, "data": {"n": "2"}, "metadata": {**live["metadata"], "resourceVersion": "900", "uid": "u"}}
    held = {**upsync_copy(ref, newer, "edge")}
    held["metadata"] |= {"resourceVersion": "5", "uid": "m"}
    sets = carried({"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]})
    plan = plan_upsync(sets, {ref: live}, {ref: held}, "edge")
    assert (plan.writes, plan.behind) == ((), (ref,))
    plan = plan_upsync(sets, {ref: live}, {ref: held}, "edge", is_current=True)
    assert [type(each) for each in plan.writes] == [PutCopy]
    assert plan.behind == ()


def _list(*items: Object) -> Object:
    metadata = {"resourceVersion": "850"}
    return {"apiVersion": "x.dev/v1", "kind": "BoatList", "metadata": metadata, "items": list(items)}
