"""The property that is made once for each object holds no other object up while it is made."""

from __future__ import annotations

import threading

from atoll.machinery.meta.cached_property import cached_property

WAIT_S = 30.0


class Held:
    """Its value waits for `go`, if it has one."""

    def __init__(self, go: threading.Event | None = None) -> None:
        self.begun, self.go, self.made = threading.Event(), go, 0

    @cached_property
    def value(self) -> int:
        """A number."""
        self.begun.set()
        if self.go is not None:
            assert self.go.wait(WAIT_S)
        self.made += 1
        return self.made


def test_it_is_made_once_for_each_object() -> None:
    one, other = Held(), Held()
    assert (one.value, one.value, other.value) == (1, 1, 1)
    assert Held.value.__doc__ == "A number."


def test_no_object_waits_for_the_value_of_another() -> None:
    go, other = threading.Event(), Held()
    held = Held(go)
    first = threading.Thread(target=lambda: held.value)
    second = threading.Thread(target=lambda: other.value, daemon=True)
    first.start()
    assert held.begun.wait(WAIT_S)
    second.start()
    try:
        assert other.begun.wait(WAIT_S / 6), "it waits for the other"
    finally:
        go.set()
        first.join(WAIT_S)
        second.join(WAIT_S)
    assert (held.value, other.value) == (1, 1)
