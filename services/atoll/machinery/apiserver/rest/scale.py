"""The scale subresource: an autoscaling/v1 Scale read from and written to an object's own fields."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, look_up
from atoll.machinery.apiserver.call.negotiation import Form
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.body import cannot_be_handled, check_kind, decode_document, media_type, unsupported
from atoll.machinery.apiserver.rest.patch import (
    APPLY,
    JSON_PATCH,
    MERGE,
    applied,
    applied_document,
    decode_operations,
    patch_with,
)
from atoll.machinery.apiserver.rest.update import check_name, plan_replace
from atoll.machinery.apiserver.rest.write import PreparedWrite, StoredObject, WriteContext, own_fields, stored
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native_schemas import NativeSchema
from atoll.machinery.kinds.scales import scale_form, scale_paths, scaled
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import BadRequest, FieldError, InternalError, invalid
from atoll.machinery.patch.managedfields.scale import replicas_path, to_parent, to_scale
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.machinery.storage.contract import Snapshot

_MAX_REPLICAS = 2**31 - 1
_COMPONENT = "io.k8s.api.autoscaling.v1.Scale"
_SCALE = Kind(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    singular="scale",
    builtin=True,
    schema=NativeSchema(_COMPONENT),
    schema_name=_COMPONENT,
)
_CLUSTER_SCALE = replace(_SCALE, namespaced=False)


def scale_of(kind: Kind, obj: Object) -> Object:
    """Return the Scale of an object. Raises InternalError without a replicas field."""
    scale = scale_form(kind, obj)
    if "replicas" not in scale["spec"]:
        path = scale_paths(kind).spec_replicas
        raise InternalError(f'Internal error occurred: the spec replicas field "{path}" does not exist')
    return scale


def get_scale(call: Call, snapshot: Snapshot) -> Reply:
    """Reply to a GET of the scale."""
    record = look_up(call, snapshot, call.info.name)
    if record is None:
        raise errors.not_found(call.kind, call.info.name)
    return reply(call, record.value)


def reply(call: Call, value: bytes) -> Reply:
    """Return the reply with the scale of a stored object."""
    scale = scale_of(call.kind, present.as_object(call.kind, value))
    return present.document(Form(call.form.media_type), scale)


def plan_scale(context: WriteContext) -> PreparedWrite:
    """Plan a PUT or PATCH of the scale: a write and ownership of the replicas field alone."""
    call = context.call
    old = stored(call, context.view, call.info.name)
    if old is None:
        raise errors.not_found(call.kind, call.info.name)
    current = scale_form(call.kind, old.obj)
    paths = {version: replicas_path(path) for version, path in call.kind.replicas.items()}
    if owners := to_scale(old.obj["metadata"].get("managedFields"), paths):
        current["metadata"]["managedFields"] = owners
    on_scale = replace(context, call=replace(call, kind=_on_scale(call.kind)))
    desired = _desired(on_scale, current)
    replicas = _replicas(call, desired)
    entries = desired["metadata"].get("managedFields")
    if call.info.verb == "update" or media_type(call.content_type) != APPLY:
        tracked = {**current, "metadata": dict(current["metadata"]), "spec": {"replicas": replicas}}
        own_fields(on_scale, tracked, current, "scale")
        entries = tracked["metadata"].get("managedFields")
    owned = to_parent(old.obj["metadata"].get("managedFields"), entries, paths, call.kind.api_version)
    return _written(context, old, desired, replicas, owned)


def _on_scale(kind: Kind) -> Kind:
    return _SCALE if kind.namespaced else _CLUSTER_SCALE


def _replicas(call: Call, desired: Object) -> int:
    """Return the desired replicas. Raises BadRequest and Invalid for an invalid number."""
    spec = desired.get("spec") or {}
    replicas = spec.get("replicas") if isinstance(spec, dict) else spec
    if replicas is None:
        if call.info.verb == "update":
            return 0
        raise BadRequest(f'the spec replicas field "{scale_paths(call.kind).spec_replicas}" cannot be empty')
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas > _MAX_REPLICAS:
        served = encode_json(replicas).decode()
        raise BadRequest(f"{cannot_be_handled(_SCALE)}: json: spec.replicas: {served} is no number of 32 bits")
    if replicas < 0:
        detail = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("Scale.autoscaling", call.info.name, [FieldError("FieldValueInvalid", "spec.replicas", detail)])
    return replicas


def _desired(context: WriteContext, current: Object) -> Object:
    """Return the Scale of the body, or the patched current one."""
    call = context.call
    media = media_type(call.content_type)
    if call.info.verb == "update":
        found, _ = decode_document(call.body, call.content_type, call.kind, False)
    elif media == APPLY:
        found = applied(context, current, applied_document(context))
    elif media == MERGE:
        patch, _ = decode_document(call.body, "application/json", call.kind, False)
        found = merge_patch(current, patch)
    elif media == JSON_PATCH:
        found = patch_with(current, decode_operations(call.body))
    else:
        raise unsupported((JSON_PATCH, MERGE, APPLY))
    check_kind(call.kind, found)
    return found


def _written(
    context: WriteContext, old: StoredObject, desired: Object, replicas: int, owned: list[Object]
) -> PreparedWrite:
    call = context.call
    given = desired["metadata"]
    check_name(desired, call.info.name)
    obj = scaled(call.kind, old.obj, replicas)
    obj["metadata"].pop("managedFields", None)
    if owned:
        obj["metadata"]["managedFields"] = owned
    obj["metadata"].pop("resourceVersion", None)
    for name in ("uid", "resourceVersion"):
        if given.get(name) and (call.info.verb == "update" or given[name] != old.obj["metadata"][name]):
            obj["metadata"][name] = given[name]

    prepared = plan_replace(context, obj, old, tracked=True)
    assert prepared.review.obj is not None
    return replace(prepared, answer=ScaleAnswer(call, prepared.review.obj, old.record.revision))


class ScaleAnswer(msgspec.Struct, frozen=True):
    """The Scale of the written object; at `revision` if unchanged."""

    call: Call
    obj: Object
    revision: int

    def reply(self, revisions: Sequence[int]) -> Reply:
        number = revisions[0] if revisions and revisions[0] else self.revision
        written = {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(number)}}
        return present.document(Form(self.call.form.media_type), scale_of(self.call.kind, written))
