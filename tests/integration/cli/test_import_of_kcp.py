"""`kubectl atoll import` of what kcp answers, as its specification writes it down: see `recorded_kcp`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from atoll.cli.kubectl.tree_import import command
from harness.clients.api import Api
from harness.clients.exports import BINDINGS, EXPORTS
from harness.clients.terminal import PluginTerminal
from harness.servers.shard_process import ShardProcess
from harness.servers.stand_ins.canned_api import serving
from harness.servers.stand_ins.recorded_kcp import IDENTITY, recorded_kcp


async def test_a_workspace_of_kcp_comes_with_identity_binding_rights_and_objects(
    shard: ShardProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(recorded_kcp()) as api:
        terminal = PluginTerminal(api, shard.kubeconfig, capsys)
        flags = ("--from-kubeconfig", str(api.kubeconfig(tmp_path)), "--rate", "1000")
        ran = await terminal.run(command.dispatch, *flags)
        # One workspace cannot be read; all else is carried.
        assert "root:asleep: it is Unavailable, not Ready" in ran.err
        assert "1 of these are problems" in ran.err, ran
        assert {each.method for each in api.requests} == {"GET"}
    with contextlib.closing(Api(shard, "root:wharf")) as wharf, contextlib.closing(Api(shard, "root")) as root:
        workspace = root.get("/apis/tenancy.kcp.io/v1alpha1/workspaces/wharf").json
        assert workspace["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready", "team": "blue"}
        cluster, own = (
            workspace["spec"]["cluster"],
            root.get(f"{EXPORTS}/tenancy.kcp.io").json["status"]["identityHash"],
        )
        assert wharf.get(f"{EXPORTS}/crates").json["status"]["identityHash"] == IDENTITY
        (claim,) = wharf.get(f"{BINDINGS}/crates").json["spec"]["permissionClaims"]
        assert (claim["identityHash"], claim["state"]) == (own, "Accepted")
        assert len(wharf.get(BINDINGS).json["items"]) == 3
        crate = wharf.get("/apis/wharf.example.com/v1/namespaces/default/crates/one").json
        assert (crate["spec"], crate["status"]) == ({"size": 2}, {"replicas": 5})
        assert wharf.get("/api/v1/namespaces/default/configmaps/prices").json["data"] == {"crate": "3"}
        names = wharf.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin").json["subjects"]
        assert [each["name"] for each in names] == ["alice", f"system:kcp:serviceaccount:{cluster}:default:default"]
        wharf.get("/api/v1/namespaces/default/secrets/default-token", expect=404)
        root.get("/apis/tenancy.kcp.io/v1alpha1/workspaces/gone", expect=404)
