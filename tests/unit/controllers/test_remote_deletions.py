"""The deletion of a Workspace deletes its own LogicalCluster on another shard, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from atoll.controllers.workspaces.remote_logicalclusters import RemoteLogicalClusters, TargetShard
from atoll.machinery.meta.objects import Object

CHOICE = TargetShard("aaaaaaaaaaaaaaaa", "far")


class OneLogicalCluster:
    """A shard, and the client of it, whose only LogicalCluster is owned by the Workspace with a uid."""

    def __init__(self, owner: str) -> None:
        self.object: Object = {"metadata": {"name": "cluster"}, "spec": {"owner": {"uid": owner}}}

    async def call(self, shard: str, ask: Callable[[Any], Awaitable[Object]], user: object = None) -> Object:
        assert shard == "far"
        return await ask(self)

    def cluster(self, name: str) -> OneLogicalCluster:
        assert name == CHOICE.cluster
        return self

    async def get(self, *path: object) -> Object:
        return self.object

    async def delete(self, *path: object) -> Object:
        self.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return self.object


@pytest.mark.parametrize("owner", ["mine", "another", ""])
async def test_only_the_owner_deletes_it(owner: str) -> None:
    shard = OneLogicalCluster(owner)
    found = await RemoteLogicalClusters(cast(Any, shard)).begin_deletion(CHOICE, "mine")
    assert (found is not None) == ("deletionTimestamp" in shard.object["metadata"]) == (owner == "mine")
