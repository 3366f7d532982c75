"""What a syncer may do in its mailbox: the one right `sync` stands for these requests and no other.

    reads     items; SyncerConfigs and EdgeSyncConfigs; objects that go down or came up
    status    of these objects, and of SyncerConfigs
    writes    its Lease, its Events, objects with the mark of the edge, and their Namespaces; AssociatedStates of what
              goes down, where a SyncerConfig asks for them

`mailbox` asks `allows` for each request and each time that a write is planned, and sets `WriteRule` on it. Invariants:
nothing is written but a status that the placement translator writes too, nothing of the system's own, and no kind in
effect here; nothing gets the mark of what was projected; what comes up is bounded, and so is each status.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.edge.associated_states import STATES, state_key, subject_of
from atoll.machinery.edge.categories import comes_up, goes_to_edge
from atoll.machinery.edge.names import (
    ASSOCIATED_WITH,
    EDGE_REVISION,
    GROUP,
    LEASE_NAME,
    LEASE_NAMESPACE,
    SYNCER,
    UPSYNCED,
    ObjectRef,
)
from atoll.machinery.edge.placements import ANY
from atoll.machinery.edge.projection import is_projected
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.edge.upsync import is_upsynced
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, encode_json, finalizers_of, owner_references_of
from atoll.machinery.storage.contract import Guard
from atoll.virtualworkspaces.edge.carried import CONFIGS, SYNCER_CONFIGS, Carried, CarriedReader, Mailbox, came_up
from atoll.virtualworkspaces.edge.downsync_item import RESOURCE
from atoll.virtualworkspaces.edge.upsync_use import MOST, UpsyncUse
from atoll.virtualworkspaces.framework import READ_VERBS

#: The syncer's Lease.
LEASES = ("coordination.k8s.io", "leases")
EVENTS = (("", "events"), ("events.k8s.io", "events"))
NAMESPACES = ("", "namespaces")
ITEMS = (GROUP, RESOURCE)
#: Longest encoded status.
MAX_STATUS_BYTES = 256 * 1024
_STATUS_VERBS = ("get", "patch", "update")
_WRITES = ("create", "delete", "patch", "update")


def verbs(kind: tuple[str, str], subresource: str = "") -> tuple[str, ...]:
    """Return the verbs that a syncer may use on a kind, by group and resource, or on a subresource of it."""
    if subresource:
        return _STATUS_VERBS if subresource == "status" and (kind == SYNCER_CONFIGS or comes_up(*kind)) else ()
    if kind == LEASES:
        return ("create", "get", "patch", "update")
    if kind in EVENTS:
        return ("create", "patch")
    if kind in (ITEMS, *CONFIGS):
        return READ_VERBS
    if kind == STATES:
        return (*READ_VERBS, "create", "update", "delete")
    if kind == NAMESPACES:
        return (*READ_VERBS, "create", "delete")
    if comes_up(*kind):
        return (*READ_VERBS, *_WRITES)
    return READ_VERBS if goes_to_edge(*kind) else ()


class MailboxRules(msgspec.Struct, frozen=True):
    """The rules for one request in a mailbox."""

    mailbox: Mailbox
    reader: CarriedReader
    info: RequestInfo
    kind: Kind
    use: UpsyncUse

    @property
    def _resource(self) -> tuple[str, str]:
        return self.kind.group, self.kind.plural

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef(*self._resource, self.info.namespace if self.kind.namespaced else "", name)

    def allows(self, view: View, verb: str) -> bool:
        """Whether a syncer may make the request: whatever the answer says of objects that it may not read."""
        info, resource = self.info, self._resource
        if verb not in verbs(resource, info.subresource):
            return False
        if resource == LEASES:
            return info.namespace == LEASE_NAMESPACE and (info.name == LEASE_NAME or not info.name)
        if not info.name or verb == "create" or resource in (ITEMS, STATES, *CONFIGS, *EVENTS):
            return True
        return self._reaches(view, self._ref(info.name))

    def _reaches(self, view: View, ref: ObjectRef) -> bool:
        carried = self.reader.current(view, self.mailbox)
        if carried.lists(ref, None):
            return True
        record = view.get(ObjectKey(self.kind.type, self.mailbox.cluster, ref.namespace, ref.name))
        return self._comes_up(carried, ref) if record is None else came_up(ref, record.value)

    def _comes_up(self, carried: Carried, ref: ObjectRef) -> bool:
        """Whether a set asks for an object, or for some object of a Namespace."""
        if ref.kind == NAMESPACES:
            return any(ANY in each.namespaces or ref.name in each.namespaces for each in carried.set.upsync)
        return comes_up(*ref.kind) and carried.set.comes_up(ref)

    def check(self, view: View, obj: Object | None, old: Object | None) -> Sequence[Guard]:
        """A `WriteRule`. Raises Forbidden."""
        name = str((obj or old or {})["metadata"].get("name", ""))
        if reason := self._refusal(view, self._ref(name), obj, old):
            raise errors.forbidden(self.kind, name, reason)
        return ()

    def _refusal(self, view: View, ref: ObjectRef, obj: Object | None, old: Object | None) -> str:
        if obj is not None and is_projected(obj) and not (old is not None and is_projected(old)):
            return "it is not the placement translator's"
        if obj is not None and len(encode_json(obj.get("status"))) > MAX_STATUS_BYTES:
            return f"a status of the edge has at most {MAX_STATUS_BYTES} bytes"
        if self.info.subresource:
            return self._room_refusal(view, obj, old) if old is not None and is_upsynced(ref, old) else ""
        if ref.kind == LEASES:
            return "" if ref.name == LEASE_NAME else f"the Lease of a syncer is named {LEASE_NAME}"
        if ref.kind in EVENTS:
            return "" if old is None or _is_own_event(old) else "the event is not the syncer's"
        if ref.kind == STATES:
            return self._state_refusal(view, obj) if obj is not None else ""
        if old is not None and obj is not None and not self.kind.has_status and not is_upsynced(ref, old):
            return "" if _content(obj) == _content(old) else "only its status may change"
        return self._upsync_refusal(view, ref, obj, old)

    def _state_refusal(self, view: View, obj: Object) -> str:
        """Return why an AssociatedState may not be written, "" if it may: there is one for each that is asked for."""
        subject, metadata = subject_of(obj), obj["metadata"]
        if (metadata.get("namespace"), metadata.get("name")) != state_key(subject):
            return "its name is not that of its subject"
        if finalizers_of(obj) or owner_references_of(obj):
            return "objects of the edge have no finalizers and no owners here"
        carried = self.reader.current(view, self.mailbox)
        is_asked = any(each.covers(*subject.kind) for each in carried.set.associated)
        return "" if is_asked and carried.lists(subject, None) else "no SyncerConfig asks for it"

    def _upsync_refusal(self, view: View, ref: ObjectRef, obj: Object | None, old: Object | None) -> str:
        """Return why an object may not be written as one of the edge's, "" if it may."""
        for each in (obj, old):
            if each is not None and not is_upsynced(ref, each):
                return f"the annotation {UPSYNCED} does not name it"
            if each is not None and (is_projected(each) or is_system_object(ref, each)):
                return "it is not the edge's"
        if obj is None:
            return ""
        if finalizers_of(obj):
            return "objects of the edge have no finalizers here"
        carried = self.reader.current(view, self.mailbox)
        if not self._comes_up(carried, ref) and not self._is_associated(carried, ref, obj):
            return "no SyncerConfig asks for it"
        return self._room_refusal(view, obj, old)

    def _is_associated(self, carried: Carried, ref: ObjectRef, obj: Object) -> bool:
        """Whether a collector asks for whole objects of this kind, for the placed one that an object names."""
        kind, *place = annotations_of(obj).get(ASSOCIATED_WITH, "").split("/")
        if len(place) != 2 or not comes_up(*ref.kind):
            return False
        queries = [each for each in carried.set.associated if each.copies(*ref.kind)]
        named = {(each.group, each.plural) for each in self.mailbox.catalog.kinds.values() if each.kind == kind}
        return any(
            each.covers(group, plural) and carried.lists(ObjectRef(group, plural, *place), None)
            for group, plural in named
            for each in queries
        )

    def _room_refusal(self, view: View, obj: Object | None, old: Object | None) -> str:
        """Return why an object of the edge may not be made or grow, "" if it may."""
        sizes = [len(encode_json(each)) if each is not None else 0 for each in (obj, old)]
        if self.use.take(view, self.mailbox, int(old is None), max(0, sizes[0] - sizes[1])):
            return ""
        return f"at most {MOST.objects} objects and {MOST.size_bytes} bytes come up"


def _is_own_event(event: Object) -> bool:
    """Whether the syncer wrote an Event, in either of its versions."""
    core = event.get("source") or event.get("deprecatedSource") or {}
    return SYNCER in (core.get("component"), event.get("reportingComponent"), event.get("reportingController"))


def _content(obj: Object) -> Object:
    """Return what a status write leaves as it is."""
    metadata = obj["metadata"]
    annotations = {key: value for key, value in annotations_of(obj).items() if key != EDGE_REVISION}
    own = {key: metadata.get(key) or None for key in ("labels", "finalizers", "ownerReferences")}
    rest = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": {**own, "annotations": annotations}}
