"""One copy in a mailbox: applied, checked or withdrawn.

`projection` calls it for each object that changed on either side. Invariants: a copy that is in force costs no write;
withdrawn is only what the translator wrote, once the workspaces that it comes from were read; a Namespace stays, as
others may use it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from atoll.edge.edge_data import Clusters
from atoll.edge.placement_translator.composition import Composition
from atoll.edge.placement_translator.content import DEFINERS, NAMESPACES, Item, Kind
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.records import Copy, CopyRecords
from atoll.edge.placement_translator.rendering import Tell, Unrendered
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.placement_translator.versions import Versions
from atoll.machinery.client.client import MERGE, Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.applied import ApplyRecord, is_in_force, record_of
from atoll.machinery.edge.names import EDGE_REVISION, SOURCES, TRANSLATOR, ObjectRef
from atoll.machinery.edge.projection import bare_namespace, is_projected
from atoll.machinery.edge.what import is_another_kind
from atoll.machinery.edge.where import Key
from atoll.machinery.meta.objects import Object, annotations_of, finalizers_of
from atoll.machinery.meta.status import ApiError, Conflict, Forbidden, NotFound, ServiceUnavailable

#: Copies that are compared before others go on.
STRIDE = 200


class Outcome(NamedTuple):
    """Whether the uid of a copy is another, and why it is not wholly what its workspaces want."""

    is_another: bool = False
    problem: Unrendered | None = None


class Copies:
    """Copies in all mailboxes. Methods raise ApiError, ClientError and TimeoutError."""

    def __init__(
        self, base: Clusters, topology: Topology, contents: Contents, records: CopyRecords, tell: Tell
    ) -> None:
        self._base, self._topology, self._contents, self._records = base, topology, contents, records
        self.versions = Versions(base)
        self.composition = Composition(self.versions, topology, contents, records, tell)
        #: Writes into mailboxes, by what they do.
        self.writes: Counter[str] = Counter()
        #: Mailbox -> placement -> revision of the last write of its copies.
        self._written: dict[str, dict[Key, int]] = {}
        #: Mailboxes with a copy of which no write is on record, since all that is sent was looked at.
        self._unrecorded: set[str] = set()

    def wanted(self, mailbox: str) -> dict[ObjectRef, dict[str, Item]]:
        """Return all that a mailbox is to have, with the item of each workspace that sends it."""
        found: dict[ObjectRef, dict[str, Item]] = {}
        for cluster, placements in self._topology.senders(mailbox).items():
            content = self._contents.get(cluster)
            for ref, item in content.items.items() if content is not None else ():
                if not placements.isdisjoint(item.selection.placements):
                    found.setdefault(ref, {})[cluster] = item
        return found

    def wanted_one(self, mailbox: str, ref: ObjectRef) -> dict[str, Item]:
        """Return the item of each workspace that sends an object to a mailbox."""
        found: dict[str, Item] = {}
        for cluster, placements in self._topology.senders(mailbox).items():
            content = self._contents.get(cluster)
            item = content.items.get(ref) if content is not None else None
            if item is not None and not placements.isdisjoint(item.selection.placements):
                found[cluster] = item
        return found

    async def stale(self, mailbox: str) -> tuple[list[ObjectRef], set[str]]:
        """Return what is not as its workspaces want it, by its record, and the Namespaces of copies that are there.

        Of the others the last write counts. Nothing is read but records, so a mailbox in which all is current costs no
        request. Others go on meanwhile.
        """
        records, found = self._records.of(mailbox), list[ObjectRef]()
        namespaces = {ref.namespace for ref, record in records.items() if record.sources}
        for count, (ref, senders) in enumerate(self.wanted(mailbox).items(), 1):
            record = records.pop(ref, None)
            # What definitions together give is found where they are put.
            if ref.kind in DEFINERS or record is None or not self._is_current(mailbox, ref, senders, record):
                found.append(ref)
            if count % STRIDE == 0:
                await asyncio.sleep(0)
        return [*found, *records], namespaces

    def _is_current(self, mailbox: str, ref: ObjectRef, senders: dict[str, Item], record: Copy) -> bool:
        """Whether a copy is what its workspaces want, and no conflict about it is to be looked for."""
        try:
            wanted = self.composition.wanted(mailbox, ref, senders)
        except ApiError:
            # It is said of the copy, where it is tried.
            return False
        if record.sources != wanted.digest or not self.composition.is_compared(mailbox, ref, wanted):
            return False
        self._note(mailbox, senders, record.written)
        return True

    def written(self, mailbox: str, placement: Key) -> int:
        """Return the revision of the last write of what a placement sends to a mailbox; 0 before it was looked at."""
        return self._written.get(mailbox, {}).get(placement, 0)

    def is_written(self, mailbox: str, placement: Key, revision: int) -> bool:
        """Whether the last write of each copy of a placement was not after a revision, as its record says, too.

        It is about what was looked at, not about what is due, in work or failing. False: records say more.
        """
        return mailbox not in self._unrecorded and 0 < self.written(mailbox, placement) <= revision

    def forget_written(self, mailbox: str) -> None:
        """All that is sent is looked at anew, or the mailbox is gone."""
        self._written.pop(mailbox, None)
        self._unrecorded.discard(mailbox)

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        self.forget_written(mailbox)
        self.composition.forget(mailbox)

    def _kept(self, mailbox: str, sources: dict[str, Item], record: Copy | None) -> Outcome:
        """Return the outcome where a copy stays as its record says, if there is one."""
        self._note(mailbox, sources, record.written if record is not None else 0)
        return Outcome()

    def _note(self, mailbox: str, sources: dict[str, Item], revision: int) -> None:
        if not revision:
            self._unrecorded.add(mailbox)
        found = self._written.setdefault(mailbox, {})
        for cluster, item in sources.items():
            for name in item.selection.placements:
                found[cluster, name] = max(revision, found.get((cluster, name), 0))

    async def redefined(self, mailbox: str) -> bool:
        """Look at what a mailbox serves, as its definitions changed; return whether versions of copies may change."""
        offered: dict[Kind, tuple[str, ...]] = {}
        for cluster in sorted(self._topology.senders(mailbox)):
            content = self._contents.get(cluster)
            for kind in content.selected if content is not None else ():
                if content is not None and kind in content.kinds:
                    offered.setdefault(kind, content.kinds[kind].versions)
        return await self.versions.refresh(mailbox, offered)

    async def put(self, mailbox: str, ref: ObjectRef, live: Object | None, *, is_live_due: bool) -> Outcome:
        """Bring a copy into force, or withdraw it if no workspace sends it.

        `live` is the copy as it was just read; with `is_live_due` it is read, as somebody may have changed it.
        """
        senders, record = self.wanted_one(mailbox, ref), self._records.get(mailbox, ref)
        if not senders:
            await self._withdraw(mailbox, ref, live)
            self.composition.conflicts.put(mailbox, ref, (), ())
            return Outcome()
        if live is not None:
            self.composition.definitions.saw(mailbox, ref, live)
        wanted = self.composition.wanted(mailbox, ref, senders)
        is_current = record is not None and record.sources == wanted.digest
        if record is not None and is_current:
            self._note(mailbox, senders, record.written)
            is_seen = not is_live_due if live is None else record.revision == int(live["metadata"]["resourceVersion"])
            if is_seen and self.composition.is_compared(mailbox, ref, wanted):
                return Outcome()
        composed = await self.composition.composed(mailbox, ref, wanted)
        if composed is None or (is_current and live is None and not is_live_due):
            return self._kept(mailbox, senders, record)
        configuration, problem = composed.obj, composed.problem
        resource = _resource(ref, version_of(configuration))
        takes_over = record is not None and bool(record.holder) and record.holder not in wanted.sources
        if (is_live_due or composed.unknown or takes_over) and live is None:
            live = await self._read(mailbox, resource, ref)
        if problem is not None and live is not None and not composed.unknown.isdisjoint(_sources_of(live)):
            # What it has of them nobody remembers.
            raise problem
        is_ending = live is not None and "deletionTimestamp" in live["metadata"] and ref.kind != NAMESPACES
        if live is not None and (is_ending or (takes_over and is_another_kind(configuration, live))):
            # Finalizers of one that ends are the edge's: here nobody else takes them off. Of one that is of another
            # kind than its new source nothing is wanted any more. Either is made again once it is gone.
            await self._delete(mailbox, resource, ref, live)
            return self._kept(mailbox, senders, record)
        written, applied = (record.written, record.applied) if record is not None else (0, None)
        if live is None or not is_in_force(configuration, live, TRANSLATOR, applied):
            try:
                live = await self._client(mailbox).apply(resource, configuration, manager=TRANSLATOR)
            except NotFound:
                if await self.versions.read(mailbox, ref.kind, resource.version):
                    return await self.put(mailbox, ref, None, is_live_due=True)
                raise
            written = int(live["metadata"]["resourceVersion"])
            self.writes["apply"] += 1
        self.composition.definitions.saw(mailbox, ref, live)
        metadata, applied = live["metadata"], record_of(configuration, live, TRANSLATOR)
        revision = int(metadata["resourceVersion"])
        # With a problem it is none of what is wanted, so it is looked at again.
        digest = wanted.digest if problem is None else ""
        version, uid = version_of(configuration), metadata["uid"]
        # What another process wrote, it wrote up to here.
        written = written or revision
        copy = Copy(version, digest, applied, uid, revision, written, composed.holder, has_status(live))
        self._note(mailbox, senders, written)
        if copy != record:
            self._records.put(mailbox, ref, copy)
        self._records.put_renderings(mailbox, ref, composed.renderings)
        return Outcome(record is None or record.uid != copy.uid, problem)

    def found(self, mailbox: str, ref: ObjectRef, live: Object) -> None:
        """Take down a copy that has no record, so that it is withdrawn."""
        metadata = live["metadata"]
        copy = Copy(version_of(live), "", ApplyRecord("", ""), metadata["uid"], int(metadata["resourceVersion"]), 0)
        self._records.put(mailbox, ref, copy)

    async def ensure_namespace(self, mailbox: str, name: str) -> None:
        """Make a Namespace that objects need; one that is there stays as it is."""
        ref = ObjectRef(*NAMESPACES, "", name)
        if await self._read(mailbox, _resource(ref, "v1"), ref) is None:
            await self._client(mailbox).apply(_resource(ref, "v1"), bare_namespace(name), manager=TRANSLATOR)

    async def _withdraw(self, mailbox: str, ref: ObjectRef, live: Object | None) -> None:
        record = self._records.get(mailbox, ref)
        self.composition.definitions.saw(mailbox, ref, None)
        version = version_of(live) if live is not None else record.version if record is not None else ""
        if not version:
            return
        if live is None:
            live = await self._read(mailbox, _resource(ref, version), ref)
        if live is not None and is_projected(live):
            unread = [each for each in _sources_of(live) if not await self._is_complete(each)]
            if unread:
                raise ServiceUnavailable(f"workspaces that it comes from are not read: {', '.join(unread)}")
            await self._delete(mailbox, _resource(ref, version_of(live)), ref, live)
        self._records.put(mailbox, ref, None)

    async def _is_complete(self, cluster: str) -> bool:
        """Whether all that a workspace sends is known: its shard showed it, or there is no such workspace."""
        if not self._topology.is_nowhere(cluster):
            return self._topology.has_read(cluster)
        try:
            await self._base.cluster(cluster).discover("/api")
        except (Forbidden, NotFound):
            return True
        return False

    async def _delete(self, mailbox: str, resource: Resource, ref: ObjectRef, live: Object) -> None:
        client, metadata = self._client(mailbox), live["metadata"]
        if ref.kind == NAMESPACES:
            if not is_in_force(bare_namespace(ref.name), live, TRANSLATOR):
                await client.apply(resource, bare_namespace(ref.name), manager=TRANSLATOR)
            return
        path, kept = resource.path(ref.namespace, ref.name), finalizers_of(live)
        if applied := _applied_finalizers(live):
            left = [each for each in kept if each not in applied]
            body: Object = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": left}}
            await client.request("PATCH", path, {"fieldManager": TRANSLATOR}, body, MERGE)
        if "deletionTimestamp" in metadata:
            return
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
        try:
            await client.request("DELETE", path, body=body)
        except (NotFound, Conflict):
            return
        self.writes["delete"] += 1

    async def _read(self, mailbox: str, resource: Resource, ref: ObjectRef) -> Object | None:
        """Return an object of a mailbox, None if it is not there; at another version if this one is not served."""
        try:
            return await self._client(mailbox).get(resource, ref.name, ref.namespace)
        except NotFound as error:
            if error.details.name or not await self.versions.read(mailbox, ref.kind, resource.version):
                return None
            served = self.versions.served(mailbox, ref.kind)
            return await self._client(mailbox).get(_resource(ref, served[0]), ref.name, ref.namespace)

    def _client(self, mailbox: str) -> Client:
        return self._base.cluster(mailbox)


def _resource(ref: ObjectRef, version: str) -> Resource:
    return Resource(ref.group, version, ref.resource, bool(ref.namespace))


def version_of(obj: Object) -> str:
    """Return the version of an object's API, without its group."""
    return str(obj["apiVersion"]).rpartition("/")[2]


def has_status(live: Object) -> bool:
    """Whether somebody in a mailbox wrote a status of a copy."""
    entries = live["metadata"].get("managedFields") or ()
    return EDGE_REVISION in annotations_of(live) or any(each.get("subresource") == "status" for each in entries)


def _sources_of(live: Object) -> list[str]:
    """Return the workspaces that a copy comes from."""
    return [each for each in annotations_of(live).get(SOURCES, "").split(",") if each]


def _applied_finalizers(live: Object) -> set[str]:
    """Return the finalizers of a copy that it has from its source."""
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("manager") == TRANSLATOR and not entry.get("subresource"):
            fields = (entry.get("fieldsV1") or {}).get("f:metadata", {}).get("f:finalizers", {})
            return {each.removeprefix('v:"').removesuffix('"') for each in fields if each.startswith("v:")}
    return set()
