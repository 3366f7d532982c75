"""Writes the edge service into its workspace, and workspaces for inventories and workloads.

`atoll edge-init` calls `install`. What differs from the objects of the service is put back; what others added beside
them stays. Invariant: a run that finds everything as it should be writes nothing.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from atoll.edge import workspaces
from atoll.edge.kinds import BINDINGS
from atoll.edge.objects import EXPORTS, SCHEMAS, SECRETS, Manifest, service, steps
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.machinery.process.retry import retry_on_conflict

TOKEN_TIMEOUT_S = 60.0
#: Objects that are written side by side, each on a connection of its own.
CONNECTIONS = 4
#: Name of the binding that an existing workspace gets.
BINDING = "bind-espw"


class Wanted(msgspec.Struct, frozen=True):
    """Paths of the service's workspace, and of workspaces for inventories and for workloads."""

    service: str
    inventories: Sequence[str] = ()
    workloads: Sequence[str] = ()


class Installed(msgspec.Struct, frozen=True):
    """What was done: tokens by controller, and the number of objects written."""

    tokens: dict[str, str]
    written: int


async def install(client: Client, wanted: Wanted) -> Installed:
    """Write what is missing or differs. Raises ApiError, ClientError, TimeoutError."""
    is_new = await workspaces.ensure(client, wanted.service, workspaces.UNIVERSAL)
    written = int(is_new)
    await workspaces.ready(client, wanted.service)
    home = client.cluster(wanted.service)
    room = asyncio.Semaphore(CONNECTIONS)

    async def put(manifest: Manifest) -> bool:
        async with room:
            return await _put(home, manifest, is_new=is_new)

    for step in steps():
        written += sum(await asyncio.gather(*(put(each) for each in step)))
    for kind, found in (("edge-inventory", wanted.inventories), ("edge-workload", wanted.workloads)):
        for path in found:
            written += await _user_workspace(client, wanted.service, path, kind)
    tokens = await asyncio.gather(*(_token(home, name) for name in service().accounts))
    return Installed(dict(zip(service().accounts, tokens, strict=True)), written)


async def _put(client: Client, manifest: Manifest, *, is_new: bool) -> bool:
    """Write one object; return whether something changed. In a new workspace it need not be looked for."""
    resource, wanted = manifest
    metadata = wanted["metadata"]
    if is_new:
        with suppress(AlreadyExists):
            await client.create(resource, wanted)
            return True

    async def attempt() -> bool:
        try:
            stored = await client.get(resource, metadata["name"], metadata.get("namespace", ""))
        except NotFound:
            await client.create(resource, wanted)
            return True
        repaired = stored if resource == SCHEMAS else with_wanted(stored, wanted)
        if repaired == stored:
            return False
        after = await client.update(resource, repaired)
        # Fields that differ by their defaults alone are no change.
        return bool(after["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"])

    return await retry_on_conflict(attempt, Conflict, AlreadyExists)


def with_wanted(stored: Object, wanted: Object) -> Object:
    """Return a stored object as it should be: all fields of `wanted`, its own labels and annotations beside them.

    The identity of an export is the system's.
    """
    body = {key: value for key, value in wanted.items() if key != "metadata"}
    if identity := spec_of(stored).get("identity"):
        body["spec"] = {**wanted["spec"], "identity": identity}
    metadata = dict(stored["metadata"])
    for field in ("labels", "annotations"):
        if field in wanted["metadata"]:
            metadata[field] = {**(metadata.get(field) or {}), **wanted["metadata"][field]}
    return {**stored, **body, "metadata": metadata}


async def _token(client: Client, account: str) -> str:
    """Return the token in the Secret of an account, which the system fills in."""
    async with asyncio.timeout(TOKEN_TIMEOUT_S):
        while True:
            async with client.watch(SECRETS, service().namespace, fieldSelector=f"metadata.name={account}") as events:
                async for event in events:
                    token = (event.object.get("data") or {}).get("token")
                    if token:
                        return base64.b64decode(token).decode()


async def _user_workspace(client: Client, home: str, path: str, kind: str) -> bool:
    """Create a workspace of a type of the service; one that exists gets the binding alone."""
    if await workspaces.ensure(client, path, {"name": kind, "path": home}):
        return True
    parent, _, name = path.rpartition(":")
    if spec_of(await client.cluster(parent).get(WORKSPACES, name)).get("type") == {"name": kind, "path": home}:
        # The bindings of the type are maintained.
        return False
    inside = client.cluster(path)
    found = await inside.list(BINDINGS)
    provider = await client.cluster(home).get(EXPORTS, service().export)
    if any(_binds(each, home, provider["metadata"]["annotations"][wellknown.CLUSTER]) for each in found["items"]):
        return False
    binding = {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": BINDING},
        "spec": {"reference": {"export": {"path": home, "name": service().export}}},
    }
    await inside.create(BINDINGS, binding)
    return True


def _binds(binding: Object, home: str, cluster: str) -> bool:
    """Whether a binding is one to the export of the service, by the path or the cluster of its workspace."""
    export = spec_of(binding)["reference"].get("export") or {}
    return export.get("name") == service().export and export.get("path") in {home, cluster}
