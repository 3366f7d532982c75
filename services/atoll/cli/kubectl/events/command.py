"""The command: which workspaces and resources are meant, and how their changes are printed.

Called by `kubectl.atoll`. Invariant: changes that are missing or may not be seen are said on standard error; standard
output has changes alone.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from atoll.cli.kubectl import tree, workspaces
from atoll.cli.kubectl.events.rows import HEAD, row
from atoll.cli.kubectl.events.streams import PARALLEL, RESOURCES, Merged, Received, Stream, permitted
from atoll.cli.kubectl.plugin import Failure, columns, common_flags, load_context, run, say, warn
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind, served_kinds
from atoll.machinery.meta.status import ApiError, Forbidden, NotFound
from atoll.machinery.stream.tenants import structured_events

SERVICE = "events"
_SINCE = re.compile(r"[1-9][0-9]{0,6}[smh]\Z")
#: What is not on the stream of changes.
_NOT_STREAMED = frozenset({("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events")})

#: By group and plural.
Kinds = Mapping[tuple[str, str], ServedKind]


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll events",
        parents=[common_flags("--workspace")],
        allow_abbrev=False,
        description="Show what changed in the current workspace: when, which object, by which field manager, and how.",
    )
    parser.add_argument("resources", nargs="*", metavar="RESOURCE", help="as in deployments.apps; all if left out")
    parser.add_argument("--since", type=_since, metavar="1h", help="how far back; 1h, or now with --watch")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with each change as it comes")
    parser.add_argument("--recursive", action="store_true", help="also of all workspaces below that one may see")
    parser.add_argument("-o", "--output", choices=("json", "name"), default="", help="as JSON lines, or names alone")
    return run(_show(parser.parse_args(list(arguments))))


def _since(text: str) -> str:
    if text != "now" and not _SINCE.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not how far back; write it as in 30m or 1h, or now")
    return text


async def _show(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        here = client.target.workspace
        if not here:
            raise Failure(f"context {context} is not in a workspace")
        paths = tree.paths(await tree.workspace_tree(client, here)) if options.recursive else [here]
        kinds: dict[tuple[str, str, str], str] = {}
        slots = asyncio.Semaphore(PARALLEL)

        async def opened(path: str) -> list[Stream]:
            async with slots:
                return await _streams(client, path, options, kinds)

        streams = [each for found in await asyncio.gather(*map(opened, paths)) for each in found]
        if not streams:
            raise Failure(f"there is nothing in {here} whose changes you may see")
        printer = _Printer(options.output, options.recursive, kinds)
        merged = Merged(streams, printer.make, live=options.watch)
        async with aclosing(merged.history()) as batches:
            async for batch in batches:
                printer.print(batch)


async def _streams(
    client: Client, path: str, options: argparse.Namespace, names: dict[tuple[str, str, str], str]
) -> list[Stream]:
    """The streams of one workspace. The kinds of its resources are added to `names`."""
    since = options.since or ("now" if options.watch else "1h")
    events = client.view(client.target.service_url(SERVICE), path)
    try:
        kinds = await served_kinds(client.cluster(path))
        chosen = _chosen(kinds, options.resources, path, recursive=options.recursive)
    except (Forbidden, NotFound) as error:
        if not options.recursive:
            raise
        warn(f"{path}: {error}")
        return []

    def refused(resource: str, error: ApiError) -> None:
        if not options.resources:
            return
        if not options.recursive:
            raise error
        warn(f"{path}: {resource}: {error}")

    for (group, plural), each in kinds.items():
        names[path, group, plural] = each.kind
    allowed = await permitted(events, chosen, refused) if chosen else []
    parts = (allowed[at : at + RESOURCES] for at in range(0, len(allowed), RESOURCES))
    return [Stream(events, path, part, since) for part in parts]


def _chosen(kinds: Kinds, wanted: Sequence[str], path: str, *, recursive: bool) -> list[str]:
    """The group resources that are meant, as `follow` takes them. Raises Failure for one that is not served."""
    if not wanted:
        served = (key for key, each in kinds.items() if "watch" in each.verbs)
        return [_group_resource(*key) for key in sorted(served) if key not in _NOT_STREAMED]
    found: dict[tuple[str, str], None] = {}
    for text in wanted:
        keys = [key for key, each in kinds.items() if _is_meant(each, text)]
        if not keys and not recursive:
            raise Failure(f"{path} does not serve {text}")
        found |= dict.fromkeys(keys[:1])
    return [_group_resource(*key) for key in found]


def _is_meant(served: ServedKind, text: str) -> bool:
    """Whether text names a resource as kubectl takes it: plural, singular or short, with its group or without."""
    resource = served.resource
    name, _, group = text.lower().partition(".")
    return name in {resource.plural, *served.aliases} and group in {"", resource.group}


def _group_resource(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


class _Printer:
    """Prints changes as a table, as JSON or as names; the columns stay as wide as the first rows need them."""

    def __init__(self, output: str, recursive: bool, kinds: Mapping[tuple[str, str, str], str]) -> None:
        self._output, self._recursive, self._kinds = output, recursive, kinds
        self._widths: list[int] = []
        self._named: set[str] = set()

    def make(self, received: Received) -> tuple[str, ...]:
        """What is kept of a document: the columns of its row."""
        event = received.event
        if event.atolloperation == structured_events.RESYNC:
            warn(f"{received.workspace}: there is history from {event.time[:19]}Z on ({event.atollreason})")
            return (received.text.decode(),) if self._output == "json" else ()
        if self._output == "json":
            return (received.text.decode(),)
        key = event.key
        if key is None:
            return ()
        lead = (received.workspace,) if self._recursive else ()
        if self._output == "name":
            resource = _group_resource(key.type.group, key.type.resource)
            return ("/".join(filter(None, (*lead, resource, key.namespace, key.name))),)
        kind = self._kinds.get((received.workspace, key.type.group, key.type.resource), key.type.resource)
        return (*lead, *row(event, kind))

    def print(self, rows: Sequence[tuple[str, ...]]) -> None:
        """Print some rows."""
        rows = [each for each in rows if each]
        self._print(rows)
        sys.stdout.flush()

    def _print(self, rows: Sequence[tuple[str, ...]]) -> None:
        if self._output:
            for (text,) in rows:
                self._line(text)
        elif rows and not self._widths:
            head = ("WORKSPACE", *HEAD) if self._recursive else HEAD
            self._widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
            for line in columns([head, *rows]):
                say(line)
        else:
            for each in rows:
                cells = (text.ljust(width) for text, width in zip(each, self._widths, strict=True))
                say("   ".join(cells).rstrip())

    def _line(self, text: str) -> None:
        """Print a JSON document, or a name that was not printed yet."""
        if self._output == "name":
            if text in self._named:
                return
            self._named.add(text)
        say(text)
