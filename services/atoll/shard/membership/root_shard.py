"""What a shard has of the root shard: the identities of root's exports, and what uids of root's objects derive from.

Asked for once, at the very first start of a shard that joins (`wait_for_root_shard`), and kept in its own system:shard
cluster from then on (bootstrap writes it), so that it starts again while the root shard is gone. Invariant: what is
kept is never replaced; only what root began to export since is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.client.target import KubeconfigError, Target
from atoll.machinery.kcp.apis.root_exports import ExportIdentity, root_exports
from atoll.machinery.kcp.bootstrap.objects import IDENTITY_CACHE, INSTALLATION
from atoll.machinery.kcp.namespaces import DEFAULT
from atoll.machinery.kcp.sharding.shards import OtherStore, check_store
from atoll.machinery.meta.names import ROOT, SYSTEM_SHARD, ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.storage.contract import Store
from atoll.machinery.wire.pending_response import ClientError, ClientLimits
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN, LOGICAL_CLUSTER_ADMIN, FindShard, Peers
from atoll.shard import bootstrap
from atoll.shard.config import ShardConfig
from atoll.shard.kubeconfig import SHARD_BASE

log = structlog.get_logger()

BASE_DELAY_S, MAX_DELAY_S = 0.2, 5.0
_TIMEOUT_S = 5.0
_LIMITS = ClientLimits(connections=4, streams=4, connect_timeout_s=_TIMEOUT_S, request_timeout_s=_TIMEOUT_S)
SHARDS = Resource("core.kcp.io", "v1alpha1", "shards", namespaced=False)
_CONFIG_MAPS = Resource("", "v1", "configmaps")


class RootShardNotReady(Exception):
    """The root shard answered, but does not say what a shard needs of it."""


class RootShardChanged(Exception):
    """The root shard is not the one that this shard joined."""


class RootShard(msgspec.Struct, frozen=True):
    """`identities` of all of root's exports by name; `installation` is the UUID that uids in root derive from."""

    identities: Mapping[str, ExportIdentity]
    installation: str

    @property
    def missing(self) -> list[str]:
        """Exports of root without an identity here."""
        return [name for name in root_exports() if name not in self.identities]


def root_shard_of(config: ShardConfig, store: Store) -> RootShard:
    """What the store of a shard says. Raises RootShardNotReady for one that joins and does not keep all of it yet."""
    if not config.joins:
        return RootShard(bootstrap.identities(store), store.identity.shard_uid)
    found = _kept(store)
    if found.missing or not found.installation:
        raise RootShardNotReady("this shard has not joined its root shard yet")
    return found


async def wait_for_root_shard(config: ShardConfig, store: Store, tell: Callable[[str], None]) -> RootShard:
    """What the store says, else the root shard; asked again, later each time, while it does not answer.

    `tell` is given what is wrong each time. Raises KubeconfigError, RootShardChanged.
    """
    try:
        return root_shard_of(config, store)
    except RootShardNotReady:
        pass
    target, delay_s = root_target(config), BASE_DELAY_S
    while True:
        try:
            found = _same_root(_kept(store), await ask(target, config.shard_name, store.identity.shard_uid))
            log.info("joined root shard", server=target.base_url, shard=config.shard_name)
            return found
        except (ApiError, ClientError, TimeoutError, RootShardNotReady, OtherStore) as error:
            reason = str(error) or type(error).__name__
        tell(reason)
        log.warning(
            "root shard does not say what is needed to join it",
            server=target.base_url,
            reason=reason,
            again_s=round(delay_s, 1),
        )
        await asyncio.sleep(delay_s * random.uniform(0.75, 1.0))
        delay_s = min(delay_s * 2, MAX_DELAY_S)


def root_target(config: ShardConfig) -> Target:
    """The root shard as the operator's kubeconfig has it. Raises KubeconfigError."""
    file = config.root_shard_kubeconfig_file
    kubeconfig = Kubeconfig.load(file)
    # A kubeconfig without kcp's context is used as it stands.
    target = kubeconfig.target(SHARD_BASE if kubeconfig.has("context", SHARD_BASE) else "")
    if target.tls is None:
        raise KubeconfigError(f"kubeconfig {file} does not reach the root shard by https")
    return target


def peers_of(config: ShardConfig, find: FindShard) -> Peers | None:
    """Clients of other shards with the operator's kubeconfigs; None where there is none. Raises KubeconfigError."""
    files = {
        LOGICAL_CLUSTER_ADMIN: config.logical_cluster_admin_kubeconfig,
        EXTERNAL_LOGICAL_CLUSTER_ADMIN: config.external_logical_cluster_admin_kubeconfig,
    }
    targets = {identity: Kubeconfig.load(file).target() for identity, file in files.items() if file}
    return Peers(find, targets) if targets else None


def root_client(target: Target, cluster: str, manager: str = "atoll") -> Client:
    """A client of the root shard that gives up after a few seconds. To be closed. Must be made in a running loop."""
    return Client(target, cluster, manager=manager, retries=0, limits=_LIMITS)


async def ask(target: Target, name: str, store: str) -> RootShard:
    """What the root shard keeps for those who join it, if the name is not that of a shard on another store: what that
    one published would be lost. Raises ApiError, ClientError, TimeoutError, RootShardNotReady, OtherStore."""
    async with root_client(target, SYSTEM_SHARD) as client:
        found = _read(await client.get(_CONFIG_MAPS, IDENTITY_CACHE, DEFAULT))
        with contextlib.suppress(NotFound):
            check_store(await client.cluster(ROOT).get(SHARDS, name), store)
    if missing := found.missing:
        raise RootShardNotReady(f"the root shard has no identity yet for {', '.join(missing)}")
    if not found.installation:
        raise RootShardNotReady("the root shard is of an older release: it does not say what its uids derive from")
    return found


def _kept(store: Store) -> RootShard:
    """What the store says, be it nothing."""
    with store.snapshot() as snapshot:
        record = snapshot.get(ObjectKey(CONFIG_MAPS, SYSTEM_SHARD, DEFAULT, IDENTITY_CACHE))
    return _read(decode(record.value)) if record is not None else RootShard({}, "")


def _read(config_map: Object) -> RootShard:
    data = config_map.get("data") or {}
    installation = (config_map["metadata"].get("annotations") or {}).get(INSTALLATION, "")
    return RootShard({name: ExportIdentity(data[name]) for name in root_exports() if data.get(name)}, installation)


def _same_root(kept: RootShard, found: RootShard) -> RootShard:
    """Return `found`. Raise RootShardChanged if its identities differ from `kept`: objects are stored under them."""
    differs = kept.installation not in {"", found.installation}
    if differs or any(found.identities[name] != identity for name, identity in kept.identities.items()):
        raise RootShardChanged(
            "root-shard-kubeconfig-file leads to another root shard than the one that this shard joined"
        )
    return found
