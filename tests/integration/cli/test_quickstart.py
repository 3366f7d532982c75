"""`kubectl kcp quickstart`: an API with provider and consumer, a tree of workspaces, and away again."""

from __future__ import annotations

import pytest

from harness.clients.api import Api
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.long

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"


def test_a_provider_and_a_consumer_are_made_entered_and_gone(kubectl: Kubectl, shard: ShardProcess) -> None:
    kubectl.ok("kcp", "quickstart", "--name-prefix", "west", "--with-samples", "--enter")
    assert kubectl.ok("get", "cowboys").split()[2] == "john-wayne"
    assert "root:west-org:west-consumer" in kubectl.ok("ws", "current")
    again = kubectl.ok("kcp", "quickstart", "--name-prefix", "west", "--with-samples")
    assert 'Cowboy "john-wayne" exists.' in again
    assert "created" not in again
    root = Api(shard, "root")
    labels = root.get(f"{WORKSPACES}/west-org").json["metadata"]["labels"]
    assert (labels["kcp.io/quickstart"], labels["kcp.io/quickstart-prefix"]) == ("true", "west")
    kubectl.ok("kcp", "quickstart", "--name-prefix", "west", "--cleanup")
    root.get(f"{WORKSPACES}/west-org", expect=404)
    assert '"root"' in kubectl.ok("ws", "current")
    kubectl.ok("kcp", "quickstart", "--name-prefix", "west", "--cleanup")
    root.close()


def test_a_tree_is_drawn_as_deep_and_as_large_as_asked(kubectl: Kubectl) -> None:
    drawn = ("--scenario", "workspaces", "--name-prefix", "wood", "--tree-count", "5", "--tree-depth", "2")
    said = kubectl.ok("kcp", "quickstart", *drawn, "--tree-seed", "7")
    paths = {line.split('"')[1] for line in said.splitlines() if line.startswith("Workspace")}
    assert len(paths) == 6
    assert {path.count(":") for path in paths} <= {1, 2, 3}
    assert kubectl.ok("kcp", "quickstart", *drawn, "--tree-seed", "7").count("exists.") == 6
    kubectl.ok("kcp", "quickstart", "--name-prefix", "wood", "--cleanup")
    refused = kubectl.run("kcp", "quickstart", "--name-prefix", "No_name")
    assert refused.code == 2
    assert "cannot begin the name of a workspace" in refused.stderr
