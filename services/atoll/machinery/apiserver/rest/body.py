"""Request bodies to objects: JSON, YAML and Kubernetes protobuf, with field validation.

Create, update and apply decode through here; errors have Kubernetes' texts. Nothing is cached; the HTTP server bounds
bodies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.negotiation import JSON, PROTOBUF, YAML
from atoll.machinery.kinds import protobuf
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.decoding.document import DecodeError, Document
from atoll.machinery.schema.decoding.json_decoder import decode_json
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml

_ACCEPTED = (JSON, YAML, PROTOBUF)
#: Decoding YAML takes a second per MiB.
MAX_YAML = 1 << 20
#: Limit of options, reviews and token requests, which are decoded at once.
MAX_SMALL = 64 * 1024


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header, JSON if absent."""
    return content_type.partition(";")[0].strip().lower() or JSON


def unsupported(accepted: tuple[str, ...]) -> UnsupportedMediaType:
    """415 that lists the accepted media types."""
    known = ", ".join(accepted)
    return UnsupportedMediaType(
        f"the body of the request was in an unknown format - accepted media types include: {known}"
    )


def check_small(call: Call) -> None:
    """Check the size of a body that is not an object to store. Raises RequestEntityTooLarge."""
    if len(call.body) > MAX_SMALL:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_SMALL}")


def decode_body(call: Call, validation: str) -> Object:
    """Decode the object of a create or an update, in the call's kind and version, with `validation` of its fields.

    Raises BadRequest, UnsupportedMediaType. Returns a fresh tree that the caller may change.
    """
    return decode_new(call, validation)[0]


def decode_new(call: Call, validation: str) -> tuple[Object, bool]:
    """Return `decode_body`, and whether the object is known to be valid and to need defaults at most."""
    if call.obj is not None:
        return _in_version(call.kind, _copied(call.kind, call.obj)), False
    obj, duplicates = decode_document(call.body, call.content_type, call.kind, validation != "Ignore")
    check_kind(call.kind, obj)
    return obj, check_fields(call, obj, duplicates, validation)


def _copied(kind: Kind, obj: Object) -> Object:
    """Return a copy deep enough for handlers: they replace subtrees below spec and change metadata in place.

    Who creates an object of a kind without a schema, which are the largest, gives its spec away.
    """
    from atoll.machinery.meta.objects import decode, encode_json

    if kind.schema is None and "spec" in obj:
        return {**decode(encode_json({**obj, "spec": None})), "spec": obj["spec"]}
    return decode(encode_json(obj))


def _in_version(kind: Kind, obj: Object) -> Object:
    """Return an object of an in-process caller in the kind's version; it may be in the stored version."""
    if kind.convert is None or obj.get("apiVersion") in {None, kind.api_version}:
        return obj
    return kind.convert(obj, kind.api_version)


def decode_document(data: bytes, content_type: str, kind: Kind, find_duplicates: bool) -> tuple[Object, list[str]]:
    """Decode an object, and list its duplicate fields. Raises BadRequest, UnsupportedMediaType."""
    media = JSON if content_type == JSON else media_type(content_type)
    try:
        if media == JSON:
            decoded = decode_json(data, find_duplicates=find_duplicates)
        elif media == YAML:
            decoded = decode_text(data)
        elif media == PROTOBUF and has_message(kind):
            return protobuf.decode(data), []
        else:
            raise unsupported(_ACCEPTED if has_message(kind) else (JSON, YAML))
    except (DecodeError, protobuf.DecodeProtobufError) as error:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind.kind}): {error} ({_start(data)})"
        ) from error
    if not isinstance(decoded.value, dict):
        raise BadRequest(f"the object provided is unrecognized (must be of type {kind.kind}): it is not an object")
    return decoded.value, decoded.duplicate_keys


def decode_text(data: bytes) -> Document:
    """Decode YAML; most is JSON, which costs a hundredth. Raises DecodeError, RequestEntityTooLarge."""
    if data.lstrip().startswith(b"{"):
        with contextlib.suppress(DecodeError, UnicodeDecodeError):
            data.decode()  # JSON takes malformed characters, YAML does not
            return decode_json(data, find_duplicates=True)
    if len(data) > MAX_YAML:
        raise RequestEntityTooLarge(f"Request entity too large: limit of a YAML body is {MAX_YAML}")
    return decode_yaml(data)


def has_message(kind: Kind) -> bool:
    """Return whether a kind has a message in Kubernetes protobuf."""
    return kind.builtin or (kind.is_kubernetes and protobuf.has_message(kind.api_version, kind.kind))


def _start(data: bytes) -> str:
    return data[:24].hex() + (" ..." if len(data) > 24 else "")


def check_kind(kind: Kind, obj: Object) -> None:
    """Check apiVersion and kind against the URL's; a built-in kind may leave both out."""
    api_version, name = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(name, str) or not name:
        if not kind.builtin:
            raise BadRequest("Object 'Kind' is missing in the object provided")
        obj["kind"] = name = kind.kind
    if not isinstance(api_version, str) or not api_version:
        if not kind.builtin:
            raise BadRequest("Object 'apiVersion' is missing in the object provided")
        obj["apiVersion"] = api_version = kind.api_version
    if name != kind.kind:
        raise BadRequest(f'{name} in version "{api_version}" cannot be handled as a {kind.kind}: kinds differ')
    if api_version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    try:
        msgspec.convert(obj["metadata"], _Metadata)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{cannot_be_handled(kind)}: json: {str(error).replace('$', 'metadata')}") from error


def cannot_be_handled(kind: Kind) -> str:
    """Return the start of the error text for a document that does not fit the types of its kind."""
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


class _Owner(msgspec.Struct):
    apiVersion: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class _Metadata(msgspec.Struct):
    """Types of metadata, which later steps rely on; null means absent."""

    name: str | None = None
    generateName: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    selfLink: str | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    generation: int | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[_Owner] | None = None
    managedFields: list[dict[str, object]] | None = None


def check_fields(call: Call, obj: Object, duplicates: list[str], validation: str) -> bool:
    """Handle unknown and duplicate fields, in document order: reject (Strict) or warn (Warn). Return whether the object
    is known to be valid and to need defaults at most."""
    schema = call.kind.schema
    is_plain = validation != "Ignore" and schema is not None and schema.is_plain(obj)
    if is_plain and not duplicates:
        return True
    problems = field_problems(call.kind, obj, duplicates, validation)
    if not problems:
        return is_plain
    if validation == "Strict":
        kind = call.kind
        raise BadRequest(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(problems)}"
        )
    call.warnings.extend(problems)
    return is_plain


def field_problems(kind: Kind, obj: Object, duplicates: list[str], validation: str) -> list[str]:
    """Return `unknown field "x"` and `duplicate field "y"` texts in document order; none under Ignore."""
    if validation == "Ignore" or kind.schema is None:
        return []
    unknown = kind.schema.unknown_fields(obj)
    checkpoint()
    if not unknown and not duplicates:
        return []
    duplicates = list(dict.fromkeys(duplicates))
    texts = {path: f'unknown field "{path}"' for path in unknown}
    texts.update({path: f'duplicate field "{path}"' for path in duplicates if not path.startswith("line ")})
    order = {path: index for index, path in enumerate(_paths(obj, ""))}
    ordered = [texts[path] for path in sorted(texts, key=lambda path: order.get(path, len(order)))]
    return [path for path in duplicates if path.startswith("line ")] + ordered


def _paths(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, child in value.items():
            below = f"{path}.{name}" if path else str(name)
            yield below
            yield from _paths(child, below)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _paths(child, f"{path}[{index}]")
