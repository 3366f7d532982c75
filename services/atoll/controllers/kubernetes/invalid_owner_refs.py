"""Owners that a dependent cannot have: they stand in another namespace, and an Event on the dependent says so.

The garbage collector calls `report` for a reference that leads to no owner; a client that mixed up namespaces would
otherwise see its object vanish without a word. Words, reason and component are Kubernetes'. Invariant: one Event for a
dependent and an owner, however often it is judged.
"""

from __future__ import annotations

from atoll.controllers.event_recorder import Warning, warn
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.storage.contract import Scope, Snapshot

REASON, COMPONENT = "OwnerRefInvalidNamespace", "garbage-collector-controller"
#: Namespaces that are searched for an owner of the same name; it is a help for people, not a promise.
MAX_NAMESPACES = 500


def is_in_other_namespace(snapshot: Snapshot, type: ResourceType, key: ObjectKey, name: str, uid: str) -> bool:
    """Whether the object of this name and uid is in another namespace of the dependent's cluster."""
    for namespace in snapshot.scan(Scope(NAMESPACES, key.cluster), limit=MAX_NAMESPACES):
        found = snapshot.get(ObjectKey(type, key.cluster, namespace.key.name, name))
        if found is not None and decode(found.value)["metadata"]["uid"] == uid:
            return namespace.key.name != key.namespace
    return False


async def report(loopback: Loopback, kind: Kind, obj: Object, reference: Object) -> None:
    """Write the Event, unless it is there."""
    space = obj["metadata"].get("namespace", "")
    owner = (
        f"[{reference.get('apiVersion', '')}/{reference.get('kind', '')}, namespace: {space}, "
        f"name: {reference.get('name', '')}, uid: {reference['uid']}]"
    )
    message = f'ownerRef {owner} does not exist in namespace "{space}"'
    await warn(loopback, kind, obj, Warning(REASON, message, COMPONENT, reference["uid"]))
