"""The list for a syncer: SyncerConfigs of a mailbox, written as `plan_parts` says.

`projection` calls `write_list`. Invariant: a part is replaced whole, so what somebody added to its spec is gone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from atoll.edge.kinds import SYNCER_CONFIGS
from atoll.machinery.client.client import Client
from atoll.machinery.edge.names import TRANSLATOR, ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.syncerconfigs import is_part, plan_parts, replaced, specs_of
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound


async def write_list(
    client: Client,
    objects: Mapping[ObjectRef, str],
    upsync: Collection[UpsyncSet],
    versions: str = "",
    associated: Collection[Object] | None = (),
    seen: Collection[Object] = (),
) -> dict[str, int]:
    """Write what differs; return the revisions of all parts in the order of their writes, nothing without one.

    Raises ApiError, ClientError.

    `associated` is what is asked of associated objects, None to leave what there is. `seen` are the SyncerConfigs as
    they were seen last, so that they are read only if a write says that they are others by now.
    """
    if seen:
        with suppress(AlreadyExists, Conflict, NotFound):
            return await _write(client, seen, objects, upsync, (versions, associated))
    found = (await client.list(SYNCER_CONFIGS))["items"]
    return await _write(client, found, objects, upsync, (versions, associated))


async def _write(
    client: Client,
    found: Collection[Object],
    objects: Mapping[ObjectRef, str],
    upsync: Collection[UpsyncSet],
    beside: tuple[str, Collection[Object] | None],
) -> dict[str, int]:
    existing = {each["metadata"]["name"]: each for each in found}
    versions, associated = beside
    if associated is None:
        parts = [each for each in existing.values() if is_part(each)]
        associated = [row for part in parts for row in spec_of(part).get("associated") or ()]
    specs = specs_of(objects, upsync, associated=associated)
    plan = plan_parts(specs, existing.values(), int(time.time() * 1000), versions)
    revisions, query = dict[str, int](), {"fieldManager": TRANSLATOR}
    for each in plan.create:
        answer = await client.request("POST", SYNCER_CONFIGS.path(), query, each)
        revisions[each["metadata"]["name"]] = int(answer["metadata"]["resourceVersion"])
    for each in plan.apply:
        name = each["metadata"]["name"]
        body = replaced(existing[name], each)
        answer = await client.request("PUT", SYNCER_CONFIGS.path(name=name), query, body)
        revisions[name] = int(answer["metadata"]["resourceVersion"])
    for each in plan.delete:
        try:
            await client.delete(SYNCER_CONFIGS, each["metadata"]["name"])
        except NotFound:
            continue
    return revisions
