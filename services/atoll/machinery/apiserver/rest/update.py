"""PUT: replace the stored object, or a subresource of it."""

from __future__ import annotations

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.rest.body import decode_new
from atoll.machinery.apiserver.rest.create import check_namespace, plan_new
from atoll.machinery.apiserver.rest.metadata import keep_system_fields
from atoll.machinery.apiserver.rest.normalization import merged_for_subresource
from atoll.machinery.apiserver.rest.write import PreparedWrite, StoredObject, WriteContext, prepare_update, stored
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest, FieldError, NotFound, invalid
from atoll.machinery.process.time_slicing import checkpoint


def plan_update(context: WriteContext) -> PreparedWrite:
    """Plan a PUT on an object or on one of its subresources. Raises NotFound, Conflict, Invalid."""
    call = context.call
    obj, is_plain = decode_new(call, context.options.validation)
    check_name(obj, call.info.name)
    check_namespace(context, obj)
    checkpoint()
    old = stored(call, context.view, call.info.name)
    if old is None:
        return _missing(context, obj)
    version = obj["metadata"].get("resourceVersion") or ""
    if not version and not call.kind.unconditional_update and not call.info.subresource:
        detail = "Invalid value: 0x0: must be specified for an update"
        error = FieldError("FieldValueInvalid", "metadata.resourceVersion", detail)
        raise invalid(call.kind.group_kind, call.info.name, [error])
    return plan_replace(context, obj, old, is_plain=is_plain)


def check_name(obj: Object, name: str) -> None:
    """Check that the body's name is the URL's."""
    given = obj["metadata"].setdefault("name", name)
    if given != name:
        raise BadRequest(f"the name of the object ({given}) does not match the name on the URL ({name})")


def check_preconditions(context: WriteContext, obj: Object, old: StoredObject) -> bool:
    """Check uid and resourceVersion of a body against the stored object; return whether it has a resourceVersion."""
    call, metadata, before = context.call, obj["metadata"], old.obj["metadata"]
    uid, version = metadata.get("uid"), metadata.get("resourceVersion") or ""
    if uid and uid != before["uid"]:
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
        raise errors.conflict(call.kind, call.info.name, text)
    if version and version != str(old.record.revision):
        raise errors.modified(call.kind, call.info.name)
    return bool(version)


def plan_replace(
    context: WriteContext, obj: Object, old: StoredObject, *, tracked: bool = False, is_plain: bool = False
) -> PreparedWrite:
    """Plan the replacement of the stored object, or of the fields of the subresource, by `obj`. `is_plain`: that is
    known to be valid and to need defaults at most."""
    call, subresource = context.call, context.call.info.subresource
    versioned = check_preconditions(context, obj, old)
    obj = merged_for_subresource(call, obj, old.obj)
    keep_system_fields(obj, old.obj)
    if not subresource:
        call.kind.prepare_update(obj, old.obj)
    # The stored status may be of another schema.
    is_plain = is_plain and not subresource and (call.whole or not call.kind.has_status or "status" not in obj)
    return prepare_update(context, obj, old, tracked=tracked, blind=not versioned, is_plain=is_plain)


def _missing(context: WriteContext, obj: Object) -> PreparedWrite:
    """Plan a PUT of a missing object: some kinds create it, given permission. Raises NotFound for the others.

    A body with a uid replaces that object alone: it raises Conflict, so that what was deleted meanwhile stays deleted.
    """
    call = context.call
    missing: NotFound = errors.not_found(call.kind, call.info.name)
    if not call.kind.update_creates or call.info.subresource:
        raise missing
    if uid := obj["metadata"].get("uid"):
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
        raise errors.conflict(call.kind, call.info.name, text)
    if not call.may("create"):
        raise errors.forbidden(call.kind, call.info.name, f'User "{call.user.name}" cannot create it by an update')
    obj["metadata"].pop("resourceVersion", None)
    return plan_new(context, obj)
