"""What a patch can fail with.

Raised throughout this package and let through by the verb handlers: every class is an ApiError that answers as it is.
Invariant: nobody here raises a bare KeyError or TypeError at a client's patch, so whatever else escapes is a defect of
ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.meta.status import BadRequest, Cause, Conflict, Details, Invalid, RequestEntityTooLarge

#: Kubernetes drops the reason why a patch did not apply and says only this.
REJECTED = "the server rejected our request due to an error in our request"


class PatchError(Exception):
    """Base of everything that a client's patch can be refused with."""


class UndecodablePatch(PatchError, BadRequest):
    """400: the body is no patch of its type at all, or it uses a directive that does not exist."""


class PatchDoesNotApply(PatchError, Invalid):
    """422: a well-formed patch that this object does not take. `detail` says why; the wire does not."""

    def __init__(self, detail: str) -> None:
        super().__init__(REJECTED)
        self.detail = detail


class TooManyOperations(PatchError, RequestEntityTooLarge):
    """413: a JSON patch longer than the limit."""

    def __init__(self, limit: int, count: int) -> None:
        text = f"The allowed maximum operations in a JSON patch is {limit}, got {count}"
        super().__init__(f"Request entity too large: {text}")


class InvalidApplyPatch(PatchError, BadRequest):
    """400: an apply patch that names another version, or carries managedFields."""


class TypedPatchError(PatchError, BadRequest):
    """400: the schema cannot type an apply patch. Kubernetes says the same words with a 500."""


class ApplyConflict(PatchError, Conflict):
    """409: fields of the patch belong to other managers. kubectl prints `details.causes`."""

    def __init__(self, message: str, causes: Sequence[Cause]) -> None:
        super().__init__(message, Details(causes=tuple(causes)))
