"""An object as a client may write it: pruned, defaulted, without what the system or the subresource keeps.

`write` and `update` call it for bodies of clients, and again for each change by mutating policies and webhooks, which
may write no more than a client. Invariant: the system's fields and the field owners are those from before the change.
"""

from __future__ import annotations

from collections.abc import Collection

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.rest.metadata import tidy_metadata
from atoll.machinery.kinds.metadata import dedupe_owner_references, finalizer_warnings
from atoll.machinery.kinds.scales import scaled
from atoll.machinery.meta.objects import Object, annotations_of, spec_of, status_of

_KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "managedFields")


def normalize(call: Call, obj: Object, old: Object | None = None, *, is_plain: bool = False) -> None:
    """Remove fields that clients may not set, unknown fields and repeated owners; apply defaults. `is_plain`: there is
    nothing that the schema removes."""
    kind, metadata = call.kind, obj["metadata"]
    tidy_metadata(obj)
    if kind.schema is not None:
        if is_plain:
            kind.schema.default_plain(obj)
        else:
            kind.schema.normalize(obj)
    if "ownerReferences" in metadata:
        call.warnings.extend(dedupe_owner_references(obj))
    if "finalizers" in metadata:
        call.warnings.extend(finalizer_warnings(obj, kind, old))


def merged_for_subresource(call: Call, obj: Object, old: Object) -> Object:
    """Return the stored object with the fields of the subresource: status, spec.finalizers, or all but status.

    The kind decides about metadata: built-in kinds take labels through /status, custom ones do not.
    """
    kind, subresource = call.kind, call.info.subresource
    if subresource in {"", "scale"}:
        if kind.has_status and not call.whole:
            _copy_field(obj, old, "status")
        return obj
    metadata = _metadata_for(kind.resets.get(subresource, ("metadata",)), obj, old)
    if subresource == "status" and call.restrictions.status_annotations is not None:
        metadata = _annotated(call.restrictions.status_annotations, obj, old)
    result: Object = {**old, "metadata": metadata}
    if subresource == "finalize":
        spec = dict(spec_of(result))
        _copy_field(spec, spec_of(obj), "finalizers")
        result["spec"] = spec
    elif subresource == "approval":
        status = dict(status_of(result))
        _copy_field(status, status_of(obj), "conditions")
        result["status"] = status
    elif (merge := kind.merges.get(subresource)) is not None:
        result = {**merge(obj, old), "metadata": result["metadata"]}
    else:
        _copy_field(result, obj, "status")
    return result


def _metadata_for(resets: Collection[str], obj: Object, old: Object) -> Object:
    """Return the metadata that a subresource takes: all but the fields that it resets; field owners in any case."""
    given, stored = obj["metadata"], old["metadata"]
    metadata = dict(stored if "metadata" in resets else given)
    if "managedFields" in given:
        metadata["managedFields"] = given["managedFields"]
    for path in resets:
        if path.startswith("metadata."):
            _copy_field(metadata, stored, path.removeprefix("metadata."))
    return metadata


def _annotated(names: Collection[str], obj: Object, old: Object) -> Object:
    """Return the stored metadata with these annotations of an object; field owners in any case."""
    given = {name: value for name, value in annotations_of(obj).items() if name in names}
    metadata = _metadata_for(("metadata",), obj, old)
    if given:
        metadata["annotations"] = {**annotations_of(old), **given}
    return metadata


def _copy_field(target: Object, source: Object, name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def normalize_new(call: Call, changed: Object, before: Object) -> Object:
    """Return a new object as admission changed it."""
    _keep(changed, before)
    if call.kind.has_status and not (call.whole or call.kind.status_at_creation):
        _copy_field(changed, before, "status")
    call.kind.prepare_create(changed)
    normalize(call, changed)
    return changed


def normalize_update(call: Call, old: Object, changed: Object, before: Object) -> Object:
    """Return an object as admission changed it during an update of `old`; of /scale, `changed` is a Scale."""
    if call.info.subresource == "scale":
        spec = changed.get("spec")
        return scaled(call.kind, before, spec.get("replicas") if isinstance(spec, dict) else None)
    _keep(changed, before)
    found = merged_for_subresource(call, changed, before)
    if not call.info.subresource:
        call.kind.prepare_update(found, old)
    normalize(call, found, old)
    return found


def _keep(changed: Object, before: Object) -> None:
    changed["apiVersion"], changed["kind"] = before["apiVersion"], before["kind"]
    metadata = changed["metadata"]
    for name in _KEPT:
        _copy_field(metadata, before["metadata"], name)
