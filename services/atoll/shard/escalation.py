"""The RBAC escalation check of admission, bound to the shard's authorizer."""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.escalation import Author, check_binding_write, check_role_write


class Escalation:
    """Checks writes of roles and bindings against the permissions of their author."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check_role(self, review: Review) -> None:
        assert review.obj is not None
        check_role_write(self._author(review), review.obj, review.old)

    def check_binding(self, review: Review) -> None:
        assert review.obj is not None
        check_binding_write(self._author(review), review.obj, review.old)

    def _author(self, review: Review) -> Author:
        return Author(self._authorizer, review.view, review.call.user, review.call.cluster)
