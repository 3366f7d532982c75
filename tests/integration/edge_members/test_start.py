"""`atoll start --edge --edge-replicas N`: one command with several processes of the edge controllers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.servers.edge_service import GROUP, an_object
from harness.servers.processes import children
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import WORKSPACES, phase
from integration.edge_members.conftest import LEASE, ROSTER

pytestmark = pytest.mark.long


def members_of(home: Api) -> list[str]:
    found = home.send("GET", LEASE)
    text = found.json["metadata"]["annotations"].get(ROSTER, "{}") if found.code == 200 else "{}"
    members: list[str] = json.loads(text).get("members", [])
    return members


def controllers(shard: ShardProcess) -> list[int]:
    return [pid for pid, command in children(shard.pid).items() if "edge-controllers" in command]


def test_all_processes_are_members_and_a_killed_one_comes_back(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--edge", "true", "--edge-replicas", "2") as shard:
        home, inventory = Api(shard, "root:espw"), Api(shard, "root:imw1")
        before = eventually(lambda: len(found := members_of(home)) == 2 and found, "both are members")
        running = controllers(shard)
        assert len(running) == 2
        os.kill(running[0], signal.SIGKILL)
        eventually(lambda: len(found := controllers(shard)) == 2 and found != running, "it is started again")
        made = inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "one")).json["metadata"]
        mailbox = f"{made['annotations']['kcp.io/cluster']}-mb-{made['uid']}"
        eventually(lambda: phase(home, mailbox) == "Ready", "the mailbox is made")
        eventually(lambda: members_of(home) == before, "both are members again")
        assert home.send("GET", f"{WORKSPACES}/{mailbox}").code == 200
        home.close()
        inventory.close()
