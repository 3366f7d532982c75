"""Tenants on a real nats-server: who gets in, what each may name, and that none reaches what is another's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.permissions import shard_user
from atoll.machinery.stream.subjects import CHANGES, changes_subject, stream_name
from atoll.machinery.stream.tenants.auth_callout import Admission, Answerer, ConnectRequest, make_keys
from atoll.machinery.stream.tenants.claims import Box, Issuer
from atoll.machinery.stream.tenants.subscriber_permissions import (
    CALLOUT_SUBJECT,
    subscriber_names,
    subscriber_permissions,
)
from atoll.machinery.stream.tenants.subscription_consumer import SubscriptionLimits
from harness.models.shard_log import CONFIGMAPS
from harness.models.tenant_subjects import ODD_NAMES, Own, subjects
from harness.servers.processes import listening
from harness.servers.tenant_server import RawClient, TenantServer

STREAM = stream_name(CHANGES, "root")
PULL = b'{"batch":1,"no_wait":true}'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TenantServer]:
    async with TenantServer(tmp_path) as server:
        await server.publish("root", "mine", 3)
        await server.publish("root", "theirs", 6)
        yield server


@pytest.fixture
async def open_server(server: TenantServer) -> TenantServer:
    """The server with a gateway that answers, and a consumer each of an attacker and of a victim."""
    await server.answer()
    await server.make_consumer("root", "attacker", 0, "mine")
    await server.make_consumer("root", "victim", 0, "theirs")
    return server


def pub(subject: str, body: bytes = PULL, reply: str = "") -> bytes:
    return f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n"


async def enter(server: TenantServer, user: str) -> RawClient:
    return await RawClient.open(server.address, auth_token=f"user:{user}")


async def test_a_plain_client_pulls_thin_events_of_its_consumer_and_acknowledges_them(
    open_server: TenantServer,
) -> None:
    names, client = open_server.names("victim"), Client()
    await client.connect(open_server.address, token="user:victim", inbox_prefix=names.inbox, allow_reconnect=False)
    reading = await client.jetstream(prefix="events.API").pull_subscribe_bind(names.consumers[0], stream=STREAM)
    messages = await reading.fetch(6, timeout=60)
    assert {message.subject for message in messages} == {"atoll.changes.root.core.core.configmaps.theirs"}
    assert {message.data for message in messages} == {b""}
    assert {(message.headers or {})["Atoll-Revision"] for message in messages} == {"1"}
    for message in messages:
        await message.ack_sync(timeout=60)
    info = await reading.consumer_info()
    assert (info.num_ack_pending, info.num_pending) == (0, 0)
    await client.close()


async def test_of_all_subjects_a_tenant_may_name_those_of_its_own_consumers_and_inboxes(
    open_server: TenantServer,
) -> None:
    """Publish, request, subscribe and subscribe in a queue, on each subject: 5,000 cells and more."""
    names = [open_server.names(user) for user in ("attacker", "victim", "neighbour", "stranger")]
    own, *victims = (Own(each.consumers, each.inbox) for each in names)
    for shard, user, slot in (("east", "attacker", 31), ("east", "victim", 1), ("root", "neighbour", 0)):
        await open_server.make_consumer(shard, user, slot, "theirs")
    odd = [changes_subject("root", CONFIGMAPS, name).rsplit(".", 1)[1] for name in ODD_NAMES]
    found = subjects(own, victims, ["mine", "theirs", *ODD_NAMES, *odd])
    before = await standing(open_server)
    client, cells = await enter(open_server, "attacker"), 0
    for verb, line, allowed in verbs(own):
        client.errors.clear()
        await client.send([line(subject, number) for number, subject in enumerate(found)])
        expected = {(verb, subject) for subject in found if not allowed(subject)}
        assert client.refused() ^ expected == set()
        cells += len(found)
    assert cells >= 5000
    assert await standing(open_server) == before
    client.close()


async def test_a_pull_for_more_than_the_limits_is_refused_and_what_is_not_acknowledged_is_bounded(
    server: TenantServer,
) -> None:
    server.limits = SubscriptionLimits(batch=2, wait_s=5, ack_pending=3)
    await server.answer()
    name = await server.make_consumer("root", "victim", 0, "theirs")
    names, client = server.names("victim"), await enter(server, "victim")
    pull, inbox = f"events.API.CONSUMER.MSG.NEXT.{STREAM}.{name}", names.inbox
    await client.send([f"SUB {inbox}.> 1\r\n".encode()])
    await client.send(
        [pub(pull, b'{"batch":3}', f"{inbox}.a"), pub(pull, b'{"batch":1,"expires":9000000000}', f"{inbox}.b")]
    )
    await client.until(2)
    assert [(subject, b"409" in data) for subject, data in client.received] == [
        (f"{inbox}.a", True),
        (f"{inbox}.b", True),
    ]
    await client.send([pub(pull, b'{"batch":2,"no_wait":true}', f"{inbox}.c") for _ in range(3)])
    await client.until(2 + 3)
    assert (await server.consumer("root", name))["num_ack_pending"] == 3
    client.close()


def verbs(own: Own) -> list[tuple[str, Callable[[str, int], bytes], Callable[[str], bool]]]:
    """What is done with a subject, as the server names it, the line of the protocol, and whether it is allowed."""
    # Only subscriptions that are allowed count towards the limit of a connection, so each of them ends at once.
    return [
        ("Publish", lambda subject, _: pub(subject), own.may_publish),
        ("Publish", lambda subject, _: pub(subject, PULL, f"{own.inbox}.r"), own.may_publish),
        ("Subscription", lambda subject, n: f"SUB {subject} {n}\r\nUNSUB {n}\r\n".encode(), own.may_subscribe),
        ("Queue", lambda subject, n: f"SUB {subject} q {n}\r\nUNSUB {n}\r\n".encode(), own.may_subscribe),
    ]


async def standing(server: TenantServer) -> list[Object]:
    """What stands in the streams, and how far the victim's consumer is."""
    found = [await server.consumer("root", server.names("victim").consumers[0])]
    for shard, owner in server.owners.items():
        for kind in ("changes", "state"):
            info = await owner.api(f"STREAM.INFO.{stream_name(kind, shard)}")
            found.append({key: info["state"][key] for key in ("messages", "last_seq", "consumer_count")})
    return found


async def steal(server: TenantServer, aims: list[str], least: int = 0) -> list[tuple[str, bytes]]:
    """Pull as the attacker, with these subjects for the answer; return what the victim hears, so much at least."""
    theirs, victim = server.names("victim"), await enter(server, "victim")
    await victim.send([f"SUB {theirs.inbox}.> 1\r\n".encode()])
    attacker = await enter(server, "attacker")
    own = server.names("attacker").consumers[0]
    await attacker.send([pub(f"events.API.CONSUMER.MSG.NEXT.{STREAM}.{own}", PULL, aim) for aim in aims])
    # The server handles requests in order: the answer to this one comes after those to the attacker's.
    await victim.send([pub(f"events.API.CONSUMER.INFO.{STREAM}.{theirs.consumers[0]}", b"", f"{theirs.inbox}.end")])
    while f"{theirs.inbox}.end" not in (subject for subject, _ in victim.received) or len(victim.received) <= least:
        await victim.until(len(victim.received) + 1)
    attacker.close()
    victim.close()
    return [each for each in victim.received if each[0] != f"{theirs.inbox}.end"]


async def test_the_answer_to_a_pull_reaches_nobody_elses_inbox_or_consumer(open_server: TenantServer) -> None:
    guesses = [subscriber_names(key, "victim") for key in (b"", b"victim", b"attacker")]
    aims = [f"{each.inbox}.x" for each in guesses]
    aims += [f"events.API.CONSUMER.MSG.NEXT.{STREAM}.{each.consumers[0]}" for each in guesses]
    aims += ["_INBOX.x", "_INBOX_victim.x", "_INBOX_gateway_0.x", CALLOUT_SUBJECT, "atoll.changes.root.-"]
    before = await standing(open_server)
    assert await steal(open_server, aims) == []
    assert await standing(open_server) == before


async def test_with_names_that_can_be_known_the_answer_to_a_pull_is_written_into_a_victims_inbox(
    server: TenantServer,
) -> None:
    """The attempt works where the guard is missing: here everybody has the key of the names."""
    server.names_key = b""
    await server.answer()
    await server.make_consumer("root", "attacker", 0, "mine")
    await server.make_consumer("root", "victim", 0, "theirs")
    names = subscriber_names(b"", "victim")
    before = await standing(server)
    aims = [f"{names.inbox}.x", f"events.API.CONSUMER.MSG.NEXT.{STREAM}.{names.consumers[0]}"]
    stolen = await steal(server, aims, least=1)
    # An answer at the subject of another's pull is none: the server makes no request of it.
    assert await standing(server) == before
    assert [subject for subject, _ in stolen] == ["atoll.changes.root.core.core.configmaps.mine"]


async def test_who_has_no_good_token_is_not_let_in_and_users_of_the_configuration_are_not_asked_about(
    open_server: TenantServer,
) -> None:
    for options in ({}, {"auth_token": ""}, {"auth_token": "bad"}, {"user": "gateway-0", "pass": "user:x"}):
        with pytest.raises(ConnectionError):
            await RawClient.open(open_server.address, **options)
    # Without a token nobody is even authenticated.
    assert {each.token for each in open_server.requests} == {"bad"}
    open_server.requests.clear()
    connection = await open_server.connect(shard_user("east"))
    await connection.api(f"STREAM.INFO.{stream_name(CHANGES, 'east')}")
    assert open_server.requests == []


@pytest.mark.long
async def test_the_server_hangs_up_when_the_token_ends(open_server: TenantServer) -> None:
    # On a slow machine only a longer one has not ended before it is used.
    for open_server.lifetime_s in (3, 10, 50):
        with contextlib.suppress(ConnectionError):
            client = await enter(open_server, "victim")
            break
    with pytest.raises(ConnectionError, match="Authentication Expired"):
        await client.until(1)


def victims_admission(server: TenantServer, lifetime_s: int) -> Admission:
    return Admission(subscriber_permissions(server.names("victim")), int(time.time()) + lifetime_s)


def genuine(server: TenantServer, request: ConnectRequest) -> bytes:
    return Answerer(server.keys).admit(request, victims_admission(server, 60))


def forged(server: TenantServer, request: ConnectRequest) -> bytes:
    keys = msgspec.structs.replace(server.keys, issuer=make_keys().issuer)
    return Answerer(keys).admit(request, victims_admission(server, 60))


def expired(server: TenantServer, request: ConnectRequest) -> bytes:
    return Answerer(server.keys).admit(request, victims_admission(server, -60))


def of_another_server(server: TenantServer, request: ConnectRequest) -> bytes:
    return genuine(server, msgspec.structs.replace(request, server=f"N{request.server[1:][::-1]}"))


def of_another_client(server: TenantServer, request: ConnectRequest) -> bytes:
    return genuine(server, msgspec.structs.replace(request, user_key=server.requests[0].user_key))


def into_the_account_of_a_shard(server: TenantServer, request: ConnectRequest) -> bytes:
    issuer, everything = Issuer(server.keys.issuer), {"allow": [">"]}
    user = {"type": "user", "version": 2, "pub": everything, "sub": everything, "subs": -1, "data": -1, "payload": -1}
    inside = issuer.sign(request.user_key, shard_user("root"), user, int(time.time()) + 60)
    answer = {"jwt": inside, "type": "authorization_response", "version": 2}
    sealed = issuer.sign(request.user_key, request.server, answer)
    return Box(server.keys.box).seal(sealed.encode(), request.server_box)


def refusal(server: TenantServer, request: ConnectRequest) -> bytes:
    return Answerer(server.keys).refuse(request, "no")


CASES = [forged, expired, of_another_server, of_another_client, refusal]


@pytest.mark.parametrize("answer", CASES)
async def test_an_answer_that_is_not_the_gateways_for_this_client_lets_nobody_in(
    server: TenantServer, answer: Callable[[TenantServer, ConnectRequest], bytes]
) -> None:
    answers = iter((genuine, answer))

    async def respond(message: Msg) -> None:
        request = Answerer(server.keys).open(message.data, (message.headers or {})["Nats-Server-Xkey"])
        server.requests.append(request)
        await server.gateway.publish(message.reply, next(answers)(server, request))

    await server.gateway.subscribe(CALLOUT_SUBJECT, respond)
    await server.settle()
    (await enter(server, "victim")).close()
    with pytest.raises(ConnectionError):
        await enter(server, "victim")


async def test_who_has_the_key_that_signs_answers_enters_every_account(server: TenantServer) -> None:
    """The server bounds whom it asks about, not what the answer says: that key is kept like an administrator's."""

    async def respond(message: Msg) -> None:
        request = Answerer(server.keys).open(message.data, (message.headers or {})["Nats-Server-Xkey"])
        await server.gateway.publish(message.reply, into_the_account_of_a_shard(server, request))

    await server.gateway.subscribe(CALLOUT_SUBJECT, respond)
    await server.settle()
    client = await enter(server, "thief")
    await client.send([b"SUB x.> 1\r\n", pub("$JS.API.STREAM.NAMES", b"", "x.1")])
    await client.until(1)
    assert STREAM.encode() in client.received[0][1]
    client.close()


async def test_beside_clients_the_server_listens_for_nothing(server: TenantServer) -> None:
    port = int(server.address.rsplit(":", 1)[1])
    assert listening(server.nats.server.pid) == [f"0100007F:{port:04X}"]


@pytest.mark.long
async def test_nobody_is_let_in_while_no_gateway_answers(server: TenantServer) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionError):
            await enter(server, "victim")
