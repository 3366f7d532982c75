"""`kubectl atoll import`: copy a tree of workspaces of kcp, or of another site, into this one.

Called by `atoll`. Invariant: the source is only read; in the site nothing that is there is changed unless that is asked
for, and a run after a whole one writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, common_flags, load_context, run, say
from atoll.cli.kubectl.root import CLUSTERS
from atoll.cli.kubectl.tree_import.carried import Names
from atoll.cli.kubectl.tree_import.contents import Contents
from atoll.cli.kubectl.tree_import.definitions import Definitions
from atoll.cli.kubectl.tree_import.destination import Destination
from atoll.cli.kubectl.tree_import.order import SourceWorkspace, in_order
from atoll.cli.kubectl.tree_import.report import Report
from atoll.cli.kubectl.tree_import.source import SpacedHttpClient, objects, walk
from atoll.cli.kubectl.workspaces import EXPORTS, ROOT
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.target import Target
from atoll.machinery.kcp.apis.root_exports import root_exports
from atoll.machinery.meta.objects import annotations_of, status_of
from atoll.machinery.meta.wellknown import CLUSTER

RATE = 100.0


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll import",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Copy a tree of workspaces of kcp, or of another site, to the same paths of this one. Run it again"
        " after it was stopped, or to look what is missing.",
    )
    parser.add_argument("--from-kubeconfig", required=True, metavar="FILE", help="a kubeconfig of the source")
    parser.add_argument("--from-context", default="", metavar="NAME", help="the context in it; its current one")
    parser.add_argument("--path", default=ROOT, metavar="PATH", help="the top of the tree, as in root:acme (root)")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, tell what would be done")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the site with other content")
    parser.add_argument(
        "--rate", type=float, default=RATE, metavar="N", help="requests a second at most, to each side (%(default)g)"
    )
    options = parser.parse_args(list(arguments))
    if options.rate <= 0:
        parser.error("--rate is above 0")
    return run(_import(options))


async def _import(options: argparse.Namespace) -> None:
    theirs = Kubeconfig.load(options.from_kubeconfig)
    kubeconfig, context = load_context(options)
    here = workspaces.target(kubeconfig, context)
    there = workspaces.target(theirs, options.from_context or theirs.current)
    if (here.host, here.port) == (there.host, there.port):
        raise Failure("source and site are the same server")
    async with _clients(there, here, options.rate) as (source, site):
        await copy_tree(source, site, options)


async def copy_tree(source: Client, site: Client, options: argparse.Namespace) -> None:
    """Copy a tree. Raises Failure if something is not carried, ApiError, ClientError, TimeoutError."""
    names, report = Names(), Report(dry_run=options.dry_run)
    found = await walk(source, options.path.removeprefix(":"), names, report)
    say(f"{len(found)} workspaces from {options.path} down.")
    await _learn_identities(source, site, names)
    destination = Destination(site, names, report, overwrite=options.overwrite, dry_run=options.dry_run)
    definitions, by_path = Definitions(source, destination, report), {each.path: each for each in found}
    for step in in_order(found):
        await definitions.run(step, by_path[step[1]])
    kept = [each for each in found if each.path not in definitions.lost]
    await _learn_clusters(destination, names, kept)
    contents = Contents(source, destination, report)
    for each in kept:
        await contents.run(each.path)
        await definitions.limit(each.path)
    report.end()


async def _learn_identities(source: Client, site: Client, names: Names) -> None:
    """Both sides have the exports of `root`, each with identities of its own. Raises ApiError."""
    pairs = [
        {
            each["metadata"]["name"]: status_of(each).get("identityHash", "")
            async for each in objects(side.cluster(ROOT), EXPORTS)
        }
        for side in (source, site)
    ]
    for name in root_exports():
        if pairs[0].get(name) and pairs[1].get(name):
            names.identities[pairs[0][name]] = pairs[1][name]


async def _learn_clusters(site: Destination, names: Names, workspaces: Sequence[SourceWorkspace]) -> None:
    """RBAC names accounts of other workspaces by their logical clusters. Raises ApiError."""
    for each in workspaces:
        found = await site.find(each.path, CLUSTERS, "cluster")
        if found is not None:
            names.clusters[each.cluster] = annotations_of(found).get(CLUSTER, each.cluster)


@asynccontextmanager
async def _clients(source: Target, site: Target, rate: float) -> AsyncIterator[tuple[Client, Client]]:
    """Clients of both sides, each with connections of its own."""
    async with AsyncExitStack() as stack:
        made = []
        for target in (source, site):
            http = SpacedHttpClient(target, rate)
            stack.push_async_callback(http.close)
            made.append(Client(target, ROOT, http=http, manager="atoll-import"))
        yield made[0], made[1]
