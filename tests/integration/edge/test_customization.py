"""Objects are customized for each destination, and rendered anew when what they depend on changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.servers.edge_service import GROUP, an_object
from integration.edge.placed import (
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    LOCATIONS,
    condition,
    data,
    inventory,
    is_projected,
    listed,
    mailboxes,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

EXPAND = {"edge.kubestellar.io/expand-parameters": "true"}
CUSTOMIZERS = f"{GROUP}/namespaces/default/customizers"
EVENTS = "/api/v1/namespaces/default/events"


def customizer(name: str, *rows: tuple[str, str], **annotations: str) -> Object:
    replacements = [{"path": path, "value": value} for path, value in rows]
    head = an_object("Customizer", name)
    return {**head, "metadata": {"name": name, "annotations": annotations}, "replacements": replacements}


def customized_by(name: str, content: Object, **annotations: str) -> Object:
    return configmap("page", content, annotations={"edge.kubestellar.io/customizer": name, **annotations})


def warnings(api: Api, reason: str) -> list[tuple[str, str]]:
    """Names of objects and messages of Events."""
    found = [each for each in api.get(EVENTS).json["items"] if each["reason"] == reason]
    return [(each["involvedObject"]["name"], each["message"]) for each in found]


@pytest.fixture
def labelled(inventory: Api) -> Iterator[Api]:
    """The inventory, whose Locations are as they were afterwards."""
    yield inventory
    for name in ("one", "two"):
        inventory.patch(f"{LOCATIONS}/{name}", {"metadata": {"labels": {"town": None}, "annotations": {"mayor": None}}})


def page(box: Api) -> object:
    return data(box, f"{CONFIGMAPS}/page")


def revision(box: Api, name: str) -> str:
    return str(box.get(f"{CONFIGMAPS}/{name}").json["metadata"]["resourceVersion"])


def test_two_destinations_have_their_own_rendering_which_follows_locations_and_customizers(
    workload: Api, mailboxes: dict[str, Api], labelled: Api
) -> None:
    one, two = mailboxes["one"], mailboxes["two"]
    labelled.patch(f"{LOCATIONS}/one", {"metadata": {"labels": {"town": "Delft"}}})
    labelled.patch(f"{LOCATIONS}/two", {"metadata": {"annotations": {"town": "Gent", "mayor": "An"}}})
    workload.post(CUSTOMIZERS, customizer("rules", ("$.data.env", '"env is %(env)"'), **EXPAND))
    workload.post(CONFIGMAPS, customized_by("rules", {"k": "In %(town), 100%%."}, **EXPAND))
    workload.post(CONFIGMAPS, configmap("plain", {"k": "%(town)"}))
    place(workload, "p", {"fleet": "all"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: page(one) == {"k": "In Delft, 100%.", "env": "env is one"}, "the rendering of one")
    eventually(lambda: page(two) == {"k": "In Gent, 100%.", "env": "env is two"}, "the rendering of two")
    eventually(lambda: data(one, f"{CONFIGMAPS}/plain") == {"k": "%(town)"}, "what does not ask is as it is")
    eventually(lambda: is_projected(workload, "p"), "all is there")
    before = revision(one, "plain"), revision(two, "plain"), revision(two, "page")
    labelled.patch(f"{LOCATIONS}/one", {"metadata": {"labels": {"town": "Leiden"}}})
    eventually(lambda: page(one) == {"k": "In Leiden, 100%.", "env": "env is one"}, "a label of its Location")
    assert (revision(one, "plain"), revision(two, "plain"), revision(two, "page")) == before, "and nothing else"
    labelled.patch(f"{LOCATIONS}/two", {"metadata": {"annotations": {"town": "Brugge"}}})
    eventually(lambda: page(two) == {"k": "In Brugge, 100%.", "env": "env is two"}, "an annotation")
    workload.patch(f"{CUSTOMIZERS}/rules", {"replacements": [{"path": "$.data.env", "value": '"%(env)"'}]})
    for name, town in (("one", "Leiden"), ("two", "Brugge")):
        wanted = {"k": f"In {town}, 100%.", "env": name}
        eventually(partial(lambda box, text: page(box) == text, mailboxes[name], wanted), "an edit of the Customizer")
    workload.patch(f"{CONFIGMAPS}/page", {"data": {"k": "%(mayor)"}})
    eventually(lambda: page(two) == {"k": "An", "env": "two"}, "a parameter")
    eventually(lambda: page(one) == {"k": "%(mayor)", "env": "one"}, "one that is not defined stays as it is written")
    events = [("page", "not defined by a Location: mayor")]
    eventually(lambda: warnings(workload, "UndefinedParameter") == events, "with a warning")
    eventually(lambda: is_projected(workload, "p"), "the condition")


@pytest.mark.long
def test_what_cannot_be_rendered_stays_as_it_was_and_is_told_with_its_line(
    workload: Api, mailboxes: dict[str, Api]
) -> None:
    box, failed = mailboxes["one"], "CustomizationFailed"
    workload.post(CONFIGMAPS, customized_by("later", {"k": "1"}))
    workload.post(CONFIGMAPS, configmap("plain", {"k": "1"}))
    place(workload, "p", {"env": "one"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: data(box, f"{CONFIGMAPS}/plain") == {"k": "1"}, "the rest is sent")
    text = "Customizer default/later is not there"
    eventually(lambda: warnings(workload, failed) == [("page", text)], "the Event")
    eventually(lambda: condition(workload, "p").get("reason") == "ObjectsRefused", "the condition")
    assert condition(workload, "p")["message"] == f"configmaps default/page: {failed}: {text}"
    assert page(box) is None, "what was never rendered is not sent"
    workload.post(CUSTOMIZERS, customizer("later", ("$.data.k", '"new"')))
    eventually(lambda: page(box) == {"k": "new"}, "a Customizer that comes")
    eventually(lambda: is_projected(workload, "p"), "the condition")
    workload.patch(f"{CUSTOMIZERS}/later", {"replacements": [{"path": "$.data.k", "value": "new"}]})
    line = "Customizer default/later: replacements[0].value: is no JSON"
    eventually(lambda: line in condition(workload, "p").get("message", ""), "a value that is no JSON")
    eventually(lambda: any(line in message for _, message in warnings(workload, failed)), "the Event")
    assert page(box) == {"k": "new"}, "the last good rendering stays"
    names = listed(box)["namespacedObjects"][0]["objectsByNamespace"]
    assert names == [{"namespace": "default", "names": ["page", "plain"]}], "and is listed"
    workload.patch(f"{CUSTOMIZERS}/later", {"replacements": [{"path": "$.data.k", "value": "7"}]})
    eventually(lambda: len(warnings(workload, "CustomizedObjectRefused")) == 1, "what the mailbox refuses is told too")
    assert page(box) == {"k": "new"}
    workload.delete(f"{CUSTOMIZERS}/later")
    eventually(lambda: condition(workload, "p").get("message", "").endswith(text), "a Customizer that goes")
    assert page(box) == {"k": "new"}
    workload.patch(f"{CONFIGMAPS}/page", {"metadata": {"annotations": {"edge.kubestellar.io/customizer": None}}})
    eventually(lambda: page(box) == {"k": "1"}, "the object does not ask for one any more")
    refused = workload.send("POST", CUSTOMIZERS, customizer("bad", ("$.a-b", "1")))
    assert refused.code == 422
