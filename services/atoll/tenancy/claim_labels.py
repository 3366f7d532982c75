"""The permission claim labels of a cluster's objects, for admission and the claims controller.

Reads the cluster's bindings through a view and caches the compiled labelling by the revision of their last change, in a
bounded cache. Invariant: a labelling always matches the bindings at the view's revision.
"""

from __future__ import annotations

from weakref import ref

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.kcp.apis.claim_labels import NO_CLAIMS, Labelling, labelling
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record

#: Bytes of each cache.
MAX_BYTES = 4 << 20
_GRANTS = rawscan.member("appliedPermissionClaims", "[{")


class ClaimLabels:
    """Cached labellings by cluster."""

    def __init__(self) -> None:
        self._clusters: LruCache[str, tuple[int, Labelling]] = LruCache(MAX_BYTES, size_bytes)
        self._batch: tuple[ref[Batch], str, int, Labelling] | None = None

    def of(self, view: View, cluster: str) -> Labelling:
        """Return the labelling of a cluster at the view's revision."""
        last = view.last(API_BINDINGS, cluster)
        if not last:
            return NO_CLAIMS
        if isinstance(view, Batch) and view.has_written(API_BINDINGS, cluster):
            return self._in_batch(view, cluster, last)
        found = self._clusters.get(cluster)
        if found is not None and found[0] == last:
            return found[1]
        made = _compiled(view, cluster)
        if view.last(API_BINDINGS, cluster) == last:
            # A batch reads the latest state each time: a commit in between may have changed the bindings.
            self._clusters.put(cluster, (last, made))
        return made

    def _in_batch(self, batch: Batch, cluster: str, last: int) -> Labelling:
        """Return the labelling for a batch that writes bindings. It is cached for this batch only."""
        known = self._batch
        if known is not None and known[0]() is batch and known[1:3] == (cluster, last):
            return known[3]
        made = _compiled(batch, cluster)
        self._batch = ref(batch), cluster, last, made
        return made


def _compiled(view: View, cluster: str) -> Labelling:
    # Most bindings grant no claims.
    found = each_record(view, Scope(API_BINDINGS, cluster))
    return labelling([decode(record.value) for record in found if _GRANTS in record.value])
