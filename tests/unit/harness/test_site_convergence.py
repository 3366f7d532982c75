"""The comparison of a site's shards: each fault of a follower is a difference, and no other state is."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import Replica
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.stores import delete, put, store_options
from harness.models import replicated_types
from harness.oracles.site_convergence import differences

WORKSPACES = ResourceType("tenancy.kcp.io", "workspaces")
ROLES = ResourceType("rbac.authorization.k8s.io", "clusterroles")
CONFIGMAPS = ResourceType("", "configmaps")


def key(type: ResourceType, name: str, cluster: str = "c1") -> ObjectKey:
    return ObjectKey(type, cluster, "", name)


async def held_after(directory: Path, fault: str) -> list[str]:
    """The differences between a shard and a follower with one fault."""
    root = open_store(store_options(directory / "root", shard="root"))
    revisions: dict[str, int] = {}
    for name in ("kept", "changed", "deleted", "others"):
        [revisions[name]] = await root.submit([put(key(WORKSPACES, name))])
    annotated = {"annotations": {"internal.kcp.io/replicate": "core"}}
    await root.submit([put(key(ROLES, "annotated"), metadata=annotated), put(key(ROLES, "plain"))])
    await root.submit([put(key(WORKSPACES, "hidden", "system:admin")), put(key(CONFIGMAPS, "own"))])
    with root.snapshot() as snapshot:
        before = {name: snapshot.get(key(WORKSPACES, name)) for name in revisions}
    await root.submit([put(key(WORKSPACES, "changed"), expected=revisions["changed"], data="new")])
    await root.submit([delete(key(WORKSPACES, "deleted"), revisions["deleted"])])
    with root.snapshot() as snapshot:
        now = [snapshot.get(k) for k in (key(WORKSPACES, "kept"), key(WORKSPACES, "changed"), key(ROLES, "annotated"))]
        plain, own = snapshot.get(key(ROLES, "plain")), snapshot.get(key(CONFIGMAPS, "own"))
    await root.close()
    rows = [record for record in now if record is not None]
    if fault == "misses an event":
        rows = [record for record in rows if record.key.name != "kept"]
    elif fault == "misses an annotated role":
        rows = [record for record in rows if record.key.type != ROLES]
    elif fault == "keeps the state before":
        rows = [record if record.key.name != "changed" else before["changed"] or record for record in rows]
    elif fault == "raises the dead":
        rows += [record for record in [before["deleted"]] if record]
    elif fault == "holds what is not annotated":
        rows += [record for record in [plain] if record]
    elif fault == "holds what is not replicated":
        rows += [record for record in [own] if record]
    follower = open_store(store_options(directory / "east", shard="east"))
    # Its own cluster needs its Workspace; of the others' it may lack what it does not need.
    owned = ObjectKey(LOGICAL_CLUSTERS, "c2", "", SINGLETON)
    await follower.submit([put(owned, spec={"owner": {"cluster": "c1", "name": "kept"}})])
    await follower.submit([Replica("root", record.key, record.value, record.revision, 1) for record in rows])
    await follower.close()
    return differences({"root": directory / "root", "east": directory / "east"})


async def test_a_follower_that_holds_everything_does_not_differ(tmp_path: Path) -> None:
    assert await held_after(tmp_path, "") == []


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("misses an event", "kept"),
        ("misses an annotated role", "annotated"),
        ("keeps the state before", "changed"),
        ("raises the dead", "deleted"),
        ("holds what is not annotated", "plain"),
        ("holds what is not replicated", "own"),
    ],
)
async def test_each_fault_of_a_follower_is_a_difference(tmp_path: Path, fault: str, name: str) -> None:
    [found] = await held_after(tmp_path, fault)
    assert found.startswith("east of root: ")
    assert f"name='{name}'" in found


@pytest.mark.parametrize("identity", ["", CORE, LOCAL, "ab" * 32])
def test_the_policy_of_a_shard_is_the_list(identity: str) -> None:
    listed = replicated_types.REPLICATED | replicated_types.REPLICATED_IF_ANNOTATED | replicated_types.NOT_PUBLISHED
    listed |= replicated_types.INTERNAL
    policy, value = KcpStreamPolicy(), b'{"metadata":{"annotations":{"internal.kcp.io/replicate":"x"}}}'
    for name in sorted(listed | {"configmaps", "roles.rbac.authorization.k8s.io", "apibindings.apis.kcp.io"}):
        resource, _, group = name.partition(".")
        type = ResourceType(group, resource, identity)
        found = key(type, "a")
        assert policy.published(type) == replicated_types.is_published(type), name
        replicated = policy.may_replicate(type) and policy.replicated(found, value)
        assert replicated == replicated_types.is_replicated(found, value), name
