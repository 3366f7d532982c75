"""What is wrong at the edge is told once it lasts, of what is wanted, and no longer than it lasts."""

from __future__ import annotations

from typing import Any, cast

import pytest

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.syncer import soundness
from atoll.syncer.soundness import Soundness

NAMESPACE, OBJECT = ObjectRef("", "namespaces", "", "a"), ObjectRef("", "configmaps", "a", "x")
GOING: Object = {"metadata": {"deletionTimestamp": "t"}}
ACTIVE: Object = {"metadata": {}}


class Places:
    """A mailbox and an edge cluster: what is listed, and what is there."""

    def __init__(self) -> None:
        self.listed = {NAMESPACE, OBJECT}
        self.live: dict[ObjectRef, Object] = {}

    @property
    def carried(self) -> Places:
        return self

    def lists(self, ref: ObjectRef) -> bool:
        return ref in self.listed

    def has(self, ref: ObjectRef) -> bool:
        return ref in self.listed

    def get(self, ref: ObjectRef) -> Object | None:
        return self.live.get(ref)


@pytest.fixture
def places() -> Places:
    return Places()


@pytest.fixture
def found(places: Places, monkeypatch: pytest.MonkeyPatch) -> Soundness:
    monkeypatch.setattr(soundness, "HOLD_S", 0.0)
    return Soundness(cast(Any, places), cast(Any, places))


def reasons(found: Soundness) -> dict[ObjectRef, str]:
    return {ref: each.reason for ref, each in found.failures.items()}


def look(found: Soundness, places: Places, ref: ObjectRef, live: Object | None) -> None:
    places.live.pop(ref, None)
    if live is not None:
        places.live[ref] = live
    found.look(ref, live)


def test_what_lasts_is_told_and_what_is_short_is_not(
    found: Soundness, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(found, places, NAMESPACE, GOING)
    assert reasons(found) == {NAMESPACE: "Terminating"}
    monkeypatch.setattr(soundness, "HOLD_S", 1000.0)
    assert reasons(found) == {}
    monkeypatch.setattr(soundness, "HOLD_S", 0.0)
    look(found, places, NAMESPACE, ACTIVE)
    assert reasons(found) == {}


def test_an_object_that_waits_is_missing_until_it_waits_no_more(found: Soundness, places: Places) -> None:
    found.waits(OBJECT, NAMESPACE)
    assert reasons(found) == {OBJECT: "Missing"}
    found.look(OBJECT, None)
    assert reasons(found) == {OBJECT: "Missing"}
    found.arrived(OBJECT)
    assert reasons(found) == {}


def test_an_object_that_is_there_is_not_missing_while_its_update_waits(found: Soundness, places: Places) -> None:
    places.live[OBJECT] = ACTIVE
    found.waits(OBJECT, NAMESPACE)
    assert reasons(found) == {}


def test_what_is_not_wanted_is_not_told_and_what_is_gone_is_forgotten(found: Soundness, places: Places) -> None:
    look(found, places, NAMESPACE, GOING)
    found.waits(OBJECT, NAMESPACE)
    places.listed.clear()
    assert reasons(found) == {}
    places.listed.add(NAMESPACE)
    assert reasons(found) == {NAMESPACE: "Terminating"}
    look(found, places, NAMESPACE, None)
    assert reasons(found) == {}
    places.listed.add(OBJECT)
    assert reasons(found) == {}
