"""The catalog of an APIExport's view: its own kinds, the kinds it claims, and the bindings to it.

`apiexport` looks up an export's catalog with every request. A catalog is built from the export, the schemas it names
and the other exports whose kinds it claims. It is cached (bounded) under the revisions of these inputs, read in the
request's own snapshot. Invariant: a kind carries the identity under which its objects are stored, so that no request
names one; a claimed kind comes with the labels that mark its objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kcp.apis import permission_claims
from atoll.machinery.kcp.apis.permission_claims import ClaimKey
from atoll.machinery.kinds.kind import Kind, Virtual
from atoll.machinery.meta import hashes
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, spec_of, status_of
from atoll.machinery.meta.requirements import ABSENT, IN, new_requirement
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.types import API_CONVERSIONS, API_EXPORTS, API_RESOURCE_SCHEMAS
from atoll.machinery.meta.wellknown import APIS_GROUP
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record
from atoll.virtualworkspaces.framework import view_kind

MAX_OFFERS = 512
#: Kinds that one export may claim; further claims are not served.
MAX_CLAIMS = 256

#: Group and plural.
Name = tuple[str, str]
BINDINGS: Name = (APIS_GROUP, "apibindings")


class ExportKey(NamedTuple):
    """An APIExport: its logical cluster and its name."""

    cluster: str
    name: str

    @property
    def object(self) -> ObjectKey:
        return ObjectKey(API_EXPORTS, self.cluster, "", self.name)

    @property
    def hash(self) -> str:
        """The hash of the export in labels."""
        return hashes.export_hash(self.cluster, self.name)


class ClaimedResource(NamedTuple):
    """A kind that an export claims.

    `selector` selects its objects, `wide` those visible across all workspaces; both are None for a kind without stored
    objects. `owners` are the exports that offer the kind, empty for built-in kinds.
    """

    key: ClaimKey
    selector: LabelSelector | None
    wide: LabelSelector | None
    owners: tuple[ExportKey, ...]


class ExportCatalog(msgspec.Struct, frozen=True, eq=False):
    """The catalog of one export at the revisions `stamp`."""

    export: Object
    catalog: Catalog
    own: frozenset[Name]
    claimed: Mapping[Name, ClaimedResource]
    #: Selects the APIBindings to the export, visible with and without a claim.
    bindings: LabelSelector
    stamp: tuple[int, ...]
    #: Whether it claims kinds of other exports, existing or not.
    foreign: bool


class _CachedExport(msgspec.Struct, eq=False):
    """A catalog, and the state of the store at which it was last verified."""

    offer: ExportCatalog
    seen_at: tuple[int, int]


class _Status(msgspec.Struct, rename="camel"):
    identity_hash: str = ""


class _Identified(msgspec.Struct):
    status: _Status | None = None


_identified = msgspec.json.Decoder(_Identified)


class ExportCatalogs:
    """Builds and caches catalogs of exports. One instance an event loop."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._kept: LruCache[ExportKey, _CachedExport] = LruCache(MAX_OFFERS)

    def of(self, view: View, key: ExportKey) -> ExportCatalog | None:
        """Return the catalog of an export on any shard, None without such an export.

        `view` is a snapshot, never an overlay.
        """
        view = federated(view)
        kept, now = self._kept.get(key), (view.revision, 0 if view.replicas.empty else view.replicas.count)
        if kept is not None and kept.seen_at == now:
            return kept.offer
        revision = view.revision_of(key.object)
        if not revision:
            return None
        if kept is not None and kept.offer.stamp == _stamp(view, key, revision, foreign=kept.offer.foreign):
            kept.seen_at = now
            return kept.offer
        offer = self._made(view, key, revision)
        if kept is not None and kept.offer.catalog.mark == offer.catalog.mark:
            # Discovery documents and open watches are keyed by the catalog.
            offer = msgspec.structs.replace(offer, catalog=kept.offer.catalog)
        self._kept.put(key, _CachedExport(offer, now))
        return offer

    def _made(self, view: View, key: ExportKey, revision: int) -> ExportCatalog:
        record = view.get(key.object)
        assert record is not None, "its revision was just read"
        export = decode(record.value)
        kinds = list(self._kinds_of(view, key, export))
        own = frozenset((kind.group, kind.plural) for kind in kinds)
        claimed: dict[Name, ClaimedResource] = {}
        for claim, found in self._claims(view, key, export):
            for kind in found:
                name = kind.group, kind.plural
                if name not in own and claimed.setdefault(name, claim) is claim:
                    kinds.append(kind)
        if BINDINGS not in claimed:
            kinds.extend(view_kind(kind) for kind in self._builtin(ClaimKey(*BINDINGS)))
        foreign = any(claim.identity for claim in permission_claims.exported(export))
        stamp = _stamp(view, key, revision, foreign=foreign)
        return ExportCatalog(
            export, Catalog(kinds), own, claimed, _carrying(permission_claims.reflexive_label(key.hash)), stamp, foreign
        )

    def _kinds_of(self, view: View, key: ExportKey, export: Object, wanted: Name | None = None) -> Iterator[Kind]:
        """Yield the kinds of an export, or those of one name; none while the export has no identity."""
        for name, schema, identity, is_virtual in _offered(export):
            if not identity or wanted not in {None, name}:
                continue
            for kind in self._catalogs.offered(view, key.cluster, schema, identity):
                if (kind.group, kind.plural) == name:
                    # The endpoint of a virtual resource decides on verbs other than reads.
                    yield (
                        msgspec.structs.replace(view_kind(kind), virtual=Virtual(*key)) if is_virtual else _served(kind)
                    )

    # --- claims ---

    def _claims(self, view: View, key: ExportKey, export: Object) -> Iterator[tuple[ClaimedResource, list[Kind]]]:
        """Yield each claim with the kinds served for it; no kinds if none exists."""
        claimed = tuple(islice(permission_claims.exported(export), MAX_CLAIMS))
        owners_of = _owners(view, frozenset(asked.identity for asked in claimed if asked.identity))
        for asked in claimed:
            selector = _carrying(*self._labels(key, asked.covered))
            wide = _without(selector, permission_claims.withheld_label(key.hash)[0])
            if asked.identity:
                owners = tuple(owners_of.get(asked, ()))
                yield ClaimedResource(asked, selector, wide, owners), self._foreign(view, asked, owners)
            elif not permission_claims.needs_identity(asked.group, asked.resource):
                stored = (asked.group, asked.resource) not in permission_claims.REVIEWS
                found = ClaimedResource(asked.covered, selector if stored else None, wide if stored else None, ())
                yield found, self._builtin(asked)

    def _labels(self, key: ExportKey, claim: ClaimKey) -> Iterator[tuple[str, str]]:
        yield permission_claims.label(key.hash, claim)
        if (claim.group, claim.resource) == BINDINGS:
            yield permission_claims.reflexive_label(key.hash)

    def _builtin(self, claim: ClaimKey) -> list[Kind]:
        """Return the built-in kinds of a claim, in all groups that serve its objects."""
        wanted = claim.covered.type
        return [_served(kind) for kind in self._catalogs.base.kinds.values() if kind.type == wanted]

    def _foreign(self, view: View, claim: ClaimKey, owners: tuple[ExportKey, ...]) -> list[Kind]:
        """Return the kinds of a claim from the first owning export that can serve them."""
        for owner in owners:
            if (record := view.get(owner.object)) is not None:
                wanted = claim.group, claim.resource
                if found := list(self._kinds_of(view, owner, decode(record.value), wanted)):
                    return found
        return []


def _stamp(view: View, key: ExportKey, revision: int, *, foreign: bool) -> tuple[int, ...]:
    """Return the revisions of a catalog's inputs: the export and its cluster's schemas; all clusters' if it claims
    kinds of other exports.
    """
    if foreign:
        return (
            revision,
            view.last(API_RESOURCE_SCHEMAS, ""),
            view.last(API_CONVERSIONS, ""),
            view.last(API_EXPORTS, ""),
        )
    return revision, view.last(API_RESOURCE_SCHEMAS, key.cluster), view.last(API_CONVERSIONS, key.cluster)


def _offered(export: Object) -> Iterator[tuple[Name, str, str, bool]]:
    """Yield each resource of an export: name, schema, identity ("" before it has one), and whether it is virtual."""
    identity = status_of(export).get("identityHash") or ""
    for resource in spec_of(export).get("resources") or ():
        name = resource.get("group") or "", resource["name"]
        yield name, resource["schema"], identity, "virtual" in (resource.get("storage") or {})


def _owners(view: View, identities: Collection[str]) -> dict[ClaimKey, list[ExportKey]]:
    """Return the exports with one of the identities, by the claim keys that they offer."""
    found: dict[ClaimKey, list[ExportKey]] = {}
    for record in each_record(view, Scope(API_EXPORTS)) if identities else ():
        status = _identified.decode(record.value).status
        if status is not None and status.identity_hash in identities:
            for (group, resource), _, identity, _ in _offered(decode(record.value)):
                key = ExportKey(record.key.cluster, record.key.name)
                found.setdefault(ClaimKey(group, resource, identity), []).append(key)
    return found


def _served(kind: Kind) -> Kind:
    """Return a kind as the view serves it: all its verbs, and of its subresources only status."""
    return view_kind(kind, kind.verbs, tuple(sub for sub in kind.subresources if sub.name == "status"))


def _carrying(*labels: tuple[str, str]) -> LabelSelector:
    """Return the selector of objects with one of the labels, which share their key."""
    return LabelSelector([new_requirement(labels[0][0], IN, [value for _, value in labels])])


def _without(carrying: LabelSelector, label: str) -> LabelSelector:
    return LabelSelector([*carrying.requirements, new_requirement(label, ABSENT, ())])
