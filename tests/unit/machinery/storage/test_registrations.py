"""Watchers that a commit wakes: by type, cluster, namespace, name and label, and no others."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.storage.contract import EVERYTHING, Change, Interest, Operation, Scope
from atoll.machinery.storage.watching.hub import Hub
from harness.data.stores import CONFIGMAPS

RED, BLUE = Interest(label=("colour", "red")), Interest(label=("colour", "blue"))


class Woken:
    """A watcher that counts how often it was woken."""

    def __init__(self) -> None:
        self.times = 0

    def wake(self, nothing_before: int) -> None:
        self.times += 1

    def mark(self, nothing_before: int) -> None:
        raise AssertionError("one watcher is no crowd")

    def nudge(self) -> None:
        raise AssertionError("one watcher is no crowd")


def image(**labels: str) -> bytes:
    return encode_json({"metadata": {"name": "a", "labels": labels}})


def changed(before: bytes | None, after: bytes, *, cluster: str = "c", namespace: str = "n") -> Change:
    key = ObjectKey(CONFIGMAPS, cluster, namespace, "a")
    return Change(7, Operation.MODIFIED if before else Operation.ADDED, key, before, after)


@pytest.mark.parametrize(
    ("scope", "interest", "woken"),
    [
        (Scope(CONFIGMAPS, "c"), EVERYTHING, True),
        (Scope(CONFIGMAPS), EVERYTHING, True),
        (Scope(CONFIGMAPS, "c", "n"), EVERYTHING, True),
        (Scope(CONFIGMAPS, "", "n"), EVERYTHING, True),
        (Scope(CONFIGMAPS, "c", "other"), EVERYTHING, False),
        (Scope(CONFIGMAPS, "", "other"), EVERYTHING, False),
        (Scope(CONFIGMAPS, "other"), EVERYTHING, False),
        (Scope(SECRETS, "c"), EVERYTHING, False),
        (Scope(CONFIGMAPS, "c"), Interest(name="a"), True),
        (Scope(CONFIGMAPS, "c"), Interest(name="b"), False),
        (Scope(CONFIGMAPS, "c", "n"), Interest(name="a"), True),
        (Scope(CONFIGMAPS, "c", "other"), Interest(name="a"), False),
        (Scope(CONFIGMAPS, "c"), RED, True),
        (Scope(CONFIGMAPS, "", "n"), RED, True),
        (Scope(CONFIGMAPS, "c"), BLUE, False),
        (Scope(CONFIGMAPS, "c", "other"), RED, False),
        (Scope(CONFIGMAPS, "c"), Interest(label=("red", "colour")), False),
    ],
)
def test_a_watcher_is_woken_by_what_it_asked_for_alone(scope: Scope, interest: Interest, woken: bool) -> None:
    hub, watcher = Hub(5, 1 << 20), Woken()
    hub.register(scope, watcher, interest)
    hub.publish([changed(None, image(colour="red"))], 7)
    assert watcher.times == int(woken)


def test_who_loses_an_object_from_its_selector_is_woken_as_who_gains_it() -> None:
    hub, red, blue, green = Hub(5, 1 << 20), Woken(), Woken(), Woken()
    for watcher, interest in ((red, RED), (blue, BLUE), (green, Interest(label=("colour", "green")))):
        hub.register(Scope(CONFIGMAPS, "c"), watcher, interest)
    hub.publish([changed(image(colour="red"), image(colour="blue"))], 7)
    assert (red.times, blue.times, green.times) == (1, 1, 0)


def test_one_commit_wakes_a_watcher_once() -> None:
    hub, watcher = Hub(5, 1 << 20), Woken()
    hub.register(Scope(CONFIGMAPS, "c"), watcher)
    hub.publish([changed(None, image()), changed(None, image())], 8)
    assert watcher.times == 1


def test_who_left_is_not_woken_and_nothing_of_it_stays() -> None:
    hub, watcher = Hub(5, 1 << 20), Woken()
    for interest in (EVERYTHING, RED, Interest(name="a")):
        hub.register(Scope(CONFIGMAPS, "c", "n"), watcher, interest)
    assert hub.watchers == 3
    for interest in (EVERYTHING, RED, Interest(name="a"), RED):
        hub.unregister(Scope(CONFIGMAPS, "c", "n"), watcher, interest)
    hub.publish([changed(None, image(colour="red"))], 7)
    assert (watcher.times, hub.watchers) == (0, 0)
