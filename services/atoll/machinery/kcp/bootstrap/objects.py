"""The bootstrap objects: the system logical clusters and root, with their contents.

The shard calls `bootstrap` at each start and submits the manifests in the returned order: a LogicalCluster first, since
it opens its cluster's gate, then objects before those that refer to them. The first start creates all; later starts
reconcile the manifests marked `reconciled` and leave the others unchanged. Invariant: the same options return the same
objects.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import msgspec

from atoll.machinery.kcp.apis import root_exports
from atoll.machinery.kcp.apis.initial_bindings import Bindings, InitialBinding, bind
from atoll.machinery.kcp.bootstrap import batteries
from atoll.machinery.kcp.bootstrap.rbac import policy
from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kcp.namespaces import DEFAULT, KCP_SYSTEM, KUBE_SYSTEM, namespaces
from atoll.machinery.kcp.schema_files import bootstrap_file
from atoll.machinery.kcp.sharding.shards import Registration, new_shard
from atoll.machinery.kcp.workspaces.logicalcluster import BINDINGS_INITIALIZED, ClusterFacts, logical_cluster
from atoll.machinery.meta.conditions import TRUE, Condition
from atoll.machinery.meta.names import ROOT, SYSTEM_ADMIN, SYSTEM_BOUND_CRDS, SYSTEM_CRDS, SYSTEM_SHARD
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.meta.user import AUTHENTICATED
from atoll.machinery.meta.wellknown import REPLICATE

#: In namespace `default` of system:shard: export name -> identity hash, as kcp's shards look them up.
IDENTITY_CACHE = "apiexport-identity-cache"
#: Annotation of that ConfigMap: the UUID from which the uids of root's objects are derived; every shard reads it.
INSTALLATION = "internal.atoll.dev/installation"
_ADMIN_NAMESPACES = (DEFAULT, KUBE_SYSTEM, "kube-public", "kube-node-lease")
_ROOT_TYPE = "root:root"
#: root holds APIExports and WorkspaceTypes, so its LogicalCluster is replicated for both.
_ROOT_REPLICATE = "apis.kcp.io,tenancy.kcp.io"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of bootstrap. URLs have no trailing slash.

    `installation` is a UUID generated with the store; uids are derived from it, so that they are the same at each
    start. `root_installation` is the root shard's UUID if this shard joins one, else empty: on every shard the uids of
    root's objects are derived from it, and only the root shard writes `root`. `identities` are those of root's exports:
    generated at the first start, later read from the exports' status, independent of their Secrets. `ca_bundle` is PEM.
    `now` is an RFC 3339 text.
    """

    shard: str
    base_url: str
    external_url: str
    virtual_workspace_url: str
    identities: Mapping[str, root_exports.ExportIdentity]
    installation: str
    ca_bundle: str
    now: str
    shard_labels: Mapping[str, str] = {}
    root_installation: str = ""
    #: Groups whose members may have a home workspace.
    home_creators: tuple[str, ...] = (AUTHENTICATED,)
    batteries: frozenset[str] = frozenset(batteries.DEFAULT)


def bootstrap(options: Options) -> Iterator[Manifest]:
    """Yield all manifests, in the order in which they can be written."""
    yield from _system_crds(options)
    yield from _system_admin(options)
    yield from _system_bound_crds(options)
    if not options.root_installation:
        yield from _root(options)
    yield from _system_shard(options)


def stamp_of(options: Options, cluster: str) -> ObjectStamp:
    """Return the stamp for objects of a bootstrap cluster; the cluster's path is its name."""
    installation = options.root_installation if cluster == ROOT and options.root_installation else options.installation
    space = uuid.UUID(installation)
    return ObjectStamp(cluster, cluster, options.now, lambda key: str(uuid.uuid5(space, key)))


def _system_crds(options: Options) -> Iterator[Manifest]:
    stamp = stamp_of(options, SYSTEM_CRDS)
    yield _system_cluster(stamp, options)
    yield from root_exports.definitions(stamp)


def _system_bound_crds(options: Options) -> Iterator[Manifest]:
    """Yield the bound CRDs, before root, whose bindings need them. The uids of root's schemas are derived."""
    stamp = stamp_of(options, SYSTEM_BOUND_CRDS)
    yield _system_cluster(stamp, options)
    yield from root_exports.bound(stamp_of(options, ROOT), stamp, root_is_remote=bool(options.root_installation))


def _system_admin(options: Options) -> Iterator[Manifest]:
    stamp = stamp_of(options, SYSTEM_ADMIN)
    yield _system_cluster(stamp, options)
    yield from namespaces(stamp, _ADMIN_NAMESPACES, options.ca_bundle)
    yield from policy(stamp)


def _system_shard(options: Options) -> Iterator[Manifest]:
    stamp = stamp_of(options, SYSTEM_SHARD)
    bindings = _bindings(stamp, options)
    yield _system_cluster(stamp, options, bindings.locks)
    yield from namespaces(stamp, (DEFAULT,), options.ca_bundle)
    yield _identity_cache(stamp, options)
    yield from _kept(bindings)


def _root(options: Options) -> Iterator[Manifest]:
    stamp = stamp_of(options, ROOT)
    bindings = _bindings(stamp, options)
    facts = ClusterFacts(
        shard=options.shard,
        external_url=options.external_url,
        type=_ROOT_TYPE,
        locks=bindings.locks,
        annotations={REPLICATE: _ROOT_REPLICATE},
        conditions=(Condition(BINDINGS_INITIALIZED, TRUE),),
    )
    yield logical_cluster(stamp, facts)
    yield from namespaces(stamp, (DEFAULT, KCP_SYSTEM), options.ca_bundle)
    yield from root_exports.schemas(stamp)
    yield from root_exports.exports(stamp, options.identities)
    yield from _kept(bindings)
    yield from policy(stamp, options.home_creators)
    yield _shard(stamp, options)
    yield from _workspace_types(stamp, options)
    if batteries.METRICS_VIEWER in options.batteries:
        yield from batteries.metrics_viewer(stamp)


def _system_cluster(stamp: ObjectStamp, options: Options, locks: str = "{}") -> Manifest:
    return logical_cluster(stamp, ClusterFacts(options.shard, options.external_url, locks=locks))


def _bindings(stamp: ObjectStamp, options: Options) -> Bindings:
    offered = root_exports.bindable(stamp_of(options, ROOT), options.identities)
    names = bootstrap_file("exports")["bindings"][stamp.cluster]
    return bind(stamp, [InitialBinding(name, ROOT, name, offered[name]) for name in names])


def _kept(bindings: Bindings) -> Iterator[Manifest]:
    return (manifest._replace(reconciled=True) for manifest in bindings.manifests)


def _identity_cache(stamp: ObjectStamp, options: Options) -> Manifest:
    hashed = {name: identity.hash for name, identity in options.identities.items()}
    installation = options.root_installation or options.installation
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": stamp.metadata("configmaps", IDENTITY_CACHE, DEFAULT, {INSTALLATION: installation}),
        "data": hashed,
    }
    return Manifest(stamp.cluster, config_map, CONFIG_MAPS, reconciled=True)


def registration(options: Options) -> Registration:
    """Return the shard's registration: the fields of its Shard object in `root`."""
    return Registration(
        options.shard,
        options.base_url,
        options.external_url,
        options.virtual_workspace_url,
        options.installation if options.root_installation else "",
        options.shard_labels,
    )


def _shard(stamp: ObjectStamp, options: Options) -> Manifest:
    """Return the root shard's own Shard object; registration keeps it up to date, as on other shards."""
    shard = new_shard(registration(options))
    metadata = shard["metadata"]
    stamped = stamp.metadata("shards", options.shard, "", metadata.get("annotations"), metadata["labels"])
    stored_as = root_exports.exported_type("shards.core.kcp.io", options.identities)
    return Manifest(stamp.cluster, {**shard, "metadata": stamped}, stored_as)


def _workspace_types(stamp: ObjectStamp, options: Options) -> Iterator[Manifest]:
    stored_as = root_exports.exported_type("workspacetypes.tenancy.kcp.io", options.identities)
    for name, spec in batteries.workspace_types(bootstrap_file("workspacetypes"), options.batteries).items():
        obj = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "WorkspaceType",
            "metadata": stamp.pathed_metadata("workspacetypes", name),
            "spec": spec,
            "status": _type_status(stamp, name, options.virtual_workspace_url),
        }
        yield Manifest(stamp.cluster, obj, stored_as, reconciled=True)


def _type_status(stamp: ObjectStamp, name: str, url: str) -> Object:
    """Return a WorkspaceType's status. As in kcp, both URLs are set for types without initializer or terminator too."""
    return {
        "conditions": stamp.holds(("Ready", "VirtualWorkspaceURLsReady")),
        "virtualWorkspaces": lifecycle_urls(url, stamp.cluster, name),
    }


def lifecycle_urls(url: str, cluster: str, name: str) -> list[Object]:
    """Return status.virtualWorkspaces of a WorkspaceType on a shard with this virtual workspace URL."""
    return [
        {"url": f"{url}/services/{kind}workspaces/{cluster}:{name}", "type": kind}
        for kind in ("initializing", "terminating")
    ]
