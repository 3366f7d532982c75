"""Resolution of a new workspace's WorkspaceType: the type, the types it extends, and its limits.

The admission steps of Workspaces call `resolve` (mutating) and `check` (validating); workspace building reads the
Resolution. The caller passes the lookup of WorkspaceTypes, by path or cluster name and by name. A type that is not
allowed raises TypeRefused with kcp's text; `forbidden` builds the 403 response from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from atoll.machinery.meta import paths
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, annotations_of, spec_of
from atoll.machinery.meta.status import Details, Forbidden
from atoll.machinery.meta.wellknown import CLUSTER, PATH, TYPE

#: An older form of spec.defaultAPIBindingLifecycle; the spec takes precedence.
LIFECYCLE_ANNOTATION = "experimental.tenancy.kcp.io/default-api-binding-lifecycle"
MAINTAIN = "Maintain"
#: Removed when every default binding is bound. The system sets and runs it for every type with default bindings.
BINDINGS_INITIALIZER = "system:apibindings"
#: Most types that one type may extend, itself included. kcp has no bound.
MAX_ALIASES = 64


class TypeRefused(Exception):
    """The type cannot be used for this workspace; the text is the reason."""


class TypeReference(msgspec.Struct, frozen=True, order=True):
    """A WorkspaceType by workspace path (empty: the nearest ancestor workspace that has it) and name."""

    name: str
    path: str = ""

    def __str__(self) -> str:
        return paths.join(self.path, self.name)


class DefaultBinding(msgspec.Struct, frozen=True):
    """An export that workspaces of a type bind; an empty `path` is the type's own workspace."""

    export: str
    path: str = ""


class Limit(msgspec.Struct, frozen=True):
    """The allowed parent or child types. Without `types` and `none` every type is allowed."""

    none: bool = False
    types: tuple[TypeReference, ...] = ()

    def allows(self, aliases: Sequence[WorkspaceType]) -> bool:
        """Whether a type with these aliases is allowed: at least one alias must be listed."""
        return not self.types or any(alias.qualified in map(str, self.types) for alias in aliases)


class NamedReference(msgspec.Struct, frozen=True):
    """An object of the type's own logical cluster."""

    name: str


class _Extend(msgspec.Struct, frozen=True):
    bases: tuple[TypeReference, ...] = msgspec.field(default=(), name="with")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    initializer: bool = False
    terminator: bool = False
    extend: _Extend = _Extend()
    additional_workspace_labels: Mapping[str, str] = {}
    default_child_workspace_type: TypeReference | None = None
    limit_allowed_children: Limit = Limit()
    limit_allowed_parents: Limit = Limit()
    default_bindings: tuple[DefaultBinding, ...] = msgspec.field(default=(), name="defaultAPIBindings")
    default_binding_lifecycle: str = msgspec.field(default="", name="defaultAPIBindingLifecycle")
    authentication_configurations: tuple[NamedReference, ...] = ()
    initializer_permissions: tuple[Object, ...] = ()
    terminator_permissions: tuple[Object, ...] = ()


class WorkspaceType(msgspec.Struct, frozen=True, dict=True):
    """A decoded WorkspaceType: its logical cluster, that cluster's canonical path, its name and spec."""

    cluster: str
    path: str
    name: str
    spec: _Spec = _Spec()
    #: Lifecycle of its default bindings: InitializeOnly (also if empty) or Maintain.
    lifecycle: str = ""

    @property
    def maintains(self) -> bool:
        """Whether default bindings are maintained in existing workspaces, later additions included."""
        return self.lifecycle == MAINTAIN and bool(self.spec.default_bindings)

    @cached_property
    def qualified(self) -> str:
        """`<canonical path>:<name>`, as used in limits and annotations."""
        return paths.join(self.path, self.name)

    @property
    def lifecycle_name(self) -> str:
        """`<logical cluster>:<name>`, its name as initializer and terminator."""
        return f"{self.cluster}:{self.name}"


Lookup = Callable[[str, str], WorkspaceType | None]
#: Whether the caller may `use` a WorkspaceType.
MayUse = Callable[[WorkspaceType], bool]


class Resolution(msgspec.Struct, frozen=True, dict=True):
    """A type with all types it extends: bases in the order of their references, the type itself last."""

    aliases: tuple[WorkspaceType, ...]

    @property
    def type(self) -> WorkspaceType:
        return self.aliases[-1]

    @cached_property
    def initializers(self) -> tuple[str, ...]:
        """The initializers of a workspace of this type, in kcp's order."""
        names = tuple(alias.lifecycle_name for alias in self.aliases if alias.spec.initializer)
        return (*names, BINDINGS_INITIALIZER) if self.default_bindings else names

    @cached_property
    def terminators(self) -> tuple[str, ...]:
        return tuple(alias.lifecycle_name for alias in self.aliases if alias.spec.terminator)

    @cached_property
    def default_bindings(self) -> tuple[DefaultBinding, ...]:
        """The default bindings without duplicates, with their paths filled in."""
        return _default_bindings(self.aliases)

    @cached_property
    def maintained_bindings(self) -> tuple[DefaultBinding, ...]:
        """The default bindings of the types with lifecycle Maintain."""
        return _default_bindings([alias for alias in self.aliases if alias.maintains])


def _default_bindings(aliases: Sequence[WorkspaceType]) -> tuple[DefaultBinding, ...]:
    found = (
        DefaultBinding(binding.export, binding.path or alias.cluster)
        for alias in aliases
        for binding in alias.spec.default_bindings
    )
    return tuple(dict.fromkeys(found))


def read_type(obj: Object) -> WorkspaceType:
    """Decode a stored WorkspaceType; without a path annotation, its cluster's name is used as path."""
    metadata = obj["metadata"]
    annotations = annotations_of(obj)
    cluster = annotations.get(CLUSTER, "")
    spec = msgspec.convert(spec_of(obj), _Spec)
    lifecycle = spec.default_binding_lifecycle or annotations.get(LIFECYCLE_ANNOTATION, "")
    return WorkspaceType(cluster, annotations.get(PATH) or cluster, metadata["name"], spec, lifecycle)


def resolve(requested: TypeReference | None, parent: Object, lookup: Lookup) -> Resolution:
    """Return the type of a workspace created in the workspace of LogicalCluster `parent`.

    Without `requested` it is the default child type of the parent's type. Without a path it is the type of that name in
    the nearest workspace upwards from the parent, with `root` last. Raises TypeRefused.
    """
    reference = requested or _default_child(parent, lookup)
    found = lookup(reference.path, reference.name) if reference.path else _nearest(parent, reference, lookup)
    if found is None:
        raise TypeRefused(f'workspace type "{reference}" cannot be resolved')
    return Resolution(tuple(_with_bases(found, lookup)))


def resolve_present(cluster: Object, lookup: Lookup) -> Resolution | None:
    """Return the type of an existing LogicalCluster; None if it has no type annotation. Raises TypeRefused."""
    if TYPE not in annotations_of(cluster):
        return None
    path, name = _annotated_type(cluster)
    found = lookup(path, name)
    if found is None:
        raise TypeRefused(f'workspace type "{paths.join(path, name)}" cannot be resolved')
    return with_bases(found, lookup)


def with_bases(found: WorkspaceType, lookup: Lookup) -> Resolution:
    """Return the Resolution of a type: with all types it extends. Raises TypeRefused."""
    return Resolution(tuple(_with_bases(found, lookup)))


def check(resolution: Resolution, parent: Object, lookup: Lookup, may_use: MayUse) -> None:
    """Raise TypeRefused if the caller may not use the type, or if its limits or its parent's limits forbid it."""
    for alias in resolution.aliases:
        if not may_use(alias):
            text = "missing verb='use' permission on workspacetype"
            raise TypeRefused(f"unable to use workspace type {alias.qualified}: {text}")
    _check_limits(resolution.aliases, tuple(_with_bases(_parent_type(parent, lookup), lookup)))


def forbidden(workspace: str, error: TypeRefused) -> Forbidden:
    """Return the 403 for the creation of a Workspace."""
    message = f'workspaces.tenancy.kcp.io "{workspace}" is forbidden: {error}'
    return Forbidden(message, Details(workspace, "tenancy.kcp.io", "workspaces"))


def with_type(workspace: Object, resolution: Resolution) -> Object:
    """Return the Workspace with its type's name and path, and with the type's additional labels where absent."""
    found, spec = resolution.type, spec_of(workspace)
    path = (spec.get("type") or {}).get("path") or found.path
    metadata = dict(workspace["metadata"])
    if additional := found.spec.additional_workspace_labels:
        metadata["labels"] = {**additional, **(metadata.get("labels") or {})}
    return {**workspace, "metadata": metadata, "spec": {**spec, "type": {"name": found.name, "path": path}}}


def _annotated_type(parent: Object) -> tuple[str, str]:
    annotation = annotations_of(parent).get(TYPE)
    if annotation is None:
        raise TypeRefused(f"annotation {TYPE} on LogicalCluster must be set")
    path, name = paths.split(annotation)
    if not path:
        raise TypeRefused(f"annotation {TYPE} on LogicalCluster must be in the form of cluster:name")
    return path, name


def _parent_type(parent: Object, lookup: Lookup) -> WorkspaceType:
    path, name = _annotated_type(parent)
    found = lookup(path, name)
    if found is None:
        missing = f'workspacetypes.tenancy.kcp.io "{paths.join(path, name)}" not found'
        raise TypeRefused(f"parent type cannot be resolved: {missing}")
    return found


def _default_child(parent: Object, lookup: Lookup) -> TypeReference:
    parent_type = _parent_type(parent, lookup)
    child = parent_type.spec.default_child_workspace_type
    if child is None:
        raise TypeRefused(f"spec.defaultChildWorkspaceType of workspace type {parent_type.qualified} must be set")
    return child


def _nearest(parent: Object, reference: TypeReference, lookup: Lookup) -> WorkspaceType | None:
    annotations = annotations_of(parent)
    path = annotations.get(PATH) or annotations.get(CLUSTER, "")
    for step in (*paths.ancestors(path), ROOT):
        if (found := lookup(step, reference.name)) is not None:
            return found
    return None


def _with_bases(found: WorkspaceType, lookup: Lookup) -> list[WorkspaceType]:
    aliases: list[WorkspaceType] = []
    seen: set[str] = {found.qualified}
    aliases.extend(_bases(found, lookup, seen, (found.qualified,)))
    return [*aliases, found]


def _bases(found: WorkspaceType, lookup: Lookup, seen: set[str], trail: tuple[str, ...]) -> Iterator[WorkspaceType]:
    """Yield the bases depth first: each base, then the types it extends. `trail` is the path of types to `found`."""
    for reference in found.spec.extend.bases:
        name = str(TypeReference(reference.name, reference.path or found.path))
        if name in trail:
            cycle = " -> ".join(trail[trail.index(name) :])
            raise TypeRefused(f"circular dependency detected in workspace type {name}: {cycle}")
        if name in seen:
            continue
        if len(seen) >= MAX_ALIASES:
            raise TypeRefused(f"workspace type {trail[0]} extends more than {MAX_ALIASES} types")
        seen.add(name)
        base = lookup(reference.path or found.path, reference.name)
        if base is None:
            raise TypeRefused(f"unable to find inherited workspace type {name}")
        yield base
        yield from _bases(base, lookup, seen, (*trail, name))


def _check_limits(children: Sequence[WorkspaceType], parents: Sequence[WorkspaceType]) -> None:
    child, parent = children[-1].qualified, parents[-1].qualified
    problems = []
    for alias in children:
        limit = alias.spec.limit_allowed_parents
        if limit.none:
            raise TypeRefused(f"workspace type {child} cannot have any parents")
        if not limit.allows(parents):
            than = f"parent workspaces, but parent type {parent} {_implements(parents)}"
            problems.append(f"{_limiting(child, alias)} {_listed(limit.types)} {than}")
    for alias in parents:
        limit = alias.spec.limit_allowed_children
        if limit.none:
            raise TypeRefused(f"workspace type {parent} cannot have any children")
        if not limit.allows(children):
            than = f"child workspaces, but child type {child} {_implements(children)}"
            problems.append(f"{_limiting(parent, alias)} {_listed(limit.types)} {than}")
    if problems:
        raise TypeRefused(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _limiting(name: str, alias: WorkspaceType) -> str:
    """Return the text for the limited type and, if a base has the limit, that base."""
    extending = f" extends {alias.qualified}, which" if alias.qualified != name else ""
    return f"workspace type {name}{extending} only allows"


def _listed(references: Sequence[TypeReference]) -> str:
    return f"[{' '.join(sorted({str(reference) for reference in references}))}]"


def _implements(aliases: Sequence[WorkspaceType]) -> str:
    return f"only implements [{' '.join(sorted({alias.qualified for alias in aliases}))}]"
