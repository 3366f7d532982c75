"""`kubectl kubestellar ensure location` and `remove location`: a SyncTarget and the Location that selects it.

Both have the name of the edge cluster. Invariant: what is as it should be is not written.
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from atoll.cli.kubectl.kubestellar import flags
from atoll.cli.kubectl.kubestellar.bindings import ensure_bound
from atoll.cli.kubectl.plugin import Failure, say, warn
from atoll.edge.kinds import LOCATIONS, SYNC_TARGETS
from atoll.edge.objects import ROLES, service
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import API_VERSION, GROUP, VERSION
from atoll.machinery.meta.objects import Object, labels_of
from atoll.machinery.meta.status import AlreadyExists, Forbidden, NotFound

#: Label of a SyncTarget with its name, which its Location selects.
ID = "id"
#: A Location that is made with a workspace elsewhere, and selects every SyncTarget.
RESERVED = "default"


def add_commands(kinds: flags.Commands[argparse.ArgumentParser], verb: str) -> None:
    """Add the command of one verb."""
    if verb == "ensure":
        found = flags.command(
            kinds, "location", "an edge cluster of an inventory, with labels to select it by", _ensure
        )
        flags.service(found)
        add_arguments(found)
    else:
        found = flags.command(kinds, "location", "delete an edge cluster from an inventory", _remove)
        found.add_argument("name", metavar="NAME")
    flags.inventory(found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add name and labels of a location."""
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("labels", nargs="+", metavar="KEY=VALUE", help="labels of the location, at least one")


async def _ensure(options: argparse.Namespace) -> None:
    client, _, _ = flags.connect(options, options.imw)
    async with client:
        await ensure(client, options.espw, options.name, options.labels)


async def ensure(client: Client, espw: str, name: str, words: list[str]) -> None:
    """Create or repair SyncTarget and Location in the workspace of `client`. Raises Failure, ApiError."""
    labels = flags.labels_of(words)
    if name == RESERVED:
        raise Failure(f'a location cannot have the name "{RESERVED}"', 2)
    if ID in labels:
        raise Failure(f'the label "{ID}" is set to the name of the location', 2)
    await ensure_bound(client, service().export, espw, service().export)
    spec = {
        "resource": {"group": GROUP, "version": VERSION, "resource": SYNC_TARGETS.plural},
        "instanceSelector": {"matchLabels": {ID: name}},
    }
    await _put(client, SYNC_TARGETS, _object("SyncTarget", name, {ID: name, **labels}, {}))
    await _put(client, LOCATIONS, _object("Location", name, labels, spec))
    with suppress(NotFound):
        await client.delete(LOCATIONS, RESERVED)
        say(f'Location "{RESERVED}" deleted.')
    await _warn_without_role(client)


def _object(kind: str, name: str, labels: dict[str, str], spec: Object) -> Object:
    head = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}}
    return {**head, "spec": spec}


async def _put(client: Client, resource: Resource, wanted: Object) -> None:
    """Create an object, or set its labels and what it must select."""
    kind, name, labels = wanted["kind"], wanted["metadata"]["name"], wanted["metadata"]["labels"]
    with suppress(AlreadyExists):
        await client.create(resource, wanted)
        say(f'{kind} "{name}" created.')
        return
    found = await client.get(resource, name)
    stored = {key: found["spec"].get(key) for key in wanted["spec"]}
    if stored == wanted["spec"] and labels.items() <= labels_of(found).items():
        return
    await client.patch(resource, name, {"metadata": {"labels": labels}, "spec": wanted["spec"]})
    say(f'{kind} "{name}" changed.')


async def _warn_without_role(client: Client) -> None:
    """Warn where the role is missing that workspaces for inventories are made with."""
    grant = next(iter(service().grants["edge-inventory"]))
    try:
        await client.get(ROLES, grant)
    except NotFound:
        warn(
            f'this workspace has no ClusterRole "{grant}": its locations are used by those alone'
            ' whom it grants the verb "place" on locations'
        )
    except Forbidden:
        return


async def _remove(options: argparse.Namespace) -> None:
    client, _, _ = flags.connect(options, options.imw)
    async with client:
        for kind, resource in (("SyncTarget", SYNC_TARGETS), ("Location", LOCATIONS)):
            # Also where the API is not bound there is nothing left to remove.
            with suppress(NotFound):
                await client.delete(resource, options.name)
                say(f'{kind} "{options.name}" deleted.')
