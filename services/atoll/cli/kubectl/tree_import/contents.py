"""The second half of an import: bindings with their claims, definitions, RBAC, and objects of every kind.

Invariant: in a workspace a kind is carried after what it needs (namespaces, definitions and bindings first; quotas,
webhooks and policies last), and an object never before its owners: without its owner it would be collected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from atoll.cli.kubectl.root import CLUSTERS
from atoll.cli.kubectl.tree_import import report as counts
from atoll.cli.kubectl.tree_import.carried import TOKEN, digest, with_owners
from atoll.cli.kubectl.tree_import.destination import Destination, IsGenerated, key_of
from atoll.cli.kubectl.tree_import.report import Report
from atoll.cli.kubectl.tree_import.source import objects
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.cli.kubectl.workspaces import BINDINGS, ROOT
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind, served_kinds
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.kcp.workspaces.workspace import ADMIN_BINDING
from atoll.machinery.meta.objects import Object, conditions_of, owner_references_of, spec_of, status_of
from atoll.machinery.meta.status import ApiError, Expired

BOUND_TIMEOUT_S = 60.0
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
_RBAC = "rbac.authorization.k8s.io"
#: Kinds that `definitions` carries, that the site makes by itself, or that mean nothing in another site.
_LEFT_OUT = frozenset(
    [
        ("", "events"),
        ("events.k8s.io", "events"),
        ("coordination.k8s.io", "leases"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("apis.kcp.io", "apibindings"),
        ("apis.kcp.io", "apiexports"),
        ("apis.kcp.io", "apiresourceschemas"),
        ("apis.kcp.io", "apiconversions"),
        ("core.kcp.io", "logicalclusters"),
        ("core.kcp.io", "shards"),
        ("tenancy.kcp.io", "workspaces"),
        ("tenancy.kcp.io", "workspacetypes"),
        ("tenancy.kcp.io", "workspaceauthenticationconfigurations"),
        ("migration.kcp.io", "logicalclustermigrations"),
    ]
)
_FIRST = (
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "serviceaccounts"),
    (_RBAC, "clusterroles"),
    (_RBAC, "roles"),
    (_RBAC, "clusterrolebindings"),
    (_RBAC, "rolebindings"),
)
#: Groups whose status the site computes.
_COMPUTED = frozenset(["", "admissionregistration.k8s.io", "apiextensions.k8s.io", _RBAC])
Late = tuple[ServedKind, str, str]


class Contents:
    """The steps of one workspace after the other."""

    def __init__(self, source: Client, site: Destination, report: Report) -> None:
        self._source, self._site, self._report = source, site, report

    async def run(self, path: str) -> None:
        """Carry a workspace's content; a refusal is reported. Raises ClientError, TimeoutError."""
        try:
            await self._bindings(path)
            await WorkspaceContent(path, self._source, self._site, self._report).run()
            async for each in objects(self._source.cluster(path), WORKSPACES):
                if "mount" in spec_of(each):
                    await self._site.put(path, WORKSPACES, self._site.content(each))
        except ApiError as error:
            self._report.failure(path, f"its content cannot be carried: {error}")
        self._report.end_of(path, "content")

    async def _bindings(self, path: str) -> None:
        """Carry the bindings; one that the type made there under another name is the same."""
        there = [] if path in self._site.absent else [each async for each in objects(self._site.at(path), BINDINGS)]
        names = {_export_of(each): each["metadata"]["name"] for each in there}
        async for each in objects(self._source.cluster(path), BINDINGS):
            content = self._site.content(each)
            name = content["metadata"]["name"] = names.get(_export_of(content), content["metadata"]["name"])
            if path == ROOT and name in names.values():
                continue
            try:
                made = await self._site.put(path, BINDINGS, content)
                if made is not None:
                    await until(self._site.at(path), BINDINGS, made, _is_bound, BOUND_TIMEOUT_S)
            except WaitTimeout as late:
                told = [text for row in conditions_of(late.latest) if (text := row.get("message"))]
                self._report.failure(
                    path, f"apibindings {name} is not bound: {'; '.join(told) or 'no reason is given'}"
                )
            except ApiError as error:
                self._report.failure(path, f"apibindings {name}: {error}")


class WorkspaceContent:
    """The kinds of one workspace."""

    def __init__(self, path: str, source: Client, site: Destination, report: Report) -> None:
        self._path, self._source, self._site, self._report = path, source.cluster(path), site, report
        self._served: dict[tuple[str, str], ServedKind] = {}
        self._uids: dict[str, str] = {}

    async def run(self) -> None:
        """Carry all kinds. Raises ApiError if the workspace cannot be discovered."""
        kinds = sorted((await served_kinds(self._source)).values(), key=_rank)
        for last in (False, True):
            late = [
                late
                for kind in kinds
                if _is_carried(kind) and _is_last(kind) == last
                for late in await self._kind(kind)
            ]
            await self._with_owners(late)

    async def _with_owners(self, late: list[Late]) -> None:
        """Carry what waited for its owners, as long as more of them come."""
        while late:
            left = [each for each in late if not await self._late(each)]
            if len(left) == len(late):
                break
            late = left
        for kind, name, namespace in late:
            self._report.failure(
                self._path, f"{kind.resource.plural} {name}: its owner is not in the site; it is carried without it"
            )
            await self._object(kind, await self._source.get(kind.resource, name, namespace), (b"", False))

    async def _kind(self, kind: ServedKind) -> list[Late]:
        """Carry the objects of a kind; return those whose owner is not there yet."""
        for _ in range(3):
            try:
                return [late async for late in self._objects(kind)]
            except Expired:
                # The list took longer than the source keeps its revision. What is there by now is the same.
                continue
            except ApiError as error:
                self._report.failure(self._path, f"its {kind.resource.plural} cannot be carried: {error}")
                return []
        self._report.failure(self._path, f"its {kind.resource.plural} cannot be listed in time; raise --rate")
        return []

    async def _objects(self, kind: ServedKind) -> AsyncIterator[Late]:
        existing = None
        async for each in objects(self._source, kind.resource):
            if _is_of_system(self._path, kind, each):
                continue
            if existing is None:
                if not await self._is_served(kind):
                    self._report.failure(self._path, f"the site does not serve {kind.resource.plural}: none is carried")
                    return
                existing = await self._site.digests(self._path, kind.resource)
            name, namespace = key_of(each)
            if await self._has_owners(each):
                await self._object(kind, each, existing.get((name, namespace), (b"", False)))
            else:
                yield kind, name, namespace
        if existing is not None and kind.resource.plural == DEFINITIONS.plural:
            await self._established()

    async def _object(self, kind: ServedKind, obj: Object, existing: tuple[bytes, bool]) -> None:
        content = with_owners(self._site.content(obj), lambda owner: self._uids.get(owner["uid"], ""))
        has_status = "status" in kind.subresources and kind.resource.group not in _COMPUTED
        has_status = has_status and not kind.resource.group.endswith(".kcp.io") and bool(obj.get("status"))
        if existing[0] == digest(content) and existing[1] >= has_status:
            self._report.count(counts.SAME)
            return
        try:
            made = await self._site.put(self._path, kind.resource, content, await self._generated(kind, obj))
            if made is not None and has_status:
                await self._site.put_status(self._path, kind.resource, obj, made)
        except ApiError as error:
            where = "/".join(filter(None, reversed(key_of(obj))))
            self._report.failure(self._path, f"{kind.resource.plural} {where}: {error}")

    async def _generated(self, kind: ServedKind, obj: Object) -> IsGenerated:
        """The right of who created a workspace is the site's own until it is that of the source."""
        if kind.resource.plural != "clusterrolebindings" or obj["metadata"]["name"] != ADMIN_BINDING:
            return lambda _: False
        cluster = await self._site.find(self._path, CLUSTERS, "cluster")
        creator = ((spec_of(cluster).get("createdBy") if cluster else None) or {}).get("username")
        return lambda found: [each.get("name") for each in found.get("subjects") or ()] == [creator]

    async def _late(self, late: Late) -> bool:
        """Carry an object if its owners are there by now."""
        kind, name, namespace = late
        obj = await self._source.get(kind.resource, name, namespace)
        if not await self._has_owners(obj):
            return False
        await self._object(kind, obj, (b"", False))
        return True

    async def _has_owners(self, obj: Object) -> bool:
        """Learn the uids of the owners in the site; whether all are there."""
        if self._path in self._site.absent:
            return True
        for owner in owner_references_of(obj):
            if owner["uid"] in self._uids:
                continue
            group = owner["apiVersion"].rpartition("/")[0]
            kinds = [
                kind for (of, _), kind in (await self._kinds()).items() if (of, kind.kind) == (group, owner["kind"])
            ]
            found = None
            for kind in kinds:
                namespace = obj["metadata"].get("namespace", "") if kind.resource.namespaced else ""
                found = found or await self._site.find(self._path, kind.resource, owner["name"], namespace)
            if found is None:
                return False
            self._uids[owner["uid"]] = found["metadata"]["uid"]
        return True

    async def _kinds(self) -> dict[tuple[str, str], ServedKind]:
        if not self._served:
            self._served = await served_kinds(self._site.at(self._path))
        return self._served

    async def _is_served(self, kind: ServedKind) -> bool:
        """Whether the site serves a kind, in the version in which it is read."""
        if self._path in self._site.absent:
            return True
        found = (await self._kinds()).get((kind.resource.group, kind.resource.plural))
        return found is not None and kind.resource.version in found.versions

    async def _established(self) -> None:
        """Wait until the definitions of the workspace are served."""
        self._served = {}
        if self._path in self._site.absent or self._site.dry_run:
            return
        there = self._site.at(self._path)
        async for each in objects(there, DEFINITIONS):
            try:
                await until(there, DEFINITIONS, each, _is_established, BOUND_TIMEOUT_S)
            except WaitTimeout:
                self._report.failure(self._path, f"the definition {each['metadata']['name']} is not established")


def _rank(kind: ServedKind) -> tuple[int, str, str]:
    key = kind.resource.group, kind.resource.plural
    return _FIRST.index(key) if key in _FIRST else len(_FIRST), *key


def _is_last(kind: ServedKind) -> bool:
    """Whether objects of a kind could refuse or change others."""
    return kind.resource.plural == "resourcequotas" or kind.resource.group == "admissionregistration.k8s.io"


def _is_carried(kind: ServedKind) -> bool:
    return (kind.resource.group, kind.resource.plural) not in _LEFT_OUT and {"list", "create"} <= kind.verbs


def _is_of_system(path: str, kind: ServedKind, obj: Object) -> bool:
    """Whether the site makes an object by itself, or it means nothing there."""
    group, plural, name = kind.resource.group, kind.resource.plural, obj["metadata"]["name"]
    if path == ROOT and (
        (group == _RBAC and name.startswith("system:"))
        or (plural == "secrets" and obj["metadata"].get("namespace") == "kcp-system")
    ):
        return True
    if group.endswith("kcp.io") and owner_references_of(obj):
        return True
    return obj.get("type") == TOKEN or (plural == "configmaps" and name == "kube-root-ca.crt")


def _export_of(binding: Object) -> tuple[str, str]:
    export = (spec_of(binding).get("reference") or {}).get("export") or {}
    return export.get("path", ""), export.get("name", "")


def _is_bound(binding: Object) -> bool:
    return status_of(binding).get("phase") == "Bound"


def _is_established(definition: Object) -> bool:
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions_of(definition))
