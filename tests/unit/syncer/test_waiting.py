"""An object that waits for its Namespace is looked at again once that is there, however the syncer learns of it."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.syncer.credentials import target
from atoll.syncer.downsync import Downsync
from atoll.syncer.edge import NAMESPACE_KIND, Edge
from atoll.syncer.mailbox import Mailbox, item_name
from atoll.syncer.others import OtherSyncers
from atoll.syncer.rate import RateLimit
from atoll.syncer.state import State
from harness.clients.api import configmap
from harness.servers.stand_ins.canned_api import CannedApi, serving
from harness.waits import until
from unit.syncer.test_applied import CONFIG, CONFIGMAPS, REF, SERVED, item

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "uid": "n", "resourceVersion": "3"},
    "status": {"phase": "Active"},
}


def followed(edge: Edge, *resources: Resource) -> None:
    edge.follow({(each.group, each.plural): each for each in resources}, ())


async def test_a_namespace_that_was_there_before_it_was_listed_is_no_reason_to_wait_for_ever(tmp_path: Path) -> None:
    (config,) = plan_parts(specs_of({REF: "v1"}, []), (), 1).create
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        api.on("GET /clusters/root/api/v1", {"kind": "APIResourceList", "resources": [SERVED]})
        for path, items in (("configmaps", []), ("namespaces", [NAMESPACE])):
            answer = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": items}
            api.on(f"GET /clusters/root/api/v1/{path}", answer)
        mailbox, edge = Mailbox(client), Edge(client, "uid", RateLimit(100.0, 100))
        downsync = Downsync(mailbox, edge, State("uid", "edge", None), OtherSyncers(client, "uid"), lambda: True)
        edge.changed, edge.read = downsync.live_changed, downsync.kind_read
        mailbox.changed(item(REF, configmap("c", namespace="default"), "5"))
        mailbox.changed(item(CONFIG, config, "6"))
        mailbox.complete({("", item_name(REF)), ("", item_name(CONFIG))})

        async def read(kind: Resource) -> None:
            async def is_read() -> bool:
                return edge.is_read((kind.group, kind.plural))

            await until(is_read, f"{kind.plural} are read")

        async def taken() -> set[ObjectRef]:
            found = set()
            while len(downsync.queue):
                key, _ = await downsync.queue.take()
                found.add(key)
                downsync.queue.done(key)
            return found

        followed(edge, CONFIGMAPS)
        await read(CONFIGMAPS)
        await taken()
        assert await downsync.reconcile(REF) is None
        assert await taken() == {ObjectRef("", "namespaces", "", "default")}
        followed(edge, CONFIGMAPS, NAMESPACE_KIND)
        await read(NAMESPACE_KIND)
        assert REF in await taken()
        await edge.close()
