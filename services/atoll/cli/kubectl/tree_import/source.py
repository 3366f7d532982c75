"""Reads the source: the workspaces of a tree, and their objects page by page.

The steps call this. Requests are spaced, as the source serves others meanwhile. Invariant: only GET is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from atoll.cli.kubectl.root import CLUSTERS
from atoll.cli.kubectl.tree_import.carried import Names, translated
from atoll.cli.kubectl.tree_import.order import SourceWorkspace
from atoll.cli.kubectl.tree_import.report import Report
from atoll.cli.kubectl.workspaces import ROOT, phase_of
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.client.target import Target
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import ApiError, Forbidden, NotFound
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.wire.client import ClientResponse, HttpClient, Origin
from atoll.machinery.wire.client_connection import Body
from atoll.machinery.wire.exchange import Headers

PAGE = "250"
TYPES = Resource("tenancy.kcp.io", "v1alpha1", "workspacetypes", namespaced=False)


class SpacedHttpClient(HttpClient):
    """Starts `rate` requests a second at most."""

    def __init__(self, target: Target, rate: float) -> None:
        super().__init__(Origin(target.host, target.port, target.tls, target.server_name))
        self._space_s, self._next_s = 1 / rate, 0.0

    async def request(
        self, method: str, target: str, headers: Headers = (), body: Body = b"", *, timeout_s: float = 0
    ) -> ClientResponse:
        """As of the base class, in turn."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(now_s, self._next_s) + self._space_s
        await asyncio.sleep(self._next_s - self._space_s - now_s)
        return await super().request(method, target, headers, body, timeout_s=timeout_s)


async def walk(client: Client, top: str, names: Names, report: Report) -> list[SourceWorkspace]:
    """Return the workspaces from `top` down, parents first, with their types; fill the paths of `names`.

    What cannot be read is reported, and left out with all below it. Raises ApiError for `top` itself.
    """
    parent, _, name = top.rpartition(":")
    first = None if top == ROOT or not parent else await client.cluster(parent).get(WORKSPACES, name)
    level: list[tuple[str, Object | None]] = [(top, first)]
    found: list[tuple[str, Object | None, tuple[Object, ...]]] = []
    while level:
        below: list[tuple[str, Object | None]] = []
        for path, manifest in level:
            names.paths[await _cluster_of(client, path, manifest)] = path
            try:
                found.append((path, manifest, tuple(await _listed(client.cluster(path), TYPES))))
                below += [
                    (f"{path}:{each['metadata']['name']}", each)
                    for each in await _listed(client.cluster(path), WORKSPACES)
                    if _is_readable(path, each, report)
                ]
            except ApiError as error:
                report.failure(path, f"it cannot be read, and nothing below it: {error}")
        level = below
    clusters = {path: cluster for cluster, path in names.paths.items()}
    return [
        SourceWorkspace(
            path,
            clusters[path],
            manifest and translated(manifest, names),
            tuple(translated(each, names) for each in types),
        )
        for path, manifest, types in found
    ]


async def objects(client: Client, resource: Resource, **options: str) -> AsyncIterator[Object]:
    """Yield the objects of a kind, those without deletion alone. A kind that is not served has none."""
    try:
        async for page in client.pages(resource, limit=PAGE, **options):
            for each in page["items"]:
                if not each["metadata"].get("deletionTimestamp"):
                    yield each
    except ApiError as error:
        if error.code != NotFound.code:
            raise


async def _listed(client: Client, resource: Resource) -> list[Object]:
    return [each async for each in objects(client, resource)]


async def _cluster_of(client: Client, path: str, manifest: Object | None) -> str:
    """Return the name of the logical cluster of a workspace."""
    if manifest is not None:
        return str(spec_of(manifest).get("cluster") or path)
    try:
        annotations = (await client.cluster(path).get(CLUSTERS, "cluster"))["metadata"].get("annotations") or {}
    except (Forbidden, NotFound):
        return path
    return str(annotations.get(CLUSTER) or path)


def _is_readable(parent: str, workspace: Object, report: Report) -> bool:
    """Whether a workspace has content that can be read; a mount has none of its own. Others are reported."""
    if "mount" in spec_of(workspace):
        return False
    if phase_of(workspace) != "Ready":
        report.failure(f"{parent}:{workspace['metadata']['name']}", f"it is {phase_of(workspace)}, not Ready")
        return False
    return True
