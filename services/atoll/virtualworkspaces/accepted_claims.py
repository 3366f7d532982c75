"""What one workspace grants the provider of an APIExport: the bound resources and the accepted permission claims.

`export_request` reads it with every request into a workspace. The result is cached under the revisions of the cluster's
bindings and of the export, read in the request's own snapshot, so a withdrawn claim has no effect on the next request.
Invariant: without a binding to this export (matched by name and by the cluster in its status) nothing is granted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kcp.apis import permission_claims
from atoll.machinery.kcp.apis.apiexports import export_of
from atoll.machinery.kcp.apis.permission_claims import Claim, ClaimKey
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.storage.contract import Guard, RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record
from atoll.virtualworkspaces.export_catalog import BINDINGS, ExportCatalog, ExportKey, Name

MAX_CONSENTS = 4096
_READS = frozenset({"get", "list", "watch"})


class AcceptedClaims(msgspec.Struct, frozen=True):
    """The grants of one cluster: `bound` resources by group and resource, `claims` by the key of the stored kind.

    `guards` hold as long as the bindings behind the grants are unchanged.
    """

    bound: frozenset[Name]
    claims: Mapping[ClaimKey, Claim]
    guards: tuple[Guard, ...]

    def allows(self, verb: str, name: Name, claimed: ClaimKey | None, subresource: str = "") -> bool:
        """Return whether the grants allow a request on a resource; `claimed` is the export's claim on it, if any."""
        if name in self.bound:
            return True
        claim = self.claim(claimed)
        if claim is not None and claim.allows(verb):
            return True
        return name == BINDINGS and verb in _READS and not subresource

    def claim(self, key: ClaimKey | None) -> Claim | None:
        """Return the accepted form of a claim, None if it was not accepted."""
        return self.claims.get(key.covered) if key is not None else None


class _CachedClaims(msgspec.Struct, eq=False):
    """Grants, the revisions they were read at, and those at which they were last verified."""

    stamp: tuple[int, ...]
    seen_at: tuple[int, ...]
    consent: AcceptedClaims | None


class AcceptedClaimsReader:
    """Reads and caches the grants of clusters. One instance an event loop."""

    def __init__(self) -> None:
        self._kept: LruCache[tuple[str, ExportKey], _CachedClaims] = LruCache(MAX_CONSENTS)

    def of(self, view: View, cluster: str, export: ExportKey, offer: ExportCatalog) -> AcceptedClaims | None:
        """Return the grants of a cluster to an export; None without a binding. `view` is a snapshot."""
        key, now = (cluster, export), (view.revision, *offer.stamp)
        kept = self._kept.get(key)
        if kept is not None and kept.seen_at == now:
            return kept.consent
        stamp = view.last(API_BINDINGS, cluster), *offer.stamp
        if kept is None or kept.stamp != stamp:
            kept = _CachedClaims(stamp, now, _consent(view, cluster, export, offer))
            self._kept.put(key, kept)
        kept.seen_at = now
        return kept.consent


def _consent(view: View, cluster: str, export: ExportKey, offer: ExportCatalog) -> AcceptedClaims | None:
    bound: set[Name] = set()
    accepted: dict[ClaimKey, Claim] = {}
    guards: list[Guard] = []
    for key, revision, binding in _bindings(view, cluster, export):
        status = status_of(binding)
        bound.update((each.get("group") or "", each["resource"]) for each in status.get("boundResources") or ())
        accepted.update(permission_claims.effective(offer.export, binding))
        guards.append(RevisionUnchanged(key, revision))
    if not guards:
        return None
    return AcceptedClaims(frozenset(bound) & offer.own, accepted, tuple(guards))


def _bindings(view: View, cluster: str, export: ExportKey) -> Iterator[tuple[ObjectKey, int, Object]]:
    """Yield the cluster's bindings to an export, with their keys and revisions."""
    for record in each_record(view, Scope(API_BINDINGS, cluster)):
        binding = decode(record.value)
        bound = export_of(binding)
        if (bound.cluster, bound.name) == export:
            yield record.key, record.revision, binding
