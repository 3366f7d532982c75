"""Default bindings: the APIBindings that a WorkspaceType makes in its workspaces, and keeps there if it says so.

Workspace building makes what can be bound at once; the controller of default bindings the rest, for the initializer
`system:apibindings`, and later for types that maintain theirs. Here is how they are called, what one is, when one is
done, and what the LogicalCluster says of it. Pure: bindings and exports come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from atoll.machinery.kcp.apis import claim_status, permission_claims
from atoll.machinery.kcp.workspaces.logicalcluster import BINDINGS_INITIALIZED
from atoll.machinery.kcp.workspaces.workspacetypes import BINDINGS_INITIALIZER, DefaultBinding
from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import ERROR, FALSE, INFO, TRUE, Condition, is_true, set_condition
from atoll.machinery.meta.objects import Object

#: On the LogicalCluster: while it is initialized, and where its type maintains bindings.
INITIALIZED, RECONCILED = BINDINGS_INITIALIZED, "APIBindingsReconciled"
MAX_SHOWN = 10


class RequiredBindings(msgspec.Struct, frozen=True):
    """One default binding of a cluster: what it is called there, and the export as it refers to it."""

    name: str
    path: str
    export: str

    @property
    def reference(self) -> Object:
        return {"path": self.path, "name": self.export}


def required(cluster: str, bindings: Iterable[DefaultBinding]) -> tuple[RequiredBindings, ...]:
    """The default bindings of a cluster, each name once."""
    found = {
        name: RequiredBindings(name, each.path, each.export)
        for each in bindings
        for name in [hashes.default_binding_name(cluster, each.path, each.export)]
    }
    return tuple(found.values())


def spec_of(wanted: RequiredBindings, claimed: Sequence[Object]) -> Object:
    """Spec of a default binding: it accepts all that the export claims."""
    spec: Object = {"reference": {"export": wanted.reference}}
    if claimed:
        spec["permissionClaims"] = [permission_claims.accept(claim) for claim in claimed]
    return spec


def binding_of(wanted: RequiredBindings, claimed: Sequence[Object]) -> Object:
    """A default binding to create."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": wanted.name},
        "spec": spec_of(wanted, claimed),
    }


def find_binding(bindings: Sequence[Object], wanted: RequiredBindings) -> Object | None:
    """The binding that stands for a default one: that of its name, or any other that refers to the export so."""
    named = next((each for each in bindings if each["metadata"]["name"] == wanted.name), None)
    if named is not None:
        return named
    return next((each for each in bindings if each["spec"]["reference"].get("export") == wanted.reference), None)


def is_outdated(binding: Object, wanted: RequiredBindings, claimed: Sequence[Object]) -> bool:
    """Whether a default binding of its own name does not accept what the export claims now."""
    accepts = binding["spec"].get("permissionClaims") or []
    return binding["metadata"]["name"] == wanted.name and accepts != [
        permission_claims.accept(claim) for claim in claimed
    ]


def is_done(binding: Object) -> bool:
    """Whether a binding was bound once, and what it accepts is applied."""
    conditions = (binding.get("status") or {}).get("conditions") or []
    return is_true(conditions, "InitialBindingCompleted") and claim_status.is_complete(binding)


def no_export(wanted: RequiredBindings) -> str:
    """What is wrong where the export of a default binding is not there."""
    return f"APIExport {wanted.path}|{wanted.export} not found"


def verdict(type: str, waiting: Sequence[str], problems: Sequence[str]) -> Condition:
    """What the LogicalCluster says of its default bindings: `waiting` are not done yet, `problems` went wrong."""
    if problems:
        return Condition(type, FALSE, "APIBindingErrors", _listed(problems, "; "), ERROR)
    if waiting:
        text = f"APIBinding(s) not yet fully bound: {_listed(waiting, ', ')}"
        return Condition(type, FALSE, "WaitingOnAPIBindings", text, INFO)
    return Condition(type, TRUE)


def types_invalid(type: str, text: str) -> Condition:
    """What it says where the types cannot be resolved."""
    return Condition(type, FALSE, "WorkspaceTypesInvalid", text, ERROR)


def with_verdict(cluster: Object, condition: Condition, now: str) -> Object:
    """The LogicalCluster with a verdict; one that all is initialized takes the initializer away."""
    status = dict(cluster.get("status") or {})
    status["conditions"] = set_condition(status.get("conditions") or [], condition, now)
    if condition == Condition(INITIALIZED, TRUE):
        left = [name for name in status.get("initializers") or [] if name != BINDINGS_INITIALIZER]
        status["initializers"] = left
        if not left:
            del status["initializers"]
    return {**cluster, "status": status}


def _listed(words: Sequence[str], separator: str) -> str:
    more = f" and {len(words) - MAX_SHOWN} more" if len(words) > MAX_SHOWN else ""
    return separator.join(words[:MAX_SHOWN]) + more
