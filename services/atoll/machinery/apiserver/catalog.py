"""Which kinds a logical cluster serves, and in what order of precedence.

Built-in kinds and system CRDs come first and cannot be overridden; then what the cluster's APIBindings bind; then
its own CRDs. A lower duplicate is hidden, not merged. A catalogue is a value made from content: clusters that
serve the same share one, and the caches that find it are bounded and keyed by the revisions of what they derive
from, read in the request's own snapshot, so nothing has to be told of a change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from atoll.machinery.apiserver.call import View
from atoll.machinery.kinds.custom import kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.storage.contract import Position, Record, Scope

MAX_CLUSTERS, MAX_CATALOGS = 4096, 512
#: JSON of the schemas that kept catalogues and kept definitions hold, in bytes each; what both hold is there once.
MAX_BYTES = 128 * 1024 * 1024
#: What a catalogue weighs beside its schemas, so that there are at most MAX_CATALOGS.
MIN_WEIGHT = MAX_BYTES // MAX_CATALOGS
PAGE = 500

V = TypeVar("V")


class Catalog:
    """The kinds of one set of APIs. Of the `terminating` ones (group, plural) nothing new may be written."""

    def __init__(self, kinds: Iterable[Kind], terminating: Collection[tuple[str, str]] = ()) -> None:
        self.terminating = frozenset(terminating)
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
        """The kind whose objects are stored under a type, in its stored version where that is served."""
        return self._by_type.get(type)

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
    def by_version(self) -> Mapping[tuple[str, str], tuple[Kind, ...]]:
        """The kinds of each group and version, in order."""
        found: dict[tuple[str, str], list[Kind]] = {}
        for kind in self.kinds.values():
            found.setdefault((kind.group, kind.version), []).append(kind)
        return {version: tuple(kinds) for version, kinds in found.items()}

    @cached_property
    def version_marks(self) -> Mapping[tuple[str, str], bytes]:
        """Of each group and version, what is equal where its kinds are; documents are found by it."""
        return {version: self._mark(kinds) for version, kinds in self.by_version.items()}

    @cached_property
    def mark(self) -> bytes:
        """Equal for catalogues of equal kinds in equal order."""
        return self._mark(self.kinds.values())

    def _mark(self, kinds: Iterable[Kind]) -> bytes:
        marks = [(kind_mark(kind), (kind.group, kind.plural) in self.terminating) for kind in kinds]
        return hashlib.sha256(repr(marks).encode()).digest()


#: What a kind is by content, as far as discovery and OpenAPI go.
KindMark = tuple[object, ...]


def kind_mark(kind: Kind) -> KindMark:
    """Equal for kinds that are described equally.

    The content of a definition does not say all: a binding that goes away takes verbs out of a kind, and a virtual
    workspace shows what it lets through.
    """
    subresources = tuple((sub.name, sub.verbs) for sub in kind.subresources)
    names = kind.group, kind.version, kind.plural, kind.kind, kind.namespaced, kind.short_names, kind.categories
    return kind.mark, *names, kind.verbs, subresources


class Bound(msgspec.Struct, frozen=True):
    """One resource that a binding binds, as its status says."""

    group: str
    resource: str
    schema: str
    identity: str
    schema_cluster: str
    deleting: bool = False


class Definition(msgspec.Struct, frozen=True):
    """What one definition gives: its kinds, none if it is not served, and whether its objects are on their way out."""

    kinds: tuple[Kind, ...]
    terminating: bool = False

    @property
    def size_bytes(self) -> int:
        """What it keeps in memory, about."""
        return 1024 + sum(kind.schema.size_bytes for kind in self.kinds if kind.schema is not None)


class Catalogs:
    """Finds catalogues. `system` are the built-in kinds and system CRDs, the same everywhere.

    A cluster's definitions are found by the revisions of their records, a catalogue by its kinds: one more definition
    among five hundred is one to decode, and a cluster with equal ones costs no second catalogue.
    """

    def __init__(self, system: Sequence[Kind]) -> None:
        self._system = tuple(system)
        self.base = Catalog(self._system)
        self._by_cluster: LruCache[str, tuple[tuple[int, int], tuple[object, ...]]] = LruCache(MAX_CLUSTERS)
        self._by_content: LruCache[tuple[object, ...], Catalog] = LruCache(MAX_BYTES, self._weight)
        self._definitions: LruCache[tuple[ObjectKey, str], tuple[int, Definition]] = LruCache(
            MAX_BYTES, lambda entry: entry[1].size_bytes
        )
        self._by_identity: LruCache[tuple[str, str, str, str], tuple[int, Kind]] = LruCache(MAX_CATALOGS)

    def of(self, view: View, cluster: str) -> Catalog:
        """The catalogue of a cluster at the view's revision."""
        stamp = view.last(API_BINDINGS, cluster), view.last(CRDS, cluster)
        if not any(stamp):
            return self.base
        found = self._by_cluster.get(cluster)
        if found is not None and found[0] == stamp:
            catalog = self._by_content.get(found[1])
            if catalog is not None:
                return catalog
        content, catalog = self._load(view, cluster)
        self._by_cluster.put(cluster, (stamp, content))
        return catalog

    def _load(self, view: View, cluster: str) -> tuple[tuple[object, ...], Catalog]:
        kinds = [*self._system]
        for item in bound_resources(view, cluster):
            kinds.extend(self._bound_kinds(view, item))
        terminating: set[tuple[str, str]] = set()
        for definition in self._defined(view, Scope(CRDS, cluster)):
            kinds.extend(definition.kinds)
            if definition.terminating:
                terminating.update((kind.group, kind.plural) for kind in definition.kinds)
        # Kinds are shared values, and those of a kept catalogue live: the same ones mean the same content.
        content: tuple[object, ...] = (*map(id, kinds[len(self._system) :]), *sorted(terminating))
        catalog = self._by_content.get(content)
        if catalog is None:
            catalog = Catalog(kinds, terminating)
            self._by_content.put(content, catalog)
        return content, catalog

    def _weight(self, catalog: Catalog) -> int:
        mine = (kind.schema for kind in catalog.kinds.values() if kind.identity != CORE)
        return MIN_WEIGHT + sum(schema.size_bytes for schema in mine if schema is not None)

    def _defined(self, view: View, scope: Scope) -> Iterator[Definition]:
        """What CustomResourceDefinitions give, in order; only what was written since is read and decoded."""
        for key, revision in _revisions(view, scope):
            found = self._definitions.get((key, LOCAL))
            if not revision or found is None or found[0] != revision:
                record = view.get(key)
                assert record is not None, "listed in the same snapshot"
                found = revision, _definition(decode(record.value))
                self._definitions.put((key, LOCAL), found)
            yield found[1]

    def _bound_kinds(self, view: View, item: Bound) -> list[Kind]:
        record = view.get(ObjectKey(API_RESOURCE_SCHEMAS, item.schema_cluster, "", item.schema))
        if record is None:
            return []
        # By content, for a batch sees what it has not submitted at the revision before.
        mark = record.revision ^ hash(record.value)
        found = self._definitions.get((record.key, item.identity))
        if found is None or found[0] != mark:
            found = mark, Definition(tuple(kinds_of_resource_schema(decode(record.value), item.identity)))
            self._definitions.put((record.key, item.identity), found)
        kinds = list(found[1].kinds)
        if not item.deleting:
            return kinds
        # A binding that goes away leaves its objects readable and takes creation out of discovery.
        return [msgspec.structs.replace(k, verbs=tuple(v for v in k.verbs if v != "create")) for k in kinds]

    def by_identity(self, view: View, wanted: tuple[str, str, str], identity: str) -> Kind | None:
        """The kind behind `<resource>:<identity>` in wildcard requests; `wanted` is group, version, plural."""
        if identity == CORE:
            return self.base.find(*wanted)
        stamp, key = view.last(API_EXPORTS, ""), (*wanted, identity)
        found = self._by_identity.get(key)
        if found is not None and found[0] == stamp:
            return found[1]
        for export in _all(view, Scope(API_EXPORTS)):
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
        for crd, _ in _revisions(view, Scope(CRDS)):
            record = view.get(crd) if crd.name == name else None
            for kind in _definition(decode(record.value)).kinds if record is not None else ():
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
    for record in _all(view, Scope(API_BINDINGS, cluster)):
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


def _definition(crd: Object) -> Definition:
    conditions = (crd.get("status") or {}).get("conditions") or []
    terminating = any(each["type"] == "Terminating" and each["status"] == "True" for each in conditions)
    return Definition(tuple(kinds_of_crd(crd, LOCAL)), terminating)


def _all(view: View, scope: Scope) -> list[Record]:
    """Every record of a scope; bounded by what one cluster may hold of configuration kinds."""
    return list(_each(view, scope))


def _revisions(view: View, scope: Scope) -> Iterator[tuple[ObjectKey, int]]:
    """Keys and revisions of a scope, read a page at a time."""
    after = None
    while True:
        page = view.revisions(scope, after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1][0]
        after = Position(last.cluster, last.namespace, last.name)


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
