"""Workspaces of the edge service: created where they are missing, by path.

`install` calls it. Invariant: a workspace that exists is never changed, whatever its type.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import AlreadyExists, Forbidden, NotFound
from atoll.machinery.process.backoff import Backoff

READY_TIMEOUT_S = 60.0
UNIVERSAL = {"name": "universal", "path": ROOT}
_AGAIN = Backoff(0.05, 1.0)


async def ensure(client: Client, path: str, kind: Object) -> bool:
    """Create a workspace and those above it that are missing; return whether the last one was.

    Those above are of type universal, and are waited for. Raises ApiError, TimeoutError.
    """
    parent, _, name = path.rpartition(":")
    if not parent:
        return False
    with suppress(NotFound):
        await client.cluster(parent).get(WORKSPACES, name)
        return False
    if await ensure(client, parent, UNIVERSAL):
        await ready(client, parent)
    return await _create(client.cluster(parent), name, kind)


async def ready(client: Client, path: str) -> None:
    """Wait until a workspace is Ready. Raises ApiError, TimeoutError."""
    parent, _, name = path.rpartition(":")
    if not parent:
        return
    async with asyncio.timeout(READY_TIMEOUT_S):
        while not await _watched_ready(client.cluster(parent), name):
            pass


async def _watched_ready(parent: Client, name: str) -> bool:
    """Return whether a watch showed the workspace as Ready before the server ended it."""
    async with parent.watch(WORKSPACES, fieldSelector=f"metadata.name={name}") as events:
        async for event in events:
            if event.type in {"ADDED", "MODIFIED"} and status_of(event.object).get("phase") == "Ready":
                return True
    return False


async def _create(parent: Client, name: str, kind: Object) -> bool:
    """Create a workspace. Its type may have to reach the shard of the parent first."""
    wanted = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    attempts = 0
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            try:
                await parent.create(WORKSPACES, {**wanted, "spec": {"type": kind}})
            except AlreadyExists:
                return False
            except Forbidden as error:
                if "cannot be resolved" not in error.message:
                    raise
                await asyncio.sleep(_AGAIN.delay_s(attempts))
                attempts += 1
            else:
                return True
