"""Look up the catalogue of a logical cluster, and the kind of an identity, in the stored definitions.

Handlers call it for each request, batches and controllers for their writes. Clusters with equal kinds share one
catalogue. Caches are bounded and keyed by the revisions of the rows they derive from, read in the request's snapshot,
so that no invalidation is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.edge_catalogs import EdgeCatalogs
from atoll.machinery.apiserver.catalog.export_index import BoundResource, ExportIndex, bound_resources
from atoll.machinery.apiserver.catalog.shipped_kinds import ShippedKinds
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.edge.denaturing import IDENTITY as DENATURED
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kinds.custom import has_versions, kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, conditions_of, decode
from atoll.machinery.meta.types import API_BINDINGS, API_CONVERSIONS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_revision

MAX_CLUSTERS, MAX_CATALOGS = 4096, 512
#: Bounds of cached catalogues and of cached definitions, each in bytes of schemas as JSON; shared ones exist once.
MAX_BYTES = 128 * 1024 * 1024
#: Weight of a catalogue beside its schemas, so that there are at most MAX_CATALOGS.
MIN_WEIGHT = MAX_BYTES // MAX_CATALOGS

V = TypeVar("V")
#: Rows with the revisions they were read at.
_Rows: TypeAlias = tuple[tuple[ObjectKey, int], ...]


class Definition(msgspec.Struct, frozen=True):
    """The kinds of one definition, none if it is not served, and whether it terminates."""

    kinds: tuple[Kind, ...]
    terminating: bool = False
    #: Key and revision of the APIConversion of a bound CRD with several versions; revision 0 if there is none.
    conversion: ObjectKey | None = None
    conversion_revision: int = 0

    def is_current(self, view: View) -> bool:
        """Whether its APIConversion is unchanged."""
        return self.conversion is None or federated(view).revision_of(self.conversion) == self.conversion_revision

    @property
    def followed(self) -> tuple[ObjectKey, ...]:
        """Return the rows beside its own that decide its conversion."""
        return () if self.conversion is None else (self.conversion,)

    @property
    def size_bytes(self) -> int:
        """Return its approximate size in memory."""
        return 1024 + sum(kind.schema.size_bytes for kind in self.kinds if kind.schema is not None)


class _Served(NamedTuple):
    """A catalogue and its content, which all clusters that serve it refer to."""

    content: tuple[object, ...]
    catalog: Catalog


class _CachedCatalog(msgspec.Struct, frozen=True):
    """The revisions and the content of a cluster's catalogue. `conversions` is the last revision of any
    APIConversion; None if no resource is bound in several versions."""

    stamp: tuple[int, int]
    content: tuple[object, ...]
    conversions: int | None

    def is_current(self, view: View, stamp: tuple[int, int]) -> bool:
        if self.stamp != stamp:
            return False
        return self.conversions is None or self.conversions == federated(view).last(API_CONVERSIONS, "")


class Catalogs:
    """Looks up catalogues. `system` are the built-in kinds and system CRDs, the same in all clusters; `kubernetes` is
    the identity of root's export of Kubernetes' kinds, empty without one.

    Definitions are cached by the revisions of their records, catalogues by their kinds: one definition more among five
    hundred is one to decode, and a cluster with equal kinds needs no second catalogue.
    """

    def __init__(self, system: Sequence[Kind], kubernetes: str = "") -> None:
        self._system, self.shipped = tuple(system), ShippedKinds(kubernetes)
        self.edge = EdgeCatalogs(self.shipped)
        self.base = Catalog(self._system)
        self._by_cluster: LruCache[str, _CachedCatalog] = LruCache(MAX_CLUSTERS)
        self._by_content: LruCache[tuple[object, ...], _Served] = LruCache(MAX_BYTES, self._weight)
        self._definitions: LruCache[tuple[ObjectKey, str], tuple[int, Definition]] = LruCache(
            MAX_BYTES, lambda entry: entry[1].size_bytes
        )
        self._by_identity: LruCache[tuple[str, str, str, str], tuple[_Rows, Kind]] = LruCache(MAX_CATALOGS)
        self._anywhere: LruCache[tuple[str, str, str], tuple[int, Kind]] = LruCache(MAX_CATALOGS)
        self._offers = ExportIndex()

    def builtin(self, type: ResourceType) -> Kind:
        """Return the kind that every cluster serves under a type, which must exist."""
        found = self.base.of_type(type)
        assert found is not None, type
        return found

    def of(self, view: View, cluster: str) -> Catalog:
        """Return the catalogue of a cluster at the view's revision."""
        stamp = view.last(API_BINDINGS, cluster), view.last(CRDS, cluster)
        if not any(stamp):
            return self.base
        found = self._by_cluster.get(cluster)
        if found is not None and found.is_current(view, stamp):
            served = self._by_content.get(found.content)
            if served is not None:
                return served.catalog
        (content, catalog), follows = self._load(view, cluster)
        if not catalog.unavailable:
            # A missing bound CRD is looked up each time: no row of the cluster changes when it appears.
            conversions = federated(view).last(API_CONVERSIONS, "") if follows else None
            self._by_cluster.put(cluster, _CachedCatalog(stamp, content, conversions))
        return catalog

    def kind_of(self, view: View, cluster: str, type: ResourceType) -> Kind | None:
        """Return the kind of stored objects, also of those that only the views of the edge layer serve."""
        own = self.of(view, cluster)
        return (self.edge.of(own) if type.identity == DENATURED else own).of_type(type)

    def for_request(self, view: View, cluster: str) -> Catalog:
        """Return the catalogue of a cluster for a request or the plan of a write, which can wait.

        Raises KindsPending if kinds are loaded first.
        """
        self.shipped.caller.can_wait = True
        try:
            return self.of(view, cluster)
        finally:
            self.shipped.caller.can_wait = False

    def _load(self, view: View, cluster: str) -> tuple[_Served, bool]:
        """Return the catalogue of a cluster with its content, and whether it depends on APIConversions."""
        kinds, follows = [*self._system], False
        terminating: set[tuple[str, str]] = set()
        unavailable: set[tuple[str, str]] = set()
        for item in bound_resources(view, cluster):
            found = self._bound(view, item)
            if found is None:
                unavailable.add((item.group, item.resource))
            else:
                kinds.extend(found.kinds)
                follows = follows or found.conversion is not None
                if item.terminating:
                    terminating.add((item.group, item.resource))
        for definition in self._defined(view, Scope(CRDS, cluster)):
            kinds.extend(definition.kinds)
            if definition.terminating:
                terminating.update((kind.group, kind.plural) for kind in definition.kinds)
        # Kinds are shared values, and a cached catalogue keeps its kinds alive: the same ones mean the same content.
        content: tuple[object, ...] = (*map(id, kinds[len(self._system) :]), *sorted(terminating), *sorted(unavailable))
        served = self._by_content.get(content)
        if served is None:
            served = _Served(content, Catalog(kinds, terminating, unavailable))
            self._by_content.put(content, served)
        return served, follows

    def _weight(self, served: _Served) -> int:
        mine = (kind.schema for kind in served.catalog.kinds.values() if kind.identity != CORE)
        return MIN_WEIGHT + sum(schema.size_bytes for schema in mine if schema is not None)

    def _defined(self, view: View, scope: Scope) -> Iterator[Definition]:
        """Yield the definitions of a scope, in order; only changed ones are read and decoded."""
        for key, revision in each_revision(view, scope):
            found = self._definitions.get((key, LOCAL))
            if not revision or found is None or found[0] != revision:
                record = view.get(key)
                assert record is not None, "listed in the same snapshot"
                found = revision, _definition(decode(record.value))
                self._definitions.put((key, LOCAL), found)
            yield found[1]

    def _bound(self, view: View, item: BoundResource) -> Definition | None:
        """Return the kinds of a bound resource; None if its bound CRD is missing."""
        key, variant = bound_crds.key_of(item.uid), item.variant
        revision = view.revision_of(key)
        if revision and (shipped := self.shipped.of(item.schema, item.identity)):
            return Definition(shipped)
        found = self._definitions.get((key, variant))
        if revision and found is not None and found[0] == revision and found[1].is_current(view):
            return found[1]
        # Writes of a batch have no revision yet.
        record = view.get(key)
        if record is None:
            return None
        crd = decode(record.value)
        conversion = _conversion(view, crd, *bound_crds.source_of(crd))
        kinds = tuple(item.seen(kind) for kind in kinds_of_crd(crd, item.identity, conversion.rules))
        definition = Definition(kinds, False, conversion.key, conversion.revision)
        if revision:
            self._definitions.put((key, variant), (revision, definition))
        return definition

    def by_identity(self, view: View, wanted: tuple[str, str, str], identity: str) -> Kind | None:
        """Return the kind of `<resource>:<identity>` in wildcard requests; `wanted` is group, version, plural.

        The first binding found that binds it decides, else the first export that offers it. The result is cached by
        the revisions of these rows.
        """
        if identity == CORE:
            return self.base.find(*wanted)
        key, view = (*wanted, identity), federated(view)
        found = self._by_identity.get(key)
        if found is not None and all(view.revision_of(row) == revision for row, revision in found[0]):
            return found[1]
        for rows, kinds in self._by(view, (wanted[0], wanted[2]), identity):
            for kind in kinds:
                if kind.version == wanted[1]:
                    self._by_identity.put(key, (tuple((row, view.revision_of(row)) for row in rows), kind))
                    return kind
        return None

    def _by(
        self, view: View, resource: tuple[str, str], identity: str
    ) -> Iterator[tuple[tuple[ObjectKey, ...], Sequence[Kind]]]:
        """Yield the kinds of a resource under an identity, with the rows they derive from; bound ones first."""
        for row, item in self._offers.bound(view, resource, identity):
            definition = self._bound(view, item)
            if definition is not None:
                yield (row, *definition.followed), definition.kinds
        for export, schema in self._offers.exported(view, resource, identity):
            row = ObjectKey(API_RESOURCE_SCHEMAS, export.cluster, "", schema)
            followed = ObjectKey(API_CONVERSIONS, export.cluster, "", schema)
            yield (export, row, followed), self.offered(view, export.cluster, schema, identity)

    def offered(self, view: View, cluster: str, schema: str, identity: str) -> Sequence[Kind]:
        """Return the kinds of a cluster's APIResourceSchema under an identity, as a new binding would get them; none if
        the schema is missing."""
        key, view = ObjectKey(API_RESOURCE_SCHEMAS, cluster, "", schema), federated(view)
        revision = view.revision_of(key)
        if revision and (shipped := self.shipped.of(schema, identity)):
            return shipped
        found = self._definitions.get((key, identity))
        if not revision or found is None or found[0] != revision or not found[1].is_current(view):
            record = view.get(key)
            if record is None:
                return ()
            made = decode(record.value)
            conversion = _conversion(view, made, cluster, schema)
            kinds = tuple(kinds_of_resource_schema(made, identity, conversion.rules))
            found = revision, Definition(kinds, False, conversion.key, conversion.revision)
            self._definitions.put((key, identity), found)
        return found[1].kinds

    def served_anywhere(self, view: View, wanted: tuple[str, str, str]) -> Kind | None:
        """Return the kind of a resource in any cluster that defines or binds it.

        Metadata is the same under all definitions, so that, as in kcp, wildcard requests for it use any of them.
        """
        return self._defined_anywhere(view, wanted) or self._bound_anywhere(view, wanted)

    def _bound_anywhere(self, view: View, wanted: tuple[str, str, str]) -> Kind | None:
        group, version, plural = wanted
        for _, item in self._offers.bound(view, (group, plural)):
            definition = self._bound(view, item)
            for kind in definition.kinds if definition is not None else ():
                if kind.version == version:
                    return kind
        return None

    def _defined_anywhere(self, view: View, wanted: tuple[str, str, str]) -> Kind | None:
        """Return the kind of any cluster's own definition; objects of all of them are stored under one type."""
        stamp = view.last(CRDS, "")
        found = self._anywhere.get(wanted)
        if found is not None and found[0] == stamp:
            return found[1]
        group, version, plural = wanted
        name = f"{plural}.{group}"
        for crd, _ in each_revision(view, Scope(CRDS)):
            record = view.get(crd) if crd.name == name else None
            for kind in _definition(decode(record.value)).kinds if record is not None else ():
                if kind.version == version:
                    self._anywhere.put(wanted, (stamp, kind))
                    return kind
        return None


class _Conversion(msgspec.Struct, frozen=True):
    """The APIConversion of a definition with several versions, and its rules."""

    key: ObjectKey | None = None
    revision: int = 0
    rules: Object | None = None


def _conversion(view: View, definition: Object, cluster: str, schema: str) -> _Conversion:
    """Return the APIConversion of a schema of a cluster: it has the schema's name."""
    if not has_versions(definition) or not cluster:
        return _Conversion()
    key, view = ObjectKey(API_CONVERSIONS, cluster, "", schema), federated(view)
    record = view.get(key)
    if record is None:
        return _Conversion(key)
    return _Conversion(key, view.revision_of(key), decode(record.value)["spec"])


def _definition(crd: Object) -> Definition:
    conditions = conditions_of(crd)
    terminating = any(each["type"] == "Terminating" and each["status"] == "True" for each in conditions)
    return Definition(tuple(kinds_of_crd(crd, LOCAL)), terminating)
