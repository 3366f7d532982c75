"""Errors of the Kubernetes API: one class for each reason, one encoding to a `v1` Status.

Handlers raise these; only the pipeline turns them into replies; the client rebuilds the same class from
the reason. Codes, reasons and message patterns are Kubernetes' (clients branch on them).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.meta.objects import Object

#: Messages quote invalid values, which may have megabytes: longer texts are truncated.
MAX_MESSAGE_SIZE = 16 * 1024


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of `details.causes`; the JSON key of its type is `reason`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """`details` of a Status. `kind` carries the resource name, except for Invalid where it is the kind."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_s: int = 0


class ApiError(Exception):
    """An error reply. Subclasses fix code and reason."""

    code = 500
    reason = "InternalError"

    def __init__(
        self, message: str, details: Details | None = None, *, code: int | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or Details()
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason
        #: `metadata.continue` of the Status: the inconsistent continuation after an expired list.
        self.continue_token = ""

    def status(self) -> Object:
        """The Status object, `status: Failure`."""
        details: Object = {}
        for name in ("name", "group", "kind", "uid"):
            if value := getattr(self.details, name):
                details[name] = value
        if self.details.causes:
            details["causes"] = [_cause(cause) for cause in self.details.causes]
        if self.details.retry_after_s:
            details["retryAfterSeconds"] = self.details.retry_after_s
        metadata: Object = {"continue": self.continue_token} if self.continue_token else {}
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": _cut(self.message),
        }
        if self.reason:
            status["reason"] = self.reason
        status["details"] = details
        status["code"] = self.code
        return status


def _cut(text: str) -> str:
    if len(text) <= MAX_MESSAGE_SIZE:
        return text
    return f"{text[:MAX_MESSAGE_SIZE]}... ({len(text) - MAX_MESSAGE_SIZE} characters more)"


def _cause(cause: Cause) -> Object:
    shown = msgspec.structs.replace(cause, message=_cut(cause.message)) if cause.message else cause
    found: Object = msgspec.to_builtins(shown)
    return found


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        super().__init__(message)


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class Expired(ApiError):
    code, reason = 410, "Expired"


class RequestEntityTooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"
    #: Seconds for which the answer is held back, so that the connection carries nothing else meanwhile.
    hold_s = 0.0


class InternalError(ApiError):
    code, reason = 500, "InternalError"


class ServerTimeout(ApiError):
    code, reason = 500, "ServerTimeout"


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


class InsufficientStorage(ApiError):
    code, reason = 507, "InsufficientStorage"


_BY_REASON: dict[str, type[ApiError]] = {
    cls.reason: cls
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        NotAcceptable,
        AlreadyExists,
        Conflict,
        Expired,
        RequestEntityTooLarge,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        InternalError,
        ServerTimeout,
        ServiceUnavailable,
        Timeout,
        InsufficientStorage,
    )
}
#: All reasons that have a class.
REASONS = frozenset(_BY_REASON)


def from_status(status: Object) -> ApiError:
    """Rebuild the error that a server sent; an unknown reason becomes a plain ApiError with its code."""
    raw = status.get("details") or {}
    causes = tuple(
        Cause(c.get("reason", ""), c.get("message", ""), c.get("field", "")) for c in raw.get("causes") or ()
    )
    details = Details(
        name=raw.get("name", ""),
        group=raw.get("group", ""),
        kind=raw.get("kind", ""),
        uid=raw.get("uid", ""),
        causes=causes,
        retry_after_s=raw.get("retryAfterSeconds", 0),
    )
    reason, message = status.get("reason", ""), status.get("message", "")
    cls = _BY_REASON.get(reason, ApiError)
    error = cls.__new__(cls)
    ApiError.__init__(error, message, details, code=status.get("code", 500), reason=reason)
    error.continue_token = (status.get("metadata") or {}).get("continue", "")
    return error


#: Maximum of field errors in one Status; further errors are omitted.
MAX_FIELD_ERRORS = 256


class FieldError(msgspec.Struct, frozen=True):
    """One error of one field of an object.

    `type` is the cause's reason (FieldValueInvalid, FieldValueRequired, ...); `detail` is the text behind the
    field, e.g. `Invalid value: "x": must be a label`.
    """

    type: str
    field: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"


def invalid(group_kind: str, name: str, errors: Sequence[FieldError]) -> Invalid:
    """422 with every error as a cause, up to a bound. `group_kind` is `Kind.group`, or `Kind` for the core group."""
    errors = errors[:MAX_FIELD_ERRORS]
    texts = [str(error) for error in errors]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind, _, group = group_kind.partition(".")
    causes = tuple(Cause(error.type, error.detail, error.field) for error in errors)
    return Invalid(f'{group_kind} "{name}" is invalid: {text}', Details(name, group, kind, causes=causes))
