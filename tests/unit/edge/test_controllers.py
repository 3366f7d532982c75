"""What the controllers of the edge service decide, without a server."""

from __future__ import annotations

import asyncio

import pytest

from atoll.edge.location_access import LocationAccess
from atoll.edge.mailboxes import is_mailbox, mailbox_name
from atoll.edge.where_resolver import placement_status, with_unread
from atoll.machinery.edge.where import Destination, Location, Resolution
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import compile_label_selector
from atoll.machinery.meta.status import Forbidden, ServiceUnavailable

NAME, UID = "edge.kubestellar.io/sync-target-name", "edge.kubestellar.io/sync-target-uid"


@pytest.mark.parametrize(
    ("name", "annotations", "expected"),
    [
        ("c-mb-u", {NAME: "a", UID: "u"}, True),
        ("a-mb-b", {}, False),
        ("c-mb-u", {NAME: "a"}, False),
        ("c-mb-u", {NAME: "a", UID: ""}, False),
        ("c-mb-u", {UID: "u"}, False),
        ("c-mb-other", {NAME: "a", UID: "u"}, False),
    ],
)
def test_a_mailbox_is_known_by_its_name_and_its_marks(name: str, annotations: dict[str, str], expected: bool) -> None:
    assert is_mailbox({"metadata": {"name": name, "annotations": annotations}}) is expected
    assert mailbox_name("c", "u") == "c-mb-u"


def placement(**status: object) -> Object:
    return {"metadata": {"name": "p", "generation": 3}, "status": status}


def test_a_status_says_why_a_placement_goes_nowhere_and_keeps_what_others_say() -> None:
    status = placement_status(placement(objectCount=7, destinations={"failing": 1}), Resolution((), 0), [])
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "NoLocations")
    assert (status["objectCount"], status["destinations"]) == (7, {"failing": 1, "total": 0})
    assert (status["specGeneration"], status["matchingLocationCount"]) == (3, 0)
    (condition,) = placement_status(placement(), Resolution((), 1), ["spec.downsync[0]: wrong"])["conditions"]
    assert (condition["reason"], condition["message"]) == ("Invalid", "spec.downsync[0]: wrong")


def test_destinations_in_inventories_that_are_not_read_stay_once() -> None:
    a, b, other = Destination("c", "l1", "t", "u"), Destination("d", "l", "t", "u"), Destination("d", "l9", "t", "u")
    assert with_unread((b,), [a]) == (a, b)
    assert with_unread((b,), [other]) == (b,)


def test_a_status_that_holds_is_the_same_again() -> None:
    found = Resolution((), 1)
    status = placement_status(placement(), found, [])
    assert [each["status"] for each in status["conditions"]] == ["True"]
    assert placement_status(placement(**status), found, []) == status


class Reviewing:
    """A view whose reviews answer in turn."""

    def __init__(self, *answers: Object | Exception) -> None:
        self.answers, self.reviews = list(answers), list[Object]()

    def client(self, cluster: str) -> Reviewing | None:
        return self if cluster == "c" else None

    async def create(self, resource: object, review: Object) -> Object:
        self.reviews.append(review)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"status": answer}


def at(cluster: str, name: str = "l") -> Location:
    return Location(cluster, name, {}, compile_label_selector({}))


def test_a_review_is_remembered_until_the_workspace_changes_and_all_but_yes_is_no() -> None:
    refused = {"allowed": True, "denied": True}
    view = Reviewing({"allowed": True}, refused, refused, {}, {}, Forbidden("no"), Forbidden("no"))
    changed: list[str] = []
    access = LocationAccess(view, changed.append)  # type: ignore[arg-type]

    async def answers() -> list[bool]:
        found = [
            await access.allows(at("c"), "w"),
            await access.allows(at("c"), "w"),
            await access.allows(at("d"), "w"),
        ]
        for cluster in ("c", "*", "c"):
            access.changed(cluster)
            found.append(await access.allows(at("c"), "w"))
        return found

    assert asyncio.run(answers()) == [True, True, False, False, False, False]
    assert view.reviews[0]["spec"]["groups"] == ["system:cluster:w", "system:authenticated"]
    assert (len(view.reviews), changed) == (7, ["c", "*", "c"])


def test_who_may_use_all_locations_is_reviewed_once_and_who_may_use_some_for_each() -> None:
    names = "abc"
    view = Reviewing({"allowed": True}, {}, {}, {"allowed": True}, {})
    access = LocationAccess(view, lambda _: None)  # type: ignore[arg-type]

    async def answers() -> list[bool]:
        return [await access.allows(at("c", name), "w") for name in names]

    assert asyncio.run(answers()) == [True, True, True]
    access.changed("c")
    assert asyncio.run(answers()) == [False, True, False]
    reviewed = [each["spec"]["resourceAttributes"]["name"] for each in view.reviews]
    assert reviewed == ["", "", "a", "b", "c"]


def test_of_more_workspaces_that_change_than_are_told_apart_answers_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("atoll.edge.location_access.MAX_CHANGES", 2)
    view = Reviewing(*[{"allowed": True}] * 9)
    access = LocationAccess(view, lambda _: None)  # type: ignore[arg-type]

    async def reviews(*changed: str) -> int:
        """Number of reviews for a workspace after changes of others."""
        for each in changed:
            access.changed(each)
        await access.allows(at("c"), "w")
        return len(view.reviews)

    async def run() -> list[int]:
        return [await reviews(*each) for each in ("", "x", "y", "xy", "z", "c", "", "xyz", "")]

    assert asyncio.run(run()) == [1, 1, 1, 1, 2, 3, 3, 4, 4]


def test_a_shard_that_does_not_answer_is_neither_yes_nor_no() -> None:
    access = LocationAccess(Reviewing(ServiceUnavailable("later")), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(ServiceUnavailable):
        asyncio.run(access.allows(at("c"), "w"))
