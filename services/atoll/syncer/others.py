"""Other syncers of the same cluster: what carries the label of another SyncTarget is its syncer's while that one lives.

A cluster that is registered anew runs both until somebody deletes the older one, and each would take an object from the
other again and again. Invariant: an object changes hands only after the Lease of its syncer was given up, or was seen
unchanged for as long as it lasts.
"""

from __future__ import annotations

import time

from atoll.machinery.client.client import Client
from atoll.machinery.client.lease import LEASES
from atoll.machinery.edge.names import LEASE_NAMESPACE, SYNCED_BY, SYNCER
from atoll.machinery.meta.objects import Object, labels_of, spec_of
from atoll.machinery.meta.status import NotFound


def edge_lease(uid: str) -> str:
    """Return the name of the Lease that the syncer of a SyncTarget has at the edge."""
    return f"{SYNCER}-{uid}"


class OtherSyncers:
    """Asks the cluster, on behalf of the syncer of the SyncTarget with the uid `own`."""

    def __init__(self, cluster: Client, own: str) -> None:
        self._cluster, self._own = cluster, own
        #: The revision of each Lease that was looked at, and when it was seen first.
        self._seen: dict[str, tuple[str, float]] = {}

    async def keeper(self, obj: Object) -> str:
        """Return the uid of the SyncTarget whose syncer keeps an object; empty if none does."""
        uid = labels_of(obj).get(SYNCED_BY, self._own)
        return uid if uid != self._own and await self._lives(uid) else ""

    async def _lives(self, uid: str) -> bool:
        try:
            lease = await self._cluster.get(LEASES, edge_lease(uid), LEASE_NAMESPACE)
        except NotFound:
            return False
        revision, spec, now_s = lease["metadata"]["resourceVersion"], spec_of(lease), time.monotonic()
        if self._seen.get(uid, ("", 0.0))[0] != revision:
            self._seen[uid] = revision, now_s
        lasts_s = spec.get("leaseDurationSeconds") or 0
        return bool(spec.get("holderIdentity")) and now_s - self._seen[uid][1] <= lasts_s
