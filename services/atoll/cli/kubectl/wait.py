"""Waits until one object satisfies a condition.

`create_workspace` and `bind` call this. It watches the one object, or polls if the watch is forbidden. Invariant: the
returned object satisfied the condition when the server last sent it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from atoll.cli.kubectl.plugin import Failure
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Expired, Forbidden, NotFound
from atoll.machinery.wire.pending_response import ClientError

ASK_AGAIN_S = 0.5

Holds = Callable[[Object], bool]


class WaitTimeout(Exception):
    """The wait timed out. `latest` is the last state of the object."""

    def __init__(self, latest: Object) -> None:
        super().__init__("not in time")
        self.latest = latest


async def until(client: Client, resource: Resource, obj: Object, holds: Holds, timeout_s: float) -> Object:
    """Return the object, `obj` or later, once `holds` is true of it.

    Raises WaitTimeout, and Failure if it is deleted.
    """
    latest = [obj]
    try:
        async with asyncio.timeout(timeout_s):
            while not holds(latest[-1]):
                await _follow(client, resource, latest, holds)
    except TimeoutError:
        raise WaitTimeout(latest[-1]) from None
    return latest[-1]


async def _follow(client: Client, resource: Resource, latest: list[Object], holds: Holds) -> None:
    """Process changes until the condition holds, or the watch ends and the object was read again."""
    metadata = latest[-1]["metadata"]
    selector, revision = f"metadata.name={metadata['name']}", metadata["resourceVersion"]
    gone = Failure(f'{resource.plural[:-1]} "{metadata["name"]}" was deleted while it was waited for')
    try:
        async with client.watch(resource, fieldSelector=selector, resourceVersion=revision) as events:
            async for event in events:
                if event.type == "DELETED":
                    raise gone
                if event.type != "BOOKMARK":
                    latest[:] = [event.object]
                    if holds(event.object):
                        return
    except (Forbidden, Expired, ClientError):
        # The watch is forbidden, expired or broken: read the object instead.
        pass
    await asyncio.sleep(ASK_AGAIN_S)
    try:
        latest[:] = [await client.get(resource, metadata["name"])]
    except NotFound:
        raise gone from None
