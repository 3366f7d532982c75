"""Events of a workspace in a plain nats-py program that has only stream.json."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import APPLY, Api, Object, configmap, crd, define, workspace_under
from harness.clients.nats_subscriber import Operator
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
SHAPES = "/apis/shapes.example.com/v1/namespaces/default/cubes"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard")) as shard:
        yield shard


def cluster_of(root: Api, path: str) -> str:
    return str(root.get(f"{WORKSPACES}/{path.removeprefix('root:')}").json["spec"]["cluster"])


def write(api: Api) -> list[tuple[str, str, Object]]:
    """Changes of every kind, in order: the first tokens of the subject, the operation, the object as answered."""
    cube = {"apiVersion": "shapes.example.com/v1", "kind": "Cube", "metadata": {"name": "c"}, "spec": {"colour": "red"}}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a:b.c"}}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"b": "2"}}
    maps, cubes = "core.core.configmaps", "local.shapes_example_com.cubes"
    found = [
        (maps, "ADDED", api.post(CONFIGMAPS, configmap("m", {"a": "1"})).json),
        (cubes, "ADDED", api.post(SHAPES, cube).json),
        (maps, "MODIFIED", api.patch(CONFIGMAPS + "/m", {"data": {"a": "0"}}).json),
        ("core.rbac_authorization_k8s_io.clusterroles", "ADDED", api.post(ROLES, role).json),
        (cubes, "MODIFIED", api.patch(SHAPES + "/c", {"spec": {"colour": "blue"}}).json),
        (maps, "MODIFIED", api.patch(CONFIGMAPS + "/m?fieldManager=me", json.dumps(applied).encode(), APPLY).json),
    ]
    api.delete(CONFIGMAPS + "/m")
    found.append((maps, "DELETED", found[-1][2]))
    found.append((maps, "ADDED", api.post(CONFIGMAPS, configmap("last")).json))
    return found


async def test_each_change_of_a_workspace_in_order_with_cluster_and_identity_in_the_subject(
    shard: ShardProcess,
) -> None:
    root = Api(shard, "root")
    path, other = workspace_under(root), workspace_under(root)
    cluster = cluster_of(root, path)
    api = root.at(path)
    define(api, crd("cubes"))
    root.at(other).post(CONFIGMAPS, configmap("unheard"))
    written = write(api)
    async with Operator(shard) as operator:
        await operator.consume(f"atoll.changes.root.*.*.*.{cluster}")
        heard = await operator.until("last")
    assert {change.subject.rpartition(".")[2] for change in heard} == {cluster}
    assert [change.revision for change in heard] == sorted({change.revision for change in heard})
    last_on: dict[str, int] = {}
    for change in heard:
        assert change.previous == last_on.get(change.subject, 0), "the chain of a subject has no hole"
        last_on[change.subject] = change.revision
    ours = heard[-len(written) :]
    assert [(change.subject, change.operation) for change in ours] == [
        (f"atoll.changes.root.{subject}.{cluster}", operation) for subject, operation, _ in written
    ]
    for change, (_, operation, answered) in zip(ours, written, strict=True):
        wanted = json.loads(json.dumps(answered))
        if operation == "DELETED":
            assert change.revision > int(wanted["metadata"]["resourceVersion"])
            wanted["metadata"]["resourceVersion"] = str(change.revision)
        assert change.object == wanted
        assert change.object["metadata"]["resourceVersion"] == str(change.revision)
        assert change.object["metadata"]["annotations"]["kcp.io/cluster"] == cluster


async def test_an_identity_is_heard_across_workspaces(shard: ShardProcess) -> None:
    root = Api(shard, "root")
    export = root.get("/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io").json
    identity = export["status"]["identityHash"]
    parent = workspace_under(root)
    child = workspace_under(root, parent)
    name = child.rpartition(":")[2]
    async with Operator(shard) as operator:
        await operator.consume(f"atoll.changes.root.{identity}.>")
        heard = await operator.until(name)
    subjects = [change.subject.split(".") for change in heard]
    assert {tuple(tokens[3:5]) for tokens in subjects} == {(identity, "tenancy_kcp_io")}
    of_workspaces = {tokens[6] for tokens in subjects if tokens[5] == "workspaces"}
    assert {"root", cluster_of(root, parent)} <= of_workspaces


async def test_a_secret_is_heard_of_and_not_read(shard: ShardProcess) -> None:
    root = Api(shard, "root")
    root.post(SECRETS, {"metadata": {"name": "hidden"}, "stringData": {"k": "to-be-found"}})
    async with Operator(shard) as operator:
        await operator.consume("atoll.changes.root.core.core.secrets.root")
        change = (await operator.until("hidden"))[-1]
    assert change.headers["content-type"] == "application/octet-stream"
    assert all(word not in change.payload for word in (b"to-be-found", b"dG8tYmUtZm91bmQ", b"kcp.io/cluster"))


async def test_the_operators_credential_publishes_nothing(shard: ShardProcess) -> None:
    async with Operator(shard) as operator:
        await operator.consume("atoll.changes.root.core.core.configmaps.root")
        for subject in ("atoll.changes.root.core.core.configmaps.root", "atoll.changes.root.-", "atoll.anything"):
            await operator.client.publish(subject, b"{}")
        await operator.client.publish(f"$JS.API.STREAM.PURGE.{operator.stream}", b"{}")
        Api(shard, "root").post(CONFIGMAPS, configmap("true"))
        heard = await operator.until("true")
        assert all("ce-id" in change.headers for change in heard)
        assert len([text for text in operator.refusals if "permissions violation" in text]) == 4


async def test_the_program_of_the_tutorial_receives_changes(shard: ShardProcess, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/tutorial.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / ".atoll").symlink_to(shard.root)
    async with Operator(shard, 3) as operator:
        await operator.consume("atoll.changes.root.>")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    lines = out.decode().splitlines()
    assert (process.returncode, len(lines)) == (0, 10), err.decode()
    assert all(line.startswith("atoll.changes.root.") and line.endswith(" ADDED") for line in lines), lines
