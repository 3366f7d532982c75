"""Subjects that the credentials of a shard, a front proxy and a stranger reach on NATS, and attempts beyond them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.meta.names import ROOT
from atoll.machinery.stream.connection import Access, ApiError, Connection, Unavailable
from atoll.machinery.stream.permissions import Permissions, follower_consumer, inbox_prefix, reader_permissions
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.subjects import stream_name
from harness.data.stored_headers import encode_headers
from harness.models.shard_log import ShardLog, Source
from harness.servers.in_process.followers import Archipelago, cluster_key

STATE, CHANGES = stream_name("state", "root"), stream_name("changes", "root")
EVIL = "atoll.state.root.core.core_kcp_io.logicalclusters.evil.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#: Verbs on another shard's streams that nobody else may name.
VERBS = ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE")


class Client:
    """A connection that records its permission errors."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.refusals: list[str] = []

        async def on_error(error: Exception) -> None:
            self.refusals.append(str(error).lower())

        connection.client._error_cb = on_error

    @classmethod
    async def open(cls, access: Access) -> Client:
        return cls(await Connection.open(access, "test"))

    @property
    def user(self) -> str:
        return str(self.connection.client.options["user"])

    async def refused(self, subjects: list[str]) -> list[str]:
        """The subjects that the server rejected."""
        found = []
        for subject in subjects:
            before = len(self.refusals)
            await self.connection.publish(subject, b"{}", self.connection.inbox())
            # The server handles messages in order: the reply to this one follows the rejections before it.
            await self.connection.api(f"STREAM.INFO.{STATE}")
            if any("permissions violation" in text for text in self.refusals[before:]):
                found.append(subject)
        return found

    async def api(self, subject: str, config: dict[str, Any], stream: str) -> dict[str, Any]:
        return await self.connection.api(subject, {"stream_name": stream, "config": config})


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, "root", "east") as sea:
        root, east = sea.shard("root"), sea.shard("east")
        await root.announce("root")
        await root.announce("east")
        for each in (root, east):
            assert each.publishing is not None
            await each.publishing.drained()
        yield sea


def selecting(user: str) -> str:
    """The subject by which a shard's reader creates its consumer with several filters."""
    return f"$JS.root.API.CONSUMER.CREATE.{STATE}.{follower_consumer(user)}"


@pytest.fixture(params=["east", "proxy-front"])
async def client(sea: Archipelago, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A reader of root: a proxy, and a shard by its second user."""
    client = await Client.open(sea.member(request.param).access.for_reading.at("root"))
    yield client
    await client.connection.close()


def foreign(user: str) -> list[str]:
    """Subjects that a user other than shard root may not publish to."""
    own = follower_consumer(user)
    subjects = [
        "atoll.state.root.-",
        "atoll.changes.root.-",
        EVIL,
        "atoll.changes.root.core.core.configmaps.c1",
        "atoll.x",
        *(f"$JS.API.STREAM.{verb}.{stream}" for verb in VERBS for stream in (STATE, CHANGES)),
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.NAMES",
        "$JS.API.INFO",
        "$JS.API.ACCOUNT.PURGE.ATOLL",
        f"$JS.API.DIRECT.GET.{STATE}",
        f"$JS.API.DIRECT.GET.{CHANGES}.atoll.changes.root.-",
        f"$JS.API.CONSUMER.CREATE.{CHANGES}",
        f"$JS.API.CONSUMER.CREATE.{STATE}",
        f"$JS.API.CONSUMER.CREATE.{STATE}.{own}",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{STATE}.{own}",
        f"$JS.API.CONSUMER.CREATE.{CHANGES}.{own}.atoll.changes.root.>",
        f"$JS.API.CONSUMER.CREATE.{CHANGES}.{own}.>",
        f"$JS.API.CONSUMER.CREATE.{STATE}.follow-shard-root.atoll.state.root.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{STATE}.follow-shard-root",
        f"$JS.API.CONSUMER.DELETE.{STATE}.atoll-audit-state",
        f"$JS.API.CONSUMER.LIST.{STATE}",
        f"$JS.ACK.{STATE}.follow-shard-root.1.1.1.1.1",
        "_INBOX_shard_root.x",
        "$SYS.REQ.SERVER.PING",
    ]
    return subjects + [each.replace("$JS.API", "$JS.root.API") for each in subjects if each.startswith("$JS.API")]


async def test_nobody_publishes_or_manages_under_the_name_of_another(client: Client) -> None:
    subjects = foreign(client.user)
    own = {selecting(client.user)} if client.user.startswith("reader-") else set()
    assert set(subjects) - set(await client.refused(subjects)) == own


async def test_a_shard_chooses_among_the_objects_of_a_state_stream_and_of_no_other(sea: Archipelago) -> None:
    """Its consumer may have several filters, which the subject that creates it does not name."""
    east = await Client.open(sea.member("east").access.for_reading.at("root"))
    own, create = follower_consumer(east.user), selecting(east.user).removeprefix("$JS.root.API.")
    filters = {"filter_subjects": ["atoll.state.root.-", "atoll.state.root.*.core_kcp_io.shards.>"]}
    config = {"name": own, "ack_policy": "none", **filters}
    with pytest.raises(ApiError):
        await east.api(create, config, CHANGES)
    created = await east.api(create, {**config, "name": "follow-shard-root"}, STATE)
    assert created["name"] == own, "the subject names the consumer"
    await east.connection.close()


async def test_who_only_reads_publishes_nothing(sea: Archipelago) -> None:
    client = await Client.open(sea.member("proxy-front").access.at("root"))
    subjects = [
        "atoll.state.proxy-front.-",
        "atoll.state.east.-",
        "atoll.changes.front.-",
        "anything",
        "$JS.API.STREAM.CREATE.atoll-state-front",
    ]
    assert await client.refused(subjects) == subjects
    await client.connection.close()


@pytest.mark.parametrize("subject", [">", "atoll.>", "atoll.state.root.>", "_INBOX_shard_root.>", "$JS.>", "$SYS.>"])
async def test_nobody_listens_but_to_its_own_inbox(client: Client, subject: str) -> None:
    await client.connection.client.subscribe(subject)
    await client.connection.api(f"STREAM.INFO.{STATE}")
    assert any("permissions violation" in text for text in client.refusals)


@pytest.mark.parametrize("user", ["", "anonymous", "shard-root", "tenant"])
async def test_tenants_and_strangers_do_not_get_in(sea: Archipelago, user: str) -> None:
    with pytest.raises(Unavailable, match="Authorization"):
        await Connection.open(Access([sea.nats.server.address], user, "guessed"), "test")


async def test_a_consumer_of_ones_own_reads_state_and_nothing_else(client: Client) -> None:
    name = follower_consumer(client.user)
    create = f"CONSUMER.CREATE.{STATE}.{name}.atoll.state.root.>"
    base = {"name": name, "ack_policy": "none"}
    info = await client.api(create, {**base, "filter_subject": "atoll.state.root.>"}, STATE)
    assert info["num_pending"] == 2
    for config in ({"filter_subject": "atoll.changes.root.>"}, {"filter_subjects": ["atoll.changes.root.>"]}, {}):
        with pytest.raises(ApiError):
            await client.api(create, {**base, **config}, STATE)
    with pytest.raises(ApiError):
        await client.api(create, {**base, "filter_subject": "atoll.state.root.>"}, CHANGES)


async def test_a_row_injected_under_another_name_by_who_may_do_anything_is_never_counted(tmp_path: Path) -> None:
    """Messages in east's stream about objects of root are no rows of root's, whoever published them."""
    everything = NatsUser("almighty", "secret", Permissions((">",), (">",)), account="shard-east")
    async with Archipelago(tmp_path, "root", "east") as sea:
        await sea.with_users(everything)
        root, east, reader = sea.shard("root"), sea.shard("east"), await sea.reader()
        await root.announce("east")
        shop = await root.schedule(ROOT, "shop", "root")
        await root.open(shop, ROOT, "shop")
        await reader.until(lambda view: view.replicas.get(cluster_key(shop)))
        forged = ShardLog().put(cluster_key(shop), forged=True)
        connection = await Connection.open(everything.access(sea.nats.server.address), "test")
        for shard in ("east", "root"):
            event = from_entry("state", Source(shard=shard), forged)
            subject = event.subject.replace(f".{shard}.", ".east.", 1)
            await connection.publish(subject, event.payload, headers=encode_headers(event))
        await east.put(cluster_key("0123456789abcdef"))
        await reader.until(lambda view: view.replicas.row_of("east", cluster_key("0123456789abcdef")))
        found = reader.replica(cluster_key(shop))
        assert found is not None
        assert "forged" not in found
        assert reader.shard_of(shop) == "root"
        await connection.close()


async def test_the_inbox_of_a_user_is_told_by_its_name() -> None:
    names = ["operator", "shard-root", "shard-shard-1", "proxy-front", "cache-eu"]
    assert [inbox_prefix(name) for name in names] == [
        "_INBOX_operator",
        "_INBOX_shard_root",
        "_INBOX_shard_shard-1",
        "_INBOX_proxy_front",
        "_INBOX_cache_eu",
    ]
    imports = reader_permissions("proxy-front", ["a", "b"]).imports
    assert [each.account for each in imports] == ["shard-a"] * 4 + ["shard-b"] * 4
