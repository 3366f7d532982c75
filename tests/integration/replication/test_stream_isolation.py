"""No credential of a site can store a message in a stream that is not its own, by any JetStream request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.machinery.meta.names import ROOT
from atoll.machinery.stream.connection import Access, Connection
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.permissions import (
    Permissions,
    changes_permissions,
    follower_consumer,
    operator_consumers,
    operator_permissions,
    reader_permissions,
    reader_user,
    shard_permissions,
    shard_user,
)
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.subjects import KINDS, all_subjects, control_subject, stream_name
from harness.models.stream_attacks import Attempt, attempts
from harness.servers.nats import NatsServer

SHARDS = (ROOT, "east")
READER, EDGE, WATCHER = "proxy-front", "edge-0", "watcher"
STREAMS = [(kind, shard) for shard in SHARDS for kind in KINDS]
#: The content of a stream, and the consumers that others have of it.
Standing = dict[str, tuple[int, int, int, list[str]]]


def users() -> list[NatsUser]:
    found = [NatsUser(shard_user(name), "secret", shard_permissions(name)) for name in SHARDS]
    peer = reader_user("east")
    found.append(NatsUser(READER, "secret", reader_permissions(READER, SHARDS)))
    found.append(NatsUser(EDGE, "secret", changes_permissions(EDGE, SHARDS, ROOT)))
    found.append(NatsUser(peer, "secret", reader_permissions(peer, SHARDS, selects=True)))
    found.append(NatsUser(WATCHER, "secret", operator_permissions(SHARDS, WATCHER)))
    return [*found, NatsUser("operator", "secret", operator_permissions([ROOT]))]


class Site:
    """A server with two shards, whose streams have messages, and a reader of each."""

    def __init__(self, server: NatsServer, users: Iterable[NatsUser]) -> None:
        self._server = server
        self.users = {user.name: user for user in users}
        self._owners: dict[str, Connection] = {}

    def access(self, user: str) -> Access:
        return self.users[user].access(self._server.server.address)

    async def begin(self) -> None:
        for shard in SHARDS:
            self._owners[shard] = await Connection.open(self.access(shard_user(shard)), "owner")
        for kind, shard in STREAMS:
            await self._owners[shard].api(f"STREAM.CREATE.{stream_name(kind, shard)}", definition(kind, shard))
            for subject in (control_subject(kind, shard), f"atoll.{kind}.{shard}.core.core.configmaps.c"):
                await self._owners[shard].publish(subject, b"{}", headers={"Atoll": "1"})
        for shard in SHARDS:
            reader = await Connection.open(self.access(READER).at(shard), "reader")
            stream, name, subject = (
                stream_name("state", shard),
                follower_consumer(READER),
                all_subjects("state", shard)[0],
            )
            config = {"name": name, "ack_policy": "none", "filter_subject": subject}
            body = {"stream_name": stream, "config": config}
            await reader.api(f"CONSUMER.CREATE.{stream}.{name}.{subject}", body)
            await reader.close()

    async def end(self) -> None:
        for connection in self._owners.values():
            await connection.close()

    async def standing(self, mine: str = "") -> Standing:
        """The content of the streams of all shards but the attacker's."""
        found: Standing = {}
        for kind, shard in STREAMS:
            if shard_user(shard) == mine:
                continue
            name = stream_name(kind, shard)
            state = (await self._owners[shard].api(f"STREAM.INFO.{name}"))["state"]
            consumers = (await self._owners[shard].api(f"CONSUMER.LIST.{name}", {}))["consumers"] or []
            kept = sorted(each["name"] for each in consumers if each["name"] == follower_consumer(READER))
            found[name] = (state["first_seq"], state["last_seq"], state["messages"], kept)
        return found

    async def send(self, user: str, found: Iterable[Attempt]) -> None:
        """Publish as a client that ignores its permissions; return when the server has handled all messages."""
        host, port = self._server.server.address.removeprefix("nats://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        connect = {"user": user, "pass": "secret", "verbose": False, "headers": True, "no_responders": True}
        writer.write(b"CONNECT " + msgspec.json.encode(connect) + b"\r\n")
        answers = asyncio.ensure_future(_until_pong(reader))
        for number, attempt in enumerate(found):
            writer.write(attempt.line)
            if number % 500 == 0:
                await writer.drain()
        writer.write(b"PING\r\n")
        await answers
        writer.close()
        # The API is served beside the connection, in order: what came before these has had its effect.
        for _ in range(3):
            await self.standing()


async def _until_pong(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(60):
        while (line := await reader.readline()) != b"PONG\r\n":
            assert line, "the server closed the connection"
            if line == b"PING\r\n":
                continue


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found = users()
    async with NatsServer(tmp_path, "", users=tuple(found)) as server:
        site = Site(server, found)
        await site.begin()
        yield site
        await site.end()


@pytest.mark.parametrize("user", [shard_user("east"), READER, EDGE, reader_user("east"), "operator", WATCHER])
async def test_no_request_writes_into_or_removes_from_the_streams_of_others(site: Site, user: str) -> None:
    before = await site.standing(user)
    mine = follower_consumer(READER) if user == READER else ""
    own = operator_consumers(WATCHER)[0] if user == WATCHER else ""
    await site.send(user, attempts(user, SHARDS, own))
    after = await site.standing(user)
    if mine:
        # A reader may delete its own consumer, and gets not found.
        before, after = ({name: row[:3] for name, row in each.items()} for each in (before, after))  # type: ignore[assignment]
    assert after == before


async def test_a_user_in_the_account_of_a_shard_would_write_into_its_streams(tmp_path: Path) -> None:
    """The attempts work where accounts are shared: by permissions on subjects alone, a reader writes by its replies."""
    apis = ("$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.CONSUMER.CREATE.>")
    thief = NatsUser("thief", "secret", Permissions(apis, ("_INBOX_thief.>",)), account=shard_user(ROOT))
    found = [*users(), thief]
    async with NatsServer(tmp_path, "", users=tuple(found)) as server:
        site = Site(server, found)
        await site.begin()
        before: Any = await site.standing()
        await site.send("thief", attempts("thief", SHARDS))
        after: Any = await site.standing()
        moved = {name for name in before if after[name][1] > before[name][1]}
        assert moved == {stream_name(kind, ROOT) for kind in KINDS}
        await site.end()


async def test_an_epoch_of_the_far_future_does_not_reach_another_shard(site: Site) -> None:
    """A shard publishes anything under its own name, and has JetStream deliver it to the reply subject of a pull."""
    connection = await Connection.open(site.access(shard_user("east")), "attacker")
    before = await site.standing(shard_user("east"))
    fence = {"Atoll-Operation": "FENCE", "Atoll-Epoch": "9999999999", "Atoll-Revision": "9999999999000000"}
    await connection.publish(control_subject("changes", "east"), b"", headers=fence)
    stream = stream_name("changes", "east")
    last = (await connection.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    config = {"name": "probe", "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": last}
    await connection.api(f"CONSUMER.CREATE.{stream}.probe", {"stream_name": stream, "config": config})
    for aim in (control_subject("state", ROOT), control_subject("changes", ROOT)):
        body = b'{"batch":1,"no_wait":true}'
        await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.probe", body, aim)
    await connection.api(f"STREAM.INFO.{stream}")
    assert await site.standing(shard_user("east")) == before
    await connection.close()


@pytest.mark.parametrize("user", [READER, "operator", WATCHER])
async def test_the_answer_to_a_reader_does_not_become_an_event(site: Site, user: str) -> None:
    before = await site.standing()
    aims = [control_subject(kind, shard) for kind, shard in STREAMS]
    names = [f"$JS.{api}.STREAM.NAMES" for api in ("API", "root.API", "east.API")]
    infos = [f"$JS.{shard}.API.STREAM.INFO.{stream_name(kind, shard)}" for kind, shard in STREAMS]
    await site.send(user, [Attempt(subject, aim, b"") for subject in (*names, *infos) for aim in aims])
    assert await site.standing() == before
