"""A syncer that may not list a kind takes no Namespace away, as others may have objects of it there."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.edge.names import DOWNSYNCED, SYNCED_BY, ObjectRef, mark
from atoll.machinery.edge.plan import Delete, SyncState, Wanted, plan
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from atoll.syncer.credentials import target
from atoll.syncer.edge import Edge
from atoll.syncer.rate import RateLimit
from harness.servers.stand_ins.canned_api import CannedApi, serving
from unit.syncer.test_applied import SERVED

REF = ObjectRef("", "namespaces", "", "ours")


async def test_a_namespace_is_kept_where_a_kind_may_not_be_listed_and_goes_where_nothing_is(tmp_path: Path) -> None:
    made: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ours", "labels": {SYNCED_BY: "s"}}}
    made["metadata"] |= {"annotations": {DOWNSYNCED: mark(made, REF)}, "uid": "u", "resourceVersion": "5"}
    (config,) = plan_parts(specs_of({}, []), (), 1).create
    wanted = Wanted({}, sync_set([config]), is_complete=True)
    empty: Object = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": []}
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        api.on("GET /clusters/root/apis", {"groups": []})
        api.on("GET /clusters/root/api/v1", {"kind": "APIResourceList", "resources": [SERVED]})
        api.on("GET /clusters/root/api/v1/namespaces/ours/configmaps", Forbidden("nobody may"), empty)
        edge, found = Edge(client, "s", RateLimit(100.0, 100)), list[bool]()
        for _ in range(2):
            live = {REF: made, **await edge.content("ours")}
            actions = plan(wanted, live, SyncState("s"), 0.0)
            found.append(any(isinstance(each, Delete) for each in actions))
    assert found == [False, True]
