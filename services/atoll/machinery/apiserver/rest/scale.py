"""The scale subresource: an autoscaling/v1 Scale read from and written to an object's own fields."""

from __future__ import annotations

from atoll.machinery.apiserver import errors
from atoll.machinery.apiserver.call import Call, Plan, Reply
from atoll.machinery.apiserver.negotiation import Form
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.body import decode_document, media_type, unsupported
from atoll.machinery.apiserver.rest.patch import JSON_PATCH, MERGE
from atoll.machinery.apiserver.rest.update import plan_replace
from atoll.machinery.apiserver.rest.write import Stored, Writing, stored
from atoll.machinery.kinds.kind import Kind, Scale
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import BadRequest, FieldError, InternalError, invalid
from atoll.machinery.patch.json_patch import apply_json_patch, decode_json_patch
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.machinery.storage.contract import Snapshot

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_SCALE = Kind(group="autoscaling", version="v1", kind="Scale", plural="scales", singular="scale", builtin=True)


def _paths(kind: Kind) -> Scale:
    if kind.scale is None:
        raise InternalError(f"Internal error occurred: {kind.group_resource} has no scale")
    return kind.scale


def _read(obj: Object, path: str) -> object:
    value: object = obj
    for name in path.removeprefix(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def scale_of(kind: Kind, obj: Object) -> Object:
    """The Scale of an object. Raises InternalError where it has no replicas field."""
    paths = _paths(kind)
    replicas = _read(obj, paths.spec_replicas)
    if not isinstance(replicas, int):
        raise InternalError(
            f'Internal error occurred: the spec replicas field "{paths.spec_replicas}" does not exist'
        )
    status: Object = {"replicas": _read(obj, paths.status_replicas) or 0}
    if paths.label_selector:
        status["selector"] = _read(obj, paths.label_selector) or ""
    metadata = {name: obj["metadata"][name] for name in _META if name in obj["metadata"]}
    return {
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": replicas}, "status": status,
    }  # fmt: skip


def get_scale(call: Call, snapshot: Snapshot) -> Reply:
    """GET of the scale."""
    record = snapshot.get(call.key(call.info.name))
    if record is None:
        raise errors.not_found(call.kind, call.info.name)
    scale = scale_of(call.kind, present.as_object(call.kind, record.value))
    return present.document(Form(call.form.media_type), scale)


def plan_scale(writing: Writing) -> Plan:
    """PUT or PATCH of the scale: a write of the object's replicas field alone."""
    call = writing.call
    old = stored(call, writing.view, call.info.name)
    if old is None:
        raise errors.not_found(call.kind, call.info.name)
    current = scale_of(call.kind, old.obj)
    desired = _desired(writing, current)
    replicas = (desired.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        detail = f"Invalid value: {encode_json(replicas).decode()}: must be greater than or equal to 0"
        error = FieldError("FieldValueInvalid", "spec.replicas", detail)
        raise invalid("Scale.autoscaling", call.info.name, [error])
    return _written(writing, old, desired, replicas)


def _desired(writing: Writing, current: Object) -> Object:
    call = writing.call
    if call.info.verb == "update":
        body, _ = decode_document(call.body, call.content_type, _SCALE, False)
        return body
    media = media_type(call.content_type)
    if media == MERGE:
        patch, _ = decode_document(call.body, "application/json", _SCALE, False)
        return merge_patch(current, patch)
    if media == JSON_PATCH:
        return apply_json_patch(current, decode_json_patch(call.body))
    raise unsupported((JSON_PATCH, MERGE))


def _written(writing: Writing, old: Stored, desired: Object, replicas: int) -> Plan:
    call, kind = writing.call, writing.call.kind
    given = desired.get("metadata") or {}
    if given.get("name", call.info.name) != call.info.name:
        text = f"the name of the object ({given['name']}) does not match the name on the URL ({call.info.name})"
        raise BadRequest(text)
    obj = decode(encode_json(old.obj))
    holder = obj
    *parents, leaf = _paths(kind).spec_replicas.removeprefix(".").split(".")
    for name in parents:
        holder = holder.setdefault(name, {})
    holder[leaf] = replicas
    obj["metadata"].pop("resourceVersion", None)
    for name in ("uid", "resourceVersion"):
        if given.get(name) and (call.info.verb == "update" or given[name] != old.obj["metadata"][name]):
            obj["metadata"][name] = given[name]
    plan = plan_replace(writing, obj, old)

    def reply(revisions: object) -> Reply:
        assert isinstance(revisions, list | tuple)
        written = decode(encode_json(obj))
        number = revisions[0] if revisions and revisions[0] else old.record.revision
        written["metadata"]["resourceVersion"] = str(number)
        return present.document(Form(call.form.media_type), scale_of(kind, written))

    return Plan(mutations=plan.mutations, guards=plan.guards, reply=reply, blind=plan.blind)
