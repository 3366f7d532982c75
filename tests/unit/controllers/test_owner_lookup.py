"""Owners that were deleted: their dependents are those of their own namespace, or of any if they had none."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.controllers.kubernetes.owner_lookup import OwnerLookup, OwnerUnresolved
from atoll.controllers.kubernetes.owner_references import Reference
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import CLUSTER_ROLES, CONFIG_MAPS
from harness.servers.in_process.minimal_shard import cell

OWNER = Reference("v1", "ConfigMap", "owner", "u-1")
CLUSTER_OWNER = Reference("rbac.authorization.k8s.io/v1", "ClusterRole", "owner", "u-2")


async def test_a_deleted_owner_is_dangling_within_its_namespace_alone(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("open")
        lookup = OwnerLookup(here.loopback)
        lookup.note_deleted(ObjectKey(CONFIG_MAPS, "open", "default", "owner"), OWNER.uid)
        found = lookup.classified(ObjectKey(CONFIG_MAPS, "open", "default", "a"), [OWNER])
        assert found.dangling == [OWNER]
        # A cluster-scoped object cannot have it, so it is left alone, deleted owner or not.
        with pytest.raises(OwnerUnresolved):
            lookup.classified(ObjectKey(CLUSTER_ROLES, "open", "", "a"), [OWNER])


@pytest.mark.parametrize("namespace", ["", "default"])
async def test_a_deleted_owner_without_namespace_is_dangling_everywhere(tmp_path: Path, namespace: str) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("open")
        lookup = OwnerLookup(here.loopback)
        lookup.note_deleted(ObjectKey(CLUSTER_ROLES, "open", "", "owner"), CLUSTER_OWNER.uid)
        key = ObjectKey(CONFIG_MAPS if namespace else CLUSTER_ROLES, "open", namespace, "a")
        assert lookup.classified(key, [CLUSTER_OWNER]).dangling == [CLUSTER_OWNER]
