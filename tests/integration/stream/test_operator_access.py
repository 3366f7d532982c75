"""Permissions of the operator's credential, subject by subject."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.connection import Access, Connection, Unavailable
from atoll.machinery.stream.permissions import OPERATOR_CONSUMERS
from atoll.machinery.stream.subjects import stream_name
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import publishing, read_stream
from harness.servers.nats import NatsServer

CHANGES, STATE = stream_name("changes", "root"), stream_name("state", "root")
OWN = OPERATOR_CONSUMERS[1]


class Operator:
    """A plain client with the operator's credential that records its permission errors."""

    def __init__(self) -> None:
        self.client = Client()
        self.refusals: list[str] = []

    async def connect(self, server: NatsServer) -> None:
        async def on_error(error: Exception) -> None:
            self.refusals.append(str(error).lower())

        await self.client.connect(**server.operator["connect"], error_cb=on_error)

    async def barrier(self) -> None:
        """Return once the server has handled all messages; the client's own flush overtakes them."""
        await self.api(f"STREAM.INFO.{CHANGES}", {})

    async def publish_refused(self, subject: str, body: bytes = b"{}") -> bool:
        before = len(self.refusals)
        await self.client.publish(subject, body, reply=self.client.new_inbox())
        await self.barrier()
        return any("permissions violation" in text for text in self.refusals[before:])

    async def subscribe_refused(self, subject: str, queue: str = "") -> bool:
        before = len(self.refusals)
        await self.client.subscribe(subject, queue=queue)
        await self.barrier()
        return any("permissions violation" in text for text in self.refusals[before:])

    async def api(self, subject: str, body: object) -> dict[str, Any]:
        reply = await self.client.request(f"$JS.root.API.{subject}", json.dumps(body).encode(), timeout=60)
        answer: dict[str, Any] = json.loads(reply.data)
        return answer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    log = ShardLog()
    async with NatsServer(tmp_path) as server, publishing(log, server) as running:
        for number in range(20):
            log.put(ObjectKey(CONFIGMAPS, "c1", "default", f"m{number}"))
        await running.drained()
        yield server


@pytest.fixture
async def operator(server: NatsServer) -> AsyncIterator[Operator]:
    operator = Operator()
    await operator.connect(server)
    yield operator
    await operator.client.close()


REFUSED_TO_PUBLISH = [
    "atoll.changes.root.core.core.configmaps.c1",
    "atoll.changes.root.-",
    "atoll.state.root.core.core.configmaps.c1.x",
    "atoll.state.root.-",
    "atoll.changes.other.core.core.configmaps.c1",
    "atoll.anything",
    "atoll",
    *(
        f"$JS.API.STREAM.{verb}.{stream}"
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE")
        for stream in (CHANGES, STATE, "another")
    ),
    "$JS.API.STREAM.INFO.another",
    "$JS.API.STREAM.LIST",
    "$JS.API.INFO",
    "$JS.API.ACCOUNT.PURGE.ATOLL",
    f"$JS.API.STREAM.LEADER.STEPDOWN.{CHANGES}",
    f"$JS.API.STREAM.PEER.REMOVE.{CHANGES}",
    f"$JS.API.DIRECT.GET.{CHANGES}",
    f"$JS.API.DIRECT.GET.{STATE}.atoll.state.root.-",
    *(
        f"$JS.API.CONSUMER.{verb}.{stream}.{name}"
        for verb in ("CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT", "PAUSE", "UNPIN", "RESET")
        for stream in (CHANGES, STATE)
        for name in ("atoll-audit-changes", "somebody", "operator-16", "operatorx")
    ),
    f"$JS.API.CONSUMER.CREATE.{CHANGES}",
    f"$JS.API.CONSUMER.CREATE.{CHANGES}.somebody.atoll.changes.root.>",
    f"$JS.API.CONSUMER.LIST.{CHANGES}",
    f"$JS.API.CONSUMER.NAMES.{CHANGES}",
    f"$JS.API.CONSUMER.PAUSE.{CHANGES}.{OWN}",
    f"$JS.API.CONSUMER.CREATE.another.{OWN}",
    f"$JS.ACK.{CHANGES}.somebody.1.1.1.1.1",
    f"$JS.FC.{CHANGES}.somebody.x",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.USER.INFO",
    "_INBOX.x",
    "_INBOX_shard_root.x.1",
]

#: The same at the operator's own prefix of the API, and all of the plain one.
REFUSED_TO_PUBLISH += [
    subject.replace("$JS.API", "$JS.root.API") for subject in REFUSED_TO_PUBLISH if subject.startswith("$JS.API")
]

REFUSED_TO_SUBSCRIBE = [
    ">",
    "*",
    "*.>",
    "atoll.>",
    "atoll.changes.root.>",
    "atoll.*.root.>",
    "$JS.>",
    "$JS.API.>",
    "$JS.EVENT.>",
    "$JS.ACK.>",
    "$SYS.>",
    "_INBOX.>",
    "_INBOX_shard_root.>",
    "*.x",
]

ALLOWED_TO_PUBLISH = [
    *(
        f"$JS.root.API.CONSUMER.{verb}.{stream}.{name}"
        for verb in ("CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT")
        for stream in (CHANGES, STATE)
        for name in (OPERATOR_CONSUMERS[0], OPERATOR_CONSUMERS[-1])
    ),
    f"$JS.root.API.CONSUMER.CREATE.{CHANGES}.{OWN}.atoll.changes.root.>",
    f"$JS.root.API.STREAM.INFO.{CHANGES}",
    f"$JS.root.API.STREAM.INFO.{STATE}",
    "$JS.root.API.STREAM.NAMES",
    f"$JS.ACK.{CHANGES}.{OWN}.1.1.1.1.1",
]


async def test_it_may_not_publish_what_is_not_its_own(operator: Operator) -> None:
    assert [subject for subject in REFUSED_TO_PUBLISH if not await operator.publish_refused(subject)] == []


async def test_it_may_not_subscribe_outside_its_inbox(operator: Operator) -> None:
    assert [subject for subject in REFUSED_TO_SUBSCRIBE if not await operator.subscribe_refused(subject)] == []
    queued = [subject for subject in REFUSED_TO_SUBSCRIBE if not await operator.subscribe_refused(subject, "q")]
    assert queued == []


async def test_it_may_do_all_that_its_own_consumers_need(operator: Operator) -> None:
    assert [subject for subject in ALLOWED_TO_PUBLISH if await operator.publish_refused(subject)] == []
    assert not await operator.subscribe_refused("_INBOX_operator.x.*")


async def test_it_creates_reads_acknowledges_and_deletes_its_own_consumer(operator: Operator) -> None:
    context = operator.client.jetstream(prefix="$JS.root.API")
    reading = await context.pull_subscribe("atoll.changes.root.>", durable=OWN, stream=CHANGES)
    messages = await reading.fetch(20, timeout=60)
    for message in messages:
        await message.ack_sync()
    info = await context.consumer_info(CHANGES, OWN)
    assert (len(messages), info.num_ack_pending, info.num_pending) == (20, 0, 0)
    assert await context.delete_consumer(CHANGES, OWN)
    assert operator.refusals == []


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        "atoll.state.root.core.core_kcp_io.logicalclusters.evil.x",
        "atoll.changes.root.core.core.configmaps.evil",
        f"$JS.API.STREAM.PURGE.{CHANGES}",
        f"$JS.API.STREAM.DELETE.{STATE}",
        "_INBOX_shard_root.guess",
    ],
)
async def test_no_consumer_of_its_makes_the_server_deliver_where_it_may_not_publish(
    server: NatsServer, operator: Operator, target: str
) -> None:
    before = [await read_stream(server, kind) for kind in ("changes", "state")]
    config = {"name": OWN, "deliver_subject": target, "ack_policy": "none", "deliver_policy": "all"}
    await operator.api(f"CONSUMER.CREATE.{CHANGES}.{OWN}", {"stream_name": CHANGES, "config": config})
    # Messages that the server delivers would have arrived before its replies to these.
    for _ in range(20):
        await operator.api(f"STREAM.INFO.{CHANGES}", {})
        await asyncio.sleep(0)
    assert [await read_stream(server, kind) for kind in ("changes", "state")] == before


async def test_nobody_gets_in_without_a_password(server: NatsServer) -> None:
    address = [server.server.address]
    for access in (Access(address), Access(address, "operator", "wrong"), Access(address, "shard-root", "")):
        with pytest.raises(Unavailable, match="Authorization"):
            await Connection.open(access, "test")


async def test_a_shard_may_not_publish_in_the_name_of_another(server: NatsServer) -> None:
    connection = await server.connect()
    errors: list[str] = []

    async def on_error(error: Exception) -> None:
        errors.append(str(error).lower())

    connection.client._error_cb = on_error
    for subject in (
        "atoll.changes.other.-",
        "atoll.state.other.-",
        "$JS.API.STREAM.CREATE.atoll-changes-other",
        f"$JS.API.STREAM.DELETE.{CHANGES}",
        "atoll.x",
        "$JS.API.STREAM.LIST",
    ):
        await connection.publish(subject, b"{}")
    await connection.api(f"STREAM.INFO.{CHANGES}")
    await connection.close()
    assert len([text for text in errors if "permissions violation" in text]) == 6
