"""The room for copies in a mailbox: none beyond the bounds, and who was left out is asked again when there is some."""

from __future__ import annotations

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.upsync import Bounds
from atoll.syncer.room import Room


def ref(name: str) -> ObjectRef:
    return ObjectRef("", "configmaps", "logs", name)


def test_copies_that_are_up_count_before_their_sizes_are_known() -> None:
    room = Room(Bounds(objects=2))
    room.hold([ref("a"), ref("b")])
    assert not room.take(ref("c"), 1)
    assert room.take(ref("a"), 10)
    assert room.free(ref("b")) == [ref("c")]
    assert room.take(ref("c"), 1)


def test_a_copy_that_outgrows_the_bounds_keeps_what_it_had() -> None:
    room = Room(Bounds(size_bytes=100))
    assert room.take(ref("a"), 60)
    assert room.take(ref("b"), 40)
    assert not room.take(ref("b"), 41)
    assert not room.take(ref("c"), 1)
    assert room.take(ref("a"), 59)
    assert room.take(ref("c"), 1)


def test_all_that_was_left_out_is_asked_again_and_what_is_too_large_holds_up_no_other() -> None:
    room = Room(Bounds(size_bytes=100))
    assert room.take(ref("x"), 90)
    assert not any(room.take(ref(name), size) for name, size in (("large", 101), ("small", 20)))
    assert room.free(ref("unheard of")) == []
    assert room.free(ref("x")) == [ref("large"), ref("small")]
    assert not room.take(ref("large"), 101)
    assert room.take(ref("small"), 20)
    # Who does not want to come up any more waits for nothing.
    assert room.free(ref("large")) == []
    assert room.free(ref("small")) == []
