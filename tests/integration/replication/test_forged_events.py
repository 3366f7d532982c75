"""A follower of a shard accepts only messages that the shard signed, at their place in the stream.

Front proxies, cache servers and shards follow by the same code; a proxy and a shard are tried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta.names import ROOT
from atoll.machinery.storage.published_log import PublishedLog
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.event_keys import EventKeys, SigningKey, new_key
from atoll.machinery.stream.permissions import Permissions
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.subjects import stream_name
from atoll.replication.shard_keys import KEYS_MARK
from harness.data.event_keys import KEY, PUBLIC
from harness.models.forged_events import forgeries, inject, stored
from harness.models.shard_log import ShardLog
from harness.servers.in_process.followers import TYPES, Archipelago, Member, cluster_key, shard_key, workspace_key
from harness.servers.in_process.publisher import QUICK, Running

STATE = stream_name("state", "root")
ADMIN = NatsUser("administrator", "secret", Permissions((">",), (">",)), account="shard-root")


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, "root", "east") as sea:
        await sea.with_users(ADMIN)
        root = sea.shard("root")
        await root.announce("root")
        await root.announce("east")
        yield sea


async def replicated(root: Member, reader: Member, name: str) -> None:
    """Write a Workspace at root and wait for the reader: all earlier messages are handled then."""
    await root.schedule(ROOT, name, "root")
    await reader.until(lambda view: view.replicas.get(workspace_key(ROOT, name)))


async def announce(root: Member, shard: str, keys: EventKeys) -> None:
    """Write the Shard object of a shard with its keys."""
    annotations = {"internal.atoll.dev/event-keys": ",".join(keys.announced)}
    await root.put(shard_key(shard), metadata={"annotations": annotations}, spec={"baseURL": f"https://{shard}"})


async def until_sent(reader: Member, cluster: str) -> None:
    await reader.until(lambda view: view.replicas.row_of("east", cluster_key(cluster)))


def refused(reader: Member) -> dict[str, float]:
    """How many messages of root's stream a reader refused, by reason."""
    return {
        reason: reader.metric("atoll_replication_refused_rows_total", shard="root", reason=reason)
        for reason in ("unsigned", "unknown key", "replayed")
    }


def has_refused(reader: Member, count: int, _: object) -> bool:
    return sum(refused(reader).values()) == count


@pytest.mark.parametrize("name", ["proxy-front", "east"])
async def test_forged_and_replayed_events_change_no_row_and_make_nobody_reread(sea: Archipelago, name: str) -> None:
    root, reader = sea.member("root"), sea.member(name)
    await reader.follow()
    await replicated(root, reader, "first")
    gone = workspace_key(ROOT, "gone")
    await root.schedule(ROOT, "gone", "root")
    await reader.until(lambda view: view.replicas.get(gone))
    connection = await Connection.open(ADMIN.access(sea.nats.server.address), "administrator")
    assert root.publishing is not None
    await root.publishing.drained()
    last = (await connection.api(f"STREAM.INFO.{STATE}"))["state"]["last_seq"]
    replay = await stored(connection, STATE, last)
    await root.delete(gone)
    await reader.until(lambda view: view.replicas.get(gone) is None)
    assert reader.follower is not None
    generations = reader.follower.consumers["root"].generations
    evil = ShardLog().put(workspace_key(ROOT, "evil"), spec={"cluster": "0123456789abcdef"})
    await root.publishing.drained()
    last = (await connection.api(f"STREAM.INFO.{STATE}"))["state"]["last_seq"]
    found = [*forgeries("state", root.store.identity, evil, last + 1), replay]
    for count, message in enumerate(found, start=1):
        await inject(connection, message)
        # The stream keeps one message of a subject: each is read before the next one takes its place.
        await reader.until(partial(has_refused, reader, count))
    await replicated(root, reader, "after")
    assert not reader.sent("root", workspace_key(ROOT, "evil"))
    assert not reader.sent("root", gone)
    assert reader.follower.consumers["root"].generations == generations
    half = (len(found) - 1) // 2
    assert refused(reader) == {"unsigned": half, "unknown key": half, "replayed": 1}
    await connection.close()


async def test_an_event_signed_by_the_key_of_another_shard_is_not_believed(sea: Archipelago) -> None:
    """East has its own key; an administrator of root's stream lets it publish."""
    reader, root = await sea.reader(), sea.member("root")
    await replicated(root, reader, "first")
    other = new_key()
    keys = {"root": PUBLIC, "east": EventKeys((other,)).announced}
    await reader.follow_no_more()
    reader.event_keys = keys
    await reader.follow()
    await root.publish_no_more()
    # The same store, so the same identity, published with the wrong key.
    access = msgspec.structs.replace(root.access, signing_keys=(other,))
    running = Running(PublishedLog(root.store), access, QUICK)
    await root.schedule(ROOT, "evil", "root")
    await running.drained()
    await running.stop()
    root.publish()
    await replicated(root, reader, "after")
    await reader.until(lambda view: view.replicas.get(workspace_key(ROOT, "evil")))
    assert reader.metric("atoll_replication_refused_rows_total", shard="root", reason="unknown key") > 0


async def test_a_key_in_the_shard_object_is_believed_and_what_was_refused_is_read_again(sea: Archipelago) -> None:
    """East changes its key; followers learn it from root, before or after the first event with the new signature."""
    reader, root, east = await sea.reader(), sea.member("root"), sea.shard("east")
    await east.put(cluster_key("aaaaaaaaaaaaaaaa"))
    await reader.until(lambda view: view.replicas.row_of("east", cluster_key("aaaaaaaaaaaaaaaa")))
    await announce(root, "east", EventKeys((KEY,)))
    await reader.until(lambda _: b"east" in (reader.store.get_mark(KEYS_MARK) or b""))
    await east.publish_no_more()
    new = SigningKey(new_key().secret, 1)
    running = Running(PublishedLog(east.store), msgspec.structs.replace(east.access, signing_keys=(KEY, new)), QUICK)
    await east.put(cluster_key("bbbbbbbbbbbbbbbb"))
    await running.drained()
    await replicated(root, reader, "meanwhile")
    refused = "atoll_replication_refused_rows_total"
    await reader.until(lambda _: reader.metric(refused, shard="east", reason="unknown key") > 0)
    assert not reader.sent("east", cluster_key("bbbbbbbbbbbbbbbb"))
    # Earlier rows stay, though no message of the stream is accepted.
    assert reader.sent("east", cluster_key("aaaaaaaaaaaaaaaa"))
    await announce(root, "east", EventKeys((KEY, new)))
    await east.put(cluster_key("cccccccccccccccc"))
    for cluster in ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc"):
        await until_sent(reader, cluster)
    await running.stop()


async def test_a_shard_without_a_known_key_is_not_believed(sea: Archipelago) -> None:
    reader, root = sea.member("proxy-front"), sea.member("root")
    reader.event_keys = {}
    await reader.follow()
    refused = "atoll_replication_refused_rows_total"
    await reader.until(lambda _: reader.metric(refused, shard="root", reason="unknown key") > 0)
    assert not reader.sent("root", shard_key("east"))
    assert TYPES.shards == shard_key("east").type
    await root.publish_no_more()
