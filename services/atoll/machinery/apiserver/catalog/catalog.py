"""The kinds that a logical cluster serves, in order of precedence.

Built-in kinds and system CRDs come first and cannot be overridden; then the bound resources of APIBindings; then the
cluster's own CRDs. A lower duplicate is hidden, not merged. A catalogue is an immutable value; `catalogs` finds the one
of a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.names import ResourceType


class Catalog:
    """The kinds of one set of APIs.

    Resources (group, plural) are `terminating` while their CustomResourceDefinition or APIBinding is being deleted, and
    take no creations; those that are `unavailable` are bound, and their bound CRD is missing. With `legacy_discovery`
    discovery is that of kcp's virtual workspaces: never aggregated, with storage hashes of no cluster.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        terminating: Collection[tuple[str, str]] = (),
        unavailable: Collection[tuple[str, str]] = (),
        *,
        legacy_discovery: bool = False,
    ) -> None:
        self.legacy_discovery = legacy_discovery
        self.terminating, self.unavailable = frozenset(terminating), frozenset(unavailable)
        self.kinds: dict[tuple[str, str, str], Kind] = {}
        owners: dict[tuple[str, str], str] = {}
        for kind in kinds:
            owner = owners.setdefault((kind.group, kind.plural), kind.identity)
            if owner == kind.identity:
                self.kinds.setdefault((kind.group, kind.version, kind.plural), kind)
        self.versions = frozenset((group, version) for group, version, _ in self.kinds)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self.kinds.get((group, version, plural))

    def of_type(self, type: ResourceType) -> Kind | None:
        """Return the kind stored under a type, in its stored version if that is served."""
        return self._by_type.get(type)

    def of_same_type(self, type: ResourceType) -> tuple[Kind, ...]:
        """Return all kinds whose objects are stored under a type: the served versions of one resource."""
        return self._versions.get(type, ())

    @cached_property
    def _versions(self) -> dict[ResourceType, tuple[Kind, ...]]:
        found: dict[ResourceType, tuple[Kind, ...]] = {}
        for kind in self.kinds.values():
            found[kind.type] = (*found.get(kind.type, ()), kind)
        return found

    @cached_property
    def _by_type(self) -> dict[ResourceType, Kind]:
        found: dict[ResourceType, Kind] = {}
        for kind in self.kinds.values():
            if kind.stored_as is None:
                known = found.setdefault(kind.type, kind)
                if kind.version == kind.storage_version != known.version:
                    found[kind.type] = kind
        return found

    @cached_property
    def by_resource(self) -> Mapping[tuple[str, str], Kind]:
        """The kind of each group and resource, in its first version."""
        found: dict[tuple[str, str], Kind] = {}
        for kind in self.kinds.values():
            found.setdefault((kind.group, kind.plural), kind)
        return found

    @cached_property
    def virtual(self) -> tuple[Kind, ...]:
        """The kinds of virtual resources."""
        return tuple(kind for kind in self.kinds.values() if kind.virtual is not None)

    @cached_property
    def by_version(self) -> Mapping[tuple[str, str], tuple[Kind, ...]]:
        """The kinds of each group and version, in order."""
        found: dict[tuple[str, str], list[Kind]] = {}
        for kind in self.kinds.values():
            found.setdefault((kind.group, kind.version), []).append(kind)
        return {version: tuple(kinds) for version, kinds in found.items()}

    @cached_property
    def version_marks(self) -> Mapping[tuple[str, str], bytes]:
        """A hash of the kinds of each group and version, the cache key of documents."""
        return {version: self._mark(kinds) for version, kinds in self.by_version.items()}

    @cached_property
    def mark(self) -> bytes:
        """A hash of the kinds and their order."""
        return self._mark(self.kinds.values())

    def _mark(self, kinds: Iterable[Kind]) -> bytes:
        marks = [(kind_mark(kind), (kind.group, kind.plural) in self.terminating) for kind in kinds]
        return hashlib.sha256(repr((self.legacy_discovery, marks)).encode()).digest()


#: The content of a kind that discovery and OpenAPI show.
KindMark = tuple[object, ...]


def kind_mark(kind: Kind) -> KindMark:
    """Return a key that is equal for kinds with equal documents.

    The definition alone does not decide: a virtual workspace removes verbs of a kind.
    """
    subresources = tuple((sub.name, sub.verbs) for sub in kind.subresources)
    names = kind.group, kind.version, kind.plural, kind.kind, kind.namespaced, kind.short_names, kind.categories
    return kind.mark, *names, kind.verbs, subresources, kind.virtual
