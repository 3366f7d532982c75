"""Which kinds a logical cluster serves, and in what order of precedence.

Built-in kinds and system CRDs come first and cannot be overridden; then what the cluster's APIBindings bind; then
its own CRDs. A lower duplicate is hidden, not merged. A catalogue is a value made from content: clusters that
serve the same share one, and the caches that find it are bounded and keyed by the revisions of what they derive
from, read in the request's own snapshot, so nothing has to be told of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from atoll.machinery.apiserver.call import View
from atoll.machinery.kinds.custom import kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.storage.contract import Position, Record, Scope

CRDS = ResourceType("apiextensions.k8s.io", "customresourcedefinitions")
BINDINGS = ResourceType("apis.kcp.io", "apibindings")
EXPORTS = ResourceType("apis.kcp.io", "apiexports")
SCHEMAS = ResourceType("apis.kcp.io", "apiresourceschemas")

MAX_CLUSTERS, MAX_CATALOGS = 4096, 512
PAGE = 500

V = TypeVar("V")


class Catalog:
    """The kinds of one set of APIs. `documents` holds what discovery and OpenAPI made of it, on demand."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds: dict[tuple[str, str, str], Kind] = {}
        owners: dict[tuple[str, str], str] = {}
        for kind in kinds:
            owner = owners.setdefault((kind.group, kind.plural), kind.identity)
            if owner == kind.identity:
                self.kinds.setdefault((kind.group, kind.version, kind.plural), kind)
        self.versions = frozenset((group, version) for group, version, _ in self.kinds)
        self.documents: dict[str, object] = {}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self.kinds.get((group, version, plural))

    def of_type(self, type: ResourceType) -> Kind | None:
        """The kind whose objects are stored under a type, in its stored version where that is served."""
        return self._by_type.get(type)

    @cached_property
    def _by_type(self) -> dict[ResourceType, Kind]:
        found: dict[ResourceType, Kind] = {}
        for kind in self.kinds.values():
            if kind.stored_as is None:
                known = found.setdefault(kind.type, kind)
                if known.from_stored is not None and kind.from_stored is None:
                    found[kind.type] = kind
        return found

    def document(self, name: str, make: Callable[[], V]) -> V:
        """A document made once from this catalogue and shared by all its clusters."""
        if name not in self.documents:
            self.documents[name] = make()
        return cast(V, self.documents[name])


class Bound(msgspec.Struct, frozen=True):
    """One resource that a binding binds, as its status says."""

    group: str
    resource: str
    schema: str
    identity: str
    schema_cluster: str
    deleting: bool = False


class Catalogs:
    """Finds catalogues. `system` are the built-in kinds and system CRDs, the same everywhere."""

    def __init__(self, system: Sequence[Kind]) -> None:
        self._system = tuple(system)
        self.base = Catalog(self._system)
        self._by_cluster: LruCache[str, tuple[int, int, Catalog]] = LruCache(MAX_CLUSTERS)
        self._by_content: LruCache[tuple[object, ...], Catalog] = LruCache(MAX_CATALOGS)
        self._by_identity: LruCache[tuple[str, str, str, str], tuple[int, Kind]] = LruCache(MAX_CATALOGS)

    def of(self, view: View, cluster: str) -> Catalog:
        """The catalogue of a cluster at the view's revision."""
        stamp = view.last(BINDINGS, cluster), view.last(CRDS, cluster)
        found = self._by_cluster.get(cluster)
        if found is not None and found[:2] == stamp:
            return found[2]
        catalog = self._load(view, cluster) if any(stamp) else self.base
        self._by_cluster.put(cluster, (*stamp, catalog))
        return catalog

    def _load(self, view: View, cluster: str) -> Catalog:
        bound = tuple(bound_resources(view, cluster))
        crds = [record for record in _all(view, Scope(CRDS, cluster)) if _is_served(record.value)]
        key: tuple[object, ...] = (*bound, *(record.value for record in crds if cluster != ""))
        found = self._by_content.get(key)
        if found is not None:
            return found
        kinds = [*self._system]
        for item in bound:
            kinds.extend(self._bound_kinds(view, item))
        for record in crds:
            kinds.extend(kinds_of_crd(decode(record.value), LOCAL))
        catalog = Catalog(kinds)
        self._by_content.put(key, catalog)
        return catalog

    def _bound_kinds(self, view: View, item: Bound) -> list[Kind]:
        record = view.get(ObjectKey(SCHEMAS, item.schema_cluster, "", item.schema))
        if record is None:
            return []
        kinds = kinds_of_resource_schema(decode(record.value), item.identity)
        if not item.deleting:
            return kinds
        # A binding that goes away leaves its objects readable and takes creation out of discovery.
        return [msgspec.structs.replace(k, verbs=tuple(v for v in k.verbs if v != "create")) for k in kinds]

    def by_identity(self, view: View, wanted: tuple[str, str, str], identity: str) -> Kind | None:
        """The kind behind `<resource>:<identity>` in wildcard requests; `wanted` is group, version, plural."""
        if identity == CORE:
            return self.base.find(*wanted)
        stamp, key = view.last(EXPORTS, ""), (*wanted, identity)
        found = self._by_identity.get(key)
        if found is not None and found[0] == stamp:
            return found[1]
        for export in _all(view, Scope(EXPORTS)):
            kind = self._exported(view, export.key.cluster, decode(export.value), wanted, identity)
            if kind is not None:
                self._by_identity.put(key, (stamp, kind))
                return kind
        return None

    def defined_anywhere(self, view: View, wanted: tuple[str, str, str]) -> Kind | None:
        """The kind of some cluster's own definition; objects of all of them are stored under one type.

        Metadata is alike whatever the definitions say, which is why kcp lets wildcard requests for it use any.
        """
        stamp, key = view.last(CRDS, ""), (*wanted, LOCAL)
        found = self._by_identity.get(key)
        if found is not None and found[0] == stamp:
            return found[1]
        group, version, plural = wanted
        name = f"{plural}.{group}"
        for record in _each(view, Scope(CRDS)):
            if record.key.name != name or not _is_served(record.value):
                continue
            for kind in kinds_of_crd(decode(record.value), LOCAL):
                if kind.version == version:
                    self._by_identity.put(key, (stamp, kind))
                    return kind
        return None

    def _exported(
        self, view: View, cluster: str, export: Object, wanted: tuple[str, str, str], identity: str
    ) -> Kind | None:
        if (export.get("status") or {}).get("identityHash") != identity:
            return None
        group, version, plural = wanted
        for resource in export["spec"].get("resources") or []:
            if (resource.get("group") or "", resource["name"]) != (group, plural):
                continue
            bound = Bound(group, plural, resource["schema"], identity, cluster)
            for kind in self._bound_kinds(view, bound):
                if kind.version == version:
                    return kind
        return None


def bound_resources(view: View, cluster: str) -> Iterable[Bound]:
    """What the cluster's bindings have bound, in name order."""
    for record in _all(view, Scope(BINDINGS, cluster)):
        binding = decode(record.value)
        status: Mapping[str, object] = binding.get("status") or {}
        home = str(status.get("apiExportClusterName") or "")
        deleting = bool(binding["metadata"].get("deletionTimestamp"))
        resources = status.get("boundResources") or []
        assert isinstance(resources, list)
        for item in resources:
            schema = item["schema"]
            yield Bound(
                item.get("group") or "", item["resource"], schema["name"], schema["identityHash"], home, deleting
            )


def _is_served(value: bytes) -> bool:
    """Whether a CRD's names were accepted or it was established before."""
    if b'"Established"' not in value:
        return False
    conditions = (decode(value).get("status") or {}).get("conditions") or []
    return any(c["type"] in {"Established", "NamesAccepted"} and c["status"] == "True" for c in conditions)


def _all(view: View, scope: Scope) -> list[Record]:
    """Every record of a scope; bounded by what one cluster may hold of configuration kinds."""
    return list(_each(view, scope))


def _each(view: View, scope: Scope) -> Iterator[Record]:
    """The records of a scope, read a page at a time."""
    after = None
    while True:
        page = view.scan(scope, after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1].key
        after = Position(last.cluster, last.namespace, last.name)
