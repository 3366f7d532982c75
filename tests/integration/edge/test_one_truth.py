"""Whatever tells of an edge cluster says the same at rest: copies, singleton status, what came up, and summaries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import Api, Object, configmap, crd, define
from harness.seeds import seed_of_run
from harness.servers.edge_service import an_object
from harness.servers.mutant_shard import MutantShard
from harness.waits import until
from integration.edge.chain import Chain
from integration.edge.placed import PLACEMENTS, new_workload, place
from integration.edge.summarized import BOATS, COLLECTORS, DOMAIN, SUMMARIES, boat, summary

ROUNDS, CHANGES = 10, 100
NAMES = [f"b{number}" for number in range(6)]
LOGS = "/api/v1/namespaces/logs/configmaps"
STEPS = ("report",) * 5 + ("put", "put", "drop", "edit", "log", "log", "unlog")
Values = dict[str, tuple[Any, Any]]


@pytest.fixture
def chain(edge: MutantShard, root: Api) -> Iterator[Chain]:
    found = Chain(edge, root, "truth")
    yield found
    found.close()


@pytest.fixture
def harbour(root: Api) -> Iterator[Api]:
    """A workspace with boats that are placed at the edge cluster, and logs that come up from there."""
    here = new_workload(root)
    define(here, crd("boats", DOMAIN))
    up = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}
    boats = {"apiGroup": DOMAIN, "resources": ["boats"]}
    place(here, "p", {"env": "truth"}, boats, wantSingletonReportedState=True, upsync=[up])
    select = [{"name": "replicas", "def": "returned.status.replicas"}]
    target = [{"apiGroup": DOMAIN, "resources": ["boats"]}]
    here.post(COLLECTORS, an_object("StatusCollector", "replicas", {"target": target, "select": select}))
    total = [{"name": "lines", "type": "SUM", "subject": "obj.data.lines"}]
    logs = {"target": [{"apiGroup": "", "resources": ["configmaps"]}], "combinedFields": total}
    here.post(COLLECTORS, an_object("StatusCollector", "lines", logs))
    yield here
    here.delete(PLACEMENTS)
    here.close()


class World:
    """Changes on both sides, and what each place says."""

    def __init__(self, chance: random.Random, chain: Chain, workload: Api) -> None:
        self._chance, self._edge, self._mailbox, self._workload = chance, chain.edge, chain.mailbox, workload

    def change(self) -> None:
        """Do one; what is not there is not changed."""
        step, name, number = self._chance.choice(STEPS), self._chance.choice(NAMES), self._chance.randrange(10**6)
        if step == "report":
            self._send(self._edge, "PATCH", f"{BOATS}/{name}/status", {"status": {"replicas": number}})
        elif step == "put" and self._send(self._workload, "POST", BOATS, boat(name, number)) == 409:
            self._send(self._workload, "PATCH", f"{BOATS}/{name}", {"spec": {"replicas": number}})
        elif step == "drop":
            self._send(self._workload, "DELETE", f"{BOATS}/{name}")
        elif step == "edit":
            self._send(self._edge, "PATCH", f"{BOATS}/{name}", {"spec": {"replicas": number}})
        elif step == "log" and self._send(self._edge, "POST", LOGS, configmap(name, {"lines": str(number)})) == 409:
            self._send(self._edge, "PATCH", f"{LOGS}/{name}", {"data": {"lines": str(number)}})
        elif step == "unlog":
            self._send(self._edge, "DELETE", f"{LOGS}/{name}")

    @staticmethod
    def _send(api: Api, method: str, path: str, body: Object | None = None) -> int:
        kind = "application/merge-patch+json" if method == "PATCH" else ""
        code = api.send(method, path, body, kind=kind).code
        assert code in (200, 201, 404, 409), f"{method} {path}: {code}"
        return code

    def disagreements(self) -> list[str]:
        """What differs from the edge cluster, and there from what was placed."""
        at_edge, logs = _boats(self._edge), _logs(self._edge)
        wanted = {name: spec for name, (spec, _) in _boats(self._workload).items()}
        found = [
            ("desired", wanted, {name: spec for name, (spec, _) in at_edge.items()}),
            ("mailbox", at_edge, _boats(self._mailbox)),
            ("singleton", at_edge, _boats(self._workload)),
            ("came up", logs, _logs(self._mailbox)),
            ("sum", sum(map(int, logs.values())), self._lines()),
        ]
        for name, (_, replicas) in at_edge.items():
            told = summary(self._workload, name)
            counts = {"destinations": 1, "reported": 1, "upToDate": 1, "broken": 0}
            cell = {"type": "Null"} if replicas is None else {"type": "Number", "float": str(replicas)}
            rows = [row["columns"] for each in told.get("results") or () for row in each["rows"]]
            found += [(f"counts of {name}", counts, told.get("counts")), (f"row of {name}", [[cell]], rows)]
        every = self._workload.get(SUMMARIES).json["items"]
        found.append(("summaries", sorted([*at_edge, f"boats.{DOMAIN}"] if at_edge else []), sorted(_names(every))))
        return [f"{what}: {here} is not {there}" for what, here, there in found if here != there]

    def _lines(self) -> int:
        every = self._workload.get(SUMMARIES).json["items"]
        (told,) = [each for each in every if each["subject"] == "upsync configmaps"] or [{}]
        cells = [cell for each in told.get("results") or () for row in each["rows"] for cell in row["columns"]]
        return int(float(cells[0].get("float") or 0)) if cells else -1


def _names(summaries: list[Object]) -> list[str]:
    labels = [each["metadata"]["labels"] for each in summaries if not each["subject"].startswith("upsync")]
    return [each["status.kubestellar.io/name"] for each in labels]


def _boats(api: Api) -> Values:
    answer = api.send("GET", BOATS)
    items = answer.json["items"] if answer.code == 200 else []
    return {
        each["metadata"]["name"]: (each["spec"]["replicas"], (each.get("status") or {}).get("replicas"))
        for each in items
    }


def _logs(api: Api) -> dict[str, str]:
    answer = api.send("GET", LOGS)
    items = answer.json["items"] if answer.code == 200 else []
    return {each["metadata"]["name"]: each["data"]["lines"] for each in items if "lines" in (each.get("data") or {})}


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_after_a_thousand_changes_every_place_tells_what_the_edge_cluster_has(chain: Chain, harbour: Api) -> None:
    chance = random.Random(seed_of_run(1))
    world = World(chance, chain, harbour)
    chain.edge.post("/api/v1/namespaces", {"metadata": {"name": "logs"}})
    async with chain.syncing():
        for number in range(ROUNDS):
            for _ in range(CHANGES):
                # The syncer is in this event loop.
                await asyncio.to_thread(world.change)
            began = time.monotonic()

            async def agree() -> bool:
                return not world.disagreements()

            try:
                await until(agree, "every place tells the same", 60.0)
            except AssertionError:
                raise AssertionError("\n".join(world.disagreements())) from None
            print(f"round {number}: at rest after {time.monotonic() - began:.2f} s")
