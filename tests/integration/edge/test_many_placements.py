"""A workspace with more placements than anybody needs: they are bounded, and its neighbour is served meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.exports import cluster_of
from harness.servers.edge_service import EdgeControllers, an_object
from harness.servers.mutant_shard import MutantShard, patched
from integration.edge.placed import (
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    PLACEMENTS,
    data,
    inventory,
    is_projected,
    mailboxes,
    new_workload,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]
BOUND = "import atoll.shard.admission.edgeplacements as e\ne.MAX_PLACEMENTS = 3\n"
FLOOD = 600
NO_TURNS = """
import atoll.machinery.control.queue as q
plain = q.WorkQueue.__init__
def init(self, *arguments, in_turn=False, **more):
    plain(self, *arguments, **more)
q.WorkQueue.__init__ = init
"""


@pytest.fixture
def neighbour(root: Api) -> Iterator[Api]:
    here = new_workload(root)
    yield here
    here.delete(PLACEMENTS)
    here.close()


def test_a_workspace_has_so_many_placements_and_changes_those_that_it_has(edge: MutantShard, workload: Api) -> None:
    def create(name: str) -> tuple[int, str]:
        body = an_object("EdgePlacement", name, {"downsync": [CONFIGMAPS_OF_ALL]})
        answer = workload.send("POST", PLACEMENTS, body)
        return answer.code, answer.json.get("message", "")

    with edge.without(BOUND):
        assert [create(f"p{number}")[0] for number in range(3)] == [201, 201, 201]
        code, message = create("p3")
        assert (code, message.partition(": ")[2]) == (403, "a workspace has at most 3 EdgePlacements")
        workload.patch(f"{PLACEMENTS}/p0", {"spec": {"downsync": [{"apiGroup": "apps"}]}})
        workload.delete(f"{PLACEMENTS}/p1")
        assert create("p3")[0] == 201, "there is room again"
        assert create("p4")[0] == 403
    assert create("p4")[0] == 201, "another bound is missed"


def projected(api: Api) -> int:
    """How many placements of a workspace say that their objects are in the mailboxes."""
    conditions = (each.get("status", {}).get("conditions", ()) for each in api.get(PLACEMENTS).json["items"])
    return sum(("Projected", "True") in {(row["type"], row["status"]) for row in rows} for rows in conditions)


@pytest.mark.long
def test_a_flood_of_placements_holds_up_no_object_and_no_placement_of_a_neighbour(
    workload: Api, neighbour: Api, mailboxes: dict[str, Api]
) -> None:
    for number in range(20):
        workload.post(CONFIGMAPS, configmap(f"flood{number}", {"k": "1"}))
    place(neighbour, "before", {"env": "two"}, {**CONFIGMAPS_OF_ALL, "objectNames": ["quick"]})
    eventually(lambda: is_projected(neighbour, "before"), "the placement before the flood")
    for number in range(FLOOD):
        place(workload, f"p{number:04}", {"fleet": "all"}, CONFIGMAPS_OF_ALL)
    neighbour.post(CONFIGMAPS, configmap("quick", {"k": "1"}))
    place(neighbour, "late", {"env": "one"}, {**CONFIGMAPS_OF_ALL, "objectNames": ["quick"]})
    eventually(lambda: data(mailboxes["two"], f"{CONFIGMAPS}/quick") == {"k": "1"}, "the neighbour's object")
    eventually(lambda: data(mailboxes["one"], f"{CONFIGMAPS}/quick") == {"k": "1"}, "by its new placement, too")
    eventually(lambda: is_projected(neighbour, "late"), "the neighbour's placement")
    done = projected(workload)
    print(f"of {FLOOD} placements of the tenant {done} were done")
    assert done < FLOOD, "the neighbour waited until the flood was over"
    eventually(lambda: projected(workload) == FLOOD, "all of the flood is done", 300.0)


def resolved(api: Api) -> int:
    """How many placements of a workspace are resolved."""
    return sum("specGeneration" in each.get("status", {}) for each in api.get(PLACEMENTS).json["items"])


@pytest.mark.long
@pytest.mark.parametrize(("code", "has_turns"), [("", True), (NO_TURNS, False)], ids=["turns", "no turns"])
def test_after_a_start_a_neighbour_has_its_turn_among_a_flood_and_without_turns_is_the_last(
    root: Api, controllers: EdgeControllers, inventory: Api, tmp_path: Path, code: str, has_turns: bool
) -> None:
    # What a start finds comes by logical cluster.
    flood, neighbour = sorted((new_workload(root), new_workload(root)), key=cluster_of)
    controllers.stop()
    for number in range(FLOOD):
        place(flood, f"p{number:04}", {"fleet": "all"}, CONFIGMAPS_OF_ALL)
    place(neighbour, "late", {"fleet": "all"}, CONFIGMAPS_OF_ALL)
    controllers.environment.update(patched(tmp_path, code))
    controllers.start()
    try:
        eventually(lambda: resolved(neighbour), "the neighbour's placement")
        done = resolved(flood)
    finally:
        for api in (flood, neighbour):
            api.delete(PLACEMENTS)
        controllers.stop()
        controllers.environment.clear()
        controllers.start()
    print(f"of {FLOOD} placements of the tenant {done} were resolved")
    assert (done < FLOOD // 2) == has_turns
