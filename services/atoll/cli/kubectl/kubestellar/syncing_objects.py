"""`kubectl kubestellar list-syncing-objects`: the objects of one kind in all mailboxes that the caller may read.

A list reads `PARALLEL` mailboxes at a time. A watch follows the mailboxes too: the objects of a new one are additions,
those of one that goes are deletions. Invariant: each object is printed in the order of its own changes, and none is
missed between the list of a mailbox and its watch; what may not be read is named on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
from collections.abc import Callable

import yaml

from atoll.cli.kubectl.kubestellar import flags
from atoll.cli.kubectl.plugin import Failure, say, warn
from atoll.edge.mailboxes import TARGET_UID
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.client.informer import Informer
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object, annotations_of, encode_json, spec_of
from atoll.machinery.meta.status import ApiError, Forbidden, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ClientError

PARALLEL, PAGE = 16, "500"
ADD, UPDATE, DELETE = "add", "update", "delete"
#: Between two looks whether a mailbox serves the kind, and may be read.
_AGAIN = Backoff(1.0, 30.0, least=0.75)


def add_commands(commands: flags.Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    found = flags.command(commands, "list-syncing-objects", "objects of one kind in all mailboxes", _list)
    found.add_argument("--api-group", default="", metavar="GROUP", help="group of the kind; the core group if left out")
    found.add_argument("--api-kind", required=True, metavar="KIND", help="the kind, as in PolicyReport")
    found.add_argument("--api-resource", default="", metavar="PLURAL", help="its resource; else what a mailbox serves")
    found.add_argument("--api-version", default="v1", metavar="VERSION", help="version of the group (v1)")
    found.add_argument("--json", action="store_true", help="one JSON document a line, instead of YAML documents")
    found.add_argument("--watch", action="store_true", help='go on with what changes, each with a field "Action"')
    flags.service(found)


async def _list(options: argparse.Namespace) -> None:
    client, _, _ = flags.connect(options, options.espw)
    async with client:
        kind = SyncingKind(options.api_group, options.api_version, options.api_kind, options.api_resource)
        show = _show_json if options.json else _show_yaml()
        mailboxes = await _mailboxes(client)
        if options.watch:
            await Watch(client, kind, show).run()
        elif await _print_all(client, kind, mailboxes, show):
            raise Failure("not all mailboxes could be read")


async def _mailboxes(client: Client) -> list[str]:
    """Return the logical clusters of the mailboxes. Raises Failure."""
    try:
        found = (await client.list(WORKSPACES, limit=PAGE))["items"]
    except (Forbidden, NotFound) as error:
        raise Failure(f"the mailboxes in {client.target.workspace} cannot be listed: {error}") from error
    return list(filter(None, map(mailbox_of, found)))


def mailbox_of(workspace: Object) -> str:
    """Return the logical cluster of a mailbox; "" for another workspace, and for one without a cluster yet."""
    return str(spec_of(workspace).get("cluster") or "") if TARGET_UID in annotations_of(workspace) else ""


class SyncingKind:
    """A kind by its group, version and name, and by its resource where that is given."""

    def __init__(self, group: str, version: str, kind: str, plural: str) -> None:
        self.group, self.version, self.kind, self._plural = group, version, kind, plural

    async def resource(self, client: Client) -> Resource | None:
        """Return the resource in a mailbox; None if it does not serve the kind in that version."""
        for served in (await served_kinds(client)).values():
            resource = served.resource
            named = self._plural in ("", resource.plural) and served.kind == self.kind
            if named and resource.group == self.group and self.version in served.versions:
                return Resource(self.group, self.version, resource.plural, resource.namespaced)
        return None


async def _print_all(client: Client, kind: SyncingKind, mailboxes: list[str], show: Callable[[Object], None]) -> int:
    """Print the objects of every mailbox; return how many mailboxes failed. What is forbidden is a warning."""
    slots = asyncio.Semaphore(PARALLEL)

    async def read(cluster: str) -> int:
        async with slots:
            try:
                mailbox = client.cluster(cluster)
                resource = await kind.resource(mailbox)
                found = (await mailbox.list(resource, limit=PAGE))["items"] if resource is not None else []
            except (ApiError, ClientError, TimeoutError) as error:
                warn(f"mailbox {cluster}: {error}")
                return 0 if isinstance(error, Forbidden) else 1
        for each in found:
            show(each)
        return 0

    return sum(await asyncio.gather(*map(read, mailboxes)))


class Watch:
    """What changes in the mailboxes, and which there are. `run` ends with an error of this program alone."""

    def __init__(self, client: Client, kind: SyncingKind, show: Callable[[Object], None]) -> None:
        self._client, self._kind, self._show = client, kind, show
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._objects: dict[str, Informer] = {}

    async def run(self) -> None:
        """Follow until cancelled. Raises Failure."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await Informer(self._client, WORKSPACES, self._changed).run()
        except* OSError as errors:
            raise Failure(f"the output was closed: {errors.exceptions[0]}") from errors

    def _changed(self, old: Object | None, new: Object | None) -> None:
        before, now = (mailbox_of(each) if each is not None else "" for each in (old, new))
        if before == now:
            return
        if before:
            self._followed.pop(before).cancel()
            informer = self._objects.pop(before, None)
            for each in informer.objects.values() if informer is not None else ():
                self._act(each, None)
        if now:
            self._followed[now] = self._tasks.create_task(self._follow(now))

    async def _follow(self, cluster: str) -> None:
        resource = await self._served(cluster)
        self._objects[cluster] = Informer(self._client.cluster(cluster), resource, self._act)
        await self._objects[cluster].run()

    async def _served(self, cluster: str) -> Resource:
        """Return the resource as soon as a mailbox serves it and may be read; each reason why not is told once."""
        attempts, told = 0, ""
        while True:
            try:
                resource = await self._kind.resource(self._client.cluster(cluster))
                if resource is not None:
                    await self._client.cluster(cluster).request("GET", resource.path(), {"limit": "1"})
                    return resource
            except (ApiError, ClientError, TimeoutError) as error:
                if str(error) != told:
                    told = str(error)
                    warn(f"mailbox {cluster}: {told}")
            await asyncio.sleep(_AGAIN.delay_s(attempts))
            attempts += 1

    def _act(self, old: Object | None, new: Object | None) -> None:
        action = DELETE if new is None else ADD if old is None else UPDATE
        self._show({"Action": action, **(new or old or {})})
        sys.stdout.flush()


def _show_json(found: Object) -> None:
    say(encode_json(found).decode())


def _show_yaml() -> Callable[[Object], None]:
    dump = functools.partial(yaml.dump, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True)
    return lambda found: say(f"---\n{dump(found)}".rstrip("\n"))
