"""`kubectl atoll site check`: Workspaces without a logical cluster, and logical clusters without a Workspace.

Called by `atoll`, after a restore of a shard or the loss of a disk. Each finding is looked at a second time, as a site
in use changes meanwhile. Invariants: without an answer of every shard nothing is called missing, and nothing is
repaired; a repair deletes nothing, but Workspaces without a cluster where that is asked for by a flag of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from atoll.cli.kubectl.plugin import Failure, common_flags, run, say
from atoll.cli.kubectl.root import CLUSTERS, SHARDS, address_of, direct_target
from atoll.cli.kubectl.workspaces import EXPORTS
from atoll.machinery.client.client import WILDCARD, Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.client.target import Target
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, is_system_cluster
from atoll.machinery.meta.objects import Object, annotations_of, spec_of, status_of
from atoll.machinery.meta.status import AlreadyExists, ApiError, NotFound
from atoll.machinery.wire.client import ClientError

PAGE = "500"


class Cluster(msgspec.Struct, frozen=True):
    """A logical cluster that a Workspace owns, `parent` and `name`."""

    id: str
    shard: str
    path: str
    parent: str
    name: str


class Owner(msgspec.Struct, frozen=True):
    """A Workspace with a logical cluster on `host`; `shard` is its own."""

    parent: str
    name: str
    shard: str
    cluster: str
    host: str


class Findings(msgspec.Struct):
    """What belongs together and is not there."""

    without_cluster: list[Owner] = []
    without_workspace: list[Cluster] = []


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(prog="kubectl atoll site", allow_abbrev=False, description="The site as a whole.")
    check = parser.add_subparsers(dest="verb", required=True, metavar="VERB").add_parser(
        "check",
        parents=[common_flags()],
        allow_abbrev=False,
        help="compare Workspaces with logical clusters",
        description="Compare Workspaces with logical clusters on all shards. Exit code 1: something is missing.",
    )
    check.add_argument("--repair", action="store_true", help="make the Workspaces again that clusters lack")
    check.add_argument(
        "--delete-workspaces", action="store_true", help="with --repair: delete the Workspaces whose cluster is gone"
    )
    options = parser.parse_args(list(arguments))
    if options.delete_workspaces and not options.repair:
        parser.error("--delete-workspaces goes with --repair")
    return run(_check(options))


async def _check(options: argparse.Namespace) -> None:
    site = Site(direct_target(options))
    try:
        await site.open()
        found = await site.findings()
        for line in described(found):
            say(line)
        if options.repair:
            await _repair(site, found, delete=options.delete_workspaces)
            found = await site.findings()
    finally:
        await site.close()
    left = len(found.without_cluster) + len(found.without_workspace)
    if left:
        raise Failure(f"{left} {'are left' if options.repair else 'are found; --repair mends what it can'}")
    say(f"{site.counted} logical clusters with Workspaces on {len(site.shards)} shards: each has the other.")


def described(found: Findings) -> list[str]:
    """Return a line for each finding."""
    lost = [
        f"Workspace {each.name} of {each.parent} (shard {each.shard}): its logical cluster {each.cluster} is not on"
        f" shard {each.host or 'that it names'}; its content is gone"
        for each in found.without_cluster
    ]
    alone = [
        f"Logical cluster {each.id} ({each.path}) on shard {each.shard}: {each.parent} has no Workspace {each.name}"
        for each in found.without_workspace
    ]
    return [*lost, *alone]


class Site:
    """All shards, each by its own address, as system:masters."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.shards: dict[str, Client] = {}
        self._identity = ""
        self._urls: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self.counted = 0

    async def open(self) -> None:
        """Learn the shards. Raises ApiError, Failure."""
        async with Client(self._target, ROOT) as root:
            for each in (await root.list(SHARDS))["items"]:
                name = each["metadata"]["name"]
                self.shards[name] = Client(address_of(self._target, each), ROOT)
                self._urls[name] = str(spec_of(each).get("externalURL") or "")
            self._identity = str(status_of(await root.get(EXPORTS, wellknown.TENANCY_GROUP)).get("identityHash") or "")

    async def close(self) -> None:
        """Close all connections."""
        for client in self.shards.values():
            await client.close()

    async def findings(self) -> Findings:
        """Compare, and look at each difference again. Raises Failure if a shard does not answer."""
        clusters: dict[str, Cluster] = {}
        owners: dict[tuple[str, str], Owner] = {}
        self._at = {}
        for shard, client in self.shards.items():
            try:
                await self._read(shard, client.cluster(WILDCARD), clusters, owners)
            except (ApiError, ClientError, OSError, TimeoutError) as error:
                raise Failure(f"shard {shard} does not answer, so nothing can be called missing: {error}") from error
        self.counted = len(clusters)
        found = Findings()
        for owner in owners.values():
            if owner.cluster not in self._at and await self._is_without_cluster(owner):
                found.without_cluster.append(owner)
        for cluster in clusters.values():
            owning = owners.get((cluster.parent, cluster.name))
            if (owning is None or owning.cluster != cluster.id) and await self._is_without_workspace(cluster):
                found.without_workspace.append(cluster)
        return found

    async def _read(
        self, shard: str, client: Client, clusters: dict[str, Cluster], owners: dict[tuple[str, str], Owner]
    ) -> None:
        async for page in client.pages(CLUSTERS, limit=PAGE):
            for each in page["items"]:
                annotations, owner = annotations_of(each), spec_of(each).get("owner")
                cluster = annotations[wellknown.CLUSTER]
                self._at[cluster] = shard
                if owner and not is_system_cluster(cluster) and not each["metadata"].get("deletionTimestamp"):
                    path = annotations.get(wellknown.PATH, cluster)
                    clusters[cluster] = Cluster(cluster, shard, path, owner["cluster"], owner["name"])
        workspaces = msgspec.structs.replace(WORKSPACES, identity=self._identity)
        async for page in client.pages(workspaces, limit=PAGE):
            for each in page["items"]:
                annotations, parent = annotations_of(each), annotations_of(each)[wellknown.CLUSTER]
                cluster = str(spec_of(each).get("cluster") or "")
                if cluster and not each["metadata"].get("deletionTimestamp"):
                    host, name = annotations.get(wellknown.SHARD, ""), each["metadata"]["name"]
                    owners[parent, name] = Owner(parent, name, shard, cluster, host)

    async def _is_without_cluster(self, owner: Owner) -> bool:
        """Whether a Workspace still names its cluster, and no shard has it."""
        workspace = await self.workspace(owner.shard, owner.parent, owner.name)
        if workspace is None or spec_of(workspace).get("cluster") != owner.cluster:
            return False
        if workspace["metadata"].get("deletionTimestamp"):
            return False
        return all([await self.cluster(shard, owner.cluster) is None for shard in self.shards])

    async def _is_without_workspace(self, cluster: Cluster) -> bool:
        """Whether a cluster is still there, and the shard of its parent has no Workspace that names it."""
        found = await self.cluster(cluster.shard, cluster.id)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return False
        home = self._at.get(cluster.parent)
        workspace = await self.workspace(home, cluster.parent, cluster.name) if home else None
        return workspace is None or spec_of(workspace).get("cluster") not in {None, "", cluster.id}

    async def workspace(self, shard: str, parent: str, name: str) -> Object | None:
        """Return a Workspace, None if it is not there. Raises ApiError."""
        try:
            return await self.shards[shard].cluster(parent).get(WORKSPACES, name)
        except NotFound:
            return None

    async def cluster(self, shard: str, cluster: str) -> Object | None:
        """Return a LogicalCluster, None if it is not on a shard. Raises ApiError."""
        try:
            return await self.shards[shard].cluster(cluster).get(CLUSTERS, wellknown.SINGLETON)
        except NotFound:
            return None

    async def adopt(self, cluster: Cluster) -> str:
        """Make the Workspace of a cluster again; return why it cannot be, empty if it is made. Raises ApiError."""
        home = self._at.get(cluster.parent)
        if home is None:
            return f"its parent {cluster.parent} is on no shard"
        found = await self.cluster(cluster.shard, cluster.id)
        if found is None:
            return "it is gone by now"
        try:
            made = await self.shards[home].cluster(cluster.parent).create(WORKSPACES, self._manifest(cluster, found))
        except AlreadyExists:
            made = await self.shards[home].cluster(cluster.parent).get(WORKSPACES, cluster.name)
            if spec_of(made).get("cluster") != cluster.id:
                return f"another Workspace has the name {cluster.name} in {cluster.parent}"
        owner = {**spec_of(found)["owner"], "uid": made["metadata"]["uid"]}
        patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": {"owner": owner}}
        await self.shards[cluster.shard].cluster(cluster.id).patch(CLUSTERS, wellknown.SINGLETON, patch)
        return ""

    def _manifest(self, cluster: Cluster, found: Object) -> Object:
        """Return the Workspace of a cluster, as scheduling wrote it."""
        annotations = annotations_of(found)
        kept = {key: annotations[key] for key in (wellknown.OWNER, wellknown.REQUIRED_GROUPS) if key in annotations}
        choice = {
            wellknown.SCHEDULED_CLUSTER: cluster.id,
            wellknown.SHARD: cluster.shard,
            wellknown.SHARD_HASH: hashes.shard_hash(cluster.shard),
        }
        path, _, name = annotations.get(wellknown.TYPE, "").rpartition(":")
        url = f"{self._urls[cluster.shard]}/clusters/{cluster.path}"
        return {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {
                "name": cluster.name,
                "annotations": {**kept, **choice},
                "finalizers": [wellknown.OWNER_FINALIZER],
            },
            "spec": {"cluster": cluster.id, "URL": url, **({"type": {"path": path, "name": name}} if name else {})},
        }


async def _repair(site: Site, found: Findings, *, delete: bool) -> None:
    for each in found.without_workspace:
        try:
            reason = await site.adopt(each)
        except ApiError as error:
            reason = str(error)
        say(f"{each.path}: {f'not repaired: {reason}' if reason else 'its Workspace is made again'}")
    for owner in found.without_cluster:
        if not delete:
            say(f"{owner.name} of {owner.parent} stays: --delete-workspaces deletes it, so that it can be made anew")
            continue
        try:
            await site.shards[owner.shard].cluster(owner.parent).delete(WORKSPACES, owner.name)
            say(f"{owner.name} of {owner.parent} is deleted")
        except ApiError as error:
            say(f"{owner.name} of {owner.parent} is not deleted: {error}")
