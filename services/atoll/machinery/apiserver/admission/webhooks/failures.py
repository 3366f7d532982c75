"""What a call of an admission webhook can end with besides an answer that admits, in Kubernetes' words and codes.

`caller` raises and handles these. A CallFailed is left to the webhook's failure policy; a denial and a patch that does
not apply reject the request whatever that policy is.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from atoll.machinery.egress import EgressError
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError, BadRequest, Cause, Details, InternalError

#: Messages of client-go for answers of a server that are no Status.
_ANSWERS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
#: Answers whose body is the message.
_QUOTED = (403, 406, 415)
_UNAVAILABLE = 503
#: HTTP has three digits.
_MAX_CODE = 999
_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class CallFailed(Exception):
    """The webhook gave no usable answer. `code` is the status that metrics count."""

    def __init__(self, text: str, code: int = _UNAVAILABLE) -> None:
        super().__init__(text)
        self.code = code

    @staticmethod
    def of_egress(error: EgressError) -> CallFailed:
        """Return the failure of a call that was refused, broke off, took too long or was answered with an error."""
        text = _answered(error.status, error.body) if error.status else str(error)
        return CallFailed(f"failed to call webhook: {text}", error.status or _UNAVAILABLE)

    @staticmethod
    def of_review(text: str) -> CallFailed:
        """Return the failure of an answer that is no valid review."""
        return CallFailed(f"received invalid webhook response: {text}")

    def rejection(self, name: str) -> InternalError:
        """Return the error of the request under failurePolicy Fail."""
        return internal_error(f'failed calling webhook "{name}": {self}')


def _answered(status: int, body: bytes) -> str:
    """Return client-go's words for an answer with a status that is no success."""
    told = body.decode(errors="replace").strip() or "unknown"
    if status in _QUOTED:
        return told
    if status in _ANSWERS:
        return _ANSWERS[status]
    if status >= 500:
        return f"an error on the server ({encode_json(told).decode()}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def internal_error(text: str) -> InternalError:
    """Return a 500 as Kubernetes makes it of an error."""
    return InternalError(f"Internal error occurred: {text}", Details(causes=(Cause(message=text),)))


def dry_run_unsupported(name: str) -> BadRequest:
    """Return the refusal of a dry run by a webhook with side effects."""
    return BadRequest(f'admission webhook "{name}" does not support dry run')


class StatusCause(msgspec.Struct):
    """A cause in the details of a Status."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(msgspec.Struct, rename="camel"):
    """The details of a Status."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: _Int32 | None = None


class Status(msgspec.Struct):
    """The status of a response, as far as clients are told of it. As in Go, null is the same as nothing."""

    message: str | None = None
    reason: str | None = None
    code: _Int32 | None = None
    details: StatusDetails | None = None


def denial(name: str, status: Status | None) -> ApiError:
    """Return the error of a request that a webhook denied, given the status of its answer.

    Whatever its reason says, it is no NotFound or Conflict of this server, which controllers take for another's write.
    """
    reason = (status.reason if status is not None else None) or ""
    why = (status.message if status is not None else None) or reason
    text = f'admission webhook "{name}" denied the request' + (f": {why}" if why else " without explanation")
    code = (status.code if status is not None else None) or 0
    details = _details(status.details) if status is not None and status.details is not None else Details()
    return ApiError(text, details, code=code if 400 <= code <= _MAX_CODE else 400, reason=reason)


def _details(given: StatusDetails) -> Details:
    return Details(
        name=given.name or "",
        group=given.group or "",
        kind=given.kind or "",
        uid=given.uid or "",
        causes=tuple(Cause(each.reason or "", each.message or "", each.field or "") for each in given.causes or ()),
        retry_after_s=max(0, given.retry_after_seconds or 0),
    )
