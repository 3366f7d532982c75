"""`kubectl atoll edge why RESOURCE NAME --at LOCATION`: how far an object is on its way to an edge cluster, and why.

Called by `atoll`. The steps are those of the controllers and the syncer, in their order, decided by the same rules from
what the caller may read. Invariant: a step that does not hold is the last line; what may not be read is said, and
nothing is concluded from it.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import NamedTuple

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.edge import error_text, problems
from atoll.cli.kubectl.plugin import Failure, columns, common_flags, load_context, run, say
from atoll.edge.kinds import CUSTOMIZERS, LOCATIONS, PLACEMENTS, SLICES, SYNCER_CONFIGS
from atoll.edge.mailboxes import mailbox_name
from atoll.edge.placement_translator.placement_status import CONFLICTING, name_of
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.categories import BuiltIns, goes_to_edge
from atoll.machinery.edge.customization import CustomizationError, customized, customizer_of, expands, parameters_of
from atoll.machinery.edge.names import SOURCES, THE_ONE, ObjectRef
from atoll.machinery.edge.placements import InvalidPlacement, placement_of
from atoll.machinery.edge.slices import destinations_of, placement_name_of
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.edge.what import is_copied, selection
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, status_of
from atoll.machinery.meta.status import Forbidden, NotFound

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
VERSION_OF = "apiVersion of workspace "
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
        rendered = await self._rendered(obj, destination)
        yield rendered
        if not rendered.holds:
            return
        conflicts = conflicts_about(ref, placements.values())
        if left_for := lost_versions(obj, conflicts):
            yield Step("version", f"no: that of workspace {left_for} counts, which has no version of this one's", False)
            return
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

    async def _rendered(self, obj: Object, destination: Destination) -> Step:
        """Return how the object is customized for a destination; a Location that may not be read has no parameters."""
        ref, parameters = customizer_of(obj), dict[str, str]()
        try:
            inventory = self._client.cluster(destination.cluster)
            parameters = parameters_of(await inventory.get(LOCATIONS, destination.location_name))
        except (Forbidden, NotFound):
            # What it defines matters to values alone.
            pass
        try:
            rules = await _readable(self._client, CUSTOMIZERS, ref) if ref is not None and ref.namespace else None
            if ref is not None and rules is None:
                title = "/".join(filter(None, (ref.namespace, ref.name)))
                return Step("rendered by", f"no: Customizer {title} is not there", False)
            customized(copy.deepcopy(obj), rules, parameters)
        except CustomizationError as error:
            return Step("rendered by", f"no: {error}", False)
        parts = [f"Customizer {ref.namespace}/{ref.name}"] if ref is not None else []
        if expands(obj):
            parts.append("parameters of the Location")
        return Step("rendered by", ", ".join(parts) or "nothing: it goes as it is")

    # --- at the mailbox and beyond

    async def _arrival(
        self, resource: Resource, ref: ObjectRef, destination: Destination, placements: dict[str, Object]
    ) -> AsyncIterator[Step]:
        name = mailbox_name(destination.cluster, destination.sync_target_uid)
        path = f"{self._options.espw}:{name}"
        try:
            found = await _readable(self._base.cluster(path), resource, ref)
            configs = (await self._client.cluster(path).list(SYNCER_CONFIGS))["items"]
        except Forbidden:
            yield Step("in mailbox", UNREADABLE, False)
            return
        if found is None:
            said = [text for each in placements.values() for text in problems(each)]
            yield Step("in mailbox", "; ".join(["no", *said]), False)
            return
        yield Step("version", str(found["apiVersion"]))
        sources = annotations_of(found).get(SOURCES, "").split(",")
        yield Step("merged with", f"{len(sources) - 1} other workspaces" if len(sources) > 1 else "nothing")
        if conflicts := conflicts_about(ref, placements.values()):
            yield Step("conflicts", "; ".join(conflicts))
        yield Step("in mailbox", f"yes, at revision {found['metadata']['resourceVersion']}")
        for step in at_edge(ref, found, configs):
            yield step


def conflicts_about(ref: ObjectRef, placements: Iterable[Object]) -> list[str]:
    """Return the fields of an object that are in conflict, as `FIELD of workspace CLUSTER`, of the conditions."""
    head, found = f"{name_of(ref)}: ", dict[str, None]()
    for condition in (each for placement in placements for each in conditions_of(placement)):
        rows = condition.get("message", "").split("; ") if condition["type"] == CONFLICTING else ()
        found.update((row.removeprefix(head).partition(" and ")[0], None) for row in rows if row.startswith(head))
    return list(found)


def lost_versions(obj: Object, conflicts: Iterable[str]) -> str:
    """Return the workspace whose version counts instead of those of the object's workspace; "" for none."""
    own = annotations_of(obj).get(wellknown.CLUSTER, "")
    winners = (text.removeprefix(VERSION_OF) for text in conflicts if text.startswith(VERSION_OF))
    return next((each for each in winners if each != own), "")


def at_edge(ref: ObjectRef, copy: Object, configs: Sequence[Object]) -> Iterator[Step]:
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


async def _readable(client: Client, resource: Resource, ref: ObjectRef) -> Object | None:
    try:
        return await client.get(resource, ref.name, ref.namespace)
    except NotFound:
        return None
