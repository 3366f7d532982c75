"""`kubectl atoll edge why RESOURCE NAME --at LOCATION`: how far an object is on its way to an edge cluster, and why.

Called by `atoll`. The steps are those of the controllers and the syncer, in their order, decided by the same rules from
what the caller may read. Invariant: a step that does not hold is the last line; what may not be read is said, and
nothing is concluded from it.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.edge import error_text, problems
from atoll.cli.kubectl.plugin import Failure, columns, common_flags, load_context, run, say
from atoll.edge.kinds import PLACEMENTS, SLICES, SYNCER_CONFIGS
from atoll.edge.mailboxes import mailbox_name
from atoll.edge.placement_translator.placement_status import CONFLICTING
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.categories import BuiltIns, goes_to_edge
from atoll.machinery.edge.names import CUSTOMIZER, EXPAND, SOURCES, THE_ONE, ObjectRef
from atoll.machinery.edge.placements import InvalidPlacement, placement_of
from atoll.machinery.edge.slices import destinations_of, placement_name_of
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.edge.what import is_copied, selection
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta.objects import Object, annotations_of, status_of
from atoll.machinery.meta.status import Forbidden, NotFound

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
UNREADABLE = "unknown: you may not read the mailbox"


class Step(NamedTuple):
    """A line: the step, what was found, and whether the object got past it."""

    name: str
    text: str
    holds: bool = True


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll edge why",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Tell how far an object of the current workspace is on its way to an edge cluster, and why.",
    )
    parser.add_argument("resource", metavar="RESOURCE", help="as in deployments or deployments.apps, or a kind")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--at", required=True, metavar="LOCATION", help="the Location, or SyncTarget, of the cluster")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE")
    parser.add_argument("--espw", default="root:espw", metavar="PATH", help="workspace of the mailboxes")
    return run(_why(parser.parse_args(list(arguments))))


async def _why(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    target = workspaces.target(kubeconfig, context, options.workspace)
    path = workspaces.resolve(target.workspace, ".")
    async with Client(target) as client:
        journey = Journey(client, path, options)
        steps = [step async for step in journey.steps()]
    for line in columns([(f"{step.name}:", step.text) for step in steps]):
        say(line)


class Journey:
    """The way of one object to one edge cluster. `steps` ends with the first step that does not hold."""

    def __init__(self, client: Client, path: str, options: argparse.Namespace) -> None:
        self._client, self._options = client, options
        #: Workspaces and mailboxes as containers of data: kinds that would act there are read as they go down.
        self._base = client.view(f"{client.target.base_url}{workspaces.EDGE_VIEW}", path)

    async def steps(self) -> AsyncIterator[Step]:
        """Yield the steps. Raises Failure, ApiError, ClientError."""
        resource = await self._resource()
        ref = ObjectRef(resource.group, resource.plural, self._namespace(resource), self._options.name)
        obj = await _readable(self._base, resource, ref)
        if obj is None:
            yield Step("object", f"{resource.plural} {ref.name} is not in this workspace", False)
            return
        selected, placements = await self._selected(ref, obj)
        yield selected
        if not selected.holds:
            return
        matched, destination = await self._matched(placements)
        yield matched
        if destination is None:
            return
        yield Step("rendered by", _rendering(obj))
        async for step in self._arrival(resource, ref, destination, placements):
            yield step
            if not step.holds:
                return

    def _namespace(self, resource: Resource) -> str:
        return str(self._options.namespace) if resource.namespaced else ""

    async def _resource(self) -> Resource:
        wanted = self._options.resource.lower()
        for served in (await served_kinds(self._base)).values():
            plural, group = served.resource.plural, served.resource.group
            if wanted in (plural, f"{plural}.{group}", served.kind.lower()):
                return served.resource
        raise Failure(f'the workspace does not serve "{self._options.resource}"')

    # --- in the workspace

    async def _selected(self, ref: ObjectRef, obj: Object) -> tuple[Step, dict[str, Object]]:
        found = {each["metadata"]["name"]: each for each in (await self._client.list(PLACEMENTS))["items"]}
        if not is_copied(ref, obj, BuiltIns()):
            return Step("selected by", "nothing: the object is never copied, or is being deleted", False), {}
        valid, invalid = [], []
        for name, each in sorted(found.items()):
            try:
                valid.append(placement_of(each))
            except InvalidPlacement as error:
                invalid.append(f"{name} is invalid: {error}")
        names = selection(valid, ref, obj, await self._namespace_of(ref), BuiltIns()).placements
        if not names:
            text = "; ".join(["nothing: no EdgePlacement selects it", *invalid])
            return Step("selected by", text, False), {}
        return Step("selected by", ", ".join(names)), {name: found[name] for name in names}

    async def _namespace_of(self, ref: ObjectRef) -> Object | None:
        if not ref.namespace:
            return None
        return await _readable(self._base, NAMESPACES, ObjectRef("", "namespaces", "", ref.namespace))

    async def _matched(self, placements: dict[str, Object]) -> tuple[Step, Destination | None]:
        """Return the destination that the slices of these placements have at the Location."""
        slices = [each for each in (await self._client.list(SLICES))["items"] if placement_name_of(each) in placements]
        for each in destinations_of(slices):
            if self._options.at in (each.location_name, each.sync_target_name):
                return Step("matched", f"Location {each.location_name}, SyncTarget {each.sync_target_name}"), each
        others = "; ".join(text for each in placements.values() for text in problems(each))
        text = f"no: {self._options.at} is no destination of {', '.join(sorted(placements))}"
        return Step("matched", f"{text}; {others}" if others else text, False), None

    # --- at the mailbox and beyond

    async def _arrival(
        self, resource: Resource, ref: ObjectRef, destination: Destination, placements: dict[str, Object]
    ) -> AsyncIterator[Step]:
        name = mailbox_name(destination.cluster, destination.sync_target_uid)
        path = f"{self._options.espw}:{name}"
        try:
            copy = await _readable(self._base.cluster(path), resource, ref)
            configs = (await self._client.cluster(path).list(SYNCER_CONFIGS))["items"]
        except Forbidden:
            yield Step("in mailbox", UNREADABLE, False)
            return
        if copy is None:
            said = [text for each in placements.values() for text in problems(each)]
            yield Step("in mailbox", "; ".join(["no", *said]), False)
            return
        yield Step("version", str(copy["apiVersion"]))
        sources = annotations_of(copy).get(SOURCES, "").split(",")
        yield Step("merged with", f"{len(sources) - 1} other workspaces" if len(sources) > 1 else "nothing")
        said = [text for each in placements.values() for text in problems(each)]
        if conflicts := [text for text in said if text.startswith(CONFLICTING)]:
            yield Step("conflicts", "; ".join(conflicts))
        yield Step("in mailbox", f"yes, at revision {copy['metadata']['resourceVersion']}")
        for step in _at_edge(ref, copy, configs):
            yield step


def _at_edge(ref: ObjectRef, copy: Object, configs: Sequence[Object]) -> Iterator[Step]:
    """Yield what the list of a mailbox, and its syncer's report, say of an object."""
    if not goes_to_edge(*ref.kind):
        yield Step("listed", "no: objects of this kind end in the mailbox", False)
        return
    if not sync_set(configs).lists(ref):
        yield Step("listed", "no: the list is written once the mailbox has all of it", False)
        return
    yield Step("listed", "yes")
    status = next((status_of(each) for each in configs if each["metadata"]["name"] == THE_ONE), {})
    errors = [each for each in status.get("errors") or () if _is_about(each, ref)]
    if errors:
        yield Step("refused because", "; ".join(map(error_text, errors)), False)
        return
    applied, revision = int(status.get("appliedRevision") or 0), int(copy["metadata"]["resourceVersion"])
    if applied < revision:
        yield Step("applied", f"not yet: the syncer reported revision {applied or 'nothing'}", False)
    else:
        yield Step("applied", f"yes: the syncer reported revision {applied}")


def _is_about(error: Object, ref: ObjectRef) -> bool:
    fields = (error.get(name) or "" for name in ("group", "resource", "namespace", "name"))
    return tuple(fields) in ((ref.group, ref.resource, ref.namespace, ref.name), (ref.group, ref.resource, "", ""))


def _rendering(obj: Object) -> str:
    notes = annotations_of(obj)
    parts = [f"Customizer {notes[CUSTOMIZER]}"] if notes.get(CUSTOMIZER) else []
    if notes.get(EXPAND) == "true":
        parts.append("parameters of the Location")
    return ", ".join(parts) or "nothing: it goes as it is"


async def _readable(client: Client, resource: Resource, ref: ObjectRef) -> Object | None:
    try:
        return await client.get(resource, ref.name, ref.namespace)
    except NotFound:
        return None
