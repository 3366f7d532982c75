"""Events on dependents whose ownerReference names an object in another namespace.

The garbage collector calls `report` for a reference without an owner; otherwise a client with a wrong namespace would
see its object deleted without an explanation. Message, reason and component are those of Kubernetes. Invariant: one
Event for each pair of dependent and owner.
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
#: Maximal number of namespaces searched for an owner of the name; Events are best effort.
MAX_NAMESPACES = 500


def is_in_other_namespace(snapshot: Snapshot, type: ResourceType, key: ObjectKey, name: str, uid: str) -> bool:
    """Return whether the object with this name and uid is in another namespace of the dependent's cluster."""
    for namespace in snapshot.scan(Scope(NAMESPACES, key.cluster), limit=MAX_NAMESPACES):
        found = snapshot.get(ObjectKey(type, key.cluster, namespace.key.name, name))
        if found is not None and decode(found.value)["metadata"]["uid"] == uid:
            return namespace.key.name != key.namespace
    return False


async def report(loopback: Loopback, kind: Kind, obj: Object, reference: Object) -> None:
    """Create the Event unless it exists."""
    space = obj["metadata"].get("namespace", "")
    owner = (
        f"[{reference.get('apiVersion', '')}/{reference.get('kind', '')}, namespace: {space}, "
        f"name: {reference.get('name', '')}, uid: {reference['uid']}]"
    )
    message = f'ownerRef {owner} does not exist in namespace "{space}"'
    await warn(loopback, kind, obj, Warning(REASON, message, COMPONENT, reference["uid"]))
