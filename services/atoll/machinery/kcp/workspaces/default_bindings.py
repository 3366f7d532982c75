"""Default bindings: the APIBindings of a WorkspaceType in its workspaces, created once or maintained.

Workspace building creates the bindings that can be bound at once. The controller of default bindings creates the others
for the initializer `system:apibindings`, and maintains those of types with lifecycle Maintain. Here belong their names,
their content, their completion, and the conditions on the LogicalCluster. Pure: bindings and exports are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from atoll.machinery.kcp.apis import claim_status, permission_claims
from atoll.machinery.kcp.workspaces.logicalcluster import BINDINGS_INITIALIZED
from atoll.machinery.kcp.workspaces.workspacetypes import BINDINGS_INITIALIZER, DefaultBinding
from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import ERROR, FALSE, INFO, TRUE, Condition, is_true, set_condition
from atoll.machinery.meta.objects import Object, conditions_of, status_of

#: Conditions of the LogicalCluster: during initialization, and for a type that maintains its default bindings.
INITIALIZED, RECONCILED = BINDINGS_INITIALIZED, "APIBindingsReconciled"
MAX_LISTED = 10


class RequiredBindings(msgspec.Struct, frozen=True):
    """One default binding of a cluster: its name, and the export as its reference names it."""

    name: str
    path: str
    export: str

    @property
    def reference(self) -> Object:
        return {"path": self.path, "name": self.export}


def required(cluster: str, bindings: Iterable[DefaultBinding]) -> tuple[RequiredBindings, ...]:
    """Return the default bindings of a cluster, without duplicate names."""
    found = {
        name: RequiredBindings(name, each.path, each.export)
        for each in bindings
        for name in [hashes.default_binding_name(cluster, each.path, each.export)]
    }
    return tuple(found.values())


def binding_spec(wanted: RequiredBindings, claimed: Sequence[Object]) -> Object:
    """Return the spec of a default binding: it accepts all claims of the export."""
    spec: Object = {"reference": {"export": wanted.reference}}
    if claimed:
        spec["permissionClaims"] = [permission_claims.accept(claim) for claim in claimed]
    return spec


def binding_of(wanted: RequiredBindings, claimed: Sequence[Object]) -> Object:
    """Return a default binding to create."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": wanted.name},
        "spec": binding_spec(wanted, claimed),
    }


def find_binding(bindings: Sequence[Object], wanted: RequiredBindings) -> Object | None:
    """Return the existing binding for a default one: that of its name, else one with the same reference, else None."""
    named = next((each for each in bindings if each["metadata"]["name"] == wanted.name), None)
    if named is not None:
        return named
    return next((each for each in bindings if each["spec"]["reference"].get("export") == wanted.reference), None)


def is_outdated(binding: Object, wanted: RequiredBindings, claimed: Sequence[Object]) -> bool:
    """Whether a binding has the default binding's name, and its accepted claims differ from those of the export."""
    accepts = binding["spec"].get("permissionClaims") or []
    return binding["metadata"]["name"] == wanted.name and accepts != [
        permission_claims.accept(claim) for claim in claimed
    ]


def is_done(binding: Object) -> bool:
    """Whether a binding was bound once, and its accepted claims are applied."""
    conditions = conditions_of(binding)
    return is_true(conditions, "InitialBindingCompleted") and claim_status.is_complete(binding)


def no_export(wanted: RequiredBindings) -> str:
    """Return the text for a default binding whose export does not exist."""
    return f"APIExport {wanted.path}|{wanted.export} not found"


def bindings_condition(type: str, waiting: Sequence[str], problems: Sequence[str]) -> Condition:
    """Return the LogicalCluster's condition for its default bindings: `waiting` are incomplete, `problems` failed."""
    if problems:
        return Condition(type, FALSE, "APIBindingErrors", _listed(problems, "; "), ERROR)
    if waiting:
        text = f"APIBinding(s) not yet fully bound: {_listed(waiting, ', ')}"
        return Condition(type, FALSE, "WaitingOnAPIBindings", text, INFO)
    return Condition(type, TRUE)


def types_invalid(type: str, text: str) -> Condition:
    """Return the condition for types that cannot be resolved."""
    return Condition(type, FALSE, "WorkspaceTypesInvalid", text, ERROR)


def with_bindings_condition(cluster: Object, condition: Condition, now: str) -> Object:
    """Return the LogicalCluster with the condition; a true INITIALIZED removes the initializer too."""
    status = dict(status_of(cluster))
    status["conditions"] = set_condition(conditions_of(cluster), condition, now)
    if condition == Condition(INITIALIZED, TRUE):
        left = [name for name in status.get("initializers") or [] if name != BINDINGS_INITIALIZER]
        status["initializers"] = left
        if not left:
            del status["initializers"]
    return {**cluster, "status": status}


def _listed(words: Sequence[str], separator: str) -> str:
    more = f" and {len(words) - MAX_LISTED} more" if len(words) > MAX_LISTED else ""
    return separator.join(words[:MAX_LISTED]) + more
