"""Projection: an object of a workload workspace as the configuration of its copy in a mailbox.

The placement translator renders each source (`render`), merges what several give (`merging`) and applies the result as
TRANSLATOR; a syncer renders mailbox copies for its edge with `portable`. Invariants: a copy has nothing that belongs
to one cluster (uids, revisions, status, allocated values, keys of the system); what was rendered renders to itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.machinery.edge.allocated import without_allocated
from atoll.machinery.edge.names import EDGE_REVISION, EXECUTING_COUNT, PROJECTED, PROJECTED_VALUE, SOURCES
from atoll.machinery.meta.objects import Object, annotations_of, finalizers_of, labels_of, owner_references_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SYSTEM_DOMAINS = ("kcp.io", "internal.atoll.dev")
#: Lists without items that the wire shows as null, by kind: what is given is the empty list.
_NULL_LISTS = {"Role": "rules", "ClusterRole": "rules"}
_DROPPED = frozenset({LAST_APPLIED, EXECUTING_COUNT, PROJECTED, SOURCES, EDGE_REVISION})


def is_system_key(key: str) -> bool:
    """Whether a label, annotation or finalizer belongs to this system and stays in its workspace."""
    domain = key.partition("/")[0]
    return key in _DROPPED or any(domain == each or domain.endswith(f".{each}") for each in _SYSTEM_DOMAINS)


def portable(obj: Object, owners: Mapping[str, str]) -> Object:
    """Return the configuration of an object for another cluster.

    `owners` has, for the uid of an owner here, the uid of its copy there. References to owners without one are left
    out: a garbage collector that finds no owner of that uid deletes what it owns.
    """
    obj = without_allocated(obj)
    metadata: Object = {"name": obj["metadata"]["name"]}
    if namespace := obj["metadata"].get("namespace"):
        metadata["namespace"] = namespace
    for name, entries in (("labels", labels_of(obj)), ("annotations", annotations_of(obj))):
        if kept := {key: value for key, value in sorted(entries.items()) if not is_system_key(key)}:
            metadata[name] = kept
    if finalizers := [each for each in finalizers_of(obj) if not is_system_key(each)]:
        metadata["finalizers"] = finalizers
    references = [each | {"uid": owners[each["uid"]]} for each in owner_references_of(obj) if each["uid"] in owners]
    if references:
        metadata["ownerReferences"] = references
    content = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    if content.get(field := _NULL_LISTS.get(obj.get("kind", ""), ""), ()) is None:
        content[field] = []
    return {**content, "metadata": metadata}


def render(source: Object, owners: Mapping[str, str]) -> Object:
    """Return what a source gives to its copy in a mailbox; `owners` as for `portable`."""
    return portable(source, owners)


def bare_namespace(name: str) -> Object:
    """Return the configuration of a Namespace that no source gives, but that objects in it need."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {PROJECTED: PROJECTED_VALUE}}}


def is_projected(obj: Object) -> bool:
    """Whether the placement translator wrote a mailbox object, and so may withdraw it."""
    return labels_of(obj).get(PROJECTED) == PROJECTED_VALUE
