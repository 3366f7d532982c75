"""Workspaces define one kind by a definition, by bindings, or with other scopes: what came first stays in the mailbox.

What fits it goes along, the rest is a conflict. When the first one leaves, the next takes over: no copy is lost, and
the edge cluster, which has the definition before anybody places anything, keeps its objects.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from harness.clients.api import CRDS, Api, Object, crd, define, workspace_under
from harness.clients.exports import bind, cluster_of, make_export, schema_of
from harness.servers.edge_service import EdgeControllers
from harness.servers.mutant_shard import MutantShard
from harness.waits import until
from integration.edge.chain import Chain
from integration.edge.placed import PLACEMENTS, condition, is_projected, new_workload, place

pytestmark = pytest.mark.long

GROUP = "fleet.example.com"
BARGES = f"/apis/{GROUP}/v1/namespaces/default/barges"
DEFINITION = f"{CRDS}/barges.{GROUP}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: Puts the kind into a workspace, with these fields; returns the path of the export's view.
Definer = Callable[..., str]


@pytest.fixture
def chain(edge: MutantShard, root: Api) -> Iterator[Chain]:
    found = Chain(edge, root, "definers")
    yield found
    found.close()


@pytest.fixture
def workspaces(root: Api) -> Iterator[list[Api]]:
    """Two workspaces for workloads."""
    found = [new_workload(root), new_workload(root)]
    yield found
    for each in found:
        each.delete(PLACEMENTS)
        each.close()


async def comes(look: Callable[[], Any], what: str) -> None:
    """Wait for a condition, while the syncer goes on."""

    async def is_so() -> Any:
        return look()

    await until(is_so, f"{what}: {look}")


def definition(*fields: str, scope: str = "Namespaced") -> Object:
    """A definition of barges, whose spec has these fields."""
    found = crd("barges", GROUP, scope=scope)
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] = {field: {"type": "string"} for field in fields}
    del found["spec"]["versions"][0]["subresources"]["scale"]
    return found


def by_definition(api: Api, root: Api, *fields: str) -> str:
    define(api, definition(*fields))
    return ""


def by_binding(api: Api, root: Api, *fields: str) -> str:
    """Bind the export of a new workspace, which lets everybody bind it."""
    provider = root.at(workspace_under(root))
    make_export(provider, "fleet", schema_of(definition(*fields)))
    rule = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "verbs": ["bind"], "resourceNames": ["fleet"]}
    provider.post(f"{RBAC}/clusterroles", {"metadata": {"name": "bind"}, "rules": [rule]})
    api_group = "rbac.authorization.k8s.io"
    everyone = {"kind": "Group", "apiGroup": api_group, "name": "system:authenticated"}
    role = {"kind": "ClusterRole", "apiGroup": api_group, "name": "bind"}
    provider.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": [everyone]})
    bind(api, provider.cluster, "fleet", called=f"fleet-{fields[1]}")
    view = f"/services/apiexport/{cluster_of(provider)}/fleet/clusters/*/apis/{GROUP}/v1/barges"
    provider.close()
    return view


def barge(name: str, **spec: str) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Barge", "metadata": {"name": name}, "spec": spec}


def spec(api: Api, name: str, path: str = BARGES) -> Any:
    found = api.send("GET", f"{path}/{name}")
    return found.json["spec"] if found.code == 200 else None


def made(api: Api, name: str) -> tuple[str, int]:
    """What tells an object from one that was made anew or changed."""
    metadata = api.get(f"{BARGES}/{name}").json["metadata"]
    return metadata["uid"], metadata["generation"]


def contested(api: Api) -> str:
    return str(condition(api, "p", "Conflicting").get("message", ""))


def fields_of(api: Api) -> set[str]:
    version = api.get(DEFINITION).json["spec"]["versions"][0]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def instances(root: Api, view: str) -> list[tuple[str, str]]:
    """Workspaces and names of what an exporter sees."""
    items = Api(root.shard, token=root.token).get(view).json["items"]
    return sorted((each["metadata"]["annotations"]["kcp.io/cluster"], each["metadata"]["name"]) for each in items)


@pytest.mark.parametrize(
    ("first", "second"), [(by_definition, by_binding), (by_binding, by_definition), (by_binding, by_binding)]
)
async def test_no_copy_is_lost_and_no_object_at_the_edge_made_anew_when_the_second_takes_over(
    first: Definer, second: Definer, root: Api, workspaces: list[Api], chain: Chain
) -> None:
    (one, two), box, edge = workspaces, chain.mailbox, chain.edge
    define(edge, definition("hull", "deck", "mast"))
    view = first(one, root, "hull", "deck")
    one.post(BARGES, barge("first", hull="x", deck="y"))
    async with chain.syncing():
        place(one, "p", {"env": "definers"}, {"apiGroup": GROUP})
        await comes(lambda: spec(edge, "first") == {"hull": "x", "deck": "y"}, "the first")
        kept_fields = fields_of(edge)
        later = second(two, root, "hull", "mast")
        two.post(BARGES, barge("fits", hull="z"))
        two.post(BARGES, barge("differs", mast="m"))
        place(two, "p", {"env": "definers"}, {"apiGroup": GROUP})
        await comes(lambda: spec(edge, "fits") == {"hull": "z"}, "what fits goes along")
        winner = cluster_of(one)
        text, rest = f"definition of barges.{GROUP} of workspace {winner}", f"barges.{GROUP} default/differs"
        for api in (one, two):
            await comes(partial(lambda api: text in contested(api), api), "the definitions are in conflict")
        await comes(lambda: f"{rest}: definition of workspace {winner}" in contested(two), "the rest")
        assert spec(box, "differs") is None
        assert fields_of(edge) == kept_fields, "what waits in the mailbox replaces nothing"
        if view:
            here, there = winner, chain.world.cluster
            assert instances(root, view) == sorted([(here, "first"), (there, "first"), (there, "fits")])
        before = made(edge, "fits")
        one.delete(f"{PLACEMENTS}/p")
        await comes(lambda: spec(box, "differs") == {"mast": "m"}, "the second takes over, with what fits that")
        if first is by_binding:
            # Nobody brings the edge another definition than the one of the first that it has.
            await comes(lambda: spec(edge, "differs") == {"mast": "m"}, "down to the edge")
        await comes(lambda: spec(box, "fits") == {"hull": "z"}, "no copy is lost")
        await comes(lambda: spec(edge, "first") is None, "what the first one sent is withdrawn")
        await comes(lambda: condition(two, "p", "Conflicting") == {}, "without a conflict")
        await comes(lambda: is_projected(two, "p"), "all is there")
        assert made(edge, "fits") == before
        if later:
            places = cluster_of(two), chain.world.cluster
            wanted = sorted((place, name) for place in places for name in ("fits", "differs"))
            await comes(lambda: instances(root, later) == wanted, "its exporter sees all")


@pytest.mark.parametrize("moments", [(0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("definers", [(by_definition, by_binding), (by_binding, by_definition)])
async def test_controllers_that_are_killed_in_a_take_over_lose_no_copy_and_make_nothing_at_the_edge_anew(
    moments: tuple[int, ...],
    definers: tuple[Definer, Definer],
    root: Api,
    workspaces: list[Api],
    chain: Chain,
    controllers: EdgeControllers,
) -> None:
    (one, two), box, edge, (first, second) = workspaces, chain.mailbox, chain.edge, definers
    define(edge, definition("hull", "deck", "mast"))
    first(one, root, "hull", "deck")
    one.post(BARGES, barge("first", hull="x"))
    async with chain.syncing():
        place(one, "p", {"env": "definers"}, {"apiGroup": GROUP})
        await comes(lambda: spec(edge, "first") == {"hull": "x"}, "the first")
        second(two, root, "hull", "mast")
        for each in (barge("fits", hull="z"), barge("differs", mast="m")):
            two.post(BARGES, each)
        place(two, "p", {"env": "definers"}, {"apiGroup": GROUP})
        await comes(lambda: spec(edge, "fits") == {"hull": "z"}, "what fits goes along")
        before = made(edge, "fits")
        one.delete(f"{PLACEMENTS}/p")
        stages = (
            lambda: True,
            lambda: spec(box, "first") is None,
            lambda: spec(box, "differs") is not None or spec(box, "fits") is None,
        )
        for number, stage in enumerate(stages):
            # What a stage looks for stays so, whoever is killed.
            await comes(stage, f"stage {number}")
            if number in moments:
                await asyncio.to_thread(controllers.stop, signal.SIGKILL)
                await asyncio.to_thread(controllers.start)
        await comes(lambda: spec(box, "differs") == {"mast": "m"}, "the second takes over")
        await comes(lambda: spec(box, "fits") == {"hull": "z"}, "no copy is lost")
        await comes(lambda: spec(edge, "first") is None, "what the first one sent is withdrawn")
        await comes(lambda: condition(two, "p", "Conflicting") == {}, "without a conflict")
        await comes(lambda: is_projected(two, "p"), "all is there")
        assert made(edge, "fits") == before


async def test_a_definition_of_another_scope_waits_and_takes_over_in_the_mailbox_and_at_the_edge(
    workspaces: list[Api], chain: Chain
) -> None:
    (one, two), box, edge = workspaces, chain.mailbox, chain.edge
    wide = f"/apis/{GROUP}/v1/barges"
    define(one, definition("hull"))
    one.post(BARGES, barge("first", hull="x"))
    define(two, definition("hull", scope="Cluster"))
    two.post(wide, barge("second", hull="y"))
    async with chain.syncing():
        place(one, "p", {"env": "definers"}, {"apiGroup": GROUP})
        await comes(lambda: spec(edge, "first") == {"hull": "x"}, "the first")
        place(two, "p", {"env": "definers"}, {"apiGroup": GROUP})
        text = f"barges.{GROUP} second: definition of workspace {cluster_of(one)}"
        await comes(lambda: text in contested(two), "it does not fit")
        assert spec(box, "first") == {"hull": "x"}
        uid = box.get(DEFINITION).json["metadata"]["uid"]
        one.delete(f"{PLACEMENTS}/p")
        await comes(lambda: spec(box, "second", wide) == {"hull": "y"}, "the second takes over")
        await comes(lambda: spec(edge, "second", wide) == {"hull": "y"}, "and at the edge")
        assert box.get(DEFINITION).json["metadata"]["uid"] != uid
        await comes(lambda: condition(two, "p", "Conflicting") == {}, "without a conflict")
        await comes(lambda: is_projected(two, "p"), "all is there")
