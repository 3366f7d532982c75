"""What the view of an APIExport serves: its own kinds, those it claims, and the bindings to it.

`apiexport` asks for an export's offer with every request. An offer is made of the export as it stands, of the schemas
it names and of other exports whose kinds it claims; it is kept, in a bounded cache, under the revisions of all these,
which are read in the request's own snapshot. Invariant: a kind of an offer carries the identity under which its
objects are stored, so no request ever names one; and what is claimed comes with the labels by which its objects are
told apart.
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
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.requirements import ABSENT, IN, new_requirement
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.types import API_CONVERSIONS, API_EXPORTS, API_RESOURCE_SCHEMAS
from atoll.machinery.meta.wellknown import APIS_GROUP
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record
from atoll.virtualworkspaces.framework import shown

MAX_OFFERS = 512
#: Kinds that one export may claim; beyond it the rest is not served.
MAX_CLAIMS = 256

#: Group and plural.
Name = tuple[str, str]
BINDINGS: Name = (APIS_GROUP, "apibindings")


class ExportKey(NamedTuple):
    """An APIExport: the logical cluster it is in, and its name."""

    cluster: str
    name: str

    @property
    def object(self) -> ObjectKey:
        return ObjectKey(API_EXPORTS, self.cluster, "", self.name)

    @property
    def hash(self) -> str:
        """By which labels know it."""
        return hashes.export_hash(self.cluster, self.name)


class ClaimedResource(NamedTuple):
    """A kind that an export claims. `shown` are the labels of its objects, `wide` of those that all workspaces together
    show, None where nothing is stored of it; `owners` the exports that offer it, none for what nobody exports."""

    key: ClaimKey
    shown: LabelSelector | None
    wide: LabelSelector | None
    owners: tuple[ExportKey, ...]


class ExportCatalog(msgspec.Struct, frozen=True, eq=False):
    """The view of one export at one moment. `stamp` are the revisions it was made at."""

    export: Object
    catalog: Catalog
    own: frozenset[Name]
    claimed: Mapping[Name, ClaimedResource]
    #: The APIBindings to the export, which are shown whether or not it claims any.
    bindings: LabelSelector
    stamp: tuple[int, ...]
    #: Whether it claims kinds of other exports, be they there or not.
    foreign: bool


class _CachedExport(msgspec.Struct, eq=False):
    """An offer, and the state of the store at which it was last seen to be the present one."""

    offer: ExportCatalog
    seen_at: tuple[int, int]


class _Status(msgspec.Struct, rename="camel"):
    identity_hash: str = ""


class _Identified(msgspec.Struct):
    status: _Status | None = None


_identified = msgspec.json.Decoder(_Identified)


class ExportCatalogs:
    """Finds offers. One an event loop."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._kept: LruCache[ExportKey, _CachedExport] = LruCache(MAX_OFFERS)

    def of(self, view: View, key: ExportKey) -> ExportCatalog | None:
        """The offer of an export on any shard, None where there is no such export. `view` is a snapshot, never an
        overlay."""
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
            # Documents and open watches find it by its kinds.
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
            kinds.extend(shown(kind) for kind in self._builtin(ClaimKey(*BINDINGS)))
        foreign = any(claim.identity for claim in permission_claims.exported(export))
        stamp = _stamp(view, key, revision, foreign=foreign)
        return ExportCatalog(
            export, Catalog(kinds), own, claimed, _carrying(permission_claims.reflexive_label(key.hash)), stamp, foreign
        )

    def _kinds_of(self, view: View, key: ExportKey, export: Object, wanted: Name | None = None) -> Iterator[Kind]:
        """The kinds of an export, or those of one name; none while it has no identity."""
        for name, schema, identity, is_virtual in _offered(export):
            if not identity or wanted not in {None, name}:
                continue
            for kind in self._catalogs.offered(view, key.cluster, schema, identity):
                if (kind.group, kind.plural) == name:
                    # What more may be done with virtual ones their endpoint says, to whom requests go on.
                    yield msgspec.structs.replace(shown(kind), virtual=Virtual(*key)) if is_virtual else _served(kind)

    # --- claims ---

    def _claims(self, view: View, key: ExportKey, export: Object) -> Iterator[tuple[ClaimedResource, list[Kind]]]:
        """What is claimed, each with the kinds that are served for it, none where nobody has such a kind."""
        claimed = tuple(islice(permission_claims.exported(export), MAX_CLAIMS))
        owners_of = _owners(view, frozenset(asked.identity for asked in claimed if asked.identity))
        for asked in claimed:
            shown = _carrying(*self._labels(key, asked.covered))
            wide = _without(shown, permission_claims.withheld_label(key.hash)[0])
            if asked.identity:
                owners = tuple(owners_of.get(asked, ()))
                yield ClaimedResource(asked, shown, wide, owners), self._foreign(view, asked, owners)
            elif not permission_claims.needs_identity(asked.group, asked.resource):
                stored = (asked.group, asked.resource) not in permission_claims.REVIEWS
                found = ClaimedResource(asked.covered, shown if stored else None, wide if stored else None, ())
                yield found, self._builtin(asked)

    def _labels(self, key: ExportKey, claim: ClaimKey) -> Iterator[tuple[str, str]]:
        yield permission_claims.label(key.hash, claim)
        if (claim.group, claim.resource) == BINDINGS:
            yield permission_claims.reflexive_label(key.hash)

    def _builtin(self, claim: ClaimKey) -> list[Kind]:
        """Built-in kinds of a claim, in all groups that have its objects."""
        wanted = claim.covered.type
        return [_served(kind) for kind in self._catalogs.base.kinds.values() if kind.type == wanted]

    def _foreign(self, view: View, claim: ClaimKey, owners: tuple[ExportKey, ...]) -> list[Kind]:
        """Kinds of a claim as the first export has them that can serve them."""
        for owner in owners:
            if (record := view.get(owner.object)) is not None:
                wanted = claim.group, claim.resource
                if found := list(self._kinds_of(view, owner, decode(record.value), wanted)):
                    return found
        return []


def _stamp(view: View, key: ExportKey, revision: int, *, foreign: bool) -> tuple[int, ...]:
    """What an offer derives from: the export, its cluster's schemas, and everybody's where it claims others' kinds."""
    if foreign:
        return (
            revision,
            view.last(API_RESOURCE_SCHEMAS, ""),
            view.last(API_CONVERSIONS, ""),
            view.last(API_EXPORTS, ""),
        )
    return revision, view.last(API_RESOURCE_SCHEMAS, key.cluster), view.last(API_CONVERSIONS, key.cluster)


def _offered(export: Object) -> Iterator[tuple[Name, str, str, bool]]:
    """Each resource of an export: name, schema, its identity, if it has one yet, and whether others serve it."""
    identity = (export.get("status") or {}).get("identityHash") or ""
    for resource in (export.get("spec") or {}).get("resources") or ():
        name = resource.get("group") or "", resource["name"]
        yield name, resource["schema"], identity, "virtual" in (resource.get("storage") or {})


def _owners(view: View, identities: Collection[str]) -> dict[ClaimKey, list[ExportKey]]:
    """The exports that have one of some identities, by what they offer under it."""
    found: dict[ClaimKey, list[ExportKey]] = {}
    for record in each_record(view, Scope(API_EXPORTS)) if identities else ():
        status = _identified.decode(record.value).status
        if status is not None and status.identity_hash in identities:
            for (group, resource), _, identity, _ in _offered(decode(record.value)):
                key = ExportKey(record.key.cluster, record.key.name)
                found.setdefault(ClaimKey(group, resource, identity), []).append(key)
    return found


def _served(kind: Kind) -> Kind:
    """A kind as the view has it: all its verbs, and of its subresources the status alone."""
    return shown(kind, kind.verbs, tuple(sub for sub in kind.subresources if sub.name == "status"))


def _carrying(*labels: tuple[str, str]) -> LabelSelector:
    """What carries one of some labels, which share their key."""
    return LabelSelector([new_requirement(labels[0][0], IN, [value for _, value in labels])])


def _without(carrying: LabelSelector, label: str) -> LabelSelector:
    return LabelSelector([*carrying.requirements, new_requirement(label, ABSENT, ())])
