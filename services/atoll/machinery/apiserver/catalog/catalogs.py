"""Finds the catalogue of a logical cluster, and the kind behind an identity, by what stands in the store.

The pipeline's doors ask with each request, batches and controllers with what they are about to write. Clusters that
serve the same share one catalogue, and the caches that find it are bounded and keyed by the revisions of what they
derive from, read in the request's own snapshot, so nothing has to be told of a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.export_index import BoundResource, ExportIndex, bound_resources
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kinds.custom import has_versions, kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import API_BINDINGS, API_CONVERSIONS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_revision

MAX_CLUSTERS, MAX_CATALOGS = 4096, 512
#: JSON of the schemas that kept catalogues and kept definitions hold, in bytes each; what both hold is there once.
MAX_BYTES = 128 * 1024 * 1024
#: What a catalogue weighs beside its schemas, so that there are at most MAX_CATALOGS.
MIN_WEIGHT = MAX_BYTES // MAX_CATALOGS

V = TypeVar("V")
#: Rows with the revisions they stood at.
_Rows: TypeAlias = tuple[tuple[ObjectKey, int], ...]


class Definition(msgspec.Struct, frozen=True):
    """What one definition gives: its kinds, none if it is not served, and whether its objects are on their way out."""

    kinds: tuple[Kind, ...]
    terminating: bool = False
    #: Where the APIConversion of a bound one with several versions stands, and its revision, 0 where there is none.
    conversion: ObjectKey | None = None
    conversion_revision: int = 0

    def is_current(self, view: View) -> bool:
        """Whether its versions are still converted as they were when it was made."""
        return self.conversion is None or federated(view).revision_of(self.conversion) == self.conversion_revision

    @property
    def followed(self) -> tuple[ObjectKey, ...]:
        """The rows beside its own that decide how its objects are converted."""
        return () if self.conversion is None else (self.conversion,)

    @property
    def size_bytes(self) -> int:
        """What it keeps in memory, about."""
        return 1024 + sum(kind.schema.size_bytes for kind in self.kinds if kind.schema is not None)


class _CachedCatalog(msgspec.Struct, frozen=True):
    """Under which revisions a cluster's catalogue has which content. `conversions` is the last revision of any
    APIConversion, None where nothing is bound in several versions and none matters."""

    stamp: tuple[int, int]
    content: tuple[object, ...]
    conversions: int | None

    def is_current(self, view: View, stamp: tuple[int, int]) -> bool:
        if self.stamp != stamp:
            return False
        return self.conversions is None or self.conversions == federated(view).last(API_CONVERSIONS, "")


class Catalogs:
    """Finds catalogues. `system` are the built-in kinds and system CRDs, the same everywhere.

    A cluster's definitions are found by the revisions of their records, a catalogue by its kinds: one more definition
    among five hundred is one to decode, and a cluster with equal ones costs no second catalogue.
    """

    def __init__(self, system: Sequence[Kind]) -> None:
        self._system = tuple(system)
        self.base = Catalog(self._system)
        self._by_cluster: LruCache[str, _CachedCatalog] = LruCache(MAX_CLUSTERS)
        self._by_content: LruCache[tuple[object, ...], Catalog] = LruCache(MAX_BYTES, self._weight)
        self._definitions: LruCache[tuple[ObjectKey, str], tuple[int, Definition]] = LruCache(
            MAX_BYTES, lambda entry: entry[1].size_bytes
        )
        self._by_identity: LruCache[tuple[str, str, str, str], tuple[_Rows, Kind]] = LruCache(MAX_CATALOGS)
        self._anywhere: LruCache[tuple[str, str, str], tuple[int, Kind]] = LruCache(MAX_CATALOGS)
        self._offers = ExportIndex()

    def builtin(self, type: ResourceType) -> Kind:
        """The kind that every cluster serves under a type; that there is one is the caller's to know."""
        found = self.base.of_type(type)
        assert found is not None, type
        return found

    def of(self, view: View, cluster: str) -> Catalog:
        """The catalogue of a cluster at the view's revision."""
        stamp = view.last(API_BINDINGS, cluster), view.last(CRDS, cluster)
        if not any(stamp):
            return self.base
        found = self._by_cluster.get(cluster)
        if found is not None and found.is_current(view, stamp):
            catalog = self._by_content.get(found.content)
            if catalog is not None:
                return catalog
        content, catalog, follows = self._load(view, cluster)
        if not catalog.unavailable:
            # What lacks is looked for each time: nothing in the cluster says when it is there again.
            conversions = federated(view).last(API_CONVERSIONS, "") if follows else None
            self._by_cluster.put(cluster, _CachedCatalog(stamp, content, conversions))
        return catalog

    def _load(self, view: View, cluster: str) -> tuple[tuple[object, ...], Catalog, bool]:
        """Content and catalogue of a cluster, and whether APIConversions have a say in it."""
        kinds, unavailable, follows = [*self._system], set(), False
        for item in bound_resources(view, cluster):
            found = self._bound(view, item)
            if found is None:
                unavailable.add((item.group, item.resource))
            else:
                kinds.extend(found.kinds)
                follows = follows or found.conversion is not None
        terminating: set[tuple[str, str]] = set()
        for definition in self._defined(view, Scope(CRDS, cluster)):
            kinds.extend(definition.kinds)
            if definition.terminating:
                terminating.update((kind.group, kind.plural) for kind in definition.kinds)
        # Kinds are shared values, and those of a kept catalogue live: the same ones mean the same content.
        content: tuple[object, ...] = (*map(id, kinds[len(self._system) :]), *sorted(terminating), *sorted(unavailable))
        catalog = self._by_content.get(content)
        if catalog is None:
            catalog = Catalog(kinds, terminating, unavailable)
            self._by_content.put(content, catalog)
        return content, catalog, follows

    def _weight(self, catalog: Catalog) -> int:
        mine = (kind.schema for kind in catalog.kinds.values() if kind.identity != CORE)
        return MIN_WEIGHT + sum(schema.size_bytes for schema in mine if schema is not None)

    def _defined(self, view: View, scope: Scope) -> Iterator[Definition]:
        """What CustomResourceDefinitions give, in order; only what was written since is read and decoded."""
        for key, revision in each_revision(view, scope):
            found = self._definitions.get((key, LOCAL))
            if not revision or found is None or found[0] != revision:
                record = view.get(key)
                assert record is not None, "listed in the same snapshot"
                found = revision, _definition(decode(record.value))
                self._definitions.put((key, LOCAL), found)
            yield found[1]

    def _bound(self, view: View, item: BoundResource) -> Definition | None:
        """The kinds of a bound resource; None where its bound CRD is not there."""
        key, variant = bound_crds.key_of(item.uid), item.variant
        revision = view.revision_of(key)
        found = self._definitions.get((key, variant))
        if revision and found is not None and found[0] == revision and found[1].is_current(view):
            return found[1]
        # A batch gives no revision to what it has not submitted.
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
        """The kind behind `<resource>:<identity>` in wildcard requests; `wanted` is group, version, plural.

        The first binding found that has bound it says which, else the first export that offers it: found once, it is
        looked up by these rows' revisions.
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
        """Kinds of a resource under an identity, with the rows that say so; those that somebody has bound first."""
        for row, item in self._offers.bound(view, resource, identity):
            definition = self._bound(view, item)
            if definition is not None:
                yield (row, *definition.followed), definition.kinds
        for export, schema in self._offers.exported(view, resource, identity):
            row = ObjectKey(API_RESOURCE_SCHEMAS, export.cluster, "", schema)
            followed = ObjectKey(API_CONVERSIONS, export.cluster, "", schema)
            yield (export, row, followed), self.offered(view, export.cluster, schema, identity)

    def offered(self, view: View, cluster: str, schema: str, identity: str) -> Sequence[Kind]:
        """The kinds of a cluster's APIResourceSchema under an identity, as whoever binds it now is served; none where
        there is no such schema."""
        key, view = ObjectKey(API_RESOURCE_SCHEMAS, cluster, "", schema), federated(view)
        revision = view.revision_of(key)
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

    def defined_anywhere(self, view: View, wanted: tuple[str, str, str]) -> Kind | None:
        """The kind of some cluster's own definition; objects of all of them are stored under one type.

        Metadata is alike whatever the definitions say, which is why kcp lets wildcard requests for it use any.
        """
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
    """Which APIConversion a definition follows, if it has versions to convert between, and what that says."""

    key: ObjectKey | None = None
    revision: int = 0
    rules: Object | None = None


def _conversion(view: View, definition: Object, cluster: str, schema: str) -> _Conversion:
    """The APIConversion of a schema of a cluster: it has the schema's name."""
    if not has_versions(definition) or not cluster:
        return _Conversion()
    key, view = ObjectKey(API_CONVERSIONS, cluster, "", schema), federated(view)
    record = view.get(key)
    if record is None:
        return _Conversion(key)
    return _Conversion(key, view.revision_of(key), decode(record.value)["spec"])


def _definition(crd: Object) -> Definition:
    conditions = (crd.get("status") or {}).get("conditions") or []
    terminating = any(each["type"] == "Terminating" and each["status"] == "True" for each in conditions)
    return Definition(tuple(kinds_of_crd(crd, LOCAL)), terminating)
