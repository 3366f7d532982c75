"""Index of bound and exported resources: those of a cluster's bindings, and those under an identity.

`catalogs` makes kinds of the results. Invariant: a row is decoded once per revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kinds.kind import Kind, Virtual
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS, ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, decode, status_of
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, CRDS
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record, each_revision

#: Bound of the caches of exports and of bound CRDs, for wildcard requests.
MAX_CACHED = 8192
#: Bindings of one export that are searched for a bound resource; nearly always the first one has it.
MAX_LOOKED = 500


class BoundResource(msgspec.Struct, frozen=True):
    """One bound resource in the status of a binding. `schema` and `uid` are name and uid of its schema."""

    group: str
    resource: str
    schema: str
    uid: str
    identity: str
    #: Cluster and name of the binding's export.
    cluster: str
    export: str
    #: Its binding is being deleted.
    terminating: bool = False
    virtual: bool = False

    @property
    def variant(self) -> str:
        """The cache key of its kinds beside the definition."""
        return f"{self.identity} {self.cluster}/{self.export}" if self.virtual else self.identity

    def seen(self, kind: Kind) -> Kind:
        """Return a kind as bound."""
        return replace(kind, virtual=Virtual(self.cluster, self.export)) if self.virtual else kind


def bound_resources(view: View, cluster: str) -> Iterator[BoundResource]:
    """Yield the bound resources of the cluster's bindings, in name order."""
    for record in each_record(view, Scope(API_BINDINGS, cluster)):
        yield from _bound(decode(record.value))


def _bound(binding: Object) -> Iterator[BoundResource]:
    status: Object = status_of(binding)
    for item in status.get("boundResources") or ():
        schema = item["schema"]
        yield BoundResource(
            group=item.get("group") or "",
            resource=item["resource"],
            schema=schema["name"],
            uid=schema["UID"],
            identity=schema["identityHash"],
            cluster=status.get("apiExportClusterName") or "",
            export=binding["spec"]["reference"]["export"]["name"],
            terminating=bool(binding["metadata"].get("deletionTimestamp")),
            virtual=not item.get("storageVersions"),
        )


class _BoundCrd(msgspec.Struct, frozen=True):
    """The cached part of a bound CRD: its group and plural, and the exports of its cluster that offered it."""

    resource: tuple[str, str]
    cluster: str
    exports: tuple[str, ...]


class _ExportedResource(msgspec.Struct, frozen=True):
    """The cached part of an export: its identity, and schema names by group and plural."""

    identity: str
    schemas: Mapping[tuple[str, str], str]


class ExportIndex:
    """Finds the bindings and exports of a resource under an identity, for wildcard requests."""

    def __init__(self) -> None:
        self._crds = RevisionCache(_read_bound_crd, MAX_CACHED)
        self._exports = RevisionCache(_read_offer, MAX_CACHED)

    def bound(
        self, view: View, resource: tuple[str, str], identity: str | None = None
    ) -> Iterator[tuple[ObjectKey, BoundResource]]:
        """Yield bindings of a group and plural, under an identity if given, even if their export is gone."""
        for crd in self._bound_crds(view, resource):
            for export in crd.exports:
                label = hashes.EXPORT_LABEL, hashes.export_hash(crd.cluster, export)
                for key in view.labelled(*label, API_BINDINGS, MAX_LOOKED):
                    record = view.get(key)
                    for item in _bound(decode(record.value)) if record is not None else ():
                        if (item.group, item.resource) == resource and identity in {None, item.identity}:
                            yield key, item

    def exported(self, view: View, resource: tuple[str, str], identity: str) -> Iterator[tuple[ObjectKey, str]]:
        """Yield exports of a group and plural under an identity, with the schema's name."""
        for key, revision in each_revision(view, Scope(API_EXPORTS)):
            found = self._exports.of(view, key, revision)
            schema = found.schemas.get(resource) if found.identity == identity else None
            if schema:
                yield key, schema

    def _bound_crds(self, view: View, resource: tuple[str, str]) -> Iterator[_BoundCrd]:
        for key, revision in each_revision(view, Scope(CRDS, SYSTEM_BOUND_CRDS)):
            found = self._crds.of(view, key, revision)
            if found.resource == resource:
                yield found


def _read_bound_crd(crd: Object) -> _BoundCrd:
    spec, annotations = crd["spec"], annotations_of(crd)
    cluster = annotations.get(bound_crds.SCHEMA_CLUSTER, "")
    return _BoundCrd((spec["group"], spec["names"]["plural"]), cluster, tuple(bound_crds.exports_of(crd)))


def _read_offer(export: Object) -> _ExportedResource:
    offered = export["spec"].get("resources") or ()
    schemas = {(each.get("group") or "", each["name"]): each["schema"] for each in offered}
    return _ExportedResource(status_of(export).get("identityHash") or "", schemas)
