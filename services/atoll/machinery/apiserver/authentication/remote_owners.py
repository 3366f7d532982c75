"""The shards of clusters that this shard keeps no rows of: they are sought when an account of one calls.

`ServiceAccountTokens` calls `require_none` for a verified token of a cluster without a known shard. Authentication
does not wait: it raises `AuthenticationPending`, and the pipeline authenticates again when the search has ended.
Invariant: while shards were not read, requests with such tokens are a 503, since on a 401 clients forget their token.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.federation.cluster_searches import ClusterSearches, SearchPending, Seek

_REFUSAL = "the shard of the service account is not known yet"


class RemoteOwners:
    """The searches of one event loop."""

    def __init__(self, seek: Seek, clock: Callable[[], float] = time.monotonic) -> None:
        self._searches = ClusterSearches(seek, _REFUSAL, clock)

    def require_none(self, cluster: str) -> None:
        """Return if no shard has a cluster, whose shard is not known. Raises AuthenticationPending and
        ServiceUnavailable."""
        try:
            self._searches.require_none(cluster)
        except SearchPending as pending:
            raise AuthenticationPending(pending.fetch) from None
