"""Events: two API groups with the same stored objects."""

import pytest

from atoll.machinery.kinds.core.events import EVENTS
from atoll.machinery.kinds.events.events import EVENTS_V1, from_stored, to_stored
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time
from harness.models.native_write import NOW, accepted, create, refused, sample, update

MICRO = "2026-01-02T03:04:05.000000Z"
INVOLVED = {"kind": "ConfigMap", "name": "c", "namespace": "n", "fieldPath": "data"}
SERIES = {"count": 2, "lastObservedTime": MICRO}


def new_event(**content: object) -> Object:
    base: Object = {
        "eventTime": MICRO,
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Do",
        "reason": "Why",
        "type": "Normal",
        "regarding": INVOLVED,
        "note": "hello",
    }
    return sample(EVENTS_V1, **{**base, **content})


def old_event(**content: object) -> Object:
    return sample(EVENTS, **{"involvedObject": INVOLVED, **content})


def test_old_clients_may_leave_nearly_everything_out() -> None:
    accepted(EVENTS, old_event())
    accepted(EVENTS, old_event(count=3, firstTimestamp=NOW, lastTimestamp=None, source={"component": "k"}))


def test_an_event_without_an_object_is_taken_in_the_default_namespace() -> None:
    obj = sample(EVENTS)
    obj["metadata"]["namespace"] = "default"
    assert accepted(EVENTS, obj)["involvedObject"] == {}


def test_an_event_lives_in_the_namespace_of_its_object() -> None:
    assert refused(EVENTS, old_event(involvedObject={**INVOLVED, "namespace": "other"})) == [
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    ]
    assert refused(EVENTS, old_event(involvedObject={}))


def test_a_core_event_with_an_event_time_is_checked_strictly() -> None:
    errors = refused(EVENTS, old_event(eventTime=MICRO))
    assert "reportingComponent: Required value" in errors
    assert "action: Required value" in errors
    accepted(EVENTS, old_event(eventTime=MICRO, reportingComponent="c", reportingInstance="i", action="a", reason="r"))


def test_a_new_event_is_stored_in_the_core_form() -> None:
    stored = to_stored(accepted(EVENTS_V1, new_event(series=SERIES)))
    assert stored["apiVersion"] == "v1"
    assert stored["involvedObject"] == INVOLVED
    assert stored["message"] == "hello"
    assert stored["reportingComponent"] == "example.com/c"
    assert stored["series"] == SERIES
    assert EVENTS.field_labels["involvedObject.name"](stored) == "c"


def test_a_core_event_is_seen_through_the_new_group() -> None:
    seen = from_stored(accepted(EVENTS, old_event(count=3, message="m", source={"component": "k"}, firstTimestamp=NOW)))
    assert seen["apiVersion"] == "events.k8s.io/v1"
    assert (seen["regarding"], seen["note"], seen["deprecatedCount"]) == (INVOLVED, "m", 3)
    assert (seen["deprecatedSource"], seen["deprecatedFirstTimestamp"]) == ({"component": "k"}, NOW)
    assert EVENTS_V1.field_labels["regarding.fieldPath"](seen) == "data"
    assert EVENTS_V1.field_labels["source"](seen) == "k"


@pytest.mark.parametrize("name", ["reportingController", "reportingInstance", "action", "reason"])
def test_a_new_event_says_who_did_what_and_why(name: str) -> None:
    assert f"{name}: Required value" in refused(EVENTS_V1, new_event(**{name: ""}))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"type": "Odd"}, 'type: Invalid value: "": has invalid value: Odd'),
        ({"deprecatedCount": 1}, 'count: Invalid value: "": needs to be unset'),
        ({"deprecatedFirstTimestamp": NOW}, 'firstTimestamp: Invalid value: "": needs to be unset'),
        ({"deprecatedSource": {"host": "h"}}, 'source: Invalid value: "": needs to be unset'),
        ({"series": {**SERIES, "count": 1}}, 'series.count: Invalid value: "": should be at least 2'),
        ({"action": "x" * 129}, 'action: Invalid value: "": can have at most 128 characters'),
        ({"note": "x" * 1025}, 'message: Invalid value: "": can have at most 1024 characters'),
        ({"regarding": {"kind": "X"}}, 'involvedObject.namespace: Invalid value: "": does not match event.namespace'),
    ],
)
def test_a_new_event_is_checked_strictly(content: Object, error: str) -> None:
    assert refused(EVENTS_V1, new_event(**content)) == [error]


def test_a_new_event_has_a_time() -> None:
    event = new_event()
    del event["eventTime"]
    event["metadata"]["namespace"] = event["regarding"]["namespace"]
    assert refused(EVENTS_V1, event) == ["eventTime: Required value"]
    assert refused(EVENTS_V1, new_event(series={"count": 2})) == ["series.lastObservedTime: Required value"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reason": "Other"}, "reason"),
        ({"note": "other"}, "message"),
        ({"regarding": {**INVOLVED, "name": "d"}}, "involvedObject"),
        ({"reportingController": "example.com/d"}, "reportingController"),
        ({"eventTime": "2026-01-02T03:04:06.000000Z"}, "eventTime"),
    ],
)
def test_only_the_series_of_a_new_event_goes_on(change: Object, field: str) -> None:
    old = accepted(EVENTS_V1, new_event())
    _, errors = update(EVENTS_V1, {**old, **change}, old)
    assert [error.partition(":")[0] for error in errors] == [field]
    assert errors[0].endswith("field is immutable")
    assert update(EVENTS_V1, {**old, "series": SERIES}, old)[1] == []
    assert update(EVENTS_V1, {**old, "series": {**SERIES, "count": 1}}, old)[1] != []


def test_a_core_event_may_change_freely() -> None:
    old = accepted(EVENTS, old_event(count=1))
    assert update(EVENTS, {**old, "count": 2, "message": "again"}, old)[1] == []


def test_events_show_when_they_were_seen() -> None:
    now_s = parse_time(NOW)
    assert now_s is not None
    assert EVENTS.cells is not None
    assert EVENTS_V1.cells is not None
    core = old_event(
        type="Warning",
        reason="Why",
        message=" m \n",
        firstTimestamp=NOW,
        count=0,
        source={"component": "k", "host": "h"},
    )
    assert EVENTS.cells(core, now_s + 5) == ["5s", "Warning", "Why", "configmap/c", "data", "k, h", "m", "5s", 1, "x"]
    later = {"count": 7, "lastObservedTime": "2026-01-02T03:04:07.000000Z"}
    assert EVENTS_V1.cells(new_event(series=later), now_s + 5) == [
        "3s",
        "Normal",
        "Why",
        "configmap/c",
        "data",
        "example.com/c, i",
        "hello",
        "5s",
        7,
        "x",
    ]
    assert EVENTS.cells(old_event(involvedObject={"kind": "Node"}), now_s)[:4] == ["<unknown>", "", "", "node"]


def test_an_event_of_a_wrong_shape_is_refused() -> None:
    assert create(EVENTS, old_event(involvedObject="x", series=5))[1]
