"""RoleBindings and ClusterRoleBindings: the subjects of a role. The role of a binding is immutable."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, text
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import AGE, NAME, Cell, age_cell, builtin, name_cell, row
from atoll.machinery.kinds.rbac.roles import GROUP
from atoll.machinery.meta.labels import dns_subdomain_errors, path_segment_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, not_supported, required

USER, USER_GROUP, SERVICE_ACCOUNT = "User", "Group", "ServiceAccount"
_ROLE_KINDS, _CLUSTER_ROLE_KINDS = ("Role", "ClusterRole"), ("ClusterRole",)


def _prepare(obj: Object) -> None:
    """Set the default groups of roles and subjects."""
    role = mapping(obj, "roleRef")
    if role and not role.get("apiGroup"):
        role["apiGroup"] = GROUP
    for _, subject in objects(obj, "subjects"):
        if not subject.get("apiGroup") and subject.get("kind") in (USER, USER_GROUP):
            subject["apiGroup"] = GROUP


def _role_errors(role: Object, kinds: tuple[str, ...]) -> Iterator[FieldError]:
    if text(role, "apiGroup") != GROUP:
        yield not_supported("roleRef.apiGroup", text(role, "apiGroup"), (GROUP,))
    if "kind" in role and text(role, "kind") not in kinds:
        yield not_supported("roleRef.kind", text(role, "kind"), kinds)
    name = text(role, "name")
    if name:
        yield from invalid_values("roleRef.name", name, path_segment_errors(name))
    elif "name" in role:
        yield required("roleRef.name")


def _subject_errors(subject: Object, field: str, *, is_namespaced: bool) -> Iterator[FieldError]:
    kind, name, group = text(subject, "kind"), text(subject, "name"), text(subject, "apiGroup")
    if "name" in subject and not name:
        yield required(f"{field}.name")
    if kind == SERVICE_ACCOUNT:
        if name:
            yield from invalid_values(f"{field}.name", name, dns_subdomain_errors(name))
        if group:
            yield not_supported(f"{field}.apiGroup", group, ("",))
        # The default is the RoleBinding's own namespace.
        if not text(subject, "namespace") and not is_namespaced:
            yield required(f"{field}.namespace")
    elif kind in (USER, USER_GROUP):
        if group != GROUP:
            yield not_supported(f"{field}.apiGroup", group, (GROUP,))
    elif "kind" in subject:
        yield not_supported(f"{field}.kind", kind, (SERVICE_ACCOUNT, USER, USER_GROUP))


def _binding_errors(obj: Object, *, is_namespaced: bool) -> list[FieldError]:
    kinds = _ROLE_KINDS if is_namespaced else _CLUSTER_ROLE_KINDS
    errors = list(_role_errors(mapping(obj, "roleRef"), kinds)) if "roleRef" in obj else []
    for index, subject in objects(obj, "subjects"):
        errors += _subject_errors(subject, f"subjects[{index}]", is_namespaced=is_namespaced)
    return errors


def _role_change_errors(obj: Object, old: Object) -> list[FieldError]:
    if obj.get("roleRef") == old.get("roleRef"):
        return []
    return [invalid("roleRef", obj.get("roleRef"), "cannot change roleRef")]


def _validate(obj: Object) -> list[FieldError]:
    return _binding_errors(obj, is_namespaced=True)


def _validate_cluster(obj: Object) -> list[FieldError]:
    return _binding_errors(obj, is_namespaced=False)


def _role_cell(obj: Object, now_s: float) -> object:
    return f"{text(obj, 'roleRef', 'kind')}/{text(obj, 'roleRef', 'name')}"


def _subjects_cell(kind: str) -> Cell:
    """Return a cell with the names of all subjects of a kind."""

    def cell(obj: Object, now_s: float) -> object:
        found = [subject for _, subject in objects(obj, "subjects") if text(subject, "kind") == kind]
        if kind == SERVICE_ACCOUNT:
            return ", ".join(f"{text(subject, 'namespace')}/{text(subject, 'name')}" for subject in found)
        return ", ".join(text(subject, "name") for subject in found)

    return cell


_COLUMNS = (
    NAME,
    Column("Role", description="Kind and name of the role."),
    AGE,
    Column("Users", description="Users who have the role.", priority=1),
    Column("Groups", description="Groups that have the role.", priority=1),
    Column("ServiceAccounts", description="Service accounts that have the role.", priority=1),
)
_CELLS = row(
    name_cell, _role_cell, age_cell, _subjects_cell(USER), _subjects_cell(USER_GROUP), _subjects_cell(SERVICE_ACCOUNT)
)

ROLEBINDINGS = Kind(
    **builtin(GROUP, "RoleBinding", "rolebindings"),
    update_creates=True,
    unconditional_update=True,
    name_rule="path-segment",
    columns=_COLUMNS,
    cells=_CELLS,
    prepare_create=_prepare,
    prepare_update=lambda obj, old: _prepare(obj),
    validate=_validate,
    validate_update=lambda obj, old: [*_role_change_errors(obj, old), *_validate(obj)],
)

CLUSTERROLEBINDINGS = Kind(
    **builtin(GROUP, "ClusterRoleBinding", "clusterrolebindings"),
    namespaced=False,
    update_creates=True,
    unconditional_update=True,
    name_rule="path-segment",
    columns=_COLUMNS,
    cells=_CELLS,
    prepare_create=_prepare,
    prepare_update=lambda obj, old: _prepare(obj),
    validate=_validate_cluster,
    validate_update=lambda obj, old: [*_role_change_errors(obj, old), *_validate_cluster(obj)],
)
