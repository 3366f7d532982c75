"""Follows the URLs in the APIExportEndpointSlice of the export's name.

`projection` watches at these URLs. There is one for each shard with consumers, none before the first binding.
Invariant: the projection gets the latest list; it may skip earlier ones.
"""

from __future__ import annotations

import asyncio

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object, status_of
from atoll.virtualworkspace_sdk.projection import Projection

SLICES = Resource("apis.kcp.io", "v1alpha1", "apiexportendpointslices", namespaced=False)


def urls_of(slice: Object | None) -> tuple[str, ...]:
    """Return the URLs of a slice; none without a slice."""
    endpoints = status_of(slice or {}).get("endpoints") or ()
    return tuple(sorted(each["url"] for each in endpoints))


async def follow(client: Client, export: str, projection: Projection) -> None:
    """Pass the current URLs to a projection, until cancelled."""
    changes = asyncio.Event()
    latest: list[tuple[str, ...]] = [()]

    def changed(old: Object | None, new: Object | None) -> None:
        latest[0] = urls_of(new)
        changes.set()

    informer = Informer(client, SLICES, changed, fieldSelector=f"metadata.name={export}")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informer.run())
        await informer.synced.wait()
        followed: tuple[str, ...] | None = None
        while True:
            changes.clear()
            if latest[0] != followed:
                followed = latest[0]
                await _follow_until_changed(changes, projection, followed)
            else:
                await changes.wait()


async def _follow_until_changed(changes: asyncio.Event, projection: Projection, urls: tuple[str, ...]) -> None:
    """Follow the URLs until they change, so that one that does not answer does not block newer ones."""
    following, changed = asyncio.create_task(projection.follow(urls)), asyncio.create_task(changes.wait())
    try:
        await asyncio.wait({following, changed}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
    finally:
        for task in (following, changed):
            task.cancel()
        await asyncio.gather(following, changed, return_exceptions=True)
