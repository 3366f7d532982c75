"""POST: plan the creation of an object from the client's body."""

from __future__ import annotations

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.rest.body import decode_new
from atoll.machinery.apiserver.rest.metadata import stamp_new, wipe_system_fields
from atoll.machinery.apiserver.rest.write import PreparedWrite, WriteContext, prepare_create
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, ApiError, BadRequest, Details, FieldError, invalid
from atoll.machinery.meta.uids import random_number

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_PAIRS = [first + second for first in _SUFFIX_ALPHABET for second in _SUFFIX_ALPHABET]
_PREFIX_LENGTH = 58
GENERATE_ATTEMPTS = 8


def plan_create(context: WriteContext) -> PreparedWrite:
    """Plan a create. Raises AlreadyExists and the client's errors.

    A generated name that exists is generated again, up to eight times.
    """
    obj, is_plain = decode_new(context.call, context.options.validation)
    return plan_new(context, obj, is_plain=is_plain)


def plan_new(context: WriteContext, obj: Object, *, tracked: bool = False, is_plain: bool = False) -> PreparedWrite:
    """Plan the creation of a decoded object; PUT and apply use it for a missing object. `is_plain`: it is known to be
    valid and to need defaults at most."""
    call = context.call
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise ApiError("resourceVersion should not be set on objects to be created", code=500, reason="")
    check_namespace(context, obj)
    if not call.whole:
        wipe_system_fields(obj)
    stamp_new(call, obj)
    is_generated = not metadata.get("name")
    if is_generated:
        _generate_name(context, obj)
    if call.kind.has_status and not (call.whole or call.kind.status_at_creation):
        obj.pop("status", None)
    call.kind.prepare_create(obj)
    if not is_generated:
        name = metadata["name"]
        record = context.view.get(call.key(name))
        if record is not None:
            raise errors.already_exists(call.kind, name, decode(record.value))
    return prepare_create(context, obj, tracked=tracked, has_generated_name=is_generated, is_plain=is_plain)


def check_namespace(context: WriteContext, obj: Object) -> None:
    """Check that the body's namespace is the URL's, or empty; cluster-scoped kinds have none."""
    call = context.call
    namespace = obj["metadata"].get("namespace") or ""
    if call.kind.namespaced and namespace and namespace != call.info.namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")


def _suffix() -> str:
    """Return five random characters of Kubernetes' alphabet, which has no vowels, to avoid words."""
    drawn, pairs = random_number(), len(_PAIRS)
    rest = drawn // (pairs * pairs)
    return _PAIRS[drawn % pairs] + _PAIRS[drawn // pairs % pairs] + _SUFFIX_ALPHABET[rest % len(_SUFFIX_ALPHABET)]


def _generate_name(context: WriteContext, obj: Object) -> None:
    """Set a name made from generateName."""
    metadata = obj["metadata"]
    prefix = metadata.get("generateName")
    if not prefix:
        detail = "Required value: name or generateName is required"
        error = FieldError("FieldValueRequired", "metadata.name", detail)
        raise invalid(context.call.kind.group_kind, "", [error])
    if not isinstance(prefix, str):
        raise BadRequest("metadata.generateName must be a string")
    attempt = context.call.attempt
    for _ in range(GENERATE_ATTEMPTS):
        known = attempt.generated_name if attempt is not None else ""
        metadata["name"] = known or prefix[:_PREFIX_LENGTH] + _suffix()
        is_free = context.view.get(context.call.key(metadata["name"])) is None
        if attempt is not None:
            attempt.generated_name = metadata["name"] if is_free else ""
        if is_free:
            return
    kind = context.call.kind
    raise AlreadyExists(
        f'{kind.group_resource} "{metadata["name"]}" already exists, the server was not able to generate a unique '
        "name for the object",
        Details(metadata["name"], kind.group, kind.plural, retry_after_s=1),
    )
