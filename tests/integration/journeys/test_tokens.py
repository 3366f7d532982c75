"""The token of a registered cluster is renewed before it expires, and its syncer goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl
from integration.journeys.fleet import INVENTORY, WAIT_S, Clusters, Edge, Side, configmap, namespace, placement

#: The shortest life of a token, in seconds.
LIFE_S = 600.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


def test_a_token_is_renewed_in_its_secret_before_it_expires_and_the_old_one_lets_nobody_in(
    clusters: Clusters, in_center: Callable[[str], Side], workspace: Callable[[str], Side], tmp_path: Path
) -> None:
    root, where = in_center("root"), "renewed"
    edge = Edge("short", Kubectl(tmp_path, clusters.named("krone")[0].kubeconfig), root)
    edge.register("tokens=short", "--lifetime=10m")
    name = next(iter(yaml.safe_load_all(edge.manifest.read_text())))["metadata"]["name"]

    def token() -> str:
        return base64.b64decode(edge.get(f"secret/{name}", "-n", name)["data"]["token"]).decode()

    def may_enter(found: str) -> bool:
        kubeconfig = yaml.safe_load(base64.b64decode(edge.get(f"secret/{name}", "-n", name)["data"]["kubeconfig"]))
        kubeconfig["users"][0]["user"] = {"token": found}
        file = tmp_path / "mailbox.kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig))
        return root.kubectl.run("get", "syncerconfigs", "--kubeconfig", str(file)).code == 0

    first = token()
    assert claims(first)["exp"] - claims(first)["iat"] == LIFE_S
    assert may_enter(first)
    here = workspace("tokens")
    here.apply(namespace(where), placement("p", {"tokens": "short"}, {"namespaces": [where]}))
    here.apply(configmap("c", where, {"k": "1"}))
    edge.has("configmap/c", "-n", where)
    eventually(lambda: token() != first, "it is renewed", LIFE_S)
    second = token()
    assert claims(second)["iat"] < claims(first)["exp"]
    assert claims(second)["exp"] - claims(second)["iat"] == LIFE_S
    eventually(lambda: not may_enter(first), "the old one expires", LIFE_S)
    assert may_enter(second)
    here.ok("patch", "configmap", "c", "-n", where, "--type=merge", "-p", '{"data":{"k":"2"}}')
    edge.has("configmap/c", "-n", where, state="jsonpath={.data.k}=2")
    edge.ok("delete", "--ignore-not-found", "-f", str(edge.manifest), timeout_s=WAIT_S)
    root.ok("kubestellar", "remove", "location", *INVENTORY, edge.name)


def claims(token: str) -> dict[str, float]:
    """What a token says of its life."""
    payload = token.split(".")[1]
    found: dict[str, float] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found
