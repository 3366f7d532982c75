"""The edge cluster: what lies there of the kinds that are synced, kept current, and the writes to it.

Each kind has one watch: of a kind that goes down only the objects with this syncer's label, of Namespaces all.
Invariants: a kind counts as read once a list of it was whole; every request but a watch takes its place in the rate
limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import suppress

import msgspec

from atoll.machinery.client.client import APPLY, Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import SYNCED_BY, SYNCER, ObjectRef
from atoll.machinery.edge.plan import Annotate, Delete
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import ApiError, Forbidden, NotFound
from atoll.syncer.follower import Follower, Key, key_of
from atoll.syncer.kinds import Kind, Kinds
from atoll.syncer.packed import pack, unpack
from atoll.syncer.rate import RateLimit

NAMESPACE_KIND = Resource("", "v1", "namespaces", namespaced=False)
_decode = msgspec.json.Decoder(Object).decode

#: Told of each object that changed or went.
Changed = Callable[[ObjectRef], None]


class _Live:
    """The objects of one kind."""

    def __init__(self, edge: Edge, resource: Resource, selector: str) -> None:
        self._edge, self._kind = edge, (resource.group, resource.plural)
        self.resource, self.selector = resource, selector
        options = {"labelSelector": selector} if selector else {}
        self.follower = Follower(edge.client, resource, self, **options)
        self.follower.restored = self._restored
        self.packed: dict[Key, bytes] = {}
        #: Revisions that our own writes gave, until the watch has them.
        self._written: dict[Key, int] = {}
        self._revision = 0
        self.is_complete = False
        self.task: asyncio.Task[None] | None = None

    def changed(self, obj: Object) -> None:
        key, revision = key_of(obj), int(obj["metadata"]["resourceVersion"])
        if revision < self._written.get(key, 0):
            return
        self._written.pop(key, None)
        self._take(key, obj)

    def keep(self, obj: Object) -> None:
        """Take the answer to a write, unless the watch is further already."""
        key, revision = key_of(obj), int(obj["metadata"]["resourceVersion"])
        if revision > self._revision:
            self._written[key] = revision
            self._take(key, obj)

    def _take(self, key: Key, obj: Object) -> None:
        packed = pack(obj)
        if self.packed.get(key) != packed:
            self.packed[key] = packed
            self._tell(key)

    def gone(self, obj: Object) -> None:
        key = key_of(obj)
        self._written.pop(key, None)
        if self.packed.pop(key, None) is not None:
            self._tell(key)

    def complete(self, keys: Set[Key]) -> None:
        was_complete, self.is_complete = self.is_complete, True
        for key in [key for key in self.packed if key not in keys]:
            del self.packed[key]
            self._tell(key)
        if not was_complete:
            self._edge.read(self._kind)

    def reached(self, revision: str) -> None:
        self._revision = int(revision)

    def _restored(self) -> None:
        """What was written since is not there any more."""
        self._written.clear()
        self._revision = 0

    def _tell(self, key: Key) -> None:
        if self.is_complete:
            self._edge.changed(ObjectRef(*self._kind, *key))


class Edge:
    """One cluster. `changed` and `read` (a kind was read whole for the first time) are set before `run`."""

    def __init__(self, client: Client, syncer: str, limit: RateLimit) -> None:
        self.client, self.kinds, self.uid = client, Kinds(client), ""
        self._syncer, self._limit = syncer, limit
        self._live: dict[tuple[str, str], _Live] = {}
        self.changed: Changed = lambda ref: None
        self.read: Callable[[tuple[str, str]], None] = lambda kind: None

    async def identify(self) -> None:
        """Read the cluster's uid: that of kube-system, or of default where there is none."""
        for name in ("kube-system", "default"):
            try:
                self.uid = (await self.client.get(NAMESPACE_KIND, name))["metadata"]["uid"]
            except NotFound:
                continue
            return
        raise NotFound("the cluster has neither a Namespace kube-system nor default")

    @property
    def failure(self) -> str:
        """Why some kind is not current, empty if all are."""
        return next((each.follower.failure for each in self._live.values() if each.follower.failure), "")

    @property
    def failures(self) -> dict[ObjectRef, Failure]:
        """The kinds that the cluster does not let the syncer read, as references without a name."""
        found = ((kind, live.follower.refusal) for kind, live in self._live.items())
        return {ObjectRef(*kind, "", ""): refusal for kind, refusal in found if refusal is not None}

    def follow(self, resources: Mapping[tuple[str, str], Resource], whole: Collection[tuple[str, str]]) -> None:
        """Follow these kinds from now on, and no others; of those in `whole` all objects, not only ours."""
        selectors = {kind: "" if kind in whole else f"{SYNCED_BY}={self._syncer}" for kind in resources}
        for kind, live in list(self._live.items()):
            if (live.resource, live.selector) != (resources.get(kind), selectors.get(kind)):
                self.unfollow(kind)
        for kind, resource in resources.items():
            if kind not in self._live:
                selector = selectors[kind]
                live = self._live[kind] = _Live(self, resource, selector)
                live.task = asyncio.create_task(live.follower.run())

    def unfollow(self, kind: tuple[str, str]) -> None:
        """Follow a kind no more: its definition is gone, or nothing needs it."""
        live = self._live.pop(kind, None)
        if live is not None and live.task is not None:
            live.task.cancel()

    async def close(self) -> None:
        """End all watches."""
        tasks = [live.task for live in self._live.values() if live.task is not None]
        for kind in list(self._live):
            self.unfollow(kind)
        await asyncio.gather(*tasks, return_exceptions=True)

    def follows(self, kind: tuple[str, str]) -> bool:
        """Whether a kind is followed."""
        return kind in self._live

    def is_read(self, kind: tuple[str, str]) -> bool:
        """Whether a kind was read whole."""
        live = self._live.get(kind)
        return live is not None and live.is_complete

    def is_refused(self, kind: tuple[str, str]) -> bool:
        """Whether the cluster refuses to list a kind."""
        live = self._live.get(kind)
        return live is not None and live.follower.refusal is not None

    def get(self, ref: ObjectRef) -> Object | None:
        """Return an object of a kind that is followed, None if none is known."""
        live = self._live.get(ref.kind)
        packed = live.packed.get((ref.namespace, ref.name)) if live is not None else None
        return None if packed is None else unpack(packed)

    def refs(self) -> Iterator[ObjectRef]:
        """Yield all that is known."""
        for kind, live in self._live.items():
            for key in live.packed:
                yield ObjectRef(*kind, *key)

    async def kind_of(self, ref: ObjectRef, version: str) -> Kind | None:
        """Return the kind of an object, in the version that is followed where none is given."""
        live = self._live.get(ref.kind)
        version = version or (live.resource.version if live is not None else "")
        return await self.kinds.find(ref.group, ref.resource, version)

    # --- requests

    async def look(self, kind: Kind, ref: ObjectRef) -> Object | None:
        """Read one object, whoever made it."""
        await self._limit.take()
        try:
            return await self.client.get(kind.resource, ref.name, ref.namespace)
        except NotFound:
            return None

    async def ask(self, ref: ObjectRef) -> Object | None:
        """Read one object of a kind that is followed, whatever its watch said."""
        kind = await self.kind_of(ref, "")
        return await self.look(kind, ref) if kind is not None else None

    async def apply(self, kind: Kind, configuration: Object) -> tuple[Object, bool]:
        """Apply a configuration; return the object, and whether it was created."""
        await self._limit.take()
        metadata = configuration["metadata"]
        path = kind.resource.path(metadata.get("namespace", ""), metadata["name"])
        query = {"fieldManager": SYNCER, "force": "true"}
        answer = await self.client.exchange("PATCH", path, query, encode_json(configuration), APPLY)
        return _decode(answer.body), answer.status == 201

    async def annotate(self, kind: Kind, action: Annotate) -> Object:
        """Set annotations of an object, if it is still the same."""
        await self._limit.take()
        ref, metadata = action.ref, {"uid": action.uid, "annotations": dict(action.annotations)}
        return await self.client.patch(kind.resource, ref.name, {"metadata": metadata}, ref.namespace)

    async def delete(self, kind: Kind, action: Delete) -> None:
        """Delete an object, if it is still as it was seen; what it owns follows in the background.

        Kubernetes reads no options of a delete from the query where there is a body, and would keep the Pods of a Job.
        """
        await self._limit.take()
        conditions = {"uid": action.uid, "resourceVersion": action.resource_version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        options |= {"propagationPolicy": "Background"}
        path = kind.resource.path(action.ref.namespace, action.ref.name)
        try:
            await self.client.request("DELETE", path, None, options)
        except NotFound:
            return

    def keep(self, ref: ObjectRef, obj: Object) -> None:
        """Take what the cluster answered to a write, before its watch says it."""
        live = self._live.get(ref.kind)
        if live is not None:
            live.keep(obj)

    async def content(self, namespace: str) -> dict[ObjectRef, Object]:
        """Return something of each kind in a Namespace."""
        found = {}
        for kind in await self.kinds.all():
            if kind.resource.namespaced:
                found.update(await self._some_or_unknown(kind, namespace))
        return found

    async def instances(self, group: str, resource: str, version: str) -> dict[ObjectRef, Object]:
        """Return some objects of a kind."""
        kind = await self.kinds.find(group, resource, version)
        return {} if kind is None else await self._some_or_unknown(kind, "")

    async def marked_kinds(self) -> set[tuple[str, str, str]]:
        """Return group, resource and version of all kinds of which there is something with this syncer's label."""
        found = set()
        for kind in await self.kinds.all():
            with suppress(Forbidden):
                if await self._some(kind, "", labelSelector=f"{SYNCED_BY}={self._syncer}", limit="1"):
                    found.add((kind.resource.group, kind.resource.plural, kind.resource.version))
        return found

    async def _some_or_unknown(self, kind: Kind, namespace: str) -> dict[ObjectRef, Object]:
        """Return some objects of a kind; one without a name where it may not be listed: there may be any."""
        try:
            return await self._some(kind, namespace)
        except Forbidden:
            return {ObjectRef(kind.resource.group, kind.resource.plural, namespace, ""): {"metadata": {}}}

    async def _some(self, kind: Kind, namespace: str, **options: str) -> dict[ObjectRef, Object]:
        await self._limit.take()
        try:
            page = await self.client.request("GET", kind.resource.path(namespace), {"limit": "50", **options})
        except ApiError as error:
            # Some kinds can be listed by nobody, or only in other ways.
            if error.code in (404, 405):
                return {}
            raise
        lead = {"apiVersion": page["apiVersion"], "kind": kind.kind}
        return {
            ObjectRef(
                kind.resource.group,
                kind.resource.plural,
                item["metadata"].get("namespace", ""),
                item["metadata"]["name"],
            ): {**lead, **item}
            for item in page["items"]
        }
