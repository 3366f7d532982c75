"""Peers: clients of other shards. Addresses are those of their Shard objects, credentials the operator's kubeconfigs.

Controllers and handlers that change something on another shard (create a LogicalCluster, notify an owner) get a
client for each call and drop it. The address is read from the Shard object each time, so the next call finds a shard
that moved. Invariants: a kubeconfig's own server is never called, only its credentials are used, and only by TLS to a
peer whose certificate names the host of its baseURL; every call ends within `TIMEOUT_S`; connections are kept and
bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.client.target import Target
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.pending_response import ClientError, ClientLimits

#: kcp's two identities between shards: the first creates logical clusters, the second does everything else.
LOGICAL_CLUSTER_ADMIN, EXTERNAL_LOGICAL_CLUSTER_ADMIN = "logical-cluster-admin", "external-logical-cluster-admin"
#: The most that one call may take, waiting for a free connection included.
TIMEOUT_S = 5.0
#: Pools kept, one for each shard and identity. An evicted one closes its connections as they become idle.
MAX_PEERS = 512
_LIMITS = ClientLimits(connections=16, streams=64, connect_timeout_s=TIMEOUT_S, request_timeout_s=TIMEOUT_S)

#: Return the Shard object of a name as this process has it now; None if it has none.
FindShard = Callable[[str], Object | None]


class NoPeer(Exception):
    """A shard that cannot be called: it is not known yet, or no credentials were configured."""


#: Everything a call may raise: the shard refused, is unreachable, did not answer in time, or is not known.
PEER_ERRORS = (ApiError, ClientError, TimeoutError, NoPeer)


class _Peer(msgspec.Struct, frozen=True):
    base_url: str
    http: HttpClient


class Peers:
    """Clients by shard and identity. `credentials` are targets of kubeconfigs, whose host and path are not used; `find`
    returns Shard objects. Belongs to the running loop."""

    def __init__(self, find: FindShard, credentials: Mapping[str, Target]) -> None:
        self._find, self._credentials = find, dict(credentials)
        self._pools: LruCache[tuple[str, str], _Peer] = LruCache(MAX_PEERS)

    def client(self, shard: str, identity: str = LOGICAL_CLUSTER_ADMIN) -> Client:
        """Return a client of a shard, for no cluster yet: `.cluster(name)` selects one. It need not be closed.

        It does not retry: a server that names a time to retry after raises ApiError, and the caller's queue waits. Its
        verbs raise what `PEER_ERRORS` lists. Raises NoPeer.
        """
        given = self._credentials.get(identity)
        if given is None:
            raise NoPeer(f"no credentials were given to call other shards as {identity}")
        target = self._target(shard, given)
        return Client(target, http=self._http(shard, identity, target), manager="atoll", retries=0)

    def _target(self, shard: str, given: Target) -> Target:
        found = self._find(shard)
        if found is None:
            raise NoPeer(f"shard {shard} is not known here")
        url = str(spec_of(found).get("baseURL", ""))
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError:
            host, port = "", 0
        # Without TLS neither side authenticates the other.
        if not host or parts.scheme != "https" or given.tls is None:
            raise NoPeer(f"shard {shard} cannot be called: {url!r} is no https URL")
        return msgspec.structs.replace(given, host=host, port=port, path=parts.path.rstrip("/"), server_name="")

    def _http(self, shard: str, identity: str, target: Target) -> HttpClient:
        """The connections to a shard; new ones if its address changed."""
        known = self._pools.get((shard, identity))
        if known is not None and known.base_url == target.base_url:
            return known.http
        http = HttpClient(Origin(target.host, target.port, target.tls), _LIMITS)
        self._pools.put((shard, identity), _Peer(target.base_url, http))
        return http

    async def close(self) -> None:
        """Close all connections; calls in progress fail."""
        peers = self._pools.values()
        await asyncio.gather(*(peer.http.close() for peer in peers))
        self._pools.clear()
