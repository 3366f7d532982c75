"""Default bindings inside a shard: the content of one submit, and no repeated writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, SERVICE_ACCOUNTS
from atoll.machinery.storage.contract import Operation, Scope
from harness.oracles.claim_labels import claim_pair, claimed
from harness.servers.in_process.shard import InsideShard, shard_inside

Object = dict[str, Any]


async def offered(shard: InsideShard, *claims: Object, **spec: Any) -> str:
    """A provider's cluster with an export, and a type in root, called `kept`, that binds it by default."""
    provider = await shard.workspace("provider")
    body = {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": "one"},
        "spec": {"permissionClaims": list(claims)},
    }
    await shard.loopback.create(shard.target(API_EXPORTS, provider, "", "one"), body)
    default = {"defaultAPIBindings": [{"path": provider, "export": "one"}]}
    extends = {"extend": {"with": [{"name": "universal", "path": "root"}]}}
    made = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "WorkspaceType",
        "metadata": {"name": "kept"},
        "spec": {**extends, **default, **spec},
    }
    types = shard.app.identities.workspace_types
    await shard.loopback.create(shard.target(types, ROOT, "", "kept"), made)
    await shard.until_idle()
    return provider


KEPT = {"name": "kept", "path": "root"}


async def test_what_a_workspace_is_born_with_is_labelled_in_the_same_submit(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        provider = await offered(shard, {"resource": "serviceaccounts", "verbs": ["*"]})
        with shard.app.store.snapshot() as snapshot:
            before = snapshot.revision
        cluster = await shard.workspace("born", type=KEPT)
        written = [
            (entry.operation, decode(entry.value))
            for entry in shard.app.store.tail(before)
            if entry.key.cluster == cluster and entry.key.type in {SERVICE_ACCOUNTS, API_BINDINGS}
        ]
        # Nothing was written twice.
        assert {operation for operation, _ in written} == {Operation.ADDED}
        accounts = [obj for _, obj in written if obj["kind"] == "ServiceAccount"]
        pair = claim_pair(provider, "one", "", "serviceaccounts")
        assert len(accounts) == 2 and all(claimed(obj) == dict([pair]) for obj in accounts)


@pytest.mark.long
async def test_a_maintained_binding_does_not_come_back_in_a_workspace_that_goes(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        await offered(shard, {"resource": "configmaps", "verbs": ["*"]}, defaultAPIBindingLifecycle="Maintain")
        cluster = await shard.workspace("gone", type=KEPT)
        assert [obj for obj in shard.loopback.each(Scope(API_BINDINGS, cluster)) if "one" in obj["metadata"]["name"]]
        with shard.app.store.snapshot() as snapshot:
            before = snapshot.revision
        workspaces = shard.app.identities.workspaces
        await shard.loopback.delete(shard.target(workspaces, ROOT, "", "gone"), DeleteOptions())
        await shard.until_idle()
        assert shard.loopback.get(workspaces, ROOT, "", "gone") is None
        with shard.app.store.snapshot() as snapshot:
            assert snapshot.usage(cluster) == []
        made = [e for e in shard.app.store.tail(before) if e.key.cluster == cluster and e.operation is Operation.ADDED]
        assert made == []
