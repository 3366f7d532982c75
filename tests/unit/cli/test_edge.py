"""`kubectl atoll edge` against a canned server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.cli.kubectl import atoll
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden, NotFound
from harness.clients.terminal import PluginTerminal, Ran
from harness.servers.stand_ins.canned_api import CannedApi, serving

EDGE = "/apis/edge.kubestellar.io/v2alpha1"
HERE = "/clusters/root:wmw1"
PLACEMENTS, SLICES = f"{HERE}{EDGE}/edgeplacements", f"{HERE}{EDGE}/singleplacementslices"
SUMMARIES = f"{HERE}{EDGE}/statussummaries"


class Terminal(PluginTerminal):
    """Runs the plug-in as its console script does, in workspace root:wmw1 of a canned server."""

    async def edge(self, *arguments: str) -> Ran:
        return await self.run(atoll.dispatch, "edge", *arguments)


@pytest.fixture
async def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Terminal]:
    async with serving(CannedApi()) as api:
        yield Terminal(api, api.kubeconfig(tmp_path, HERE), capsys)


def placement(name: str, **status: object) -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


COUNTS = {"total": 3, "upToDate": 1, "behind": 1, "failing": 1, "silent": 0}
BROKEN = [condition("Projected", "True"), condition("Synced", "False", "ObjectsFailing", "t: no")]


async def test_a_conflict_is_a_problem_while_it_is_there(terminal: Terminal) -> None:
    rows = [
        condition("Projected", "True"),
        condition("Conflicting", "True", "WorkloadConflict", "configmaps a/b: x of w"),
    ]
    terminal.api.on(f"GET {PLACEMENTS}", {"metadata": {}, "items": [placement("web", conditions=rows)]})
    assert "Conflicting: WorkloadConflict: configmaps a/b: x of w" in (await terminal.edge()).out


async def test_placements_are_shown_with_their_numbers_and_their_first_problem(terminal: Terminal) -> None:
    items = [placement("web", objectCount=7, destinations=COUNTS, conditions=BROKEN), placement("young")]
    terminal.api.on(f"GET {PLACEMENTS}", {"metadata": {}, "items": items})
    terminal.api.on(f"GET {SUMMARIES}", Forbidden("no"))
    lines = (await terminal.edge()).out.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "OBJECTS", "DESTINATIONS", "SYNCED", "BEHIND", "FAILING", "SILENT", "CONFLICTS", "BROKEN", "PROBLEM"],
        ["web", "7", "3", "1", "1", "1", "0", "0", "-", "Synced:", "ObjectsFailing:", "t:", "no"],
        ["young", *"-" * 8],
    ]


async def test_conflicts_and_what_summaries_list_as_broken_are_counted_by_placement(terminal: Terminal) -> None:
    items = [placement("web", objectCount=7, conflictCount=12), placement("mine", objectCount=1)]
    terminal.api.on(f"GET {PLACEMENTS}", {"metadata": {}, "items": items})
    owners = {"metadata": {"ownerReferences": [{"kind": "EdgePlacement", "name": "web", "uid": "uid-web"}]}}
    summaries = [{**owners, "brokenObjects": [{}] * 10, "brokenTruncated": 5}, {**owners, "brokenObjects": [{}]}]
    terminal.api.on(f"GET {SUMMARIES}", {"metadata": {}, "items": [*summaries, owners]})
    _, web, mine = (line.split() for line in (await terminal.edge()).out.splitlines())
    assert web == ["web", "7", *"-" * 5, "12", "16"]
    assert mine == ["mine", "1", *"-" * 5, "0", "0"]


async def test_a_workspace_without_placements_or_without_the_service_says_so(terminal: Terminal) -> None:
    terminal.api.on(f"GET {PLACEMENTS}", {"metadata": {}, "items": []})
    assert (await terminal.edge()).out == "Workspace root:wmw1 has no EdgePlacement.\n"
    terminal.api.on(f"GET {PLACEMENTS}", NotFound("no such resource"))
    found = await terminal.edge()
    assert (found.code, found.err) == (1, "Error: root:wmw1 does not bind the edge service\n")


async def test_edge_clusters_of_a_placement_are_shown_as_far_as_the_caller_may_read(terminal: Terminal) -> None:
    terminal.api.on(f"GET {PLACEMENTS}/web", placement("web", conditions=BROKEN))
    rows = [
        {"cluster": "c1", "locationName": f"at-{name}", "syncTargetName": name, "syncTargetUID": f"u{name}"}
        for name in ("a", "b", "c")
    ]
    owner = {"kind": "EdgePlacement", "name": "web", "uid": "uid-web"}
    mine: Object = {"metadata": {"name": "web", "ownerReferences": [owner]}, "destinations": rows}
    other: Object = {"metadata": {"name": "x", "ownerReferences": [{**owner, "uid": "other"}]}, "destinations": rows}
    terminal.api.on(f"GET {SLICES}", {"metadata": {}, "items": [mine, other]})
    target, mailbox = f"/clusters/c1{EDGE}/synctargets", "/clusters/root:espw:c1-mb-"
    terminal.api.on(f"GET {target}/a", {"status": {"lastSyncerHeartbeatTime": times.now()}})
    error = {"group": "apps", "resource": "deployments", "namespace": "n", "name": "d", "message": "no\nroom"}
    config = {"metadata": {"name": "the-one"}, "status": {"errors": [error, error]}}
    terminal.api.on(f"GET {mailbox}ua{EDGE}/syncerconfigs/the-one", config)
    terminal.api.on(f"GET {target}/b", Forbidden("no"))
    terminal.api.on(f"GET {mailbox}ub{EDGE}/syncerconfigs/the-one", Forbidden("no"))
    terminal.api.on(f"GET {target}/c", {"status": {}})
    terminal.api.on(f"GET {mailbox}uc{EDGE}/syncerconfigs/the-one", {"metadata": {"name": "the-one"}})
    lines = (await terminal.edge("web")).out.splitlines()
    head, first, second, third, problem = (line.split() for line in lines)
    assert head == ["SYNCTARGET", "LOCATION", "HEARD", "ERRORS", "FIRST", "ERROR"]
    assert (first[:2], first[3:]) == (["a", "at-a"], ["2", "deployments.apps", "n/d:", "no", "room"])
    assert first[2].endswith("s")
    assert second == ["b", "at-b", "-", "-"]
    assert third == ["c", "at-c", "never", "0"]
    assert problem == ["Synced:", "ObjectsFailing:", "t:", "no"]
