"""`kubectl atoll edge`: how far the placements of this workspace are, or of one, how far each edge cluster is.

Called by `atoll`. Placements, their slices and summaries are the workspace's own. What a SyncTarget and its mailbox say
is read where the caller may, at most `PARALLEL` at a time. Invariant: what may not be read is shown as `-`, never as
zero.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, columns, common_flags, load_context, run, say
from atoll.edge.kinds import PLACEMENTS, SLICES, STATUS_SUMMARIES, SYNC_TARGETS, SYNCER_CONFIGS
from atoll.edge.mailboxes import mailbox_name
from atoll.edge.placement_translator.placement_status import CONFLICTING
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import THE_ONE
from atoll.machinery.edge.slices import destinations_of
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import FALSE
from atoll.machinery.meta.objects import Object, conditions_of, owner_references_of, status_of
from atoll.machinery.meta.status import Forbidden, NotFound

HEAD = (
    *("NAME", "OBJECTS", "DESTINATIONS", "SYNCED", "BEHIND", "FAILING", "SILENT"),
    *("CONFLICTS", "BROKEN", "PROBLEM"),
)
HEAD_OF_ONE = ("SYNCTARGET", "LOCATION", "HEARD", "ERRORS", "FIRST ERROR")
UNKNOWN, NEVER, PARALLEL, PAGE = "-", "never", 16, "100"
#: Counts of a status, as the columns have them.
_COUNTS = ("total", "upToDate", "behind", "failing", "silent")


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll edge",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Show how far the EdgePlacements of the current workspace are, or the edge clusters of one.",
    )
    parser.add_argument("name", nargs="?", default="", metavar="PLACEMENT", help="all of them if left out")
    parser.add_argument("--espw", default="root:espw", metavar="PATH", help="workspace of the mailboxes")
    return run(_show(parser.parse_args(list(arguments))))


async def _show(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        lines = await (_one(client, options.name, options.espw) if options.name else _all(client))
    for line in lines:
        say(line)


async def _all(client: Client) -> list[str]:
    try:
        found = (await client.list(PLACEMENTS))["items"]
    except NotFound as error:
        raise Failure(f"{client.target.workspace} does not bind the edge service") from error
    if not found:
        return [f"Workspace {client.target.workspace} has no EdgePlacement."]
    broken = await _broken(client)
    return list(columns([HEAD, *(placement_row(each, broken) for each in found)]))


async def _broken(client: Client) -> Mapping[str, int] | None:
    """Return how much summaries list as broken, by the uid of their placement; None if they may not be read."""
    try:
        summaries = (await client.list(STATUS_SUMMARIES, limit=PAGE))["items"]
    except (Forbidden, NotFound):
        return None
    found: Counter[str] = Counter()
    for each in summaries:
        number = len(each.get("brokenObjects") or ()) + int(each.get("brokenTruncated") or 0)
        found.update({owner["uid"]: number for owner in owner_references_of(each)})
    return found


def placement_row(placement: Object, broken: Mapping[str, int] | None) -> tuple[str, ...]:
    """Return the row of a placement: its numbers, and the first condition that does not hold."""
    status, metadata = status_of(placement), placement["metadata"]
    counts = status.get("destinations") or {}
    numbers = [status.get("objectCount"), *(counts.get(each) for each in _COUNTS)]
    is_counted = "objectCount" in status
    numbers.append(status.get("conflictCount", 0) if is_counted else None)
    numbers.append(broken.get(metadata["uid"], 0) if is_counted and broken is not None else None)
    texts = (UNKNOWN if each is None else str(each) for each in numbers)
    return metadata["name"], *texts, next(iter(problems(placement)), "")


def problems(placement: Object) -> list[str]:
    """Return what is wrong, as `condition: reason: message`."""
    broken = [each for each in conditions_of(placement) if (each["status"] == FALSE) != (each["type"] == CONFLICTING)]
    return [": ".join(filter(None, (each["type"], each.get("reason"), each.get("message")))) for each in broken]


# --- one placement


class Reached(msgspec.Struct, frozen=True):
    """What a SyncTarget and its mailbox say; None where the caller may not read it."""

    target: Object | None
    config: Object | None


async def _one(client: Client, name: str, home: str) -> list[str]:
    placement = await client.get(PLACEMENTS, name)
    slices = [each for each in (await client.list(SLICES))["items"] if _is_of(each, placement)]
    destinations, slots = destinations_of(slices), asyncio.Semaphore(PARALLEL)

    async def reach(destination: Destination) -> tuple[str, ...]:
        async with slots:
            return destination_row(destination, await _reached(client, destination, home), time.time())

    rows = await asyncio.gather(*map(reach, destinations))
    lines = list(columns([HEAD_OF_ONE, *rows])) if rows else [f"{name} has no destination."]
    return [*lines, *problems(placement)]


def _is_of(slice: Object, placement: Object) -> bool:
    return any(each["uid"] == placement["metadata"]["uid"] for each in owner_references_of(slice))


async def _reached(client: Client, destination: Destination, home: str) -> Reached:
    cluster, name = destination.cluster, destination.sync_target_name
    mailbox = f"{home}:{mailbox_name(cluster, destination.sync_target_uid)}"
    return Reached(
        await _readable(client.cluster(cluster), SYNC_TARGETS, name),
        await _readable(client.cluster(mailbox), SYNCER_CONFIGS, THE_ONE),
    )


async def _readable(client: Client, resource: Resource, name: str) -> Object | None:
    try:
        return await client.get(resource, name)
    except (Forbidden, NotFound):
        return None


def destination_row(destination: Destination, reached: Reached, now_s: float) -> tuple[str, ...]:
    """Return the row of an edge cluster: when it was heard last, and what it refuses."""
    heard = errors = UNKNOWN
    first = ""
    if reached.target is not None:
        last = status_of(reached.target).get("lastSyncerHeartbeatTime")
        heard = times.age(last, now_s) if last else NEVER
    if reached.config is not None:
        found = status_of(reached.config).get("errors") or []
        errors, first = str(len(found)), error_text(found[0]) if found else ""
    return destination.sync_target_name, destination.location_name, heard, errors, first


def error_text(error: Object) -> str:
    """Return an error of a SyncerConfig as one line."""
    kind = ".".join(filter(None, (error.get("resource"), error.get("group"))))
    name = "/".join(filter(None, (error.get("namespace"), error.get("name"))))
    return f"{kind} {name}: {error.get('message') or error.get('reason') or ''}".replace("\n", " ")
