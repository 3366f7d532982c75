"""Follows the RBAC objects that a client may watch, and tells in which clusters they changed.

Who remembers answers of reviews forgets them then. No object is kept. Invariant: what may have changed unseen is told
as "*" before anything else, so that no answer from before is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import key_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.wellknown import RBAC_GROUP
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

CLUSTER_ROLES = tuple(
    Resource(RBAC_GROUP, "v1", plural, namespaced=False) for plural in ("clusterroles", "clusterrolebindings")
)
ROLES = tuple(Resource(RBAC_GROUP, "v1", plural) for plural in ("roles", "rolebindings"))
_BACKOFF = Backoff(0.2, 30.0, least=0.75)


def ignore(_: bool) -> None:
    """Tell nobody."""


async def follow_changes(
    client: Client, resource: Resource, changed: Callable[[str], None], followed: Callable[[bool], None] = ignore
) -> None:
    """Call `changed` with the cluster of each change, "*" for all, until cancelled; `followed` tells whether a watch is
    open."""
    failures = 0
    while True:
        try:
            start = await client.request("GET", resource.path(), {"limit": "1"})
            async with client.watch(resource, resourceVersion=start["metadata"]["resourceVersion"]) as events:
                followed(True)
                # What changed before this revision was seen by nobody.
                changed("*")
                async for event in events:
                    failures = 0
                    if event.type != "BOOKMARK":
                        changed(key_of(event.object)[0])
        except (ApiError, ClientError, TimeoutError) as error:
            log.debug("permissions not followed", resource=resource.plural, reason=str(error))
        followed(False)
        await asyncio.sleep(_BACKOFF.delay_s(failures))
        failures += 1
