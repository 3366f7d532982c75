"""RBAC escalation: a user grants only permissions that it holds, unless it may `escalate` or `bind`."""

from __future__ import annotations

from typing import Protocol

from atoll.machinery.apiserver.admission.chain import Plugin, Review

GROUP = "rbac.authorization.k8s.io"
ROLES = ("roles", "clusterroles")
BINDINGS = ("rolebindings", "clusterrolebindings")


class EscalationCheck(Protocol):
    """Checks writes of roles and bindings. Raises Forbidden."""

    def check_role(self, review: Review) -> None: ...

    def check_binding(self, review: Review) -> None: ...


class RoleEscalation(Plugin):
    """Runs the escalation and bind checks on every RBAC write."""

    resources = tuple((GROUP, plural) for plural in (*ROLES, *BINDINGS))

    def __init__(self, check: EscalationCheck) -> None:
        self._check = check

    def validate(self, review: Review) -> None:
        if review.operation == "delete":
            return
        if review.call.kind.plural in ROLES:
            self._check.check_role(review)
        else:
            self._check.check_binding(review)
