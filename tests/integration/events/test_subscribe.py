"""Subscribers over a real nats-server, at a service `events` with prepared answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from atoll.events import Event, Gone, Revoked
from atoll.events.subscriber import Subscriber
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Forbidden, NotFound
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.consumer.pull_consumer import stream_sequence
from atoll.machinery.stream.events import Operation
from atoll.machinery.stream.publisher.log_events import control, from_entry
from atoll.machinery.wire.exchange import Exchange
from harness.models.shard_log import CONFIGMAPS, ShardLog, Source
from harness.servers.stand_ins.canned_api import JSON
from harness.servers.stand_ins.events_service import CLUSTER, NAME, SERVICE, EventsService, events_service
from harness.tiers import every
from harness.waits import until

OTHER = ObjectKey(CONFIGMAPS, CLUSTER, "default", "other")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[EventsService]:
    async with events_service(tmp_path) as service:
        yield service


@pytest.fixture
async def thin_service(tmp_path: Path) -> AsyncIterator[EventsService]:
    async with events_service(tmp_path, full=False) as service:
        yield service


async def take(subscriber: Subscriber, count: int) -> list[Event]:
    """The next events; the last one is not acknowledged yet."""
    found = []
    async with asyncio.timeout(60):
        async for event in subscriber:
            found.append(event)
            if len(found) == count:
                break
    return found


def outline(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.operation, event.key.name if event.key else event.reason) for event in events]


async def test_each_change_comes_once_in_order_with_its_object(service: EventsService) -> None:
    await service.publish(service.put("a"), service.put("b"), service.put("a", data={"x": "1"}))
    async with service.subscriber() as events:
        first = await take(events, 3)
        await service.publish(service.log.delete(ObjectKey(CONFIGMAPS, CLUSTER, "default", "a")))
        last = await take(events, 1)
    assert outline(first + last) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [event.revision for event in first] == [entry.revision for entry in service.log.entries[:3]]
    assert (first[2].object or {})["data"] == {"x": "1"}
    await service.acknowledged()


async def test_a_thin_event_has_no_object_and_its_chain_is_checked(thin_service: EventsService) -> None:
    service = thin_service
    entries = [service.put("a"), service.put("a"), service.put("b")]
    await service.publish(entries[0])
    service.hold("a", "b")
    async with service.subscriber() as events:
        first = await take(events, 1)
        await service.publish(entries[2])
        rest = await take(events, 3)
    assert (outline(first), first[0].object) == ([("ADDED", "a")], None)
    assert outline(rest) == [
        ("RESYNC", "an earlier change on the same subject is missing"),
        ("MODIFIED", "a"),
        ("ADDED", "b"),
    ]
    assert {key.name for key in rest[0].keys or ()} == {"a", "b"}


async def test_an_event_whose_body_failed_comes_again_and_nothing_after_it_is_lost(service: EventsService) -> None:
    await service.publish(*(service.put(name) for name in "abcd"))
    with pytest.raises(RuntimeError, match="b failed"):
        async with service.subscriber() as events:
            async for event in events:
                if event.key is not None and event.key.name == "b":
                    raise RuntimeError("b failed")
    async with service.subscriber() as events:
        again = await take(events, 3)
    assert outline(again) == [("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d")]
    await service.acknowledged()


async def test_what_came_and_was_not_handed_out_is_given_back_once_no_request_would_take_it_again(
    service: EventsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event is handled, one waits for it in the queue, and one has just arrived, as the subscriber ends."""
    given_back, publish = [], Connection.publish

    async def recorded(connection: Connection, subject: str, payload: bytes, *rest: Any, **named: Any) -> None:
        if payload == b"-NAK":
            assert (await service.consumer())["num_waiting"] == 0
            given_back.append(stream_sequence(subject))
        await publish(connection, subject, payload, *rest, **named)

    async def sent() -> bool:
        return bool((await service.consumer())["delivered"]["stream_seq"] == 3)

    monkeypatch.setattr(Connection, "publish", recorded)
    await service.publish(service.put("a"), service.put("b"))
    async with service.subscriber() as events:
        await take(events, 1)
        await service.publish(service.put("c"))
        await until(sent, "all were sent")
    assert sorted(given_back) == [2, 3]
    async with service.subscriber() as events:
        assert outline(await take(events, 2)) == [("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.long
async def test_what_was_out_when_a_program_was_killed_comes_again_in_its_order(service: EventsService) -> None:
    """The events behind those that were out wait until these have come again."""
    await service.publish(*(service.put(name) for name in "abc"))
    killed = service.subscriber()
    await killed.__aenter__()
    assert outline(await take(killed, 1)) == [("ADDED", "a")]
    connection = killed._delivery._connection
    assert connection is not None
    await connection.close()
    await service.publish(service.put("d"))
    async with service.subscriber() as events:
        again = await take(events, 4)
    assert outline(again) == [("ADDED", name) for name in "abcd"]
    await killed._events.aclose()


@pytest.mark.long
async def test_it_goes_on_with_a_new_token_after_its_connection_was_ended(service: EventsService) -> None:
    service.nats.lifetime_s = 2
    await service.publish(service.put("a"))

    async def came_again() -> bool:
        return service.api.paths().count(f"POST {SERVICE}/token") >= 2

    async with service.subscriber() as events:
        assert outline(await take(events, 1)) == [("ADDED", "a")]
        reading = asyncio.create_task(take(events, 2))
        await until(came_again, "it came again with another token")
        service.nats.lifetime_s = 60
        await service.publish(service.put("b"), service.put("c"))
        assert outline(await reading) == [("ADDED", "b"), ("ADDED", "c")]


async def test_what_the_list_lacks_is_deleted_after_a_gap(service: EventsService) -> None:
    kept, lost = service.put("kept"), service.put("lost")
    await service.publish(kept, lost)
    async with service.subscriber() as events:
        await take(events, 2)
        service.log.delete(ObjectKey(CONFIGMAPS, CLUSTER, "default", "lost"))
        new = service.put("new")
        service.hold("kept", "new")
        await service.publish(new)
        rest = await take(events, 3)
        await service.publish(service.put("next"))
        rest += await take(events, 1)
    assert outline(rest)[1:] == [("DELETED", "lost"), ("ADDED", "new"), ("ADDED", "next")]
    assert rest[0].operation == "RESYNC"


@pytest.mark.parametrize("kind", ["resync", "damaged", "lineage"])
async def test_each_gap_leads_to_the_truth(kind: str, service: EventsService) -> None:
    await service.publish(service.put("a"))
    async with service.subscriber() as events:
        await take(events, 1)
        entry = service.put("b")
        service.hold("a", "b")
        event = from_entry("changes", service.log.identity, entry)
        if kind == "resync":
            event = control("changes", Operation.RESYNC, service.log.identity, entry.revision)
        elif kind == "damaged":
            event = from_entry("changes", service.log.identity, replace(entry, crc=7))
        else:
            event = from_entry("changes", Source(lineage="other"), entry)
        await service.send(event)
        rest = await take(events, 2)
    assert [each.operation for each in rest] == ["RESYNC", "ADDED"]
    assert rest[1].key is not None
    assert rest[1].key.name == "b"


async def test_a_stream_that_was_made_anew_is_one_resync_also_for_who_is_told_of_it_later(
    service: EventsService,
) -> None:
    """The first event of the new stream comes before the server is asked again, as after NATS lost its store."""
    await service.publish(service.put("a"))
    async with service.subscriber() as events:
        await take(events, 1)
        entry = service.put("b")
        service.hold("a", "b")
        service.created = "2026-11-27T01:00:00Z"
        service.tell()
        await service.send(control("changes", Operation.RESYNC, service.log.identity, entry.revision))
        rest = await take(events, 2)
        connection = events._delivery._connection
        assert connection is not None
        await connection.close()
        await service.publish(service.put("c"))
        rest += await take(events, 1)
    assert outline(rest)[1:] == [("ADDED", "b"), ("ADDED", "c")]
    assert rest[0].operation == "RESYNC"


async def test_a_fence_says_nothing_to_a_subscriber(service: EventsService) -> None:
    await service.publish(service.put("a"))
    await service.send(control("changes", Operation.FENCE, service.log.identity, service.log.entries[-1].revision))
    await service.publish(service.put("b"))
    async with service.subscriber() as events:
        assert outline(await take(events, 2)) == [("ADDED", "a"), ("ADDED", "b")]
    await service.acknowledged()


async def test_an_event_that_its_shard_did_not_sign_is_dropped(service: EventsService) -> None:
    await service.send(from_entry("changes", service.log.identity, ShardLog().put(OTHER)), signed=False)
    await service.publish(service.put("a"))
    async with service.subscriber() as events:
        assert outline(await take(events, 1)) == [("ADDED", "a")]


async def test_previous_images_are_known_from_the_beginning(service: EventsService) -> None:
    service.put("a", data={"x": "1"})
    service.hold("a")
    async with service.subscriber(previous=True) as events:
        await service.publish(service.put("a", data={"x": "2"}), service.put("a", data={"x": "3"}))
        two, three = await take(events, 2)
    assert [(each.object_before or {})["data"]["x"] for each in (two, three)] == ["1", "2"]


@pytest.mark.parametrize(("state", "error"), every(2, [("Revoked", Revoked), ("Gone", Gone)]))
async def test_a_lost_right_and_a_deleted_workspace_are_exceptions(
    state: str, error: type[Exception], service: EventsService
) -> None:
    service.nats.lifetime_s = 2
    await service.publish(service.put("a"))
    with pytest.raises(error, match="for a reason"):
        async with service.subscriber() as events:
            await take(events, 1)
            service.tell(state, "for a reason")
            await take(events, 1)
    with pytest.raises(error, match="for a reason"):
        async with service.subscriber():
            pass


async def test_a_refusal_of_the_subscription_is_the_servers_own_error(service: EventsService) -> None:
    service.api.on(f"POST {SERVICE}/subscriptions", Forbidden("configmaps: watch is needed in the whole cluster"))
    with pytest.raises(Forbidden, match="watch is needed"):
        async with service.subscriber():
            pass


async def test_a_subscription_that_was_deleted_is_gone(service: EventsService) -> None:
    async with service.subscriber() as events:
        service.api.on(f"GET {SERVICE}/subscriptions/{NAME}", NotFound("no such subscription"))
        with pytest.raises(Gone, match="no such subscription"):
            await take(events, 1)


async def test_what_changed_before_it_listened_is_known(service: EventsService) -> None:
    """A shard joins after the subscription was looked at, and nobody hears its message yet."""
    token = service.api.routes[f"POST {SERVICE}/token"][0]

    async def join(exchange: Exchange) -> None:
        await service.make_consumer("east")
        service.shards.append("east")
        service.tell()
        exchange.reply(200, JSON, encode_json(token))

    service.api.on(f"POST {SERVICE}/token", join)
    await service.publish(service.put("a"))
    async with service.subscriber() as events:
        assert outline(await take(events, 1)) == [("ADDED", "a")]
        assert [each.shard for each in events.subscription.streams] == ["root", "east"]
