"""What becomes of subscriptions: bounds, the end of a credential, of use and of the process."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from atoll.machinery.apiserver.authorization.effective_users import SCOPES, WARRANT, encode_warrant
from atoll.machinery.meta.names import ROOT, SYSTEM_SHARD
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import EVENT_SUBSCRIPTIONS, SERVICE_ACCOUNTS
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, MASTERS, User
from atoll.machinery.process import ed25519
from atoll.machinery.storage.contract import Scope
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.pull_consumer import BatchLimits, PullConsumer
from atoll.machinery.stream.event_keys import EventKeys, SigningKey
from atoll.machinery.stream.permissions import shard_user
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.key_files import SubscriptionKeys, write_subscription_keys
from atoll.shard.subscriptions import keeper
from atoll.shard.subscriptions.commands import Command, decode_answer, encode
from atoll.shard.subscriptions.keeper import Keeper
from harness.servers.in_process.shard import InsideShard, shard_inside
from harness.servers.tenant_server import TenantServer

STREAM = stream_name(CHANGES, ROOT)
#: Events a second of an identity.
RATE = 10
ALICE, BOB = (User(name, (AUTHENTICATED, MASTERS)) for name in ("alice", "bob"))


class Kept:
    """A shard whose subscriptions are kept, asked as its pipeline asks."""

    def __init__(self, shard: InsideShard, server: TenantServer, directory: Path) -> None:
        self.shard, self.server = shard, server
        self.file = file = directory / "event-subscriptions.json"
        write_subscription_keys(file, SubscriptionKeys(base64.b64encode(server.names_key).decode(), (server.address,)))
        shard.app.config = msgspec.structs.replace(
            shard.app.config,
            event_subscriptions_file=str(file),
            event_subscriptions_per_identity=2,
            event_subscriptions_per_workspace=3,
            event_rate=RATE,
        )
        self._keys = EventKeys([SigningKey(ed25519.make_secret())])
        self.keeper: Keeper
        self._running: asyncio.Future[tuple[None, None]] | None = None

    async def _access(self) -> Access:
        return self.server.users[shard_user(ROOT)].access(self.server.address)

    def begin(self) -> None:
        """Keep what is stored, as a process does that starts."""
        self.keeper = self.shard.app.subscriptions(self._keys)
        work = self.keeper.run(self._access), self.shard.app.watches.open.follow()
        self._running = asyncio.ensure_future(asyncio.gather(*work))

    async def end(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def ask(self, command: Command) -> tuple[int, Object]:
        assert self.shard.app.asker is not None
        found = decode_answer(await self.shard.app.asker(encode(command)))
        return found.code, msgspec.json.decode(found.body)

    async def make(
        self, name: str, user: User = ALICE, cluster: str = ROOT, expires_s: float = 0, since: object = "now"
    ) -> tuple[int, Object]:
        body = msgspec.json.encode({"name": name, "resources": ["configmaps"], "since": since})
        return await self.ask(Command("create", cluster, user, expires_s, body=body))

    async def get(self, name: str, user: User = ALICE, expires_s: float = 0) -> tuple[int, Object]:
        return await self.ask(Command("get", ROOT, user, expires_s, name))

    def state(self, name: str, user: User = ALICE) -> str:
        """The state of a subscription, as no request changes it."""
        found = self.keeper.index.find(f":{user.name}", ROOT, name)
        return found.stored.state if found is not None else ""

    async def read(self, subscription: Object, count: int) -> None:
        """Store so many changes, which a subscriber reads at once."""
        await self.server.publish(ROOT, ROOT, count)
        assert await self.pull(subscription, count) == count

    async def pull(self, subscription: Object, count: int, wait_s: float = 20) -> int:
        """Pull as a subscriber does; return how many events came."""
        consumer = PullConsumer(
            self.server.owners[ROOT], STREAM, subscription["consumer"], BatchLimits(min(count, 500))
        )
        await consumer.attach()
        found = batch = await consumer.batch(wait_s)
        while batch and len(found) < count:
            batch = await consumer.batch(wait_s)
            found += batch
        await consumer.close()
        return len(found)

    async def look(self) -> None:
        """Have the keeper look at the server, as it does every few seconds."""
        consumers = await self.keeper.consumers(20)
        assert consumers is not None
        await self.keeper._look(consumers)

    async def info(self, subscription: Object) -> Object:
        """The consumer of a subscription, as the server has it."""
        name = subscription["consumer"]
        return await self.server.owners[ROOT].api(f"CONSUMER.INFO.{STREAM}.{name}")

    async def consumers(self) -> list[str]:
        page = await self.server.owners[ROOT].api(f"CONSUMER.LIST.{STREAM}", {"offset": 0})
        return [each["name"] for each in page["consumers"] or []]


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with TenantServer(tmp_path) as server, shard_inside(tmp_path) as shard:
        kept = Kept(shard, server, tmp_path)
        kept.begin()
        yield kept
        await kept.end()


async def until(check: Callable[[], Awaitable[object] | object]) -> None:
    async with asyncio.timeout(30):
        while True:
            found = check()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def test_an_identity_and_a_workspace_have_so_many_subscriptions_and_the_refusal_says_how_many(kept: Kept) -> None:
    other = await kept.shard.workspace("other")
    for name, user, cluster in (("a", ALICE, ROOT), ("b", ALICE, other), ("a", BOB, ROOT)):
        assert (await kept.make(name, user, cluster))[0] == 201
    code, status = await kept.make("c")
    assert (code, "2 subscriptions" in status["message"]) == (403, True)
    assert (await kept.make("b", BOB))[0] == 201
    code, status = await kept.make("a", User("carol", ALICE.groups))
    assert (code, "3 subscriptions" in status["message"]) == (403, True)
    assert len(await kept.consumers()) == 4
    assert (await kept.ask(Command("delete", ROOT, ALICE, name="a")))[0] == 200
    assert (await kept.make("c"))[0] == 201
    text = generate_latest(kept.shard.app.registry).decode()
    assert 'atoll_event_subscriptions{state="Active"} 4.0' in text
    assert 'atoll_event_subscription_refusals_total{reason="Limit"} 2.0' in text


async def test_a_subscription_rests_on_a_credential_and_is_silent_from_its_end_until_another_is_shown(
    kept: Kept,
) -> None:
    assert (await kept.make("audit", expires_s=time.time() + 600))[0] == 201
    (entry,) = kept.keeper.index
    entry.stored = replace(entry.stored, expires_s=time.time() + 0.5)
    await kept.keeper.check_again(entry)
    await until(lambda: kept.state("audit") == "Revoked")
    await until(lambda: no_consumers(kept))
    code, shown = await kept.get("audit", expires_s=time.time() + 60)
    assert (code, shown["state"]) == (200, "Active")
    assert await kept.consumers() == [shown["consumer"]]


async def test_a_right_that_is_lost_unnoticed_is_found_by_the_check_that_comes_in_any_case(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.end()
    monkeypatch.setattr(keeper, "CHECK_S", 0.2)
    kept.begin()
    assert (await kept.make("audit"))[0] == 201
    (entry,) = kept.keeper.index
    # Nothing in the store says so.
    entry.stored = replace(entry.stored, user=User("alice", (AUTHENTICATED,)))
    await until(lambda: kept.state("audit") == "Revoked")
    await until(lambda: no_consumers(kept))


async def test_a_mark_is_where_a_subscription_begins_and_one_of_another_stream_or_history_is_the_beginning(
    kept: Kept,
) -> None:
    await kept.server.publish(ROOT, ROOT, 5)
    _, made = await kept.make("now")
    mark = made["streams"][0]["begin"]
    assert mark["sequence"] == 6
    await kept.server.publish(ROOT, ROOT, 3)
    for name, change, count in (("next", {"sequence": 7}, 2), ("far", {"sequence": 1000}, 0)):
        _, made = await kept.make(name, since={**mark, **change})
        assert (await kept.info(made))["num_pending"] == count
        await kept.ask(Command("delete", ROOT, ALICE, name=name))
    for name, other in (("made-anew", {"created": "2026-01-01T00:00:00Z"}), ("restored", {"lineage": "another"})):
        _, made = await kept.make(name, since={**mark, **other})
        assert (await kept.info(made))["num_pending"] == 8
        await kept.ask(Command("delete", ROOT, ALICE, name=name))


async def test_scopes_and_warrants_count_as_for_a_watch(kept: Kept) -> None:
    elsewhere = User("carol", ALICE.groups, "", {SCOPES: ("cluster:2kx9v4twgone",)})
    assert (await kept.make("a", elsewhere))[0] == 403
    plain = User("dave", (AUTHENTICATED,))
    assert (await kept.make("a", plain))[0] == 403
    assert (await kept.make("a", replace(plain, extra={WARRANT: (encode_warrant(ALICE),)})))[0] == 201


async def test_how_far_behind_a_subscriber_is_is_shown_to_it_and_by_hash_to_the_operator(kept: Kept) -> None:
    _, made = await kept.make("audit")
    await kept.server.publish(ROOT, ROOT, 3)

    async def behind() -> bool:
        return bool((await kept.get("audit"))[1]["lag"]["events"] == 3)

    await until(behind)
    lines = generate_latest(kept.shard.app.registry).decode().splitlines()
    told = [line for line in lines if line.startswith("atoll_event_subscription_lag_events{")]
    assert [line.rpartition(" ")[2] for line in told] == ["3.0"]
    assert "alice" not in told[0]
    assert await kept.pull(made, 3, wait_s=20.0) == 3


@pytest.mark.long
async def test_who_reads_faster_than_the_rate_is_paused_and_another_subscription_is_no_way_around(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.end()
    # A look in the middle of a read would pause it.
    monkeypatch.setattr(keeper, "LOOK_S", 600.0)
    kept.begin()
    _, made = await kept.make("audit")
    await kept.read(made, RATE * 10 - 1)
    await kept.look()
    assert kept.keeper.rates.delivered == RATE * 10 - 1
    assert not (await kept.info(made)).get("paused")
    await kept.read(made, RATE * 60)
    await kept.look()
    assert (await kept.info(made))["paused"]
    _, second = await kept.make("second")
    assert (await kept.info(second))["paused"]
    await kept.ask(Command("delete", ROOT, ALICE, name="audit"))
    _, made = await kept.make("audit")
    assert (await kept.info(made))["paused"]
    assert not (await kept.info((await kept.make("audit", BOB))[1])).get("paused")
    await kept.server.publish(ROOT, ROOT)
    assert await kept.pull(made, 1, wait_s=0.5) == 0
    text = generate_latest(kept.shard.app.registry).decode()
    assert f"atoll_event_deliveries_total {RATE * 70 - 1}.0" in text
    assert "atoll_event_subscriptions_paused 2.0" in text


@pytest.mark.long
async def test_what_a_removed_subscription_was_delivered_counts_and_a_pause_ends_by_itself(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that is removed before the next look would be a way around the rate."""
    monkeypatch.setattr(keeper, "LOOK_S", 600.0)
    _, made = await kept.make("audit")
    await kept.read(made, RATE * 12)
    await kept.ask(Command("delete", ROOT, ALICE, name="audit"))
    assert kept.keeper.rates.delivered == RATE * 12
    _, made = await kept.make("audit")
    await kept.server.publish(ROOT, ROOT)
    assert await kept.pull(made, 1) == 1
    assert kept.keeper.rates.paused_until_s(":alice", time.time()) == 0.0


async def no_consumers(kept: Kept) -> bool:
    return not await kept.consumers()


async def test_subscriptions_outlive_the_process_and_consumers_the_server_loses_are_made_anew(kept: Kept) -> None:
    _, made = await kept.make("audit")
    await kept.end()
    await kept.server.owners[ROOT].api(f"CONSUMER.DELETE.{STREAM}.{made['consumer']}")
    kept.begin()

    async def is_back() -> bool:
        return made["consumer"] in await kept.consumers()

    await until(is_back)
    code, shown = await kept.get("audit")
    assert (code, {**shown, "lag": made["lag"]}) == (200, made)
    info = await kept.server.owners[ROOT].api(f"CONSUMER.INFO.{STREAM}.{made['consumer']}")
    assert info["config"]["opt_start_seq"] == made["streams"][0]["begin"]["sequence"]


@pytest.mark.long
async def test_what_nobody_used_for_a_day_is_removed_with_its_row(kept: Kept) -> None:
    await kept.make("audit")
    (entry,) = kept.keeper.index
    entry.stored = replace(entry.stored, used_s=time.time() - 24 * 3600 - 1)
    await kept.keeper.check_again(entry)
    assert (len(kept.keeper.index), await kept.consumers()) == (0, [])
    with kept.shard.app.store.snapshot() as snapshot:
        assert snapshot.scan(Scope(EVENT_SUBSCRIPTIONS, SYSTEM_SHARD)) == []


@pytest.mark.long
async def test_a_consumer_of_another_filter_or_of_no_subscription_does_not_stand(kept: Kept) -> None:
    """Whatever was lost on the way to the server, the next look finds it."""
    _, made = await kept.make("audit")
    owner = kept.server.owners[ROOT]
    name, foreign = made["consumer"], f"{'a' * 32}-0"
    wide = {"name": name, "filter_subjects": ["atoll.changes.root.>"], "ack_policy": "explicit", "mem_storage": True}
    await owner.api(f"CONSUMER.DELETE.{STREAM}.{name}")
    for each in (name, foreign):
        await owner.api(f"CONSUMER.CREATE.{STREAM}.{each}", {"stream_name": STREAM, "config": {**wide, "name": each}})

    async def is_right() -> bool:
        if foreign in await kept.consumers():
            return False
        found = await owner.api(f"CONSUMER.INFO.{STREAM}.{name}")
        return bool(found["config"].get("filter_subjects") == made["streams"][0]["filters"])

    await until(is_right)


async def test_who_comes_back_without_the_group_that_gave_the_right_has_it_no_more(kept: Kept) -> None:
    """The user of a certificate or a token names its groups with each request."""
    await kept.make("audit")
    plain = User(ALICE.name, (AUTHENTICATED,))
    code, found = await kept.get("audit", plain)
    assert (code, found["state"]) == (200, "Revoked")
    assert await kept.consumers() == []
    assert (await kept.get("audit"))[1]["state"] == "Active"


async def test_a_service_account_that_is_deleted_is_silent_though_its_token_goes_on(kept: Kept) -> None:
    gone = User("system:serviceaccount:default:gone", ALICE.groups, "uid", {CLUSTER_NAME: (ROOT,)})
    code, status = await kept.make("audit", gone, expires_s=time.time() + 600)
    assert (code, "service account is deleted" in status["message"]) == (403, True)


async def test_a_subscription_of_an_account_is_not_one_of_another_account_that_has_its_name_now(kept: Kept) -> None:
    """Deleted and made again between two checks, it is seen by its uid alone."""
    name = ROOT, "default", "builder"
    await kept.shard.loopback.create(
        kept.shard.target(SERVICE_ACCOUNTS, *name),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder", "namespace": "default"}},
    )
    account = kept.shard.loopback.get(SERVICE_ACCOUNTS, *name)
    assert account is not None
    user = User(
        f"system:serviceaccount:default:{name[2]}", ALICE.groups, account["metadata"]["uid"], {CLUSTER_NAME: (ROOT,)}
    )
    assert (await kept.make("audit", user))[0] == 201
    (entry,) = kept.keeper.index
    entry.stored = replace(entry.stored, user=msgspec.structs.replace(user, uid="of the earlier one"))
    await kept.keeper.check_again(entry)
    assert (entry.stored.state, await kept.consumers()) == ("Revoked", [])


async def test_a_look_at_the_server_reads_the_keys_once_for_all_subscriptions(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, user in (("a", ALICE), ("b", ALICE), ("a", BOB)):
        assert (await kept.make(name, user))[0] == 201
    readers = list[asyncio.Task[Any] | None]()
    keys = kept.keeper.keys

    def read() -> SubscriptionKeys:
        readers.append(asyncio.current_task())
        return keys()

    monkeypatch.setattr(kept.keeper, "keys", read)
    await kept.look()
    # The keeper may look by itself meanwhile.
    assert readers.count(asyncio.current_task()) == 1


async def test_without_the_keys_of_names_nothing_is_made(kept: Kept) -> None:
    kept.file.unlink()
    code, status = await kept.make("audit")
    assert (code, status["reason"]) == (503, "ServiceUnavailable")
    assert len(kept.keeper.index) == 0
