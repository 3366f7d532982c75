"""The permission claim labels of a cluster's objects, for admission and the claims controller.

Reads the cluster's bindings through a view and caches the compiled labelling by the revision of their last change, in a
bounded cache, in which clusters with the same claims share it. Invariant: a labelling always matches the bindings at
the view's revision.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import ref

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.kcp.apis.claim_labels import NO_CLAIMS, Labelling, content_of, labelling
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.shared_lru import Shared, SharedLru
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record

#: Bytes of each cache.
MAX_BYTES = 4 << 20
#: Bytes of a cluster in a cache, without its labelling.
ENTRY_BYTES = 300
_GRANTS = rawscan.member("appliedPermissionClaims", "[{")


class ClusterLabelling(NamedTuple):
    """The labelling of a cluster whose bindings changed last at a revision."""

    last: int
    labelling: Labelling

    @property
    def own_bytes(self) -> int:
        return ENTRY_BYTES

    def parts(self) -> tuple[Labelling]:
        return (self.labelling,)


class ClaimLabels:
    """Cached labellings by cluster."""

    def __init__(self) -> None:
        self._clusters: SharedLru[str, ClusterLabelling] = SharedLru(MAX_BYTES)
        self._shared: Shared[Labelling] = Shared()
        self._batch: tuple[ref[Batch], str, int, Labelling] | None = None

    def of(self, view: View, cluster: str) -> Labelling:
        """Return the labelling of a cluster at the view's revision."""
        last = view.last(API_BINDINGS, cluster)
        if not last:
            return NO_CLAIMS
        if isinstance(view, Batch) and view.has_written(API_BINDINGS, cluster):
            return self._in_batch(view, cluster, last)
        found = self._clusters.get(cluster)
        if found is not None and found.last == last:
            return found.labelling
        made = self._compiled(view, cluster)
        if view.last(API_BINDINGS, cluster) == last:
            # A batch reads the latest state each time: a commit in between may have changed the bindings.
            self._clusters.put(cluster, ClusterLabelling(last, made))
        return made

    def _in_batch(self, batch: Batch, cluster: str, last: int) -> Labelling:
        """Return the labelling for a batch that writes bindings. It is cached for this batch only."""
        known = self._batch
        if known is not None and known[0]() is batch and known[1:3] == (cluster, last):
            return known[3]
        made = self._compiled(batch, cluster)
        self._batch = ref(batch), cluster, last, made
        return made

    def _compiled(self, view: View, cluster: str) -> Labelling:
        # Most bindings grant no claims.
        records = each_record(view, Scope(API_BINDINGS, cluster))
        bindings = [decode(record.value) for record in records if _GRANTS in record.value]
        return self._shared.of(content_of(bindings), lambda: labelling(bindings))
