"""How far a syncer says it is: what it has not looked at holds that up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import GROUP, THE_ONE, ObjectRef
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.edge.syncset import SyncSet
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from atoll.syncer.credentials import target
from atoll.syncer.downsync import Downsync
from atoll.syncer.edge import Edge
from atoll.syncer.mailbox import ITEMS, Mailbox, item_name
from atoll.syncer.others import OtherSyncers
from atoll.syncer.rate import RateLimit
from atoll.syncer.state import State
from harness.clients.api import configmap
from harness.servers.stand_ins.canned_api import CannedApi, serving
from harness.waits import until

REF, CONFIG = ObjectRef("", "configmaps", "default", "c"), ObjectRef(GROUP, "syncerconfigs", "", THE_ONE)
CONFIGMAPS = Resource("", "v1", "configmaps")
SERVED = {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": ["list", "watch", "get"]}


def item(ref: ObjectRef, obj: Object, revision: str) -> Object:
    held = {**obj, "metadata": {**obj["metadata"], "resourceVersion": revision}}
    metadata = {"name": item_name(ref), "resourceVersion": revision}
    return {"metadata": metadata, "resource": ref.resource, "object": held}


async def test_an_object_of_a_kind_that_was_not_read_is_not_said_to_be_applied_unless_its_edge_refuses_the_kind(
    tmp_path: Path,
) -> None:
    (config,) = plan_parts(specs_of({REF: "v1"}, []), (), 1).create
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        api.on("GET /clusters/root/api/v1", {"kind": "APIResourceList", "resources": [SERVED]})
        api.on("GET /clusters/root/api/v1/configmaps", Forbidden("nobody may"))
        mailbox, edge = Mailbox(client), Edge(client, "uid", RateLimit(100.0, 100))
        others = OtherSyncers(client, "uid")
        downsync = Downsync(mailbox, edge, State("uid", "edge", None), others, lambda: True)
        mailbox.changed(item(REF, configmap("c", namespace="default"), "5"))
        mailbox.changed(item(CONFIG, config, "6"))
        mailbox.complete({("", item_name(REF)), ("", item_name(CONFIG))})
        mailbox.reached("9")

        async def applied() -> int:
            downsync.wanted(REF, 5)
            key, _ = await downsync.queue.take()
            downsync.queue.done(key, await downsync.reconcile(key))
            return downsync.applied

        assert await applied() == 4
        edge.follow({REF.kind: CONFIGMAPS}, ())

        async def is_refused() -> bool:
            return bool(edge.failures)

        await until(is_refused, "the kind is refused")
        assert await applied() == 9
        await edge.close()


class Noted:
    """A listener that notes the revisions by which it is told."""

    def __init__(self) -> None:
        self.revisions: list[int] = []

    def wanted(self, ref: ObjectRef, revision: int) -> None:
        self.revisions.append(revision)

    def reported(self, ref: ObjectRef) -> None: ...

    def reconfigured(self, before: SyncSet, revision: int) -> None:
        self.revisions.append(revision)


async def test_what_the_first_list_causes_has_its_revision(tmp_path: Path) -> None:
    (config,) = plan_parts(specs_of({REF: "v1"}, []), (), 1).create
    items = [item(REF, configmap("c", namespace="default"), "5"), item(CONFIG, config, "6")]
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": items}
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        api.on(f"GET /clusters/root{ITEMS.path()}", listed)
        mailbox, noted = Mailbox(client), Noted()
        mailbox.listener = noted
        following = asyncio.create_task(mailbox.run())

        async def is_complete() -> bool:
            return mailbox.is_complete

        await until(is_complete, "the list was read")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert noted.revisions == [9]
