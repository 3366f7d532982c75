"""AdmissionReview, v1 and v1beta1: encoding of the request, checks of the response.

`caller` calls both sides around one call. Invariant: a response is used only if it is the answer to this request; in
v1beta1, as in Kubernetes, neither its uid nor its kind is compared. What it says besides its patch is bounded and has
the types of Kubernetes: it is decoded on the event loop, and told to clients.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import msgspec

from atoll.machinery.apiserver.admission.webhooks.failures import CallFailed, Status
from atoll.machinery.meta.objects import Object, encode_json

VERSIONS = ("v1", "v1beta1")
JSON_PATCH = "JSONPatch"
_GROUP = "admission.k8s.io"
_MAX_QUOTED = 1024
#: Bytes of a response without its patch.
MAX_BESIDE_BYTES = 512 << 10


class Response(msgspec.Struct):
    """The response of a webhook. `patch` is the JSON patch, decoded from base64; empty without one."""

    uid: str = ""
    allowed: bool = False
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = msgspec.field(name="patchType", default=None)
    audit_annotations: dict[str, str] | None = msgspec.field(name="auditAnnotations", default=None)
    warnings: list[str] | None = None


class _Review(msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    response: Response | None = None


class _Patch(msgspec.Struct):
    patch: str | None = None


class _PatchOnly(msgspec.Struct):
    response: _Patch | None = None


_decoder = msgspec.json.Decoder(_Review)
#: Skips all else, which costs less than a tenth of decoding it.
_patch_decoder = msgspec.json.Decoder(_PatchOnly)


def version_of(accepted: Sequence[str]) -> str:
    """Return the first version listed that is known; v1 if there is none, which validation excludes."""
    return next((version for version in accepted if version in VERSIONS), VERSIONS[0])


def encode_request(version: str, uid: str, described: Object, objects: bytes) -> tuple[bytes, ...]:
    """Encode the review of a request in parts, given the encoded fields of its objects, which calls share."""
    request = encode_json({"uid": uid, **described})
    head = b'{"kind":"AdmissionReview","apiVersion":"%b/%b","request":' % (_GROUP.encode(), version.encode())
    return b"%b%b," % (head, request[:-1]), objects, b"}}"


def decode_response(version: str, uid: str, body: bytes, *, mutating: bool) -> tuple[Response, bytes]:
    """Return the response and its JSON patch, which is empty without one. Raises CallFailed."""
    try:
        if len(body) > MAX_BESIDE_BYTES:
            _check_size(body)
        review = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CallFailed(f"failed to call webhook: the response is no AdmissionReview: {error}") from error
    response = review.response
    if response is None:
        raise CallFailed.of_review("webhook response was absent")
    if version == "v1":
        _check(response, review, uid, mutating=mutating)
    try:
        patch = base64.b64decode(response.patch or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CallFailed(f"failed to call webhook: response.patch is no base64: {error}") from error
    return response, patch if mutating else b""


def _check_size(body: bytes) -> None:
    """Refuse what is large besides the patch."""
    response = _patch_decoder.decode(body).response
    patch_size = len((response.patch if response is not None else "") or "")
    if len(body) - patch_size > MAX_BESIDE_BYTES:
        raise CallFailed.of_review(f"it has more than {MAX_BESIDE_BYTES} bytes without its patch")


def _check(response: Response, review: _Review, uid: str, *, mutating: bool) -> None:
    if response.uid != uid:
        raise CallFailed.of_review(f'expected response.uid "{uid}", got "{_short(response.uid)}"')
    expected, found = (f"{_GROUP}/v1", "AdmissionReview"), (review.apiVersion, review.kind)
    if found != expected:
        raise CallFailed.of_review(f"expected webhook response of {_gvk(*expected)}, got {_gvk(*found)}")
    if not mutating:
        if response.patch:
            raise CallFailed.of_review("validating webhook may not return response.patch")
        if response.patch_type is not None:
            raise CallFailed.of_review("validating webhook may not return response.patchType")
        return
    if response.patch and response.patch_type is None:
        raise CallFailed.of_review("webhook returned response.patch but not response.patchType")
    if not response.patch and response.patch_type is not None:
        raise CallFailed.of_review("webhook returned response.patchType but not response.patch")
    if response.patch_type == "":
        raise CallFailed.of_review('webhook returned invalid response.patchType of ""')
    if response.patch_type not in (None, JSON_PATCH):
        raise CallFailed(f'unsupported patch type "{_short(response.patch_type)}"', 400)


def _gvk(api_version: str, kind: str) -> str:
    return f"{_short(api_version)}, Kind={_short(kind)}"


def _short(value: str) -> str:
    return value[:_MAX_QUOTED]
