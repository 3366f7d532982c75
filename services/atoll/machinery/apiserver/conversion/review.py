"""ConversionReview, v1 and v1beta1: encoding of the request, validation of the response.

`conversions` calls both sides around one webhook call. Invariant: only content, labels and annotations of the response
are used; other metadata is kept, and a response that renames, reorders or loses an object is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from atoll.machinery.apiserver.call.call import MAX_BODY
from atoll.machinery.kinds.conversion import Conversion
from atoll.machinery.meta import labels, wellknown
from atoll.machinery.meta.objects import Object, decode, encode_json

REVIEW_VERSIONS = ("v1", "v1beta1")
MAX_MESSAGE = 1024
_GROUP = "apiextensions.k8s.io"
_SAME = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))

CALL, MALFORMED, PARTIAL, INVALID = (
    "webhook_call_failure",
    "malformed_response_failure",
    "partial_response_failure",
    "invalid_converted_object_failure",
)


class ReviewError(Exception):
    """An invalid response. `failure` is the label of the metric; the text follows the kind in the error."""

    def __init__(self, failure: str, text: str) -> None:
        super().__init__(text)
        self.failure = failure


def version_of(reviews: Sequence[str]) -> str:
    """Return the first supported version listed, as in Kubernetes; v1 if there is none."""
    return next((version for version in reviews if version in REVIEW_VERSIONS), REVIEW_VERSIONS[0])


def request(version: str, uid: str, api_version: str, values: Sequence[bytes]) -> bytes:
    """Encode a ConversionReview request for JSON objects in another version."""
    head = b'{"kind":"ConversionReview","apiVersion":"%b/%b","request":{"uid":"%b","desiredAPIVersion":%b,"objects":['
    lead = head % (_GROUP.encode(), version.encode(), uid.encode(), encode_json(api_version))
    return lead + b",".join(values) + b"]}}"


class _Result(msgspec.Struct):
    status: Any = None
    message: Any = None


class _Response(msgspec.Struct):
    uid: Any = ""
    convertedObjects: list[msgspec.Raw] | None = None
    result: _Result | None = None


class _Review(msgspec.Struct):
    apiVersion: Any = ""
    kind: Any = ""
    response: _Response | None = None


_decoder = msgspec.json.Decoder(_Review)


def objects(version: str, uid: str, body: bytes, count: int) -> list[msgspec.Raw]:
    """Return the converted objects of a response, as many as sent, undecoded. Raises ReviewError."""
    try:
        answer = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReviewError(MALFORMED, f"failed: the response is no ConversionReview: {error}") from error
    response, expected = answer.response, f"{_GROUP}/{version}"
    # Kubernetes verifies neither in v1beta1.
    if version == "v1" and (answer.apiVersion, answer.kind) != (expected, "ConversionReview"):
        text = f"expected webhook response of {expected}, Kind=ConversionReview"
        raise ReviewError(MALFORMED, f"failed: {text}, got {_short(answer.apiVersion)}, Kind={_short(answer.kind)}")
    if response is None:
        raise ReviewError(MALFORMED, "failed: no response provided")
    if version == "v1" and response.uid != uid:
        raise ReviewError(MALFORMED, f'failed: expected response.uid="{uid}", got "{_short(response.uid)}"')
    result = response.result or _Result()
    if result.status != "Success":
        told = _short(result.message) or f"response.result.status was '{_short(result.status)}', not 'Success'"
        raise ReviewError(MALFORMED, f"failed: {told}")
    converted = response.convertedObjects or []
    if len(converted) != count:
        raise ReviewError(PARTIAL, f"returned {len(converted)} objects, expected {count}")
    return converted


def _short(value: Any) -> str:
    """Return a webhook's text, truncated for an error."""
    return str(value)[:MAX_MESSAGE] if value else ""


def adopted(conversion: Conversion, original: bytes, converted: msgspec.Raw, api_version: str, index: int) -> bytes:
    """Return a converted object with the original's metadata, pruned and defaulted, as JSON. Raises ReviewError."""
    where = f"returned invalid converted object at index {index}:"
    try:
        obj = _adopt(conversion, decode(original), decode(bytes(converted)), api_version, index)
    except RecursionError as error:
        raise ReviewError(INVALID, f"{where} it is nested too deeply") from error
    value = encode_json(obj)
    if len(value) > MAX_BODY:
        raise ReviewError(INVALID, f"{where} it is larger than {MAX_BODY} bytes")
    return value


def _adopt(conversion: Conversion, original: Object, converted: Any, api_version: str, index: int) -> Object:
    where = f"returned invalid converted object at index {index}:"
    if not isinstance(converted, dict):
        raise ReviewError(INVALID, f"{where} it is not an object")
    if converted.get("apiVersion") != api_version:
        text = f"invalid groupVersion (expected {api_version}, received {converted.get('apiVersion') or ''})"
        raise ReviewError(INVALID, f"{where} {text}")
    if converted.get("kind") != original.get("kind"):
        text = f"invalid kind (expected {original.get('kind')}, received {converted.get('kind') or ''})"
        raise ReviewError(INVALID, f"{where} {text}")
    metadata, before = converted.get("metadata"), original["metadata"]
    if not isinstance(metadata, dict):
        raise ReviewError(INVALID, f"{where} missing metadata in converted object")
    for name, shown in _SAME:
        if (metadata.get(name) or "") != (before.get(name) or ""):
            text = f"must have the same {shown}: {before.get(name) or ''} != {metadata.get(name) or ''}"
            raise ReviewError(INVALID, f"{where} {text}")
    converted["metadata"] = _restored(metadata, before, index)
    return conversion.finish[api_version](converted)


def _restored(metadata: Object, before: Object, index: int) -> Object:
    """Return the original's metadata with the labels and annotations of the response."""
    restored = {name: value for name, value in before.items() if name not in {"labels", "annotations"}}
    for name, check in (("labels", _label_errors), ("annotations", _annotation_errors)):
        given = metadata.get(name)
        if given is None:
            continue
        problem = check(given) if given != before.get(name) else ""
        if problem:
            where = f"returned invalid metadata in object at index {index}:"
            raise ReviewError(INVALID, f"{where} metadata.{name}{problem}")
        if given:
            restored[name] = given
    # The cluster annotation identifies the object's cluster in storage: a webhook cannot change it.
    cluster = (before.get("annotations") or {}).get(wellknown.CLUSTER)
    kept = {key: value for key, value in (restored.get("annotations") or {}).items() if key != wellknown.CLUSTER}
    if cluster is not None:
        kept[wellknown.CLUSTER] = cluster
    restored.pop("annotations", None)
    return {**restored, "annotations": kept} if kept else restored


def _string_map_error(given: Any) -> str:
    if not isinstance(given, dict):
        return f": invalid type {type(given).__name__} in converted object"
    wrong = next((key for key, value in given.items() if not isinstance(value, str)), None)
    return f"[{wrong}] must be a string in converted object" if wrong is not None else ""


def _label_errors(given: Any) -> str:
    if error := _string_map_error(given):
        return error
    for key, value in given.items():
        if problems := [*labels.label_key_errors(key), *labels.label_value_errors(value)]:
            return f": Invalid value: {encode_json(key).decode()}: {'; '.join(problems)}"
    return ""


def _annotation_errors(given: Any) -> str:
    if error := _string_map_error(given):
        return error
    for key in given:
        if problems := labels.label_key_errors(key.lower()):
            return f": Invalid value: {encode_json(key).decode()}: {'; '.join(problems)}"
    return ""
