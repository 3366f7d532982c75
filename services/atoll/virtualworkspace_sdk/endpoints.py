"""Where the export's consumers are: the URLs in the APIExportEndpointSlice of the export's name, followed.

`projection` watches at them. There is one for each shard that has consumers, none before the first binding. Invariant:
the projection is told of the newest list, and not of each between.
"""

from __future__ import annotations

import asyncio

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspace_sdk.projection import Projection

SLICES = Resource("apis.kcp.io", "v1alpha1", "apiexportendpointslices", namespaced=False)


def urls_of(slice: Object | None) -> tuple[str, ...]:
    """The URLs that a slice lists; none where there is no slice."""
    endpoints = ((slice or {}).get("status") or {}).get("endpoints") or ()
    return tuple(sorted(each["url"] for each in endpoints))


async def follow(client: Client, export: str, projection: Projection) -> None:
    """Keep a projection where the consumers are, until cancelled."""
    news = asyncio.Event()
    latest: list[tuple[str, ...]] = [()]

    def changed(old: Object | None, new: Object | None) -> None:
        latest[0] = urls_of(new)
        news.set()

    informer = Informer(client, SLICES, changed, fieldSelector=f"metadata.name={export}")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informer.run())
        await informer.synced.wait()
        known: tuple[str, ...] | None = None
        while True:
            news.clear()
            if latest[0] != known:
                known = latest[0]
                await _until(news, projection, known)
            else:
                await news.wait()


async def _until(news: asyncio.Event, projection: Projection, urls: tuple[str, ...]) -> None:
    """Follow the URLs; give up waiting for one that does not answer when there is news of them."""
    following, told = asyncio.create_task(projection.follow(urls)), asyncio.create_task(news.wait())
    try:
        await asyncio.wait({following, told}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
    finally:
        for task in (following, told):
            task.cancel()
        await asyncio.gather(following, told, return_exceptions=True)
