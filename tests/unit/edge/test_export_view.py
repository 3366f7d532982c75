"""What a controller keeps of the control objects of all workspaces: what it needs, as there are many mailboxes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from atoll.edge.export_view import ExportView
from atoll.edge.kinds import BINDINGS, SYNC_TARGETS, SYNCER_CONFIGS
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import head
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.process.tasks import stop
from harness.servers.stand_ins.canned_api import CannedApi, bookmark, event, serving, watching

SLICES = "GET /clusters/root/apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
AT = "/services/apiexport/home/edge"


def managed(name: str) -> Object:
    """An object with a spec that somebody manages."""
    entries = [{"manager": "m", "fieldsV1": {"f:spec": {}}}]
    metadata = {"name": name, "resourceVersion": "1", "annotations": {CLUSTER: "mb"}, "managedFields": entries}
    return {"metadata": metadata, "spec": {"x": 1}}


async def test_bindings_and_chosen_kinds_are_kept_by_their_heads_and_none_with_its_managers(tmp_path: Path) -> None:
    seen: dict[Resource, Object | None] = {}
    complete = asyncio.Event()

    def changed(kind: Resource, old: Object | None, new: Object | None) -> None:
        seen[kind] = new
        if len(seen) == 3:
            complete.set()

    async with serving(CannedApi()) as api:
        ends = {"status": {"endpoints": [{"url": f"https://127.0.0.1:{api.port}{AT}"}]}}
        api.on(SLICES, watching(event("ADDED", {**managed("edge"), **ends}), bookmark(2, end=True)))
        for kind in (BINDINGS, SYNC_TARGETS, SYNCER_CONFIGS):
            path = f"GET {AT}/clusters/*{kind.path()}"
            api.on(path, watching(event("ADDED", managed(kind.plural)), bookmark(2, end=True)))
        async with Client.from_kubeconfig(str(api.kubeconfig(tmp_path))) as home:
            view = ExportView(home, "edge", (SYNC_TARGETS, SYNCER_CONFIGS), changed, keep={SYNCER_CONFIGS: head})
            task = asyncio.create_task(view.run())
            await asyncio.wait_for(complete.wait(), 30)
            await stop(task)
    named = {"resourceVersion": "1", "annotations": {CLUSTER: "mb"}}
    for kind in (BINDINGS, SYNCER_CONFIGS):
        assert seen[kind] == {"metadata": {"name": kind.plural, **named}}
    assert seen[SYNC_TARGETS] == {"metadata": {"name": SYNC_TARGETS.plural, **named}, "spec": {"x": 1}}
