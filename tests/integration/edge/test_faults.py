"""Controllers that are killed at any moment leave in mailboxes what placements say, and write nothing twice."""

from __future__ import annotations

import random
import signal
from itertools import product

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.seeds import seed_of_run
from harness.servers.edge_service import GROUP, EdgeControllers
from integration.edge.placed import PLACEMENTS, inventory, is_projected, mailboxes, place, workload

__all__ = ["inventory", "mailboxes", "workload"]

NAMES = [f"m{number}" for number in range(5)]
PLACES = ("one", "two")
PROBE = "probe"
STEPS = ("put", "put", "drop", "edit", "remove", "turn")


class World:
    """Objects in a namespace of their own, placed by their label, and what each mailbox should have of them."""

    def __init__(self, chance: random.Random, workload: Api, mailboxes: dict[str, Api]) -> None:
        self._chance, self._workload, self._mailboxes = chance, workload, mailboxes
        self._namespace = f"f{chance.randrange(10**9)}"
        self._path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        self._objects: dict[str, tuple[str, str]] = {}
        #: Placement -> the label that it selects.
        self._selected = {each: each for each in PLACES}
        workload.post("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        for each in PLACES:
            place(workload, each, {"env": each}, self._test(each))
        place(workload, PROBE, {"fleet": "all"}, self._test(PROBE))
        self.probe("1")

    @staticmethod
    def _test(label: str) -> Object:
        labels = [{"matchLabels": {"for": label}}]
        return {"apiGroup": "", "resources": ["configmaps"], "labelSelectors": labels}

    def change(self) -> None:
        """Do a few changes, in the workspace and in mailboxes."""
        for _ in range(self._chance.randint(1, 8)):
            self._step(self._chance.choice(STEPS), self._chance.choice(NAMES), self._chance.choice(PLACES))

    def _step(self, step: str, name: str, where: str) -> None:
        number = str(self._chance.randrange(10**6))
        if step == "put":
            obj = configmap(name, {"n": number}, labels={"for": where})
            known = name in self._objects
            self._workload.send("PUT" if known else "POST", f"{self._path}/{name}" if known else self._path, obj)
            self._objects[name] = where, number
        elif step == "drop" and self._objects.pop(name, None) is not None:
            self._workload.delete(f"{self._path}/{name}")
        elif step in ("edit", "remove"):
            body = {"data": {"n": "edited"}} if step == "edit" else None
            copy = f"{self._path}/{name}"
            kind = "application/merge-patch+json"
            # There may be no such copy.
            self._mailboxes[where].send("PATCH" if body else "DELETE", copy, body, kind=kind)
        elif step == "turn":
            self._selected[where] = self._chance.choice(PLACES)
            spec = {"downsync": [self._test(self._selected[where])]}
            self._workload.patch(f"{PLACEMENTS}/{where}", {"spec": spec})

    def probe(self, number: str) -> None:
        """Place an object in both mailboxes, or change it."""
        obj = configmap(PROBE, {"n": number}, labels={"for": PROBE})
        if self._workload.send("PUT", f"{self._path}/{PROBE}", obj).code == 404:
            self._workload.post(self._path, obj)
        self._probe = number

    def written(self) -> dict[str, str]:
        """The revision of everything that is written in mailboxes but the probe."""
        paths = (self._path, "/api/v1/namespaces", f"{GROUP}/syncerconfigs")
        found = {}
        for where, path in product(PLACES, paths):
            for each in self._mailboxes[where].get(path).json["items"]:
                if each["metadata"]["name"] != PROBE:
                    found[f"{where}{path}/{each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
        return found

    def wanted(self, where: str) -> dict[str, str]:
        """The names and contents that a mailbox should have."""
        found = {name: n for name, (label, n) in self._objects.items() if label == self._selected[where]}
        return {**found, PROBE: self._probe}

    def is_right(self) -> bool:
        """Whether both mailboxes and their lists are as they should be."""
        return all(self._found(where) == (self.wanted(where), sorted(self.wanted(where))) for where in PLACES)

    def _found(self, where: str) -> tuple[dict[str, str], list[str]]:
        api = self._mailboxes[where]
        found = api.get(f"{self._path}?labelSelector=edge.kubestellar.io/projected=yes").json["items"]
        copies = {each["metadata"]["name"]: each["data"]["n"] for each in found}
        spec = api.get(f"{GROUP}/syncerconfigs/the-one").json["spec"]
        rows = [row for kind in spec.get("namespacedObjects", ()) for row in kind["objectsByNamespace"]]
        return copies, sorted(name for row in rows if row["namespace"] == self._namespace for name in row["names"])


def survive(seed: int, kills: int, controllers: EdgeControllers, workload: Api, mailboxes: dict[str, Api]) -> None:
    """Kill the controllers while the world changes, also while they start; check what is left in the end."""
    chance = random.Random(seed)
    world = World(chance, workload, mailboxes)
    for _ in range(kills):
        world.change()
        controllers.stop(signal.SIGKILL)
        world.change()
        controllers.spawn()
    world.change()
    what = f"mailboxes have what is placed (seed {seed})"
    eventually(world.is_right, what, 60)
    eventually(lambda: all(is_projected(workload, each) for each in PLACES), "the placements say so", 60)
    before = world.written()
    controllers.stop(signal.SIGKILL)
    controllers.start()
    world.probe("2")
    eventually(world.is_right, "they work again", 60)
    assert world.written() == before


@pytest.mark.long
@pytest.mark.timeout(300)
def test_controllers_that_are_killed_resume_and_repeat_no_write(
    controllers: EdgeControllers, workload: Api, mailboxes: dict[str, Api]
) -> None:
    survive(seed_of_run(1), 2, controllers, workload, mailboxes)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trial", range(2, 32))
def test_controllers_that_are_killed_often_resume_and_repeat_no_write(
    trial: int, controllers: EdgeControllers, workload: Api, mailboxes: dict[str, Api]
) -> None:
    survive(seed_of_run(trial), 6, controllers, workload, mailboxes)
