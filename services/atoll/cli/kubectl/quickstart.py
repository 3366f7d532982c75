"""`kubectl kcp quickstart`: workspaces to try things with, below `root`, and away again with `--cleanup`.

Called by `kcp`, with the names, flags and scenarios of kcp's command. Invariant: a run goes on where another stopped,
as every step takes what exists; everything lies in one organization workspace, with which it goes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import time
from collections.abc import Sequence

from atoll.cli.kubectl import bind, workspaces
from atoll.cli.kubectl.plugin import Failure, common_flags, duration_s, load_context, run, say
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import AlreadyExists, NotFound

LABEL, PREFIX_LABEL = "kcp.io/quickstart", "kcp.io/quickstart-prefix"
GROUP = "wildwest.dev"
SCHEMAS = Resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", namespaced=False)
COWBOYS = Resource(GROUP, "v1alpha1", "cowboys")
MAX_TREE = 10_000
#: Between two looks whether a workspace is gone.
_AGAIN_S = 0.5
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
_TEXT = {"type": "string"}


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    options = _parser().parse_args(list(arguments))
    return run(_run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl kcp quickstart",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Create workspaces to try things with, below root: provider and consumer of an API, or a tree.",
    )
    parser.add_argument("--scenario", choices=("api-provider", "workspaces"), default="api-provider")
    parser.add_argument("--name-prefix", default="quickstart", metavar="NAME", help="of all workspaces (quickstart)")
    parser.add_argument("--with-samples", action="store_true", help="create an object of the API as well")
    parser.add_argument("--enter", action="store_true", help="make the consumer, or the top of the tree, current")
    parser.add_argument("--cleanup", action="store_true", help="delete what an earlier run created")
    parser.add_argument("--timeout", type=duration_s, default=600.0, metavar="10m", help="of the whole command")
    parser.add_argument("--tree-depth", type=int, default=3, metavar="N", help="levels of the tree (3)")
    parser.add_argument("--tree-count", type=int, default=20, metavar="N", help="workspaces in the tree (20)")
    parser.add_argument("--tree-seed", type=int, default=0, metavar="N", help="draws the same tree again")
    return parser


async def _run(options: argparse.Namespace) -> None:
    if not _LABEL.fullmatch(options.name_prefix):
        raise Failure(f'"{options.name_prefix}" cannot begin the name of a workspace', 2)
    if options.tree_depth < 1 or not 0 <= options.tree_count <= MAX_TREE:
        raise Failure(f"--tree-depth is at least 1, --tree-count at most {MAX_TREE}", 2)
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, "root")) as client:
        quickstart = Quickstart(client, options.name_prefix)
        try:
            async with asyncio.timeout(options.timeout):
                entered = await quickstart.run(options)
        except (TimeoutError, WaitTimeout) as late:
            raise Failure(f"not done within {options.timeout:g} s; another run goes on from here") from late
    if entered:
        workspaces.enter(kubeconfig, context, entered)
        say(f'Current workspace is "{entered}".')


class Quickstart:
    """The steps of one run. Each takes what exists."""

    def __init__(self, root: Client, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        self.top = f"root:{prefix}-org"

    async def run(self, options: argparse.Namespace) -> str:
        """Run a scenario or clean up; return the workspace to enter, "" for none. Raises ApiError, Failure."""
        if options.cleanup:
            await self._clean_up()
            return "root"
        await self._workspace("root", f"{self._prefix}-org", "organization")
        if options.scenario == "workspaces":
            await self._tree(options)
            entered = self.top
        else:
            entered = await self._api(with_samples=options.with_samples)
        say(f"Clean up: kubectl kcp quickstart --cleanup --name-prefix {self._prefix}")
        return entered if options.enter else ""

    async def _clean_up(self) -> None:
        name, began_s = f"{self._prefix}-org", time.monotonic()
        try:
            await self._root.delete(WORKSPACES, name)
            while True:
                await self._root.get(WORKSPACES, name)
                await asyncio.sleep(_AGAIN_S)
        except NotFound:
            say(f'Workspace "{self.top}" and all below it are gone ({time.monotonic() - began_s:.1f} s).')

    async def _workspace(self, parent: str, name: str, type: str) -> str:
        """Create a workspace and wait until it is ready; return its path."""
        there, labels = self._root.cluster(parent), {LABEL: "true", PREFIX_LABEL: self._prefix}
        head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}
        spec = {"type": {"name": type, "path": "root"}}
        made, existed = await _taken(
            there, WORKSPACES, {**head, "metadata": {"name": name, "labels": labels}, "spec": spec}
        )
        await until(there, WORKSPACES, made, lambda found: workspaces.phase_of(found) == "Ready", float("inf"))
        say(f'Workspace "{parent}:{name}" {"exists" if existed else "is ready"}.')
        return f"{parent}:{name}"

    async def _api(self, *, with_samples: bool) -> str:
        """Create a provider with its export, and a consumer who binds it; return the path of the consumer."""
        provider = await self._workspace(self.top, f"{self._prefix}-provider", "universal")
        there = self._root.cluster(provider)
        await self._object(there, SCHEMAS, _schema())
        await self._object(there, workspaces.EXPORTS, _export())
        consumer = await self._workspace(self.top, f"{self._prefix}-consumer", "universal")
        here = self._root.cluster(consumer)
        bound = await self._object(here, workspaces.BINDINGS, bind.manifest("cowboys", provider, "cowboys"))
        await until(
            here, workspaces.BINDINGS, bound, lambda found: status_of(found).get("phase") == "Bound", float("inf")
        )
        if with_samples:
            await self._object(here, COWBOYS, _cowboy())
        say(f"Try it: kubectl ws :{consumer}; kubectl get cowboys")
        return consumer

    async def _object(self, client: Client, resource: Resource, wanted: Object) -> Object:
        made, existed = await _taken(client, resource, wanted)
        say(f'{wanted["kind"]} "{wanted["metadata"]["name"]}" {"exists" if existed else "created"}.')
        return made

    async def _tree(self, options: argparse.Namespace) -> None:
        """Create a random tree: each workspace below the top or below one that is not as deep as it may be."""
        seed = options.tree_seed or random.randrange(1, 1 << 31)
        draw, began_s = random.Random(seed), time.monotonic()
        places = [(self.top, 0)]
        for number in range(1, options.tree_count + 1):
            parent, depth = draw.choice([place for place in places if place[1] < options.tree_depth])
            path = await self._workspace(parent, f"{self._prefix}-ws-{number}", "universal")
            places.append((path, depth + 1))
        took_s = time.monotonic() - began_s
        say(f"{options.tree_count} workspaces in {took_s:.1f} s; --tree-seed {seed} draws the same tree.")


async def _taken(client: Client, resource: Resource, wanted: Object) -> tuple[Object, bool]:
    """Return an object as it was created, or as it exists; and whether it existed."""
    try:
        return await client.create(resource, wanted), False
    except AlreadyExists:
        metadata = wanted["metadata"]
        return await client.get(resource, metadata["name"], metadata.get("namespace", "")), True


def _is_bound(binding: Object) -> bool:
    return bool(status_of(binding).get("phase") == "Bound")


def _schema() -> Object:
    properties = {
        "spec": {"type": "object", "properties": {"intent": {**_TEXT, "description": "What it is up to."}}},
        "status": {"type": "object", "properties": {"result": {**_TEXT, "description": "What came of it."}}},
    }
    version = {
        "name": COWBOYS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"type": "object", "properties": properties},
    }
    names = {
        "kind": "Cowboy",
        "listKind": "CowboyList",
        "plural": "cowboys",
        "singular": "cowboy",
        "shortNames": ["cb"],
    }
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": {"name": f"today.cowboys.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _export() -> Object:
    resource = {"group": GROUP, "name": "cowboys", "schema": f"today.cowboys.{GROUP}", "storage": {"crd": {}}}
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": "cowboys"},
        "spec": {"resources": [resource]},
    }


def _cowboy() -> Object:
    return {
        "apiVersion": f"{GROUP}/{COWBOYS.version}",
        "kind": "Cowboy",
        "metadata": {"name": "john-wayne", "namespace": "default"},
        "spec": {"intent": "good"},
    }
