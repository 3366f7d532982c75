"""Workspaces and mailboxes as data, by the edge view of the shard that has each.

The placement translator and the status summarizer have one each, with their own account. A shard is known by the
export's view, which is watched there; a workspace of which nothing was seen yet is reached by the proxy.
Invariant: the same view, credentials and fencing tokens either way.
"""

from __future__ import annotations

from typing import Protocol

from atoll.edge.export_view import ExportView
from atoll.machinery.client.client import Client
from atoll.machinery.client.waves import Waves
from atoll.machinery.edge.names import EDGE_VIEW

_SERVICES = "/services/"
#: Between two waves of writes, of which each shard commits its own together.
WAVE_S = 0.02


class Clusters(Protocol):
    """Clients of logical clusters, all of one account."""

    def cluster(self, cluster: str, /) -> Client:
        """Return a client of a logical cluster. It closes with the client that it is made of."""


class EdgeData:
    """`client` is of the account, `view` its export's view."""

    def __init__(self, client: Client, view: ExportView) -> None:
        self._waves, self._view = Waves(WAVE_S), view
        self._proxy = client.view(_SERVICES + EDGE_VIEW).within(self._waves)
        #: Client of the export's view on a shard -> one of its edge view, over the same connections.
        self._shards: dict[Client, Client] = {}

    def cluster(self, cluster: str, /) -> Client:
        """Return a client of a logical cluster."""
        seen = self._view.shard_of(cluster)
        if seen is None:
            return self._proxy.cluster(cluster)
        found = self._shards.get(seen)
        if found is None:
            prefix = seen.target.path.partition(_SERVICES)[0]
            view = seen.view(f"{prefix}{_SERVICES}{EDGE_VIEW}")
            found = self._shards[seen] = view.within(self._waves)
        return found.cluster(cluster)
