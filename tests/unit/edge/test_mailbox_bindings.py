"""Which bindings of a mailbox are made and which go."""

from __future__ import annotations

from atoll.edge.mailbox_bindings import MARK, planned
from atoll.machinery.edge.what import export_of
from atoll.machinery.meta.objects import Object

KUBERNETES, GAUGES = ("root", "kubernetes"), ("root:x", "gauges")


def others(name: str, export: tuple[str, str], **metadata: object) -> Object:
    spec = {"reference": {"export": {"path": export[0], "name": export[1]}}}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def test_a_missing_binding_is_made_once_with_the_mark_and_an_export_that_somebody_bound_is_bound() -> None:
    (made, other), _ = planned([KUBERNETES, GAUGES], [])
    assert (export_of(made), export_of(other)) == (KUBERNETES, GAUGES)
    assert made["metadata"]["labels"] == {MARK: "yes"}
    assert made["metadata"]["name"] != other["metadata"]["name"]
    assert planned([KUBERNETES, GAUGES], [made, other]) == ([], [])
    assert planned([KUBERNETES], [others("theirs", KUBERNETES)]) == ([], [])


def test_what_is_not_wanted_goes_if_it_has_the_mark() -> None:
    (made,), _ = planned([KUBERNETES], [])
    assert planned([], [made, others("theirs", GAUGES)]) == ([], [made])
    assert planned([GAUGES], [made])[1] == [made]


def test_a_binding_that_is_being_deleted_is_made_again_once_it_is_gone() -> None:
    (made,), _ = planned([KUBERNETES], [])
    going = {**made, "metadata": {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert planned([KUBERNETES], [going]) == ([], [])
    assert planned([], [going]) == ([], [])
