"""The first half of an import: workspaces, identity Secrets, schemas, exports and types, in the order of `order`.

Invariant: an export is created after the Secret with its identity, so that what is bound and claimed by that identity
is the same as at the source; nothing is carried into a workspace that is not ready.
"""

from __future__ import annotations

from atoll.cli.kubectl.plugin import Failure
from atoll.cli.kubectl.root import CLUSTERS
from atoll.cli.kubectl.tree_import.destination import Destination
from atoll.cli.kubectl.tree_import.order import SourceWorkspace, Step
from atoll.cli.kubectl.tree_import.report import Report
from atoll.cli.kubectl.tree_import.source import TYPES, objects
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.cli.kubectl.workspaces import EXPORTS, ROOT, phase_of
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.kcp.apis.root_exports import root_exports
from atoll.machinery.kcp.namespaces import KCP_SYSTEM
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, spec_of, status_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.wellknown import MAX_TOTAL_OBJECTS, REQUIRED_GROUPS

READY_TIMEOUT_S = 60.0
SECRETS, NAMESPACES = Resource("", "v1", "secrets"), Resource("", "v1", "namespaces", namespaced=False)
SCHEMAS = Resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", namespaced=False)
CONVERSIONS = Resource("apis.kcp.io", "v1alpha1", "apiconversions", namespaced=False)
AUTHENTICATION = Resource("tenancy.kcp.io", "v1alpha1", "workspaceauthenticationconfigurations", namespaced=False)
#: The types that every site has in `root`.
ROOT_TYPES = frozenset(["root", "universal", "home", "organization", "team"])


class Definitions:
    """The steps. `lost` are the workspaces that are not in the site, so that nothing goes into them."""

    def __init__(self, source: Client, site: Destination, report: Report) -> None:
        self._source, self._site, self._report = source, site, report
        self.lost: set[str] = set()

    async def run(self, step: Step, workspace: SourceWorkspace) -> None:
        """Run a step; a refusal is reported. Raises ClientError, TimeoutError."""
        stage, path = step
        if path in self.lost or path.rpartition(":")[0] in self.lost:
            self.lost.add(path)
            return
        if stage == "types":
            await self._all(path, AUTHENTICATION)
            for each in workspace.types:
                if path != ROOT or each["metadata"]["name"] not in ROOT_TYPES:
                    await self._one(path, TYPES, each)
        elif await self._is_ready(workspace):
            await self._all(path, SCHEMAS)
            await self._all(path, CONVERSIONS)
            await self._exports(path)
        self._report.end_of(path, stage)

    async def _is_ready(self, workspace: SourceWorkspace) -> bool:
        """Make the workspace, and wait until it is ready; a failure is reported."""
        path, manifest = workspace.path, workspace.manifest
        if manifest is None:
            return True
        parent = path.rpartition(":")[0]
        try:
            made = await self._site.put(parent, WORKSPACES, self._site.content(manifest))
            if made is None:
                self._site.absent.add(path)
                return True
            there = self._site.at(parent)
            await until(there, WORKSPACES, made, lambda obj: phase_of(obj) == "Ready", READY_TIMEOUT_S)
            await self.annotate(path, REQUIRED_GROUPS)
        except WaitTimeout as late:
            text = f"it is not ready: {_reasons(late.latest)}"
        except (ApiError, Failure) as error:
            text = f"it could not be created: {error}"
        else:
            return True
        self.lost.add(path)
        self._report.failure(path, f"{text}; nothing below it is carried")
        return False

    async def annotate(self, path: str, key: str) -> None:
        """Carry an annotation of a LogicalCluster that rules what may be done in it. Raises ApiError."""
        wanted = annotations_of(await self._source.cluster(path).get(CLUSTERS, "cluster")).get(key)
        found = await self._site.find(path, CLUSTERS, "cluster")
        if not wanted or found is None or annotations_of(found).get(key) == wanted:
            return
        if key in annotations_of(found):
            self._report.conflict(path, f"{key} of its LogicalCluster")
        elif not self._site.dry_run:
            await self._site.at(path).patch(CLUSTERS, "cluster", {"metadata": {"annotations": {key: wanted}}})

    async def limit(self, path: str) -> None:
        """Carry the limit of all objects, once they are there. Raises ApiError."""
        await self.annotate(path, MAX_TOTAL_OBJECTS)

    async def _all(self, path: str, resource: Resource) -> None:
        try:
            async for each in objects(self._source.cluster(path), resource):
                if path != ROOT or not spec_of(each).get("group", "").endswith("kcp.io"):
                    await self._one(path, resource, each)
        except ApiError as error:
            self._report.failure(path, f"its {resource.plural} cannot be read: {error}")

    async def _one(self, path: str, resource: Resource, obj: Object) -> Object | None:
        try:
            return await self._site.put(path, resource, self._site.content(obj))
        except ApiError as error:
            self._report.failure(path, f"{resource.plural} {obj['metadata']['name']}: {error}")
        return None

    async def _exports(self, path: str) -> None:
        try:
            async for each in objects(self._source.cluster(path), EXPORTS):
                if path != ROOT or each["metadata"]["name"] not in root_exports():
                    await self._export(path, each)
        except ApiError as error:
            self._report.failure(path, f"its exports cannot be read: {error}")

    async def _export(self, path: str, export: Object) -> None:
        reference = (spec_of(export).get("identity") or {}).get("secretRef")
        name = export["metadata"]["name"]
        if reference:
            namespace = reference.get("namespace") or KCP_SYSTEM
            head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            if await self._site.find(path, NAMESPACES, namespace) is None:
                await self._one(path, NAMESPACES, head)
            secret = await self._source.cluster(path).get(SECRETS, reference["name"], namespace)
            await self._one(path, SECRETS, secret)
        made = await self._one(path, EXPORTS, export)
        identity = status_of(export).get("identityHash")
        if made is None or not identity:
            return
        try:
            made = await until(
                self._site.at(path),
                EXPORTS,
                made,
                lambda obj: bool(status_of(obj).get("identityHash")),
                READY_TIMEOUT_S,
            )
        except WaitTimeout:
            self._report.failure(path, f"apiexports {name} has no identity yet")
            return
        if status_of(made)["identityHash"] != identity:
            self._report.failure(path, f"apiexports {name} has another identity in the site: claims on it differ")


def _reasons(workspace: Object) -> str:
    left = status_of(workspace).get("initializers") or ()
    told = [each.get("message", "") for each in conditions_of(workspace) if each.get("status") == "False"]
    return "; ".join(filter(None, [", ".join(left), *told])) or phase_of(workspace) or "no phase"
