"""Migration from client-side to server-side apply: the `last-applied-configuration` annotation of kubectl.

`apply` calls it for the field manager `kubectl` only, as in Kubernetes. Invariant: a conflict is waived only for a
field that still has the value that client-side apply set.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.objects import Object, annotations_of, encode_json
from atoll.machinery.patch.fieldset import EMPTY, FieldSet, difference
from atoll.machinery.patch.structuredmerge.comparison import compare
from atoll.machinery.patch.structuredmerge.fieldset_builder import to_set
from atoll.machinery.patch.structuredmerge.topology import Type

KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS_BYTES = 256 * 1024


def client_applied_fields(live: Object, root: Type) -> FieldSet:
    """Return the fields of the last client-side apply whose values live still has; empty without the annotation."""
    text = annotations_of(live).get(LAST_APPLIED)
    if not isinstance(text, str) or not text:
        return EMPTY
    try:
        applied = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return EMPTY
    if not isinstance(applied, dict) or applied.get("apiVersion") != live.get("apiVersion"):
        return EMPTY
    fields = to_set(applied, root)
    compared = compare(applied, live, root)
    for changed in (compared.added, compared.modified, compared.removed):
        fields = difference(fields, changed)
    return fields


def refresh_annotation(obj: Object, patch: Object) -> None:
    """Update the annotation of an object that has one to the patch, so that client-side apply stays usable.

    The annotation is removed when it would take the annotations above 256 KiB in total. `obj` gets new metadata; the
    old one is not modified.
    """
    annotations = obj["metadata"].get("annotations")
    if not annotations or not annotations.get(LAST_APPLIED):
        return
    annotations = {**annotations, LAST_APPLIED: _text(patch)}
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size_bytes > _MAX_ANNOTATIONS_BYTES:
        del annotations[LAST_APPLIED]
    obj["metadata"] = {**obj["metadata"], "annotations": annotations}


def _text(patch: Object) -> str:
    metadata = patch.get("metadata") or {}
    annotations = metadata.get("annotations")
    if annotations and LAST_APPLIED in annotations:
        rest = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
        patch = {**patch, "metadata": {**metadata, "annotations": rest}}
    return encode_json(patch).decode() + "\n"
