"""What a shard makes of subscriptions of an identity that another shard was asked for, and whom it believes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from atoll.machinery.apiserver.authorization.groups import EXTERNAL_LOGICAL_CLUSTER_ADMIN, LOGICAL_CLUSTER_ADMIN
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import ClusterRoute
from atoll.machinery.stream.tenants.subscriptions import Mark, Selected, SubscriptionRequest
from atoll.shard.config import ShardConfig
from atoll.shard.subscriptions.access_check import Question
from atoll.shard.subscriptions.commands import Command, Verb
from atoll.shard.subscriptions.other_parts import OtherParts
from atoll.shard.subscriptions.shared_rows import SharedSubscription, read_shared, shared_key
from harness.data.stores import gone, replica
from harness.servers.in_process.shard import shard_inside
from harness.servers.tenant_server import TenantServer
from integration.events.test_subscription_keeping import ALICE, Kept, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
IDENTITY, OTHER = "ab" * 32, "cd" * 32
EXPORTER, OWNER = "2i8ccsdbx5aqxxdz", ":carol"


class Sea:
    """A shard whose subscriptions are kept, beside the shard `east`, which owns the cluster EXPORTER with an export."""

    def __init__(self, kept: Kept) -> None:
        self.kept, self._revision = kept, 10
        self.parts = OtherParts(kept.keeper)
        #: Whether all parts were there when they were looked at last.
        self.complete = True

    async def say(self, row: SharedSubscription | None, origin: str = "east", *, look: bool = True) -> None:
        """A shard says something about the subscription, or, with None, that there is none."""
        self._revision += 1
        key = shared_key(said())
        change = gone(key, self._revision, origin=origin)
        if row is not None:
            change = replica(key, self._revision, origin=origin, spec=msgspec.to_builtins(row))
        await self.kept.shard.app.store.submit([change])
        if look:
            self.complete = await self.parts.take_in()

    async def export(self, identity: str, origin: str = "east", owner: str = "east") -> None:
        """A shard says that EXPORTER has an export; the cluster's owner is another question."""
        self._revision += 1
        key = ObjectKey(API_EXPORTS, EXPORTER, "", "shapes")
        row = replica(key, self._revision, origin=origin, status={"identityHash": identity})
        await self.kept.shard.app.store.submit([row, ClusterRoute(EXPORTER, owner, self._revision)])
        self.complete = await self.parts.take_in()

    def own(self) -> SharedSubscription | None:
        """What the shard itself says."""
        with self.kept.shard.app.store.snapshot() as snapshot:
            record = snapshot.get(shared_key(said()))
        return read_shared(record) if record is not None else None

    @property
    def consumer(self) -> str:
        """The name of the consumer that the part has."""
        return self.kept.keeper.names(OWNER).consumers[7]

    async def has_part(self) -> bool:
        return self.consumer in await self.kept.consumers()

    async def makes_part(self) -> bool:
        """Take in what was said; whether the part is there then. A server that is slow is asked again."""
        self.complete = await self.parts.take_in()
        return await self.has_part()

    async def is_complete(self) -> bool:
        self.complete = await self.parts.take_in()
        return self.complete

    async def has_no_part(self) -> bool:
        return not await self.has_part()


def said(**content: Any) -> SharedSubscription:
    """What the shard east says, but for this."""
    type = Selected("events.example.com", "circles", IDENTITY, full=False)
    row = SharedSubscription(
        home="east",
        owner=OWNER,
        cluster=EXPORTER,
        slot=7,
        request=SubscriptionRequest("all", ("circles.events.example.com",), IDENTITY),
        since_s=time.time() - 60,
        expires_s=0.0,
        state="Active",
        reason="",
        selected=(type,),
        refused=(),
        begin=Mark("2026-11-27T00:00:00Z", "lineage", 1),
    )
    return msgspec.structs.replace(row, **content)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sea]:
    directory = tmp_path_factory.mktemp("sea")
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ShardConfig, "in_site", True)
        async with TenantServer(directory) as server, shard_inside(directory) as shard:
            patches.setattr(shard.app.placement, "others", lambda store: ["east", "west"])
            kept = Kept(shard, server, directory)
            kept.begin()
            yield Sea(kept)
            await kept.end()


@pytest_asyncio.fixture(loop_scope="module")
async def sea(running: Sea) -> Sea:
    """Nobody has said anything but what east exports."""
    for origin in ("east", "west"):
        await running.say(None, origin)
    await running.export(IDENTITY)
    return running


async def test_another_shard_alone_follows_what_is_here_of_an_identity_that_it_exports(sea: Sea) -> None:
    """It has decided who may; whoever else asks is decided about here, where the export is not."""
    service, shard = sea.kept.shard.app._follows(), User("east", (AUTHENTICATED, LOGICAL_CLUSTER_ADMIN))
    about = Question(EXPORTER, shard, ("circles.events.example.com", "squares.events.example.com"), IDENTITY)

    async def types(question: Question) -> set[tuple[str, str]]:
        return {(each.resource, each.identity) for each in (await service.decided(question)).selected}

    assert await types(about) == {("circles", IDENTITY), ("squares", IDENTITY)}
    for user in (ALICE, User("component", (AUTHENTICATED, EXTERNAL_LOGICAL_CLUSTER_ADMIN))):
        assert await types(msgspec.structs.replace(about, user=user)) == set()
    for wrong in ({"identity": OTHER}, {"identity": ""}, {"cluster": ROOT}, {"cluster": "never2kx9v4t"}):
        assert await types(msgspec.structs.replace(about, **wrong)) == set()
    await sea.export(IDENTITY, origin="west")
    await sea.export(OTHER)
    assert await types(about) == set()


@pytest.mark.long
async def test_a_part_is_made_under_the_slot_that_the_subscriber_knows_and_says_where_it_begins(sea: Sea) -> None:
    await sea.say(said())
    await until(sea.makes_part)
    assert sea.complete
    config = (await sea.kept.info({"consumer": sea.consumer}))["config"]
    assert config["filter_subjects"] == [
        f"atoll.changes.root.{IDENTITY}.events_example_com.circles.*",
        "atoll.changes.root.-",
    ]
    assert config["deliver_policy"] == "by_start_time" and config["headers_only"]
    assert (own := sea.own()) is not None
    assert (own.home, own.begin.lineage, own.slot) == ("east", sea.kept.keeper.lineage, 7)
    await sea.say(None)
    await until(sea.has_no_part)
    assert sea.own() is None


#: What is said, by whom, the identity of the export, and the owner of its cluster.
_OTHER_TYPE = Selected("events.example.com", "circles", OTHER, full=False)
DISBELIEVED: list[tuple[SharedSubscription, str, str, str]] = [
    (said(), "east", IDENTITY, "west"),
    (said(), "east", OTHER, "east"),
    (said(), "west", IDENTITY, "east"),
    (said(home="west"), "west", IDENTITY, "east"),
    (said(selected=(_OTHER_TYPE,)), "east", IDENTITY, "east"),
    (said(selected=(Selected("", "secrets", "core", full=True),)), "east", IDENTITY, "east"),
    (said(state="Revoked"), "east", IDENTITY, "east"),
    (said(expires_s=time.time() - 1), "east", IDENTITY, "east"),
    (said(request=SubscriptionRequest("all", ("configmaps",))), "east", IDENTITY, "east"),
]


async def test_nobody_but_the_owner_of_the_export_is_believed_and_of_it_nothing_else(sea: Sea) -> None:
    for row, origin, identity, owner in DISBELIEVED:
        await sea.export(identity, owner=owner)
        await sea.say(row, origin)
        assert await sea.has_no_part(), (row, origin, identity, owner)
        await sea.say(None, origin)
    await sea.export(IDENTITY)
    await sea.say(said())
    await until(sea.makes_part)


async def test_a_part_is_silent_while_its_home_says_so_is_not_believed_or_the_credential_has_ended(sea: Sea) -> None:
    await sea.say(said())
    await until(sea.makes_part)
    for row, identity in (
        (said(state="Revoked", reason="no right"), IDENTITY),
        (said(), OTHER),
        (said(expires_s=time.time() - 1), IDENTITY),
        (said(selected=(_OTHER_TYPE,)), IDENTITY),
    ):
        await sea.export(identity)
        await sea.say(row)
        await until(sea.has_no_part)
        (entry,) = sea.kept.keeper.index
        assert entry.stored.state == "Revoked"
        await sea.export(IDENTITY)
        await sea.say(said(expires_s=time.time() + 600))
        await until(sea.makes_part)


async def test_a_part_ends_with_the_credential_though_its_home_says_nothing_more(sea: Sea) -> None:
    await sea.say(said(expires_s=time.time() + 600))
    await until(sea.makes_part)
    await sea.say(said(expires_s=time.time() + 1), look=False)
    (entry,) = sea.kept.keeper.index
    await sea.kept.keeper.check_again(entry)
    await until(lambda: entry.stored.state == "Revoked")
    await until(sea.has_no_part)


async def test_a_taken_slot_is_left_to_whose_it_is_and_the_part_is_made_once_it_is_free(sea: Sea) -> None:
    carol = User("carol", ALICE.groups)
    await sea.kept.make("own", carol)
    await sea.say(said(slot=0))
    assert not sea.complete and len(sea.kept.keeper.index) == 1
    await sea.kept.ask(Command("delete", ROOT, carol, name="own"))
    await sea.say(said(slot=0))
    await until(sea.is_complete)
    assert len(sea.kept.keeper.index) == 1


async def test_a_part_is_not_to_be_seen_or_removed_here_and_outlives_the_process(sea: Sea) -> None:
    await sea.say(said())
    await until(sea.makes_part)
    carol = User("carol", ALICE.groups)
    verbs: tuple[Verb, ...] = ("get", "delete")
    for verb in verbs:
        code, _ = await sea.kept.ask(Command(verb, EXPORTER, carol, name="all"))
        assert code in (403, 404)
    before = sea.own()
    await sea.kept.end()
    sea.kept.begin()
    sea.parts = OtherParts(sea.kept.keeper)
    await until(sea.has_part)
    await sea.say(said())
    assert sea.own() == before and len(sea.kept.keeper.index) == 1
