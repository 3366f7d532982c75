"""The README's controller of a provider run as printed: ten consumers, one that leaves and one that joins."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import key_of
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.kcp.apis.resource_schema import resource_schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from harness.clients.api import crd
from harness.clients.exports import accepted, binding, claim, export
from harness.servers.shard_process import ShardProcess
from harness.waits import until

README = Path(__file__).parents[3] / "services/atoll/machinery/client/README.md"
LETTERS = Resource("mail.example.com", "v1", "letters")
CONFIGMAPS = Resource("", "v1", "configmaps")
SCHEMAS = Resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", namespaced=False)
EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", namespaced=False)
BINDINGS = Resource("apis.kcp.io", "v1alpha2", "apibindings", namespaced=False)
CLAIM = claim("configmaps")
RBAC = "rbac.authorization.k8s.io"
CONSUMERS = 10


def schema() -> Object:
    definition = crd("letters", group="mail.example.com")
    numbers = {"words": {"type": "integer"}, "observedGeneration": {"type": "integer"}}
    definition["spec"]["versions"][0] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
                    "status": {"type": "object", "properties": numbers},
                },
            }
        },
    }
    return resource_schema(definition, "v1")


def letter(text: str) -> Object:
    metadata = {"name": "first", "namespace": "default"}
    return {"apiVersion": "mail.example.com/v1", "kind": "Letter", "metadata": metadata, "spec": {"text": text}}


async def workspace(parent: Client, name: str) -> Client:
    """A new workspace below another, Ready."""
    spec = {"type": {"name": "universal", "path": "root"}}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    await parent.create(WORKSPACES, body)

    async def ready() -> bool:
        return bool((await parent.get(WORKSPACES, name)).get("status", {}).get("phase") == "Ready")

    await until(ready, f"{name} Ready")
    return parent.cluster(f"root:{name}")


async def employed(post: Client, directory: Path, shard: ShardProcess) -> Path:
    """The kubeconfig of a service account with access to its export's consumers only."""
    accounts, tokens = Resource("", "v1", "serviceaccounts"), {"kind": "TokenRequest", "spec": {}}
    await post.create(accounts, {"kind": "ServiceAccount", "metadata": {"name": "postmaster"}}, "default")
    rules = [
        {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "resourceNames": ["mail"], "verbs": ["*"]},
        {"apiGroups": ["apis.kcp.io"], "resources": ["apiexportendpointslices"], "verbs": ["get", "list", "watch"]},
    ]
    roles, of = Resource(RBAC, "v1", "clusterroles", namespaced=False), {"metadata": {"name": "postmaster"}}
    await post.create(roles, {"kind": "ClusterRole", **of, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "postmaster", "namespace": "default"}]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "postmaster"}
    bindings = Resource(RBAC, "v1", "clusterrolebindings", namespaced=False)
    await post.create(bindings, {"kind": "ClusterRoleBinding", **of, "roleRef": role, "subjects": subjects})
    made = await post.request("POST", accounts.path("default", "postmaster", "token"), None, tokens)
    document = yaml.safe_load(shard.kubeconfig.read_text())
    document["users"] = [{"name": "postmaster", "user": {"token": made["status"]["token"]}}]
    document["contexts"] = [{"name": "post", "context": {"cluster": "root", "user": "postmaster"}}]
    document["current-context"] = "post"
    path = directory / "postmaster.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


async def consumer(root: Client, name: str, text: str) -> Client:
    """A workspace that binds letters, accepts the claim and writes one."""
    child = await workspace(root, name)
    await child.create(BINDINGS, binding("root:post", "mail", [accepted(CLAIM)]))

    async def bound() -> bool:
        return bool((await child.get(BINDINGS, "mail")).get("status", {}).get("phase") == "Bound")

    await until(bound, f"{name} Bound")
    await child.create(LETTERS, letter(text))
    return child


async def answered(child: Client, words: int) -> None:
    """Wait until the owner sees the letter's status and the copy that the controller makes."""

    async def reported() -> bool:
        return bool((await child.get(LETTERS, "first", "default")).get("status", {}).get("words") == words)

    # The program retries with growing delays while the shard is down.
    await until(reported, f"{words} words reported", 90.0)
    found = await child.get(LETTERS, "first", "default")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    copy = await child.get(CONFIGMAPS, "first", "default")
    assert copy["data"] == {"text": found["spec"]["text"]}
    assert copy["metadata"]["managedFields"][0]["manager"] == "postmaster"


class Output:
    """What the program prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.lines: list[str] = []
        self._capsys = capsys

    async def printed(self, line: str) -> None:
        """Wait for a line, which may be printed already."""

        async def look() -> bool:
            self.lines += self._capsys.readouterr().out.splitlines()
            return line in self.lines

        await until(look, line)


@asynccontextmanager
async def serving(shard: ShardProcess, root: Client, directory: Path) -> AsyncIterator[asyncio.Task[None]]:
    """A provider's workspace with its export; the README's program runs as a service account of it."""
    (directory / "postmaster.py").write_text(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[2])
    program = runpy.run_path(str(directory / "postmaster.py"))
    post = await workspace(root, "post")
    await post.create(SCHEMAS, schema())
    await post.create(EXPORTS, export("mail", schema(), claims=[CLAIM]))
    # Started without any consumer, so without any endpoint URL.
    kubeconfig = await employed(post, directory, shard)
    running = asyncio.create_task(program["main"](str(kubeconfig), "root:post", "mail"))
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_provider_of_the_readme_serves_its_consumers(
    tmp_path: Path, shard: ShardProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Output(capsys)
    async with (
        Client.from_kubeconfig(str(shard.kubeconfig), cluster="root") as root,
        serving(shard, root, tmp_path) as running,
    ):
        theirs = [await consumer(root, f"c{number}", "word " * number) for number in range(CONSUMERS)]
        for number, child in enumerate(theirs):
            await answered(child, number)
        clusters = [key_of(await child.get(BINDINGS, "mail"))[0] for child in theirs]
        for cluster in clusters:
            await told.printed(f"bound by {cluster}")
        leaving = theirs[3]
        await leaving.delete(BINDINGS, "mail")
        await told.printed(f"left by {clusters[3]}")
        with pytest.raises(NotFound):
            await leaving.list(LETTERS)
        await answered(await consumer(root, "later", "one more"), 2)
        await theirs[4].patch(LETTERS, "first", {"spec": {"text": "only two"}}, "default")
        await answered(theirs[4], 2)
        assert not running.done(), running


@pytest.mark.long
async def test_the_provider_of_the_readme_goes_on_where_it_was_when_the_shard_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ShardProcess(tmp_path) as shard:
        async with (
            # Of the administrators' tokens only this one stays valid after a restart.
            Client.from_kubeconfig(str(shard.kubeconfig), "shard-base", "root") as root,
            serving(shard, root, tmp_path) as running,
        ):
            before = await consumer(root, "before", "one two")
            await answered(before, 2)
            await asyncio.to_thread(shard.kill)
            await asyncio.to_thread(shard.start)
            await before.patch(LETTERS, "first", {"spec": {"text": "one two three"}}, "default")
            await answered(before, 3)
            await answered(await consumer(root, "after", "one"), 1)
            told = Output(capsys)
            for name in ("before", "after"):
                await told.printed(f"bound by {key_of(await root.cluster(f'root:{name}').get(BINDINGS, 'mail'))[0]}")
            # The watch resumed at its last revision: no consumer was reported again or lost.
            assert len([line for line in told.lines if re.match("(bound|left) by", line)]) == 2
            assert not running.done(), running
