"""APIBindings in their bound form, and the locks by which a logical cluster knows them.

Workspace building and bootstrap bind through here; discovery and the store read what a binding's status says.
A group-resource is held by at most one binding of a cluster: the locks are made from the same list as the
bindings, and a binding that lost one stays unbound with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from atoll.machinery.kcp.shapes import BINDING_FINALIZER, CLUSTER, Manifest, Stamp
from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import ERROR, FALSE, Condition, set_condition, set_summary
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS

READY, EXPORT_VALID, INITIAL, UP_TO_DATE, CLAIMS_VALID, CLAIMS_APPLIED = (
    "Ready", "APIExportValid", "InitialBindingCompleted", "BindingUpToDate", "PermissionClaimsValid",
    "PermissionClaimsApplied",
)  # fmt: skip
_BOUND_CONDITIONS = (READY, EXPORT_VALID, INITIAL, UP_TO_DATE, CLAIMS_VALID, CLAIMS_APPLIED)


class BoundResource(msgspec.Struct, frozen=True):
    """One kind of an export: names, and name and uid of the APIResourceSchema that defines it."""

    group: str
    resource: str
    schema: str
    uid: str
    storage_version: str

    @property
    def group_resource(self) -> str:
        """Key of its lock: `workspaces.tenancy.kcp.io`, core kinds without a dot."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class Export(msgspec.Struct, frozen=True):
    """An APIExport as a binding needs it. `identity` is empty while the export has none."""

    cluster: str
    name: str
    identity: str
    resources: tuple[BoundResource, ...]
    claims: tuple[Object, ...] = ()

    @property
    def can_bind_at_once(self) -> bool:
        """Whether a new cluster can bind it without a controller: it has an identity and claims nothing."""
        return bool(self.identity) and not self.claims


def read_export(export: Object, find_schema: Callable[[str], Object | None]) -> Export | None:
    """An APIExport (v1alpha2) as stored; `find_schema` gives its cluster's APIResourceSchemas by name.

    None where a schema is missing, or where a kind is served by a virtual workspace: the binding controller
    has to judge those.
    """
    spec, resources = export.get("spec") or {}, []
    for offered in spec.get("resources") or ():
        schema = find_schema(offered["schema"])
        if schema is None or "crd" not in offered["storage"]:
            return None
        version = next(each["name"] for each in schema["spec"]["versions"] if each["storage"])
        uid = schema["metadata"]["uid"]
        resources.append(BoundResource(offered["group"], offered["name"], offered["schema"], uid, version))
    return Export(
        cluster=export["metadata"]["annotations"][CLUSTER],
        name=export["metadata"]["name"],
        identity=(export.get("status") or {}).get("identityHash", ""),
        resources=tuple(resources),
        claims=tuple(spec.get("permissionClaims") or ()),
    )


class Wanted(msgspec.Struct, frozen=True):
    """One binding to make. `path` is how it refers to the export's workspace; `export` None is not found."""

    name: str
    path: str
    export_name: str
    export: Export | None


class Bindings(msgspec.Struct, frozen=True):
    """The bindings of a cluster, and its lock annotation's value."""

    manifests: tuple[Manifest, ...]
    locks: str
    all_bound: bool


def bind(stamp: Stamp, wanted: Sequence[Wanted]) -> Bindings:
    """Bind what can be bound at once; what cannot is written as a user would, for the binding controller."""
    locks: dict[str, dict[str, str]] = {}
    manifests, all_bound = [], True
    for each in wanted:
        export = each.export
        if export is None or not export.can_bind_at_once:
            binding, bound = _requested(stamp, each), False
        else:
            holder = _holder(locks, export)
            bound = not holder
            binding = _bound(stamp, each, export) if bound else _conflicting(stamp, each, export, holder)
            if bound:
                locks.update((resource.group_resource, {"n": each.name}) for resource in export.resources)
        all_bound = all_bound and bound
        manifests.append(Manifest(stamp.cluster, binding, API_BINDINGS))
    return Bindings(tuple(manifests), lock_annotation(locks), all_bound)


def _holder(locks: dict[str, dict[str, str]], export: Export) -> str:
    """The binding that holds one of the export's kinds already, or empty."""
    held = (locks.get(resource.group_resource) for resource in export.resources)
    return next((lock["n"] for lock in held if lock is not None), "")


def lock_annotation(locks: dict[str, dict[str, str]]) -> str:
    """Value of the annotation `internal.apis.kcp.io/resource-bindings`: JSON with sorted keys."""
    return msgspec.json.encode(locks, order="sorted").decode()


def _requested(stamp: Stamp, wanted: Wanted) -> Object:
    metadata = stamp.pathed_metadata("apibindings", wanted.name)
    metadata["finalizers"] = [BINDING_FINALIZER]
    spec: Object = {"reference": {"export": {"path": wanted.path, "name": wanted.export_name}}}
    if wanted.export is not None:
        key, value = hashes.reflexive_claim_label(wanted.export.cluster, wanted.export.name)
        export_hash = key.removeprefix(hashes.CLAIM_LABEL_PREFIX)
        metadata["labels"] = {hashes.EXPORT_LABEL: export_hash, key: value}
        if wanted.export.claims:
            spec["permissionClaims"] = [_accepted(claim) for claim in wanted.export.claims]
    return {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": metadata, "spec": spec}


def _accepted(claim: Object) -> Object:
    """Default bindings grant every claim, on what the claim selects by default or else on everything."""
    selector = claim.get("defaultSelector") or {"matchAll": True}
    return {**claim, "selector": selector, "state": "Accepted"}


def _bound(stamp: Stamp, wanted: Wanted, export: Export) -> Object:
    binding = _requested(stamp, wanted)
    binding["status"] = {
        "apiExportClusterName": export.cluster,
        "phase": "Bound",
        "boundResources": [
            {
                "group": resource.group,
                "resource": resource.resource,
                "schema": {"name": resource.schema, "UID": resource.uid, "identityHash": export.identity},
                "storageVersions": [resource.storage_version],
            }
            for resource in export.resources
        ],
        "conditions": stamp.holds(_BOUND_CONDITIONS),
    }
    return binding


def _conflicting(stamp: Stamp, wanted: Wanted, export: Export, holder: str) -> Object:
    binding = _requested(stamp, wanted)
    message = f'naming conflict with APIBinding "{holder}"'
    conditions = stamp.holds((EXPORT_VALID,))
    refusal = Condition(INITIAL, FALSE, "NamingConflicts", message, ERROR)
    conditions = set_summary(set_condition(conditions, refusal, stamp.now), (INITIAL,), stamp.now)
    binding["status"] = {"apiExportClusterName": export.cluster, "phase": "Binding", "conditions": conditions}
    return binding
