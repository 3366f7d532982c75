"""System fields of metadata: set by the server, removed from bodies.

`write` and the verbs call these on the object they prepare, and change it in place. Invariant: the system's fields
(uid, creation time, generation, cluster, labels of permission claims) never come from a body.
"""

from __future__ import annotations

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.hashes import CLAIM_LABEL_PREFIX
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.uids import new_uid

_KEPT_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_SYSTEM_FIELDS = frozenset({*_KEPT_FIELDS, "selfLink"})
#: Without managedFields: an empty list resets field ownership.
_OMITTED_EMPTY = frozenset({"labels", "annotations", "finalizers", "ownerReferences", "generateName"})


def strip_cluster(obj: Object) -> None:
    """Remove the cluster annotation, which storage adds to every object and no field manager owns."""
    annotations = obj["metadata"].get("annotations")
    if isinstance(annotations, dict) and wellknown.CLUSTER in annotations:
        if len(annotations) > 1:
            rest = obj["metadata"]["annotations"] = dict(annotations)
            del rest[wellknown.CLUSTER]
        else:
            del obj["metadata"]["annotations"]


def strip_claims(obj: Object) -> None:
    """Remove the labels of permission claims, which admission adds and no field manager owns."""
    labels = obj["metadata"].get("labels")
    if not isinstance(labels, dict) or not any(key.startswith(CLAIM_LABEL_PREFIX) for key in labels):
        return
    rest = {key: value for key, value in labels.items() if not key.startswith(CLAIM_LABEL_PREFIX)}
    if rest:
        obj["metadata"]["labels"] = rest
    else:
        del obj["metadata"]["labels"]


def stamp_cluster(obj: Object, cluster: str) -> None:
    """Add the annotation of the logical cluster."""
    metadata = obj["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), wellknown.CLUSTER: cluster}


def tidy_metadata(obj: Object) -> None:
    """Remove what the system adds, then empty fields, as Kubernetes' encoding of metadata does.

    So empty and absent are the same.
    """
    metadata = obj["metadata"]
    if "annotations" in metadata:
        strip_cluster(obj)
    if "labels" in metadata:
        strip_claims(obj)
    for name in _OMITTED_EMPTY & metadata.keys():
        if not metadata[name]:
            del metadata[name]


def wipe_system_fields(obj: Object) -> None:
    """Remove the system's fields."""
    metadata = obj["metadata"]
    for name in _SYSTEM_FIELDS & metadata.keys():
        del metadata[name]


def stamp_new(call: Call, obj: Object) -> None:
    """Set uid, creation time, namespace and first generation of a new object."""
    metadata = obj["metadata"]
    if "uid" not in metadata:
        metadata["uid"] = new_uid() if call.attempt is None else call.attempt.new_uid()
    metadata.setdefault("creationTimestamp", call.now)
    if call.kind.namespaced:
        metadata["namespace"] = call.info.namespace
    else:
        metadata.pop("namespace", None)
    if call.kind.generation and call.kind.generation_at_creation:
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)


def keep_system_fields(obj: Object, old: Object) -> None:
    """Copy the immutable system fields from the stored object."""
    metadata, before = obj["metadata"], old["metadata"]
    for name in _KEPT_FIELDS:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata.pop("selfLink", None)
    if "namespace" in before:
        metadata["namespace"] = before["namespace"]
    else:
        metadata.pop("namespace", None)


def bump_generation(kind: Kind, obj: Object, old: Object) -> None:
    """Increment metadata.generation if anything outside metadata (and status) changed."""
    if not (kind.generation and kind.generation_counts):
        return
    if _content(kind, obj) != _content(kind, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _content(kind: Kind, obj: Object) -> Object:
    skipped = {"metadata", "apiVersion", "kind"} | ({"status"} if kind.has_status else set())
    content = {name: value for name, value in obj.items() if name not in skipped}
    if kind.annotations_count:
        content["metadata"] = obj["metadata"].get("annotations") or {}
    return content
