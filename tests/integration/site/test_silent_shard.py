"""New workspaces of a site in which one shard is silent."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import Api, eventually
from harness.clients.site_workspaces import WORKSPACES, clusters, condition, on, ready, shard_of, workspace
from harness.servers.mutant_shard import altered
from harness.servers.site import ServingProcess, Site

pytestmark = pytest.mark.long

#: In the long tier a hundred.
COUNT, PROMISED_S = 30, 15.0
#: The answer to a new logical cluster, which was made, comes late, or without its body.
_ANSWERS = """
import asyncio
from atoll.machinery.wire.server_exchange import ServerExchange
plain = ServerExchange.reply
def reply(self, status, headers, body=b""):
    if self.request.method != "POST" or b"/logicalclusters" not in self.request.target:
        plain(self, status, headers, body)
    elif {}:
        asyncio.get_running_loop().call_later(90, plain, self, status, headers, body)
    else:
        self.start(status, headers)
        self.write(b"{{")
ServerExchange.reply = reply
"""


@contextlib.contextmanager
def frozen(shard: ServingProcess) -> Iterator[None]:
    shard.freeze()
    try:
        yield
    finally:
        shard.thaw()


def of(admin: Api, prefix: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = admin.get(WORKSPACES).json["items"]
    return [each for each in items if each["metadata"]["name"].startswith(prefix)]


def clusters_by_owner(site: Site, uids: set[str]) -> list[tuple[str, str]]:
    """Owner uid and name of each logical cluster that one of these Workspaces owns, on any shard."""
    found = []
    for shard in site.shards.values():
        for cluster, obj in clusters(shard.api("*", "shard-admin")).items():
            uid = ((obj.get("spec") or {}).get("owner") or {}).get("uid", "")
            if uid in uids:
                found.append((uid, cluster))
    return sorted(found)


@pytest.mark.parametrize("count", [COUNT, pytest.param(100, marks=pytest.mark.long)])
def test_no_workspace_waits_for_a_frozen_shard_and_none_has_two_clusters_afterwards(
    site: Site, admin: Api, count: int
) -> None:
    prefix = f"silent-{uuid.uuid4().hex[:6]}"
    with frozen(site.shards["shard-1"]):
        for index in range(count):
            workspace(admin, name=f"{prefix}-{index}")
        begun = time.monotonic()

        def all_ready() -> bool:
            return bool(sum((each.get("status") or {}).get("phase") == "Ready" for each in of(admin, prefix)) == count)

        eventually(all_ready, "all workspaces are Ready", 4 * PROMISED_S)
        print(f"all Ready {time.monotonic() - begun:.1f} s after the last was created")
        made = of(admin, prefix)
        assert {shard_of(each) for each in made} <= {"root", "shard-2"}
    expected = sorted((each["metadata"]["uid"], each["spec"]["cluster"]) for each in made)
    uids = {uid for uid, _ in expected}
    # What the shard executes late is removed; the deletion is awaited, not the creation.
    ready(admin, workspace(admin, selector=on("shard-1")))
    eventually(lambda: clusters_by_owner(site, uids) == expected, "no orphan is left", 240.0)
    assert {each["metadata"]["uid"] for each in of(admin, prefix)} == uids


def test_a_workspace_whose_selector_leaves_only_the_silent_shard_says_so_and_waits(site: Site, admin: Api) -> None:
    with frozen(site.shards["shard-1"]):
        name = workspace(admin, selector=on("shard-1"))

        def reported() -> bool:
            said = condition(admin.get(f"{WORKSPACES}/{name}").json, "WorkspaceScheduled")
            reasoned = said.get("reason") in {"ShardUnavailable", "Unschedulable"}
            return bool(reasoned and '"shard-1" does not answer' in said["message"])

        eventually(reported, "it says that the shard does not answer", 60.0)
    made = ready(admin, name)
    assert shard_of(made) == "shard-1"
    uid = made["metadata"]["uid"]
    assert clusters_by_owner(site, {uid}) == [(uid, made["spec"]["cluster"])]


@pytest.mark.parametrize("late", [True, False], ids=["late", "without a body"])
def test_no_workspace_waits_for_a_shard_that_answers_slowly(site: Site, admin: Api, tmp_path: Path, late: bool) -> None:
    expression = {"key": "name", "operator": "In", "values": ["shard-1", "shard-2"]}
    prefix = f"slow-{uuid.uuid4().hex[:6]}"
    with altered(site.shards["shard-1"], tmp_path, _ANSWERS.format(late)):
        # Each first tries one of two shards by chance: of so many one in 16,000 leaves the slow one out.
        for index in range(14):
            body: dict[str, Any] = workspace(admin, send=False, name=f"{prefix}-{index}")
            body["spec"]["location"] = {"selector": {"matchExpressions": [expression]}}
            admin.post(WORKSPACES, body)

        def all_ready() -> bool:
            return all((each.get("status") or {}).get("phase") == "Ready" for each in of(admin, prefix))

        eventually(all_ready, "all workspaces are Ready", 4 * PROMISED_S)
        assert {shard_of(each) for each in of(admin, prefix)} == {"shard-2"}
        uids = {each["metadata"]["uid"] for each in of(admin, prefix)}
        owned = clusters_by_owner(site, uids)
        assert len(owned) > len(uids), "the slow shard was tried, and made clusters"
    expected = sorted((each["metadata"]["uid"], each["spec"]["cluster"]) for each in of(admin, prefix))
    eventually(lambda: clusters_by_owner(site, uids) == expected, "no orphan is left", 240.0)
