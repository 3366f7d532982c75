"""`kubectl atoll root create PATH`: a tree of workspaces beside `root`, held by a shard of the operator's choice.

Called by `atoll`. Needs a user of system:masters at the root shard (context `shard-base`). It lets the shard hold the
root, in its Shard object, and then creates the LogicalCluster at the shard itself. Invariant: a path is given to one
shard; run again, the command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from atoll.cli.kubectl.plugin import Failure, common_flags, load_context, run, say
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.client.target import Target
from atoll.machinery.kcp.sharding.shards import is_root_path, roots_of, with_root
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, annotations_of, spec_of, status_of
from atoll.machinery.meta.status import AlreadyExists, Conflict
from atoll.machinery.meta.wellknown import PATH, SINGLETON, TYPE
from atoll.machinery.process.retry import retry_on_conflict

READY_TIMEOUT_S = 60.0
SHARDS = Resource("core.kcp.io", "v1alpha1", "shards", namespaced=False)
CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", namespaced=False)
#: The context of a site's kubeconfig that reaches the root shard as system:masters.
DIRECT = "shard-base"


def dispatch(arguments: Sequence[str]) -> int:
    """Run a command of `root`. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll root", allow_abbrev=False, description="Trees of workspaces beside the workspace root."
    )
    create = parser.add_subparsers(dest="command", required=True).add_parser(
        "create", parents=[common_flags()], allow_abbrev=False, help="create a root and wait until it is ready"
    )
    create.add_argument("path", metavar="PATH", help="its path, as in tenant:acme")
    create.add_argument("--shard", required=True, metavar="NAME", help="the shard that holds it")
    create.add_argument("--owner", default="", metavar="USER", help="the user who administers it")
    create.add_argument("--type", default="root:organization", metavar="PATH:NAME", help="its WorkspaceType")
    return run(_create(parser.parse_args(list(arguments))))


async def _create(options: argparse.Namespace) -> None:
    path = options.path.removeprefix(":")
    if not is_root_path(path):
        raise Failure(f"{options.path!r} is not the path of a root: several names, not below root, user or system")
    target = direct_target(options)
    async with Client(target, ROOT) as client:
        shard = await _allow(client, path, options.shard)
    cluster = hashes.root_cluster_name(path)
    async with Client(address_of(target, shard), cluster) as client:
        made = await _made(client, manifest(path, options.type, options.owner))
        try:
            made = await until(client, CLUSTERS, made, _is_ready, READY_TIMEOUT_S)
        except WaitTimeout as late:
            left = ", ".join(status_of(late.latest).get("initializers") or ()) or "nothing that it names"
            raise Failure(f'root "{path}" is not ready yet: it waits for {left}') from None
    say(f'Root "{path}" (type {annotations_of(made).get(TYPE, "none")}) is ready on shard {options.shard}.')
    say(f"{status_of(made).get('URL', '')}")


def manifest(path: str, kind: str, owner: str) -> Object:
    """Return the LogicalCluster of a root."""
    annotations = {PATH: path, TYPE: kind} if kind else {PATH: path}
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": SINGLETON, "annotations": annotations},
        "spec": {"createdBy": {"username": owner}} if owner else {},
    }


async def _allow(client: Client, path: str, name: str) -> Object:
    """Let a shard hold a root; return its Shard object. Raises Failure if another one does."""
    for each in (await client.list(SHARDS))["items"]:
        if path in roots_of(each) and each["metadata"]["name"] != name:
            raise Failure(f'shard {each["metadata"]["name"]} holds root "{path}"')

    async def write() -> Object:
        found = await client.get(SHARDS, name)
        wanted = with_root(found, path)
        return found if wanted is found else await client.update(SHARDS, wanted)

    return await retry_on_conflict(write, Conflict)


def direct_target(options: argparse.Namespace) -> Target:
    """Return the root shard, reached past the proxy unless a context is named: no proxy lets system:masters through.

    Raises KubeconfigError, Failure.
    """
    kubeconfig, context = load_context(options)
    return kubeconfig.target(DIRECT if not options.context and kubeconfig.has("context", DIRECT) else context)


def address_of(target: Target, shard: Object) -> Target:
    """Return the target with the address of a shard. Raises Failure."""
    url = str(spec_of(shard).get("baseURL") or "")
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise Failure(f"shard {shard['metadata']['name']} has no address yet: its baseURL is {url or 'empty'}")
    place = {"host": parts.hostname, "port": parts.port or 443, "path": parts.path.rstrip("/")}
    return msgspec.structs.replace(target, **place, server_name="")


async def _made(client: Client, wanted: Object) -> Object:
    try:
        return await client.create(CLUSTERS, wanted)
    except AlreadyExists:
        return await client.get(CLUSTERS, SINGLETON)


def _is_ready(cluster: Object) -> bool:
    return status_of(cluster).get("phase") == "Ready"
