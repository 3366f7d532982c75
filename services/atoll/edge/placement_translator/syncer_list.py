"""The list for a syncer: SyncerConfigs of a mailbox, written as `plan_parts` says.

`projection` calls `write_list`. Invariant: a part is replaced whole, so what somebody added to its spec is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress

from atoll.edge.kinds import SYNCER_CONFIGS
from atoll.machinery.client.client import Client
from atoll.machinery.edge.names import TRANSLATOR
from atoll.machinery.edge.syncerconfigs import is_part, plan_parts, replaced
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound

#: Makes the specs of all parts, given the parts that are there.
Specs = Callable[[Collection[Object]], list[Object]]


async def write_list(client: Client, specs: Specs, versions: str = "", seen: Collection[Object] = ()) -> list[Object]:
    """Write what differs; return the parts as they are written, in the order of their writes, none if nothing differs.

    Raises ApiError, ClientError.

    `seen` are the SyncerConfigs as they were seen last, so that they are read only if a write says that they are others
    by now.
    """
    if seen:
        with suppress(AlreadyExists, Conflict, NotFound):
            return await _write(client, seen, specs, versions)
    return await _write(client, (await client.list(SYNCER_CONFIGS))["items"], specs, versions)


async def _write(client: Client, found: Collection[Object], specs: Specs, versions: str) -> list[Object]:
    parts = {each["metadata"]["name"]: each for each in found if is_part(each)}
    plan = plan_parts(specs(parts.values()), parts.values(), int(time.time() * 1000), versions)
    written, query = list[Object](), {"fieldManager": TRANSLATOR}
    for each in plan.create:
        written.append(await client.request("POST", SYNCER_CONFIGS.path(), query, each))
    for each in plan.apply:
        name = each["metadata"]["name"]
        body = replaced(parts[name], each)
        written.append(await client.request("PUT", SYNCER_CONFIGS.path(name=name), query, body))
    for each in plan.delete:
        try:
            await client.delete(SYNCER_CONFIGS, each["metadata"]["name"])
        except NotFound:
            continue
    return written
