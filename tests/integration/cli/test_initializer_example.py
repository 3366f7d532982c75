"""The README's initializer run as printed, for a type that extends another."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import Callable
from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object
from harness.servers.shard_process import ShardProcess

README = Path(__file__).parents[3] / "services/atoll/machinery/client/README.md"
CONFIGMAPS = Resource("", "v1", "configmaps")
TYPES = Resource("tenancy.kcp.io", "v1alpha1", "workspacetypes", namespaced=False)
RULES = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
    {"nonResourceURLs": ["/api", "/api/*"], "verbs": ["get"]},
]


def of(kind: str, name: str, **spec: object) -> Object:
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def until(client: Client, resource: Resource, name: str, holds: Callable[[Object], bool]) -> Object:
    """Return the object once its status satisfies a condition."""
    async with asyncio.timeout(60), client.watch(resource, fieldSelector=f"metadata.name={name}") as events:
        async for event in events:
            if event.type in {"ADDED", "MODIFIED"} and holds(event.object.get("status") or {}):
                return event.object
    raise AssertionError("the watch ended")


async def test_the_initializer_of_the_readme_makes_workspaces_ready(tmp_path: Path, shard: ShardProcess) -> None:
    (tmp_path / "limiter.py").write_text(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1])
    program = runpy.run_path(str(tmp_path / "limiter.py"))
    universal, limited = ({"with": [{"name": name, "path": "root"}]} for name in ("universal", "limited"))
    kind = {"name": "more-limited", "path": "root"}
    async with Client.from_kubeconfig(str(shard.kubeconfig), cluster="root") as client:
        rules = {"initializer": True, "initializerPermissions": RULES}
        await client.create(TYPES, of("WorkspaceType", "limited", extend=universal, **rules))
        await client.create(TYPES, of("WorkspaceType", "more-limited", extend=limited))
        await until(client, TYPES, "limited", lambda status: bool(status.get("virtualWorkspaces")))
        await client.create(WORKSPACES, of("Workspace", "before", type=kind))
        running = asyncio.create_task(program["main"](str(shard.kubeconfig), "root", "limited"))
        await client.create(WORKSPACES, of("Workspace", "after", type=kind))
        for name in ("before", "after"):
            await until(client, WORKSPACES, name, lambda status: status.get("phase") == "Ready")
            limits = await client.cluster(f"root:{name}").get(CONFIGMAPS, "limits", "default")
            assert limits["data"] == {"objects": "1000"}
            assert limits["metadata"]["managedFields"][0]["manager"] == "limiter"
        assert not running.done(), running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
