"""The real kubectl through the front proxy, in workspaces on different shards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.clients.api import Api, eventually
from harness.clients.kubectl import Kubectl
from harness.servers.site import Site

TENANCY = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
SHARDS = ("shard-1", "shard-2", "root")


def manifest(name: str, shard: str) -> str:
    """A Workspace that has to lie on a shard."""
    return json.dumps(
        {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name},
            "spec": {
                "type": {"name": "universal", "path": "root"},
                "location": {"selector": {"matchLabels": {"name": shard}}},
            },
        }
    )


@pytest.fixture(scope="module")
def kubectl(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(tmp_path_factory.mktemp("kubectl"), site.kubeconfig)


@pytest.fixture(scope="module")
def paths(site: Site, kubectl: Kubectl) -> dict[str, str]:
    """Paths by shard, each below the one before."""
    found, parent = {}, "root"
    for shard in SHARDS:
        name = f"k-{shard}"
        kubectl.ok("--server", at(site, parent), "apply", "-f", "-", stdin=manifest(name, shard))
        kubectl.ok(
            "--server",
            at(site, parent),
            "wait",
            f"workspace/{name}",
            "--for=jsonpath={.status.phase}=Ready",
            "--timeout=60s",
        )
        lies = kubectl.ok(
            "--server",
            at(site, parent),
            "get",
            "workspace",
            name,
            "-o",
            "jsonpath={.metadata.annotations.core\\.kcp\\.io/shard}",
        )
        assert lies == shard
        parent = found[shard] = f"{parent}:{name}"
    return found


def at(site: Site, path: str) -> str:
    return f"{site.proxy.url}/clusters/{path}"


def test_the_tree_spans_three_shards(site: Site, paths: dict[str, str]) -> None:
    clusters = {}
    for shard, path in paths.items():
        parent, _, name = path.rpartition(":")
        clusters[shard] = site.proxy.api(parent).get(f"{TENANCY}/{name}").json["spec"]["cluster"]
    for shard, cluster in clusters.items():
        for name, process in site.shards.items():
            api: Api = process.api(cluster, "shard-admin")
            held = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", expect=0).code
            assert held == (200 if name == shard else 404)


@pytest.mark.long
@pytest.mark.parametrize("shard", SHARDS[:2])
def test_kubectl_works_as_at_a_shard(site: Site, kubectl: Kubectl, paths: dict[str, str], shard: str) -> None:
    def ok(*arguments: str, stdin: str = "") -> str:
        return kubectl.ok("--server", at(site, paths[shard]), *arguments, stdin=stdin)

    big = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"x": "y" * 900_000}}
    ok("create", "-f", "-", stdin=json.dumps(big))
    assert len(ok("get", "configmap", "big", "-o", "jsonpath={.data.x}")) == 900_000
    ok("create", "configmap", "small", "--from-literal=a=b")
    assert "small" in ok("get", "configmaps")
    ok("patch", "configmap", "small", "-p", '{"data":{"a":"c"}}')
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}, "data": {"d": "e"}}
    ok("apply", "--server-side", "-f", "-", stdin=json.dumps(applied))
    assert json.loads(ok("get", "configmap", "small", "-o", "json"))["data"] == {"a": "c", "d": "e"}
    assert "configmaps" in ok("api-resources", "--namespaced=true")
    assert "FIELDS" in ok("explain", "configmap")
    ok("delete", "configmap", "small", "big")
    assert kubectl.run("--server", at(site, paths[shard]), "get", "configmap", "small").code == 1


class Watching(NamedTuple):
    """`kubectl get --watch`, and its output."""

    process: subprocess.Popen[bytes]
    out: Path
    output: Path

    def seen(self) -> list[str]:
        return self.out.read_text().split()


@pytest.fixture
def watching(site: Site, kubectl: Kubectl, paths: dict[str, str], tmp_path: Path) -> Iterator[Watching]:
    """In the workspace on shard-2."""
    command = kubectl.command(
        "--server", at(site, paths["shard-2"]), "get", "configmaps", "--watch-only", "-o", "name", "-v=6"
    )
    out, output = tmp_path / "out", tmp_path / "told"
    with out.open("wb") as stdout, output.open("wb") as stderr:
        process = subprocess.Popen(command, env=kubectl.environment, stdout=stdout, stderr=stderr)
    try:
        yield Watching(process, out, output)
    finally:
        process.kill()
        process.wait()


def test_a_watch_goes_through_and_ends_when_the_proxy_leaves(
    site: Site, kubectl: Kubectl, paths: dict[str, str], watching: Watching
) -> None:
    eventually(lambda: "watch=true" in watching.output.read_text(), "the watch began")
    server = ("--server", at(site, paths["shard-2"]))
    for name in ("one", "two"):
        kubectl.ok(*server, "create", "configmap", name)
    eventually(lambda: watching.seen() == ["configmap/one", "configmap/two"], "both events")
    site.proxy.stop()
    try:
        assert watching.process.wait(60) == 0, "an end as of any watch, and no error"
    finally:
        site.proxy.start()
    kubectl.ok(*server, "delete", "configmap", "one", "two")


@pytest.mark.long
def test_the_plugin_walks_from_shard_to_shard(site: Site, paths: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "kubeconfig"
    own.write_text(site.kubeconfig.read_text())
    walker = Kubectl(tmp_path, own)
    for path in (paths["root"], paths["shard-1"], paths["shard-2"]):
        assert path in walker.ok("ws", f":{path}")
        assert path in walker.ok("ws", ".")
    assert "k-root" in walker.ok("get", "workspaces", "-o", "name")
