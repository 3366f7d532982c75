"""`kubectl atoll edge why`: where each step ends, against a canned server; what it reads from conditions and lists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.cli.kubectl import atoll
from atoll.cli.kubectl.edge_why import UNREADABLE, Step, at_edge, conflicts_about, lost_versions
from atoll.edge.placement_translator.placement_status import Projected, status_with
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from harness.clients.terminal import PluginTerminal
from harness.servers.stand_ins.canned_api import CannedApi, serving

REF = ObjectRef("", "configmaps", "default", "a")
COPY: Object = {"apiVersion": "v1", "metadata": {"resourceVersion": "20"}}
ROW = {"group": "", "resource": "configmaps", "apiVersion": "v1"}


def placement(*contested: str) -> Object:
    """A placement whose condition names these conflicts."""
    return {"status": status_with({"metadata": {}}, Projected(True, 1, (), (), (), contested))}


def config(*names: str, **status: object) -> Object:
    by_namespace = [{"namespace": "default", "names": list(names)}]
    spec = {"namespacedObjects": [{**ROW, "objectsByNamespace": by_namespace}]}
    return {"metadata": {"name": "the-one"}, "spec": spec, "status": status}


def test_conflicts_are_those_of_the_object_whatever_else_the_condition_names() -> None:
    rows = [f"configmaps default/{name}: data[k] of workspace w{name}" for name in "abcdefghijkl"]
    many = placement(*rows)
    assert conflicts_about(REF, [many, many]) == ["data[k] of workspace wa"]
    assert conflicts_about(ObjectRef("", "configmaps", "default", "j"), [many]) == ["data[k] of workspace wj"]
    assert conflicts_about(REF, [placement(rows[1]), placement()]) == []


@pytest.mark.parametrize(("winner", "lost"), [("theirs", "theirs"), ("mine", "")])
def test_versions_are_lost_to_another_workspace_alone(winner: str, lost: str) -> None:
    obj = {"metadata": {"annotations": {"kcp.io/cluster": "mine"}}}
    assert lost_versions(obj, ["data[k] of workspace x", f"apiVersion of workspace {winner}"]) == lost
    assert lost_versions(obj, ["data[k] of workspace x"]) == ""


@pytest.mark.parametrize(
    ("configs", "steps"),
    [
        ([config("b")], [Step("listed", "no: the list is written once the mailbox has all of it", False)]),
        ([], [Step("listed", "no: the list is written once the mailbox has all of it", False)]),
        ([config("a")], [Step("applied", "not yet: the syncer reported revision nothing", False)]),
        ([config("a", appliedRevision="19")], [Step("applied", "not yet: the syncer reported revision 19", False)]),
        ([config("a", appliedRevision="20")], [Step("applied", "yes: the syncer reported revision 20")]),
    ],
)
def test_a_list_and_a_report_say_how_far_an_object_is(configs: list[Object], steps: list[Step]) -> None:
    assert [each for each in at_edge(REF, COPY, configs) if each != Step("listed", "yes")] == steps


def test_a_binding_ends_in_the_mailbox() -> None:
    binding = ObjectRef("apis.kcp.io", "apibindings", "", "kubernetes")
    assert list(at_edge(binding, COPY, [])) == [Step("listed", "no: objects of this kind end in the mailbox", False)]


def test_what_the_edge_refuses_is_of_the_object_or_of_its_whole_kind() -> None:
    rows = [{"group": "", "resource": "configmaps", "namespace": "default", "name": "b", "message": "other"}]
    assert list(at_edge(REF, COPY, [config("a", appliedRevision="20", errors=rows)]))[-1].name == "applied"
    rows.append({"group": "", "resource": "configmaps", "message": "may not be listed"})
    last = list(at_edge(REF, COPY, [config("a", errors=rows)]))[-1]
    assert last == Step("refused because", "configmaps : may not be listed", False)


EDGE, HERE = "/apis/edge.kubestellar.io/v2alpha1", "/clusters/root:wmw1"
VIEW, BOX, CORE = "/services/edge-view/clusters/root:wmw1", "/clusters/root:espw:c1-mb-u1", "/api/v1/namespaces/default"
VIEW_OF_BOX = VIEW.replace("root:wmw1", "root:espw:c1-mb-u1")
LOCATION, CUSTOMIZER = f"GET /clusters/c1{EDGE}/locations/one", f"GET {HERE}{EDGE}/namespaces/default/customizers/rules"


def configmap(**annotations: str) -> Object:
    notes = {"kcp.io/cluster": "mine", **{f"edge.kubestellar.io/{key}": text for key, text in annotations.items()}}
    metadata = {"name": "a", "namespace": "default", "annotations": notes, "resourceVersion": "20"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "%(town)"}}


class World(PluginTerminal):
    """A workspace whose ConfigMap `a` is at an edge cluster."""

    def serve(self) -> None:
        row = {"resource": "configmaps", "responseKind": {"kind": "ConfigMap"}, "scope": "Namespaced", "verbs": ["get"]}
        core = {"metadata": {}, "versions": [{"version": "v1", "resources": [row]}]}
        tests = [{"apiGroup": "", "resources": ["configmaps"]}]
        spec = {"locationSelectors": [{}], "downsync": tests}
        placed = {"metadata": {"name": "p", "uid": "up", "generation": 1}, "spec": spec}
        owner = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "EdgePlacement", "name": "p", "uid": "up"}
        names = {"locationName": "one", "syncTargetName": "target", "syncTargetUID": "u1"}
        slices = {"metadata": {"name": "p", "ownerReferences": [owner]}, "destinations": [{"cluster": "c1", **names}]}
        self.api.on(f"GET {VIEW}/api", {"items": [core]})
        self.api.on(f"GET {VIEW}/apis", {"items": []})
        self.api.on(f"GET {VIEW}{CORE}/configmaps/a", configmap())
        self.api.on(f"GET {VIEW}/api/v1/namespaces/default", {"metadata": {"name": "default"}})
        self.place(placed)
        self.api.on(f"GET {HERE}{EDGE}/singleplacementslices", {"metadata": {}, "items": [slices]})
        self.api.on(LOCATION, {"metadata": {"name": "one", "labels": {"town": "Delft"}}})
        self.api.on(f"GET {VIEW_OF_BOX}{CORE}/configmaps/a", configmap(sources="mine"))
        items = [config("a", appliedRevision="20")]
        self.api.on(f"GET {BOX}{EDGE}/syncerconfigs", {"metadata": {}, "items": items})

    def place(self, *placements: Object) -> None:
        self.api.on(f"GET {HERE}{EDGE}/edgeplacements", {"metadata": {}, "items": list(placements)})

    async def steps(self, at: str = "one") -> dict[str, str]:
        ran = await self.run(atoll.dispatch, "edge", "why", "configmaps", "a", "--at", at)
        assert ran.code == 0, ran.err
        rows = (line.partition(":") for line in ran.out.splitlines())
        return {name: text.strip() for name, _, text in rows}

    async def last(self) -> tuple[str, str]:
        return list((await self.steps()).items())[-1]


@pytest.fixture
async def world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[World]:
    async with serving(CannedApi()) as api:
        made = World(api, api.kubeconfig(tmp_path, HERE), capsys)
        made.serve()
        yield made


async def test_each_step_of_an_object_that_arrived_is_told(world: World) -> None:
    assert await world.steps() == {
        "selected by": "p",
        "matched": "Location one, SyncTarget target",
        "rendered by": "nothing: it goes as it is",
        "version": "v1",
        "merged with": "nothing",
        "in mailbox": "yes, at revision 20",
        "listed": "yes",
        "applied": "yes: the syncer reported revision 20",
    }


async def test_a_rendering_that_fails_is_the_end_and_names_its_line(world: World) -> None:
    world.api.on(f"GET {VIEW}{CORE}/configmaps/a", configmap(customizer="rules"))
    assert await world.last() == ("rendered by", "no: Customizer default/rules is not there")
    rules: Object = {"metadata": {"name": "rules", "namespace": "default"}}
    world.api.on(CUSTOMIZER, {**rules, "replacements": [{"path": "$.data.k", "value": "no JSON"}]})
    name, text = await world.last()
    assert (name, text.startswith("no: Customizer default/rules: replacements[0].value: is no JSON")) == (
        "rendered by",
        True,
    )
    world.api.on(CUSTOMIZER, {**rules, "replacements": [{"path": "$.data.k", "value": '"v"'}]})
    assert (await world.steps())["rendered by"] == "Customizer default/rules"
    world.api.on(f"GET {VIEW}{CORE}/configmaps/a", configmap(**{"expand-parameters": "true"}))
    for answer in ({"metadata": {"name": "one"}}, Forbidden("no")):
        world.api.on(LOCATION, answer)
        assert (await world.steps())["rendered by"] == "parameters of the Location"


async def test_a_version_of_another_workspace_is_the_end(world: World) -> None:
    spec = {"locationSelectors": [{}], "downsync": [{"apiGroup": "", "resources": ["configmaps"]}]}
    contested = placement("configmaps default/a: apiVersion of workspace theirs")
    world.place({"metadata": {"name": "p", "uid": "up"}, "spec": spec, **contested})
    assert await world.last() == ("version", "no: that of workspace theirs counts, which has no version of this one's")


async def test_a_mailbox_that_lacks_the_object_or_may_not_be_read_is_the_end(world: World) -> None:
    del world.api.routes[f"GET {VIEW_OF_BOX}{CORE}/configmaps/a"]
    assert await world.last() == ("in mailbox", "no")
    world.api.on(f"GET {BOX}{EDGE}/syncerconfigs", Forbidden("no"))
    assert await world.last() == ("in mailbox", UNREADABLE)


async def test_what_no_placement_selects_and_no_location_has_is_the_end(world: World) -> None:
    assert list((await world.steps(at="two")).items())[-1] == ("matched", "no: two is no destination of p")
    bad = {"metadata": {"name": "bad", "uid": "ub"}, "spec": {"locationSelectors": [{"matchLabels": {"a b": "c"}}]}}
    world.place(bad)
    name, text = await world.last()
    assert name == "selected by"
    assert text.startswith("nothing: no EdgePlacement selects it; bad is invalid: ")
    del world.api.routes[f"GET {VIEW}{CORE}/configmaps/a"]
    assert await world.last() == ("object", "configmaps a is not in this workspace")
