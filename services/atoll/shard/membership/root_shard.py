"""Data of the root shard that every shard needs: identities of root's exports, and the UUID that derives root's uids.

A joining shard fetches them at its first start (`wait_for_root_shard`); bootstrap stores them in the shard's own
system:shard cluster, so later starts do not need the root shard. Invariant: stored identities are never replaced; only
those of exports that are new in root are fetched later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.renewal import renewable
from atoll.machinery.client.resource import Resource
from atoll.machinery.client.target import KubeconfigError, Target
from atoll.machinery.kcp.apis.root_exports import ExportIdentity, root_exports
from atoll.machinery.kcp.bootstrap.objects import IDENTITY_CACHE, INSTALLATION
from atoll.machinery.kcp.namespaces import DEFAULT
from atoll.machinery.kcp.sharding.forgotten_stores import StoreForgotten, forgotten_stores
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.kcp.sharding.shards import OtherStore, check_store
from atoll.machinery.meta.names import ROOT, SYSTEM_SHARD, ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, decode
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.file_watch import ClientFiles
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.pending_response import ClientError, ClientLimits
from atoll.replication.follower import forgotten_uids
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN, LOGICAL_CLUSTER_ADMIN, FindShard, Peers
from atoll.replication.replica_writer import MarkStore
from atoll.shard import bootstrap
from atoll.shard.config import ShardConfig
from atoll.shard.kubeconfig import SHARD_BASE

log = structlog.get_logger()

BACKOFF = Backoff(0.2, 5.0, least=0.75)
_TIMEOUT_S = 5.0
#: How long a start waits for the root shard's word about this store.
_LAST_WORD_S = 2.0
_LIMITS = ClientLimits(connections=4, streams=4, connect_timeout_s=_TIMEOUT_S, request_timeout_s=_TIMEOUT_S)
SHARDS = Resource("core.kcp.io", "v1alpha1", "shards", namespaced=False)
_CONFIG_MAPS = Resource("", "v1", "configmaps")


class RootShardNotReady(Exception):
    """The root shard answered without the data that a joining shard needs."""


class RootShardChanged(Exception):
    """The root shard is not the one that this shard joined."""


class RootShard(msgspec.Struct, frozen=True):
    """`identities` of root's exports by name; `installation` is the UUID that uids in root derive from."""

    identities: Mapping[str, ExportIdentity]
    installation: str

    @property
    def missing(self) -> list[str]:
        """Exports of root without an identity in `identities`."""
        return [name for name in root_exports() if name not in self.identities]


def root_shard_of(config: ShardConfig, store: Store) -> RootShard:
    """Return the stored data. Raises RootShardNotReady if a joining shard has not stored all of it yet."""
    if not config.joins:
        return RootShard(bootstrap.identities(store), store.identity.shard_uid)
    found = _stored(store)
    if found.missing or not found.installation:
        raise RootShardNotReady("this shard has not joined its root shard yet")
    return found


async def wait_for_root_shard(config: ShardConfig, store: Store, report: Callable[[str], None]) -> RootShard:
    """Return the stored data, else fetch it from the root shard, with retries and backoff until it answers.

    Calls `report` with the reason of each failure. Raises KubeconfigError, RootShardChanged.
    """
    try:
        return root_shard_of(config, store)
    except RootShardNotReady:
        pass
    target, failures = root_target(config), 0
    while True:
        try:
            found = _same_root(_stored(store), await fetch(target, config.shard_name, store.identity.shard_uid))
            log.info("joined root shard", server=target.base_url, shard=config.shard_name)
            return found
        except (ApiError, ClientError, TimeoutError, RootShardNotReady, OtherStore) as error:
            reason = str(error) or type(error).__name__
        report(reason)
        delay_s = BACKOFF.delay_s(failures)
        log.warning("joining root shard failed", server=target.base_url, reason=reason, again_s=round(delay_s, 1))
        await asyncio.sleep(delay_s)
        failures += 1


async def require_not_forgotten(config: ShardConfig, store: MarkStore) -> None:
    """Raise StoreForgotten if this shard's store was struck off: as it was told before, or as the root shard says now.

    A root shard that does not answer holds nobody up.
    """
    own = store.identity.shard_uid
    if own in forgotten_uids(store):
        raise StoreForgotten(own)
    if not config.joins:
        return
    try:
        async with asyncio.timeout(_LAST_WORD_S), root_client(root_target(config), ROOT) as client:
            records = forgotten_stores(await client.get(SHARDS, ROOT_SHARD))
    except (ApiError, ClientError, TimeoutError) as error:
        log.warning("root shard not asked whether this store counts", reason=str(error) or type(error).__name__)
        return
    if any(each.store == own for each in records):
        raise StoreForgotten(own)


def root_target(config: ShardConfig) -> Target:
    """Return the address and credentials of the root shard in the operator's kubeconfig. Raises KubeconfigError."""
    file = config.root_shard_kubeconfig_file
    return _by_https(file, Kubeconfig.load(file).target(_root_context(file)))


def renewable_root_target(config: ShardConfig, renewed: list[ClientFiles]) -> Target:
    """The root shard, with a credential that is read again when the kubeconfig changes; it is added to `renewed`.

    Raises KubeconfigError.
    """
    file = config.root_shard_kubeconfig_file
    return _by_https(file, renewable(file, _root_context(file), renewed))


def _root_context(file: str) -> str:
    # Without kcp's context the current context counts.
    return SHARD_BASE if Kubeconfig.load(file).has("context", SHARD_BASE) else ""


def _by_https(file: str, target: Target) -> Target:
    if target.tls is None:
        raise KubeconfigError(f"kubeconfig {file} does not reach the root shard by https")
    return target


def peers_of(config: ShardConfig, find: FindShard, renewed: list[ClientFiles]) -> Peers | None:
    """Return clients of other shards with the operator's kubeconfigs; None without any. Raises KubeconfigError.

    Their credentials are read again when the kubeconfigs change: they are added to `renewed`.
    """
    files = {
        LOGICAL_CLUSTER_ADMIN: config.logical_cluster_admin_kubeconfig,
        EXTERNAL_LOGICAL_CLUSTER_ADMIN: config.external_logical_cluster_admin_kubeconfig,
    }
    targets = {identity: renewable(file, "", renewed) for identity, file in files.items() if file}
    return Peers(find, targets) if targets else None


def root_client(target: Target, cluster: str, manager: str = "atoll") -> Client:
    """Return a client of the root shard with short timeouts. The caller closes it. Needs a running event loop."""
    return Client(target, cluster, manager=manager, retries=0, limits=_LIMITS)


async def fetch(target: Target, name: str, store: str) -> RootShard:
    """Fetch the data from the root shard, and check that the shard name does not belong to another store.

    Publishing under the name of another store would replace the replicas of that store's rows. Raises ApiError,
    ClientError, TimeoutError, RootShardNotReady, OtherStore.
    """
    async with root_client(target, SYSTEM_SHARD) as client:
        found = _read(await client.get(_CONFIG_MAPS, IDENTITY_CACHE, DEFAULT))
        with contextlib.suppress(NotFound):
            check_store(await client.cluster(ROOT).get(SHARDS, name), store)
    if missing := found.missing:
        raise RootShardNotReady(f"the root shard has no identity yet for {', '.join(missing)}")
    if not found.installation:
        raise RootShardNotReady("the root shard is of an older release: it does not say what its uids derive from")
    return found


def _stored(store: Store) -> RootShard:
    """Return the stored data; empty if there is none."""
    with store.snapshot() as snapshot:
        record = snapshot.get(ObjectKey(CONFIG_MAPS, SYSTEM_SHARD, DEFAULT, IDENTITY_CACHE))
    return _read(decode(record.value)) if record is not None else RootShard({}, "")


def _read(config_map: Object) -> RootShard:
    data = config_map.get("data") or {}
    installation = annotations_of(config_map).get(INSTALLATION, "")
    return RootShard({name: ExportIdentity(data[name]) for name in root_exports() if data.get(name)}, installation)


def _same_root(stored: RootShard, found: RootShard) -> RootShard:
    """Return `found`. Raise RootShardChanged if it contradicts `stored`: objects are stored under these identities."""
    differs = stored.installation not in {"", found.installation}
    if differs or any(found.identities[name] != identity for name, identity in stored.identities.items()):
        raise RootShardChanged(
            "root-shard-kubeconfig-file leads to another root shard than the one that this shard joined"
        )
    return found
