"""What the server keeps about a caller's requests ends with the configuration: roles, bindings, gates, APIs, paths.

Each trial asks over one connection until the answers are kept, changes the configuration, and asks again at once. Each
fails when the cache does not look whether the configuration stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients.api import CRDS, MERGE, Api, configmap, crd, define, eventually
from harness.clients.tenants import CLUSTER, CONFIGMAPS, RBAC, TENANCY, Scene, allow, token_file
from harness.servers.mutant_shard import MutantShard

KEPT_FOREVER = """
import atoll.machinery.apiserver.configuration_cache as cache
cache.ConfigurationCache._follow = lambda self, snapshot: None
"""
ALL_VERBS = ["get", "list", "create", "update", "patch", "delete"]
SHAPES = "/apis/shapes.example.com/v1/namespaces/default/squares"


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory: Path = tmp_path_factory.mktemp("shard")
    with MutantShard(directory, *token_file(directory)) as running:
        yield running


def codes(api: Api, path: str = CONFIGMAPS) -> list[int]:
    """Status codes of a get, list, create, update, patch and delete."""
    body = configmap("one") if path == CONFIGMAPS else {**crd_object(), "metadata": {"name": "one"}}
    one = f"{path}/one"
    asked = [("GET", one, None), ("GET", path, None), ("POST", path, body), ("PUT", one, body)]
    asked += [("PATCH", one, {"metadata": {"labels": {"a": "b"}}}), ("DELETE", one, None)]
    kinds = {"PATCH": MERGE}
    return [api.send(m, target, body, kind=kinds.get(m, ""), expect=0).code for m, target, body in asked]


def crd_object() -> dict[str, object]:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Square", "spec": {}}


def warm(api: Api, path: str = CONFIGMAPS) -> None:
    # Custom resources are updated only with a resourceVersion.
    updated = 200 if path == CONFIGMAPS else 422
    for _ in range(2):
        assert codes(api, path) == [404, 200, 201, updated, 200, 200]


def a_binding_ends(scene: Scene) -> bool:
    warm(scene.helper)
    for item in scene.here.get(f"{RBAC}/clusterrolebindings").json["items"]:
        if any(subject["name"] == "helper" for subject in item.get("subjects", [])):
            scene.here.delete(f"{RBAC}/clusterrolebindings/{item['metadata']['name']}")
    return codes(scene.helper) == [403] * 6


def a_role_changes(scene: Scene) -> bool:
    allow(scene.here, "maps", "alice", apiGroups=[""], resources=["configmaps"], verbs=ALL_VERBS)
    warm(scene.alice)
    fewer = {"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]}
    scene.here.patch(f"{RBAC}/clusterroles/maps", fewer)
    return codes(scene.alice) == [404, 200, 403, 403, 403, 403]


def a_workspace_becomes_inactive(scene: Scene) -> bool:
    warm(scene.helper)
    inactive = {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}}
    Api(scene.root.shard, scene.cluster, "shard-admin").patch(CLUSTER, inactive)
    return codes(scene.helper) == [403] * 6


def an_api_ends(scene: Scene) -> bool:
    define(scene.here, crd("squares"))
    warm(scene.helper, SHAPES)
    name = f"{CRDS}/squares.shapes.example.com"
    scene.here.delete(name)
    eventually(lambda: scene.here.get(name, expect=0).code == 404, "the definition gone")
    return codes(scene.helper, SHAPES) == [404] * 6


def a_path_names_another_workspace(scene: Scene) -> bool:
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "moved"}}
    workspace, inside = f"{TENANCY}/workspaces/moved", scene.here.at(f"{scene.here.cluster}:moved")

    def make() -> None:
        scene.here.post(f"{TENANCY}/workspaces", body)
        eventually(lambda: scene.here.get(workspace).json.get("status", {}).get("phase") == "Ready", "Ready")

    make()
    warm(inside)
    inside.post(CONFIGMAPS, configmap("kept"))
    scene.here.delete(workspace)
    eventually(lambda: scene.here.get(workspace, expect=0).code == 404, "the workspace gone")
    closed = codes(inside)
    make()
    return closed == [403] * 6 and inside.status(f"{CONFIGMAPS}/kept") == 404


TRIALS = (a_binding_ends, a_role_changes, a_workspace_becomes_inactive, an_api_ends, a_path_names_another_workspace)


@pytest.mark.parametrize("trial", TRIALS)
def test_kept_answers_end_with_the_configuration(shard: MutantShard, trial: Callable[[Scene], bool]) -> None:
    assert trial(Scene(Api(shard, "root")))


@pytest.mark.long
@pytest.mark.parametrize("trial", TRIALS)
def test_answers_kept_forever_are_found_out(shard: MutantShard, trial: Callable[[Scene], bool]) -> None:
    scene = Scene(Api(shard, "root"))
    with shard.without(KEPT_FOREVER):
        assert not trial(scene)
