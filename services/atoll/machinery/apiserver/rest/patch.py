"""PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

A patch is applied to the latest object in the request's version and then planned as an update; an apply to a missing
object is planned as a create.
"""

from __future__ import annotations

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.options import boolean
from atoll.machinery.apiserver.catalog.merge_types import patch_schema_of, reset_of, schemas_of, type_schema_of
from atoll.machinery.apiserver.rest.body import check_kind, decode_text, field_problems, media_type, unsupported
from atoll.machinery.apiserver.rest.create import check_namespace, plan_new
from atoll.machinery.apiserver.rest.metadata import strip_claims, strip_cluster
from atoll.machinery.apiserver.rest.update import check_name, plan_replace
from atoll.machinery.apiserver.rest.write import PreparedWrite, StoredObject, WriteContext, stored
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import BadRequest, FieldError, UnsupportedMediaType, invalid
from atoll.machinery.patch.errors import UndecodablePatch
from atoll.machinery.patch.json_patch import apply_json_patch, check_operations, unknown_operation_fields
from atoll.machinery.patch.managedfields.apply import apply_patch
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import ApplyOptions
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.machinery.patch.strategicmerge.merge import strategic_merge
from atoll.machinery.patch.structuredmerge.validation import kind_text, typed_patch_error
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.decoding.document import MAX_DEPTH, DecodeError, is_too_deep
from atoll.machinery.schema.decoding.json_decoder import decode_json

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_OPTIONS_KIND = "PatchOptions.meta.k8s.io"


def accepted(context: WriteContext) -> tuple[str, ...]:
    """Return the patch types of a kind; strategic merge patches are for kinds that clients have types of."""
    types = (JSON_PATCH, MERGE, APPLY)
    return (JSON_PATCH, MERGE, STRATEGIC, APPLY) if context.call.kind.is_kubernetes else types


def plan_patch(context: WriteContext) -> PreparedWrite:
    """Plan a PATCH. Raises UnsupportedMediaType, NotFound, Invalid, Conflict, BadRequest."""
    call = context.call
    media = call.content_type
    if media != MERGE:
        media = media_type(media) if media else ""
        if media not in accepted(context):
            raise _unsupported(context)
    if media == APPLY:
        return plan_apply(context)
    if context.options.force is not None:
        raise _options_error("force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch")
    old = stored(call, context.view, call.info.name)
    if old is None:
        raise errors.not_found(call.kind, call.info.name)
    base = old.copied(call.kind)
    strip_cluster(base)
    checkpoint()
    obj = _patched(context, media, base)
    checkpoint()
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise BadRequest("the patched document is not an object with metadata")
    is_plain = _check_patched(context, obj)
    if obj["metadata"].get("name") != call.info.name:
        check_name(obj, call.info.name)
    check_kind(call.kind, obj)
    _drop_own_version(obj, old)
    return plan_replace(context, obj, old, is_plain=is_plain)


def _drop_own_version(obj: Object, old: StoredObject) -> None:
    """Remove the revision that a patch was applied to: it is not a precondition of the client.

    After a conflict the patch is applied again to the newer object; a revision named by the patch itself then
    differs.
    """
    if obj["metadata"].get("resourceVersion") == str(old.record.revision):
        del obj["metadata"]["resourceVersion"]


def _unsupported(context: WriteContext) -> UnsupportedMediaType:
    return unsupported(accepted(context))


def _options_error(field: str, type: str, detail: str) -> Exception:
    return invalid(_OPTIONS_KIND, "", [FieldError(type, field, detail)])


def _patched(context: WriteContext, media: str, base: Object) -> Object:
    call, kind = context.call, context.call.kind
    if media == JSON_PATCH:
        operations = decode_operations(call.body)
        _check_operations(context, operations)
        return patch_with(base, operations)
    patch = _patch_document(context)
    # A resourceVersion in the patch is a precondition; base has the stored one.
    if media == MERGE:
        return merge_patch(base, patch)
    return strategic_merge(base, patch, patch_schema_of(kind))


def _patch_document(context: WriteContext) -> Object:
    try:
        decoded = decode_json(context.call.body, find_duplicates=context.options.validation != "Ignore")
    except DecodeError as error:
        raise BadRequest(f"error decoding patch: {error}") from error
    if not isinstance(decoded.value, dict):
        raise BadRequest("error decoding patch: the patch is not an object")
    if decoded.duplicate_keys:
        texts = [f'duplicate field "{path}"' for path in decoded.duplicate_keys]
        if context.options.validation == "Strict":
            raise _strict(context, decoded.value, texts)
        context.call.warnings.extend(texts)
    return decoded.value


def decode_operations(body: bytes) -> list[Object]:
    """Decode the operations of a JSON patch. Raises UndecodablePatch, TooManyOperations."""
    try:
        return check_operations(decode_json(body).value)
    except DecodeError as error:
        raise UndecodablePatch(f"error decoding patch: {error}") from error


def patch_with(base: Object, operations: list[Object]) -> Object:
    """Return the patched object. Raises BadRequest if it is nested too deep, and the errors of `apply_json_patch`.

    The other patches merge, and are no deeper than the object and the patch, which were checked when decoded.
    """
    patched = apply_json_patch(base, operations)
    if is_too_deep(patched, MAX_DEPTH):
        raise BadRequest(f"the patched document is nested deeper than {MAX_DEPTH} levels")
    return patched


def _check_operations(context: WriteContext, operations: list[Object]) -> None:
    unknown = [f'json patch unknown field "{path}"' for path in unknown_operation_fields(operations)]
    if unknown and context.options.validation == "Strict":
        raise BadRequest(f"strict decoding error: {', '.join(unknown)}")
    if context.options.validation == "Warn":
        context.call.warnings.extend(unknown)


def _check_patched(context: WriteContext, obj: Object) -> bool:
    """Reject unknown fields, or warn of them. Return whether the object is known to be valid and to need defaults at
    most."""
    schema, validation = context.call.kind.schema, context.options.validation
    if validation != "Ignore" and schema is not None and schema.is_plain(obj):
        return True
    problems = field_problems(context.call.kind, obj, [], validation)
    if problems and validation == "Strict":
        raise _strict(context, obj, problems)
    context.call.warnings.extend(problems)
    return False


def _strict(context: WriteContext, obj: Object, problems: list[str]) -> Exception:
    served = encode_json(encode_json(obj).decode()).decode()
    detail = f"Invalid value: {served}: strict decoding error: {', '.join(problems)}"
    error = FieldError("FieldValueInvalid", "patch", detail)
    return invalid(context.call.kind.group_kind, context.call.info.name, [error])


def plan_apply(context: WriteContext) -> PreparedWrite:
    """Plan a server-side apply; a missing object is created, given permission."""
    call, kind = context.call, context.call.kind
    patch = applied_document(context)
    strip_claims(patch)
    old = stored(call, context.view, call.info.name)
    if old is None:
        if call.info.subresource:
            raise errors.not_found(kind, call.info.name)
        if "create" not in kind.verbs:
            raise errors.method_not_allowed()
        if not call.may("create"):
            raise errors.forbidden(kind, call.info.name, f'User "{call.user.name}" cannot create it by an apply')
        if patch["metadata"].get("uid"):
            uid = patch["metadata"]["uid"]
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(kind, call.info.name, text)
    merged = applied(context, _live(old, kind), patch)
    if old is None:
        merged["metadata"].pop("resourceVersion", None)
        return plan_new(context, merged, tracked=True)
    for name in ("uid", "resourceVersion"):
        if patch["metadata"].get(name):
            merged["metadata"][name] = patch["metadata"][name]
    _drop_own_version(merged, old)
    return plan_replace(context, merged, old, tracked=True)


def applied(context: WriteContext, live: Object | None, patch: Object) -> Object:
    """Return the live object merged with an applied document and its managed fields."""
    call, kind = context.call, context.call.kind
    who = Manager(context.options.manager, "Apply", kind.api_version, call.info.subresource)
    options = ApplyOptions(
        force=bool(context.options.force),
        now=call.now,
        reset=reset_of(kind, call.info.subresource),
        convert=kind.convert,
        schemas=schemas_of(kind),
    )
    return apply_patch(live, patch, who, type_schema_of(kind), options)


def _live(old: StoredObject | None, kind: Kind) -> Object | None:
    if old is None:
        return None
    live = old.copied(kind)
    strip_cluster(live)
    return live


def applied_document(context: WriteContext) -> Object:
    """Return the body of an apply, checked against the URL's kind and name. Raises BadRequest, Invalid."""
    call = context.call
    if not call.info.query.get("fieldManager"):
        raise _options_error("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
    boolean(call.info.query, "force")
    try:
        decoded = decode_text(call.body)
    except DecodeError as error:
        raise BadRequest(f"error decoding YAML: {error}") from error
    patch = decoded.value
    if not isinstance(patch, dict):
        raise BadRequest("error decoding YAML: the patch is not an object")
    if (patch.get("apiVersion"), patch.get("kind")) != (call.kind.api_version, call.kind.kind):
        raise BadRequest(f"invalid object type: {kind_text(patch)}")
    if patch.get("metadata") is None:
        patch["metadata"] = {}
    if not isinstance(patch["metadata"], dict):
        raise typed_patch_error(patch, type_schema_of(call.kind).root)
    _check_duplicates(context, decoded.duplicate_keys)
    check_name(patch, call.info.name)
    check_namespace(context, patch)
    strip_cluster(patch)
    return patch


def _check_duplicates(context: WriteContext, duplicates: list[str]) -> None:
    """Handle duplicate fields. Apply itself rejects unknown ones, under any validation."""
    texts = [path if path.startswith("line ") else f'duplicate field "{path}"' for path in duplicates]
    if texts and context.options.validation == "Strict":
        raise BadRequest(f"error strict decoding YAML: {', '.join(texts)}")
    if context.options.validation == "Warn":
        context.call.warnings.extend(texts)
