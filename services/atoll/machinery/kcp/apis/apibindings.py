"""APIBindings: compute the status and the locks of a binding.

`desired_status` plans a binding against its export and the other holders of names in its logical cluster. The binding
controller, the workspace builder and bootstrap call it; discovery and the store read the resulting status.
Invariant: a group-resource, and each of its names, is held by at most one binding or definition of a cluster: the
status and the locks come from the same plan and are written in one submit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from atoll.machinery.kcp.apis import claim_status
from atoll.machinery.kcp.apis.claim_status import CLAIMS_APPLIED, CLAIMS_VALID
from atoll.machinery.kcp.apis.locks import Lock
from atoll.machinery.kcp.apis.naming_conflicts import Holder, Names, conflict, conflict_message, names_of
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.conditions import (
    ERROR,
    FALSE,
    TRUE,
    WARNING,
    Condition,
    find,
    is_true,
    set_condition,
    set_summary,
)
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, spec_of, status_of
from atoll.machinery.meta.wellknown import PATH, PINNED_IDENTITY

READY, EXPORT_VALID, INITIAL, UP_TO_DATE = "Ready", "APIExportValid", "InitialBindingCompleted", "BindingUpToDate"
BINDING, BOUND = "Binding", "Bound"
NAMING_CONFLICTS = "NamingConflicts"
#: Resources that exist in a new cluster before all its bindings do: claims on them are applied afterwards.
_EARLY = frozenset({("apis.kcp.io", "apibindings"), ("core.kcp.io", "logicalclusters")})
#: Pattern of a binding that may hold names.
_HOLDS = rawscan.member("boundResources", "[")


def may_hold_names(record: bytes) -> bool:
    """Return whether a stored binding may hold names; nothing is decoded, and without a record it holds none."""
    return _HOLDS in record


class BoundResource(msgspec.Struct, frozen=True):
    """One resource of an export: its names, and name and uid of the APIResourceSchema that defines it.

    A `virtual` resource has no storage: another virtual workspace serves its objects.
    """

    group: str
    resource: str
    schema: str
    uid: str
    storage_version: str
    names: Names = Names()
    virtual: bool = False

    @property
    def group_resource(self) -> str:
        """Return the key of its lock: `workspaces.tenancy.kcp.io`, core kinds without a dot."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def all_names(self) -> Names:
        return self.names if self.names.plural else Names(plural=self.resource)


class Export(msgspec.Struct, frozen=True):
    """An APIExport as a binding needs it. `identity` is empty while the export has none.

    `missing` are named schemas that do not exist. `organization` is the path to which the export is restricted, empty
    where it is not.
    """

    cluster: str
    name: str
    identity: str
    resources: tuple[BoundResource, ...]
    claims: tuple[Object, ...] = ()
    missing: tuple[str, ...] = ()
    organization: str = ""
    #: It carries a maximal permission policy.
    policed: bool = False

    @property
    def can_bind_at_once(self) -> bool:
        """Return whether a new cluster can bind it without a controller.

        True if it has an identity and all its schemas, and claims nothing that a new cluster has before its bindings.
        """
        early = any((each.get("group") or "", each["resource"]) in _EARLY for each in self.claims)
        return bool(self.identity) and not self.missing and not early


def read_export(cluster: str, export: Object, find_schema: Callable[[str], Object | None]) -> Export:
    """Decode a stored APIExport (v1alpha2); `find_schema` returns an APIResourceSchema of its cluster by name."""
    spec, resources, missing = spec_of(export), [], []
    for offered in spec.get("resources") or ():
        schema = find_schema(offered["schema"])
        if schema is None:
            missing.append(offered["schema"])
        else:
            resources.append(_offered(offered, schema))
    return Export(
        cluster=cluster,
        name=export["metadata"]["name"],
        identity=status_of(export).get("identityHash", ""),
        resources=tuple(resources),
        claims=tuple(spec.get("permissionClaims") or ()),
        missing=tuple(missing),
        organization=_organization(cluster, export),
        policed=(spec.get("maximalPermissionPolicy") or {}).get("local") is not None,
    )


def _organization(cluster: str, export: Object) -> str:
    """Return the organization that an export is restricted to; empty if it is not restricted."""
    if replication_level.level_of(export) != replication_level.ORGANIZATION:
        return ""
    return replication_level.organization(str(annotations_of(export).get(PATH) or cluster))


def _offered(offered: Object, schema: Object) -> BoundResource:
    version = next(each["name"] for each in schema["spec"]["versions"] if each["storage"])
    return BoundResource(
        group=offered.get("group") or "",
        resource=offered["name"],
        schema=offered["schema"],
        uid=schema["metadata"]["uid"],
        storage_version=version,
        names=names_of(schema["spec"]["names"]),
        virtual="virtual" in (offered.get("storage") or {}),
    )


class BindingContext(msgspec.Struct, frozen=True):
    """The state of a binding's logical cluster beside the binding.

    `holders` returns the other holders of names in some groups; it is called only when a new resource is to be bound.
    `stands` returns whether the bound CRD of a schema's uid exists.
    """

    locks: Mapping[str, Lock]
    holders: Callable[[Collection[str]], Sequence[Holder]]
    stands: Callable[[str], bool]


class BindingStatus(msgspec.Struct, frozen=True):
    """The planned status of a binding, and all locks of its cluster."""

    status: Object
    locks: Mapping[str, Lock]


def desired_status(binding: Object, export: Export | Condition, around: BindingContext, now: str) -> BindingStatus:
    """Bind the resources of an export whose names are free. `export` is a Condition where there is no export.

    A bound resource stays bound when the export withdraws it or is deleted, and when its schema is deleted or created
    again. A resource for which the export names another schema is bound to that schema.
    """
    status = dict(status_of(binding))
    if isinstance(export, Export):
        status["apiExportClusterName"] = export.cluster
        export_valid = _validity(export)
    else:
        export_valid = export
    conditions = set_condition(conditions_of(binding), export_valid, now)
    if not isinstance(export, Export) or export_valid.status != TRUE:
        planned = BindingStatus(
            {**status, "phase": status.get("phase") or BINDING, "conditions": conditions}, around.locks
        )
    else:
        groups = frozenset(offered.group for offered in export.resources)
        plan = _Binding(binding["metadata"]["name"], around, now, groups)
        planned = _bind(status, conditions, export, plan)
    return _with_claims(binding, export, planned, now) if isinstance(export, Export) else planned


def _with_claims(binding: Object, export: Export, planned: BindingStatus, now: str) -> BindingStatus:
    """Add the status of permission claims, so that a binding shows them as soon as it is Bound.

    Without any claims the status is final, and the claims controller has nothing to do.
    """
    status = planned.status
    if export.claims or binding["spec"].get("permissionClaims") or status.get("exportPermissionClaims"):
        announced = claim_status.with_exported_claims({**binding, "status": status}, export.claims, now)
        return replace(planned, status=announced["status"])
    conditions = status["conditions"]
    for type in (CLAIMS_VALID, CLAIMS_APPLIED):
        if find(conditions, INITIAL) is not None and find(conditions, type) is None:
            conditions = set_condition(conditions, Condition(type, TRUE), now)
    return replace(planned, status={**status, "conditions": conditions})


def _validity(export: Export) -> Condition:
    named = f"APIExport {export.cluster}|{export.name}"
    if export.missing:
        # The first alone, so that a binding is not written again for each of forty schemas that appear.
        text = f"{named} names schemas that do not exist, such as {export.missing[0]}. Its owner has to resolve that"
        return Condition(EXPORT_VALID, FALSE, "InternalError", text, ERROR)
    if not export.identity:
        return Condition(EXPORT_VALID, FALSE, "MissingIdentityHash", f"{named} is missing status.identityHash", WARNING)
    return Condition(EXPORT_VALID, TRUE)


def pinned_identity(binding: Object) -> str:
    """Return the identity hash that the export of a binding must have; empty without a pin."""
    return str(annotations_of(binding).get(PINNED_IDENTITY, ""))


def is_withheld(binding: Object, export: Export) -> bool:
    """Return whether a binding pins another identity than that of the export, which then gets nothing of it."""
    return pinned_identity(binding) not in {"", export.identity}


def withheld(binding: Object, export: Export) -> Condition:
    """Return the condition for an export that has not the pinned identity."""
    if not export.identity:
        return _validity(export)
    text = (
        f"APIExport {export.cluster}|{export.name} has the identity {export.identity}, but the binding is for"
        f" {pinned_identity(binding)} alone (annotation {PINNED_IDENTITY})"
    )
    return Condition(EXPORT_VALID, FALSE, "IdentityMismatch", text, ERROR)


def not_found(path: str, name: str) -> Condition:
    """Return the condition for an export that does not exist."""
    return Condition(EXPORT_VALID, FALSE, "APIExportNotFound", f"APIExport {path}|{name} not found", ERROR)


def without_cluster(binding: Object, now: str) -> Object:
    """Return the status of a binding whose LogicalCluster does not exist."""
    status = dict(status_of(binding))
    refused = Condition(INITIAL, FALSE, "LogicalClusterNotFound", "LogicalCluster of the binding not found", ERROR)
    return {**status, "phase": status.get("phase") or BINDING, "conditions": _ready_conditions(status, refused, now)}


class _Binding(msgspec.Struct):
    """State of one planning run."""

    name: str
    around: BindingContext
    now: str
    groups: frozenset[str]
    _holders: Sequence[Holder] | None = None

    def refusal(self, offered: BoundResource) -> str:
        """Return why a resource cannot be bound; empty if it can."""
        lock = self.around.locks.get(offered.group_resource)
        if self._holders is None:
            self._holders = self.around.holders(self.groups)
        refused = conflict(offered.group, offered.all_names, self._holders)
        if lock is None or refused or not lock.is_held_against(self.name, self.now):
            return refused
        who = f'CustomResourceDefinition "{offered.group_resource}"' if lock.c else f'APIBinding "{lock.n}"'
        return conflict_message(who, f"spec.names.plural={offered.resource}")


def _bind(status: Object, conditions: list[Object], export: Export, plan: _Binding) -> BindingStatus:
    bound = {(item.get("group") or "", item["resource"]): item for item in status.get("boundResources") or ()}
    locks, refused = dict(plan.around.locks), []
    for offered in export.resources:
        key = offered.group, offered.resource
        before = bound.get(key)
        if before is None or not _is_current(before, offered, export, plan.around):
            if text := plan.refusal(offered):
                refused.append(text)
                continue
            bound[key] = _entry(offered, export, before)
            locks[offered.group_resource] = Lock(n=plan.name)
        else:
            locks.setdefault(offered.group_resource, Lock(n=plan.name))
    status["boundResources"] = list(bound.values())
    if not bound:
        del status["boundResources"]
    checked = {**status, "conditions": conditions}
    if refused:
        text = refused[0] if len(refused) == 1 else f"[{', '.join(refused)}]"
        conditions = _ready_conditions(checked, Condition(UP_TO_DATE, FALSE, NAMING_CONFLICTS, text, ERROR), plan.now)
    else:
        conditions = _ready_conditions(checked, Condition(UP_TO_DATE, TRUE), plan.now)
    done = is_true(conditions, INITIAL)
    phase = BOUND if done else status.get("phase") or BINDING
    return BindingStatus({**status, "phase": phase, "conditions": conditions}, locks)


def _is_current(before: Object, offered: BoundResource, export: Export, around: BindingContext) -> bool:
    """Return whether a resource is bound as its export offers it. A re-created schema is not a change."""
    schema = before["schema"]
    same = (schema["name"], schema["identityHash"]) == (offered.schema, export.identity)
    return same and around.stands(schema["UID"])


def _entry(offered: BoundResource, export: Export, before: Object | None) -> Object:
    stored = set((before or {}).get("storageVersions") or ())
    versions = [] if offered.virtual else sorted({*stored, offered.storage_version})
    return {
        "group": offered.group,
        "resource": offered.resource,
        "schema": {"name": offered.schema, "UID": offered.uid, "identityHash": export.identity},
        "storageVersions": versions,
    }


def _ready_conditions(status: Object, said: Condition, now: str) -> list[Object]:
    """Return the conditions with this one set, InitialBindingCompleted until it was True once, and Ready."""
    conditions = status.get("conditions") or []
    initial = Condition(INITIAL, said.status, said.reason, said.message, said.severity)
    if said.type != INITIAL:
        conditions = set_condition(conditions, said, now)
    if not is_true(conditions, INITIAL):
        conditions = set_condition(conditions, initial, now)
    return set_summary(conditions, (INITIAL,), now)


def held_by(binding: Object, offered: Sequence[BoundResource]) -> list[Holder]:
    """Return the names held by a binding: those of the offered resources that it has bound."""
    bound = {item["schema"]["UID"] for item in binding["status"].get("boundResources") or ()}
    return [Holder(holder_name(binding), each.group, each.all_names) for each in offered if each.uid in bound]


def holder_name(binding: Object) -> str:
    """Return the text that names a binding in conflict messages."""
    export = binding["spec"]["reference"]["export"]
    name = f"{export['path']}:{export['name']}" if export.get("path") else export["name"]
    return f'APIBinding "{binding["metadata"]["name"]}" bound to APIExport "{name}"'
