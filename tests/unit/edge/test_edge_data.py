"""Workspaces and mailboxes are reached as data at the shard that showed something of them, and by the proxy before."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from msgspec.structs import replace

from atoll.edge.edge_data import EdgeData
from atoll.edge.export_view import ExportView
from atoll.edge.objects import NAMESPACES
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.meta.wellknown import FENCE_HEADER
from harness.servers.stand_ins.canned_api import CannedApi, serving

SPACE = "/clusters/mb/api/v1/namespaces/default"
AT_SHARD, BY_PROXY = f"PATCH /shard/services/edge-view{SPACE}", f"PATCH /services/edge-view{SPACE}"


class Shards:
    """An export's view that knows the shards of some workspaces."""

    def __init__(self) -> None:
        self.seen: dict[str, Client] = {}

    def shard_of(self, cluster: str) -> Client | None:
        return self.seen.get(cluster)


class Member:
    """A fence with one token."""

    def token(self) -> int:
        return 7

    async def refused(self) -> None:
        raise AssertionError("no token is refused")


async def test_a_workspace_is_written_at_the_shard_that_showed_it_with_the_same_token(tmp_path: Path) -> None:
    shards, space = Shards(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    async with serving(CannedApi()) as api:
        target = replace(Kubeconfig.load(str(api.kubeconfig(tmp_path))).target(), fence=Member())
        async with Client(target) as client:
            data = EdgeData(client, cast(ExportView, shards))
            for route in (AT_SHARD, BY_PROXY):
                api.on(route, space)
            await data.cluster("mb").apply(NAMESPACES, space)
            shards.seen["mb"] = client.view(f"https://127.0.0.1:{api.port}/shard/services/apiexport/home/edge")
            await data.cluster("mb").apply(NAMESPACES, space)
            assert api.paths() == [BY_PROXY, AT_SHARD]
            # Of both the writes leave in the same waves.
            found = [data.cluster(name).target.waves for name in ("mb", "another")]
            assert found[0] is found[1] is not None
            for request in api.requests:
                assert request.headers[FENCE_HEADER.lower()] == ["7"]
                assert request.headers["authorization"] == ["Bearer secret"]
