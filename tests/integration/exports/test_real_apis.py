"""The APIs of cert-manager and the Gateway API exported, bound in many workspaces, their own examples applied there,
and the status of every object reconciled through the virtual workspaces."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, Key, key_of
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.kcp.apis.resource_schema import resource_schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists
from harness.clients.exports import binding, export
from harness.data.manifests import documents, gateway_examples
from harness.servers.shard_process import ShardProcess
from harness.waits import until

pytestmark = pytest.mark.long

SCHEMAS = Resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", namespaced=False)
SLICES = Resource("apis.kcp.io", "v1alpha1", "apiexportendpointslices", namespaced=False)
EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", namespaced=False)
BINDINGS = Resource("apis.kcp.io", "v1alpha2", "apibindings", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
PROJECTS = ("cert-manager", "gateway-api")
CONTROLLER, TIME = "example.com/harbour", "2026-01-02T03:04:05Z"
#: Waits end once the condition holds; this limit is for failures only.
PATIENCE_S = 240.0
AT_ONCE = 16

ISSUER: Object = {
    "apiVersion": "cert-manager.io/v1",
    "kind": "Issuer",
    "metadata": {"name": "own"},
    "spec": {"selfSigned": {}},
}
CERTIFICATE: Object = {
    "apiVersion": "cert-manager.io/v1",
    "kind": "Certificate",
    "metadata": {"name": "site"},
    "spec": {"secretName": "site-tls", "dnsNames": ["site.example.com"], "issuerRef": {"name": "own"}},
}


# --- what is exported, and the objects


class Input:
    """The schemas, kinds and example objects of both projects."""

    def __init__(self, manifests: Path) -> None:
        self.schemas = {project: schemas(manifests / project) for project in PROJECTS}
        self.kinds = {project: resources(self.schemas[project]) for project in PROJECTS}
        self.resources = {kind: each for kinds in self.kinds.values() for kind, each in kinds.items()}
        # One of each name; the documentation repeats some objects in several steps.
        self.examples = {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
            for each in [*gateway_examples(manifests), ISSUER, CERTIFICATE]
        }.values()


def schemas(folder: Path) -> list[Object]:
    found = [document for path in sorted(folder.glob("*.yaml")) for document in documents(path)]
    return [resource_schema(each, "v1") for each in found if each["kind"] == "CustomResourceDefinition"]


def resources(schemas: list[Object]) -> dict[str, Resource]:
    """Each kind in the version of the examples, which is not always the stored one."""
    found = {}
    for schema in schemas:
        spec = schema["spec"]
        assert "v1" in [each["name"] for each in spec["versions"] if each["served"]]
        names, namespaced = spec["names"], spec["scope"] == "Namespaced"
        found[names["kind"]] = Resource(spec["group"], "v1", names["plural"], namespaced=namespaced)
    return found


def has_status(kind: str) -> bool:
    return kind != "ReferenceGrant"


# --- the reconciler


def status_of(obj: Object) -> Object:
    """The status that a controller gives an accepted object: parents of a route or a policy, conditions of others."""
    generation = obj["metadata"].get("generation", 1)
    accepted = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": TIME,
        "observedGeneration": generation,
    }
    if obj["kind"].endswith("Route"):
        refs = obj["spec"].get("parentRefs") or []
        parents = [{"parentRef": ref, "controllerName": CONTROLLER, "conditions": [accepted]} for ref in refs]
        return {"parents": parents}
    if obj["kind"] == "BackendTLSPolicy":
        ancestors = [{"group": "", "kind": "Service", "name": each["name"]} for each in obj["spec"]["targetRefs"]]
        told = [{"ancestorRef": ref, "controllerName": CONTROLLER, "conditions": [accepted]} for ref in ancestors]
        return {"ancestors": told}
    return {"conditions": [accepted]}


def conditions(obj: Object) -> Iterator[Object]:
    status = obj.get("status") or {}
    yield from status.get("conditions") or ()
    for each in [*(status.get("parents") or ()), *(status.get("ancestors") or ())]:
        yield from each["conditions"]


def is_reconciled(obj: Object) -> bool:
    """Accepted at its generation. A route that names no parent has no controller, and an empty list of parents."""
    told = [each for each in conditions(obj) if each["type"] == "Accepted"]
    current = all(each.get("observedGeneration") == obj["metadata"]["generation"] for each in told)
    if not told:
        return (obj.get("status") or {}).get("parents") == []
    return current and all(each["status"] == "True" for each in told)


@asynccontextmanager
async def reconciling(view: Client, kinds: dict[str, Resource]) -> AsyncIterator[dict[str, Informer]]:
    """A provider's controller on a virtual workspace: an informer a kind, one queue; it writes missing statuses."""
    queue: WorkQueue[tuple[str, Key]] = WorkQueue()
    informers: dict[str, Informer] = {}

    def follow(kind: str, resource: Resource) -> Informer:
        def changed(old: Object | None, new: Object | None) -> None:
            if new is not None and has_status(kind):
                queue.add((kind, key_of(new)))

        return Informer(view, resource, changed)

    async def reconcile(item: tuple[str, Key]) -> None:
        kind, key = item
        obj = informers[kind].objects.get(key)
        if obj is None or is_reconciled(obj):
            return
        await view.cluster(key[0]).update(kinds[kind], {**obj, "status": status_of(obj)}, "status")

    informers.update({kind: follow(kind, resource) for kind, resource in kinds.items()})
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in informers.values()]
        running += [tasks.create_task(work("harbour", queue, reconcile)) for _ in range(AT_ONCE)]
        yield informers
        for task in running:
            task.cancel()


# --- the steps


async def each_of(items: list[Any], step: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """Run a step for each item, several at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> Any:
        async with slots:
            return await step(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


async def workspace(root: Client, path: str) -> Client:
    """A new Ready workspace."""
    above, _, name = path.rpartition(":")
    parent = root.cluster(above)
    spec = {"type": {"name": "universal", "path": "root"}}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    await parent.create(WORKSPACES, body)

    async def ready() -> bool:
        return bool((await parent.get(WORKSPACES, name)).get("status", {}).get("phase") == "Ready")

    await until(ready, f"{path} Ready", PATIENCE_S)
    return root.cluster(path)


async def offer(provider: Client, real: Input) -> None:
    for project, made in real.schemas.items():
        await each_of(made, lambda each: provider.create(SCHEMAS, each))
        await provider.create(EXPORTS, export(project, *made))


async def consumer(root: Client, path: str, real: Input) -> Client:
    """A workspace that binds both APIs of the provider beside it, with the namespaces of the examples."""
    exists = await workspace(root, path)
    for project in PROJECTS:
        await exists.create(BINDINGS, binding(f"{path.rpartition(':')[0]}:provider", project))
    for project in PROJECTS:

        async def bound(project: str = project) -> bool:
            return bool((await exists.get(BINDINGS, project)).get("status", {}).get("phase") == "Bound")

        await until(bound, f"{project} bound in {path}", PATIENCE_S)
    for namespace in sorted({each["metadata"].get("namespace", "default") for each in real.examples} - {"default"}):
        await exists.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return exists


async def fill(exists: Client, real: Input) -> None:
    for each in real.examples:
        resource = real.resources[each["kind"]]
        metadata = {
            **each["metadata"],
            **({} if "namespace" in each["metadata"] or not resource.namespaced else {"namespace": "default"}),
        }
        try:
            await exists.create(resource, {**each, "metadata": metadata})
        except AlreadyExists:
            raise AssertionError(f"{each['kind']} {metadata} exists already in a new workspace") from None


async def reconciled(exists: Client, real: Input) -> int:
    """Return the number of a consumer's own objects, once each of them is accepted."""

    async def all_of_them() -> int:
        lists = {kind: await exists.list(resource) for kind, resource in real.resources.items()}
        found = [(kind, item) for kind, listed in lists.items() for item in listed["items"]]
        right = all(is_reconciled({**item, "kind": kind}) for kind, item in found if has_status(kind))
        return len(found) if right else 0

    return int(await until(all_of_them, "everything accepted", PATIENCE_S))


async def endpoint(provider: Client, project: str) -> str:
    async def url() -> str:
        found = (await provider.get(SLICES, project)).get("status", {}).get("endpoints") or [{}]
        return str(found[0].get("url") or "")

    return str(await until(url, f"a URL of {project}", PATIENCE_S))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("consumers", [8, pytest.param(100, marks=pytest.mark.long)])
async def test_real_apis_are_served_to_many_workspaces(shard: ShardProcess, manifests: Path, consumers: int) -> None:
    real = Input(manifests)
    async with Client.from_kubeconfig(str(shard.kubeconfig), cluster="root") as root:
        top = f"root:real-{secrets.token_hex(3)}"
        await workspace(root, top)
        provider = await workspace(root, f"{top}:provider")
        await offer(provider, real)
        theirs = await each_of(
            [f"{top}:c{number}" for number in range(consumers)], lambda path: consumer(root, path, real)
        )
        views = {project: root.view(await endpoint(provider, project)) for project in PROJECTS}
        async with (
            reconciling(views["cert-manager"], real.kinds["cert-manager"]) as certificates,
            reconciling(views["gateway-api"], real.kinds["gateway-api"]) as gateways,
        ):
            await each_of(theirs, lambda exists: fill(exists, real))
            assert await each_of(theirs, lambda exists: reconciled(exists, real)) == [len(real.examples)] * consumers
            for informers in (certificates, gateways):
                assert all(each.synced.is_set() for each in informers.values())
        # The wildcard shows every consumer's, and each named cluster its own.
        routes = (await views["gateway-api"].list(real.kinds["gateway-api"]["HTTPRoute"], limit="500"))["items"]
        clusters = {each["metadata"]["annotations"]["kcp.io/cluster"] for each in routes}
        assert len(clusters) == consumers
        own = (await views["gateway-api"].cluster(min(clusters)).list(real.kinds["gateway-api"]["HTTPRoute"]))["items"]
        assert len(own) * consumers == len(routes)
