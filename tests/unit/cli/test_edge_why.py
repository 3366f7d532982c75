"""What `kubectl atoll edge why` reads from conditions and lists: conflicts, versions that do not count, lists."""

from __future__ import annotations

import pytest

from atoll.cli.kubectl.edge_why import Step, at_edge, conflicts_about, lost_versions
from atoll.edge.placement_translator.placement_status import Projected, status_with
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object

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


def test_what_the_edge_refuses_is_of_the_object_or_of_its_whole_kind() -> None:
    rows = [{"group": "", "resource": "configmaps", "namespace": "default", "name": "b", "message": "other"}]
    assert list(at_edge(REF, COPY, [config("a", appliedRevision="20", errors=rows)]))[-1].name == "applied"
    rows.append({"group": "", "resource": "configmaps", "message": "may not be listed"})
    last = list(at_edge(REF, COPY, [config("a", errors=rows)]))[-1]
    assert last == Step("refused because", "configmaps : may not be listed", False)
