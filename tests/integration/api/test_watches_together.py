"""Watches that run together share what they read and send; each receives its own events, in its own form."""

from __future__ import annotations

from contextlib import ExitStack

from harness.clients.api import PARTIAL, TABLE, Api, Event, configmap, crd, define, eventually

DEFAULT, OTHER = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/other/configmaps"
#: Of each watch of this test, two run: the second receives what the first has encoded.
TWICE = 2


def _summary(event: Event) -> tuple[str, str, str, bool]:
    """The type, kind and name of an event, and whether its object is whole."""
    obj = event.object
    if obj["kind"] == "Table":
        return event.type, "Table", str(obj["rows"][0]["cells"][0]), False
    return event.type, str(obj["kind"]), str(obj["metadata"]["name"]), "data" in obj


def test_each_of_many_watches_receives_its_own_events_in_its_own_form(api: Api) -> None:
    api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    eventually(
        lambda: any(each["metadata"]["namespace"] == "other" for each in api.get("/api/v1/configmaps").json["items"])
    )
    since = str(api.get("/api/v1/configmaps").json["metadata"]["resourceVersion"])
    every, here = "/api/v1/configmaps", DEFAULT
    watches = [
        (every, "", ""),
        (here, "", ""),
        (OTHER, "", ""),
        (here, "&fieldSelector=metadata.name%3Da", ""),
        (here, "&fieldSelector=metadata.name%3Db", ""),
        (here, "&labelSelector=w", ""),
        (every, "", TABLE),
        (here, "", TABLE),
        (every, "", PARTIAL),
        (here, "", PARTIAL),
    ]
    added = ["a", "b", "c", "d"]
    with ExitStack() as stack:
        opened = [
            (watch, stack.enter_context(api.watch(f"{watch[0]}?watch=1&resourceVersion={since}{watch[1]}", watch[2])))
            for watch in watches * TWICE
        ]
        for name in added:
            api.post(DEFAULT, configmap(name, {"k": name}, labels={"w": "yes"} if name in "bd" else {}))
            api.post(OTHER, configmap(f"other-{name}", {"k": name}))
        for (path, selector, accept), events in opened:
            names = [name for pair in added for name in (pair, f"other-{pair}")]
            if path == here:
                names = added
            elif path == OTHER:
                names = [name for name in names if name.startswith("other-")]
            if "labelSelector" in selector:
                names = ["b", "d"]
            elif selector:
                names = [selector[-1]]
            kind = {TABLE: "Table", PARTIAL: "PartialObjectMetadata"}.get(accept, "ConfigMap")
            found = [_summary(event) for event in events.take(len(names))]
            assert found == [("ADDED", kind, name, kind == "ConfigMap") for name in names]


def test_watches_of_two_versions_of_a_kind_receive_their_own(api: Api) -> None:
    definition = crd("circles")
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"] = [version, {**version, "name": "v2", "storage": False}]
    define(api, definition)
    where = "/apis/shapes.example.com/{}/namespaces/default/circles"
    with ExitStack() as stack:
        opened = [
            (version, stack.enter_context(api.watch(where.format(version) + "?watch=1")))
            for version in ("v1", "v2", "v1", "v2")
        ]
        for name in ("a", "b"):
            body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}}
            api.post(where.format("v1"), body)
            for version, events in opened:
                assert events.next().object["apiVersion"] == f"shapes.example.com/{version}"


def test_a_watch_that_reads_late_receives_all_that_others_received_before(api: Api) -> None:
    since = str(api.get(DEFAULT).json["metadata"]["resourceVersion"])
    path = f"{DEFAULT}?watch=1&resourceVersion={since}"
    api.post(DEFAULT, configmap("a", {}))
    with api.watch(path) as late, api.watch(path) as prompt:
        made = []
        for number in range(12):
            changed = api.patch(f"{DEFAULT}/a", {"data": {"k": str(number) + "y" * 900_000}})
            made.append(int(changed.json["metadata"]["resourceVersion"]))
            assert prompt.take(2 if number == 0 else 1)[-1].revision == made[-1]
        assert [event.revision for event in late.take(13)][1:] == made
