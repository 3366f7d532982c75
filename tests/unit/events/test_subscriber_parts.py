"""The parts of a subscriber that do no I/O: the order of messages, what is known, and the check of its chain."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.events import Event, subscribe
from atoll.events.gap_check import EventAction, SubscriptionCheck
from atoll.events.subscriber import last_states
from atoll.events.subscriber.last_states import LastStates
from atoll.events.subscriber.stream_queue import StreamQueue
from atoll.events.subscriber.subscription_api import Listed
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.events import Event as WireEvent
from atoll.machinery.stream.publisher.log_events import from_entry
from harness.models.shard_log import CONFIGMAPS, SECRETS, ShardLog

MESSAGE: Any = object()
A, B, C = (ObjectKey(CONFIGMAPS, "2x9k", "default", name) for name in "abc")


def taken(queue: StreamQueue, now_s: float = 0.0) -> list[int]:
    found = []
    while (item := queue.take(now_s)) is not None:
        found.append(item[0])
    return found


def test_messages_are_handed_out_in_the_order_of_their_stream_and_once() -> None:
    queue = StreamQueue()
    for sequence in (3, 1, 2, 1, 3):
        queue.add(sequence, MESSAGE)
    assert taken(queue) == [1, 2, 3]
    queue.add(2, MESSAGE)
    assert taken(queue) == [], "it is out already"
    queue.done(2)
    queue.add(2, MESSAGE)
    assert taken(queue) == [2], "the acknowledgement was lost"


def test_later_messages_wait_for_those_that_were_on_their_way() -> None:
    queue = StreamQueue()
    queue.add(4, MESSAGE)
    assert taken(queue) == [4]
    queue.expect(3, 6, until_s=10.0)
    queue.add(7, MESSAGE)
    assert (taken(queue), queue.wait_s(4.0)) == ([], 6.0)
    queue.add(6, MESSAGE)
    assert taken(queue) == []
    queue.add(5, MESSAGE)
    assert (taken(queue), queue.wait_s(4.0)) == ([5, 6, 7], 0.0)


def test_what_does_not_come_again_is_not_awaited_for_ever() -> None:
    queue = StreamQueue()
    queue.expect(1, 6, until_s=10.0)
    queue.add(7, MESSAGE)
    assert taken(queue, 9.9) == []
    assert taken(queue, 10.0) == [7]


def listed(revision: int, **objects: int) -> Listed:
    keys = {key.name: key for key in (A, B, C)}
    return Listed(revision, {keys[name]: (at, f"{name}{at}".encode()) for name, at in objects.items()})


def test_a_list_leads_from_what_is_known_to_what_is_there() -> None:
    states = LastStates(images=True)
    other = ObjectKey(SECRETS, "2x9k", "default", "s")
    states.tell(Event("ADDED", 3, "", other, b"s3"))
    states.image(listed(5, a=4, b=5))
    found = list(states.differences(listed(9, b=7, c=8), CONFIGMAPS))
    assert [(each.operation, each.key, each.revision, each.payload, each.before) for each in found] == [
        ("DELETED", A, 9, b"a4", b"a4"),
        ("MODIFIED", B, 7, b"b7", b"b5"),
        ("ADDED", C, 8, b"c8", b""),
    ]
    assert not list(states.differences(listed(9, b=7, c=8), CONFIGMAPS))
    assert states.before(other, 4) == b"s3"


def test_an_image_that_is_not_older_than_a_change_is_none_from_before_it() -> None:
    states = LastStates(images=True)
    states.image(listed(5, a=5))
    assert (states.before(A, 5), states.before(A, 6)) == (b"", b"a5")
    assert LastStates(images=False).before(A, 6) == b""


def test_what_is_known_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_states, "_MAX_BYTES", 5)
    states = LastStates(images=True)
    for number, key in enumerate((A, B, A, C)):
        states.tell(Event("ADDED", number + 1, "", key, b"xy"))
    assert [states.before(key, 9) for key in (A, B, C)] == [b"xy", b"", b"xy"]
    states.tell(Event("DELETED", 9, "", A))
    assert states._bytes == 2


def written(*keys: ObjectKey) -> list[WireEvent]:
    log = ShardLog()
    return [from_entry("changes", log.identity, log.put(key)) for key in keys]


def test_the_first_event_of_a_subject_follows_what_was_committed_before_the_subscriber_was_heard() -> None:
    one, two, three = written(A, A, A)
    assert SubscriptionCheck(one.revision, "", full=True).check(two.subject, two) is EventAction.APPLY
    assert SubscriptionCheck(one.revision, "", full=True).check(three.subject, three) is Gap.MISSING
    assert SubscriptionCheck(three.revision, "", full=True).check(one.subject, one) is EventAction.APPLY


def test_what_a_list_had_is_dropped_and_what_follows_it_is_applied() -> None:
    one, two, three = written(A, A, A)
    check = SubscriptionCheck(0, "", full=True)
    check.listed([one.subject], two.revision)
    assert [check.check(each.subject, each) for each in (one, two, three)] == [
        EventAction.DROP,
        EventAction.DROP,
        EventAction.APPLY,
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Not_A_Label"},
        {"resources": []},
        {"resources": ["*"]},
        {"since": "yesterday"},
        {"identity": "short"},
        {"previous": True},
        {"cluster": ""},
        {"url": "ftp://nowhere"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_mistake_in_the_arguments_raises_at_the_call(wrong: dict[str, Any]) -> None:
    good = {"url": "https://localhost", "cluster": "root", "resources": ["secrets"], "name": "copy", "token": "t"}
    subscribe(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        subscribe(**{**good, **wrong})
