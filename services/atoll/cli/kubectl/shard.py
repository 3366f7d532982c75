"""`kubectl atoll shard forget`: give up a shard that is lost for good.

Called by `atoll`. The record of the store is written before the Shard object goes, so that a process that learns of the
one knows the other. Invariant: nothing is written before the shard's name was typed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence

from atoll.cli.kubectl.plugin import Failure, common_flags, run, say
from atoll.cli.kubectl.root import CLUSTERS, SHARDS, direct_target
from atoll.machinery.client.client import Client
from atoll.machinery.kcp.sharding import shards
from atoll.machinery.kcp.sharding.forgotten_stores import ForgottenStore, forgotten_stores, with_forgotten
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, annotations_of, spec_of
from atoll.machinery.meta.status import ApiError, Conflict, NotFound
from atoll.machinery.process.retry import retry_on_conflict
from atoll.machinery.wire.client import ClientError

ROOT_SHARD = "root"


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(prog="kubectl atoll shard", allow_abbrev=False, description="Shards of this site.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    forget = verbs.add_parser(
        "forget",
        parents=[common_flags()],
        allow_abbrev=False,
        help="give up a shard whose store is lost for good",
        description="Strike the store of a shard off and delete its Shard. Nothing of that store counts ever again.",
    )
    forget.add_argument("name", metavar="NAME", help="the shard")
    return run(_forget(parser.parse_args(list(arguments))))


async def _forget(options: argparse.Namespace) -> None:
    target, name = direct_target(options), options.name
    if name == ROOT_SHARD:
        raise Failure('the shard "root" holds what a site consists of: it cannot be forgotten')
    async with Client(target, ROOT) as client:
        store, shard = await _found(client, name)
        for line in [*_plan(name, store, shard), *await _children(client, name)]:
            say(line)
        say(f"Type the name of the shard to go on: {name}")
        if sys.stdin.readline().strip() != name:
            raise Failure("nothing was changed")
        await retry_on_conflict(lambda: _strike_off(client, ForgottenStore(name, store, times.now())), Conflict)
        with contextlib.suppress(NotFound):
            await client.delete(SHARDS, name)
    say(f'shard "{name}" is forgotten: its store {store} serves nothing any more')


async def _found(client: Client, name: str) -> tuple[str, Object]:
    """Return the uid of a shard's store, and its Shard object. Raises Failure, NotFound."""
    try:
        shard = await client.get(SHARDS, name)
    except NotFound:
        known = [each.store for each in forgotten_stores(await client.get(SHARDS, ROOT_SHARD)) if each.shard == name]
        if not known:
            raise
        raise Failure(f'shard "{name}" is forgotten already: {", ".join(known)}') from None
    store = annotations_of(shard).get(shards.STORE, "")
    if not store:
        raise Failure(f'the Shard "{name}" does not say on which store it ran: {shards.STORE} is not set')
    return store, shard


def _plan(name: str, store: str, shard: Object) -> list[str]:
    load = shards.load_of(shard)
    seen = times.format_time(int(load.heartbeat_s)) if load.heartbeat_s else "never"
    return [
        f"Shard {name} at {spec_of(shard).get('baseURL', '')}, on store {store}:",
        f"  last heartbeat  {seen}",
        f"  workspaces      {load.workspaces}",
        f"  objects         {load.objects}",
        "This will",
        f"  1. strike off the store {store}: whatever it publishes or serves is refused, under any name, for ever",
        f"  2. delete the Shard {name}: its URLs, its routes and all replicas of its objects go",
        "  3. mark its workspaces that were made elsewhere ShardLost: they can be deleted and created again.",
        "What only that store held is lost. Homes on it are made anew when their users come in.",
        "A shard that is merely away does not need this.",
    ]


async def _children(client: Client, name: str) -> list[str]:
    """Return lines about the logical clusters of other shards whose workspace no other shard has."""
    standing: dict[str, tuple[str, str, str]] = {}
    silent = []
    for shard in (await client.list(SHARDS))["items"]:
        other = shard["metadata"]["name"]
        if other == name:
            continue
        try:
            found = await _clusters(client, spec_of(shard).get("baseURL", ""))
        except (ApiError, ClientError, TimeoutError) as error:
            silent.append(f"Shard {other} does not answer, so its part is not listed: {error}")
            continue
        for obj in found:
            annotations = annotations_of(obj)
            parent = (spec_of(obj).get("owner") or {}).get("cluster", "")
            standing[annotations[wellknown.CLUSTER]] = other, parent, annotations.get(wellknown.PATH, "")
    lost = [(path, each, at) for each, (at, parent, path) in standing.items() if parent and parent not in standing]
    lines = [f"  {path}, logical cluster {each} on shard {at}" for path, each, at in sorted(lost)]
    if lines:
        lines.insert(0, "Workspaces on other shards below its own stay, reached by their logical cluster alone:")
        lines.append("They say ShardLost in a condition; their administrators can read them, and delete them directly.")
    return [*lines, *silent]


async def _clusters(client: Client, url: str) -> list[Object]:
    """Return the LogicalClusters of a shard. Raises ApiError, ClientError, TimeoutError."""
    async with client.view(url) as there:
        found: list[Object] = (await there.list(CLUSTERS, limit="500"))["items"]
    return found


async def _strike_off(client: Client, record: ForgottenStore) -> None:
    root = await client.get(SHARDS, ROOT_SHARD)
    try:
        changed = with_forgotten(root, record)
    except ValueError as error:
        raise Failure(str(error)) from error
    if changed is root:
        return
    stored = await client.update(SHARDS, changed)
    if forgotten_stores(stored) != forgotten_stores(changed):
        raise Failure("the record was not kept: only system:masters write it; use the context shard-base")
