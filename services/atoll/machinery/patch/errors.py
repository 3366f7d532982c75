"""Errors of patches.

Raised throughout this package and passed on by the verb handlers: every class is an ApiError with its own status.
Invariant: a client's patch raises no other error; any other exception is a defect of this package.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.meta.status import BadRequest, Cause, Conflict, Details, Invalid, RequestEntityTooLarge

#: Kubernetes drops the reason why a patch did not apply and returns only this text.
REJECTED = "the server rejected our request due to an error in our request"


class PatchError(Exception):
    """Base of the errors that a client's patch can cause."""


class UndecodablePatch(PatchError, BadRequest):
    """400: the body is not a patch of its type, or it uses an unknown directive."""


class PatchDoesNotApply(PatchError, Invalid):
    """422: the patch is well-formed but does not apply to this object. `detail` (not sent to clients) says why.

    Of JSON patches it is Kubernetes' text, which webhooks and policies report.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(REJECTED)
        self.detail = detail


class FailedTest(PatchDoesNotApply):
    """422: a `test` of a JSON patch did not hold. Policies take it for a condition."""


class TooManyOperations(PatchError, RequestEntityTooLarge):
    """413: a JSON patch longer than the limit."""

    def __init__(self, limit: int, count: int) -> None:
        text = f"The allowed maximum operations in a JSON patch is {limit}, got {count}"
        super().__init__(f"Request entity too large: {text}")


class TooManyMoves(PatchError, RequestEntityTooLarge):
    """413: insertions and removals of a JSON patch move more list items than the limit."""

    def __init__(self, limit: int) -> None:
        text = f"The allowed maximum of list items that a JSON patch moves is {limit}"
        super().__init__(f"Request entity too large: {text}")


class InvalidApplyPatch(PatchError, BadRequest):
    """400: an apply patch without metadata, with managedFields, or of another version than the request's."""


class TypedPatchError(PatchError, BadRequest):
    """400: an apply patch does not fit the schema. Kubernetes returns the same text with a 500."""


class ApplyConflict(PatchError, Conflict):
    """409: fields of the patch are owned by other managers. kubectl prints `details.causes`."""

    def __init__(self, message: str, causes: Sequence[Cause]) -> None:
        super().__init__(message, Details(causes=tuple(causes)))
