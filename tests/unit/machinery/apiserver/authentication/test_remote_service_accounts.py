"""Service accounts of other shards: accepted only while their own shard confirms them."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.apiserver.authentication import remote_service_accounts
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.remote_service_accounts import RemoteServiceAccounts, ShardUnreachable
from atoll.machinery.apiserver.authentication.service_account_claims import Reference, Subject
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys
from atoll.machinery.apiserver.authentication.service_accounts import (
    ServiceAccountIssuers,
    ServiceAccountTokens,
    holds_token,
    is_account,
)
from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer
from atoll.machinery.apiserver.authentication.tokens import token_digest
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ServiceUnavailable, Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.process.pki import make_rsa_key
from harness.models.rbac_snapshot import FakeStore, logical_cluster

ISSUER, THERE = "https://kcp.default.svc", "3provider"
ACCOUNT = Account(THERE, "ns", "builder", "uid-1")


class Shards:
    """Another shard: its answer, the number of its calls, and whether it is reachable."""

    def __init__(self) -> None:
        self.stands, self.reachable, self.requests = True, True, 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, shard: str, subject: Subject, token: str) -> bool:
        assert (shard, subject.cluster, subject.name) == ("east", THERE, "builder")
        self.requests += 1
        await self.open.wait()
        if not self.reachable:
            raise ShardUnreachable("nobody answers")
        return self.stands


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def keys() -> KeySet:
    return load_keys(make_rsa_key())


@pytest.fixture
def shards() -> Shards:
    return Shards()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(keys: KeySet, shards: Shards, clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(keys, ServiceAccountIssuers(), remote=RemoteServiceAccounts(shards, clock))


@pytest.fixture
def token(keys: KeySet) -> str:
    return TokenIssuer(keys, ServiceAccountIssuers()).issue(ACCOUNT, (ISSUER,), 3600)[0]


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    made.replicas.route(THERE, "east")
    return made


def authenticate(tokens: ServiceAccountTokens, token: str, store: FakeStore) -> User | None:
    return tokens.user_of(token, token_digest(token), (ISSUER,), store)


async def until_requested(shards: Shards) -> None:
    async with asyncio.timeout(60):
        while not shards.requests:  # noqa: ASYNC110 - it announces nothing
            await asyncio.sleep(0)


async def resolved(tokens: ServiceAccountTokens, token: str, store: FakeStore) -> User | None:
    """Authenticate again when the answer has arrived, as the pipeline does."""
    try:
        return authenticate(tokens, token, store)
    except AuthenticationPending as error:
        await error.complete()
    return authenticate(tokens, token, store)


async def test_an_account_elsewhere_comes_in_when_its_shard_vouches_for_it(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards
) -> None:
    user = await resolved(tokens, token, store)
    assert user is not None and user.extra["authentication.kcp.io/cluster-name"] == (THERE,)
    assert authenticate(tokens, token, store) == user
    assert shards.requests == 1


async def test_a_deleted_account_is_out_within_ten_seconds(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards, clock: Clock
) -> None:
    assert await resolved(tokens, token, store)
    shards.stands = False
    clock.now += 9.9
    assert authenticate(tokens, token, store)
    clock.now += 0.1
    with pytest.raises(Unauthorized):
        await resolved(tokens, token, store)


async def test_an_answer_is_as_old_as_its_question(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards, clock: Clock
) -> None:
    shards.open.clear()
    asking = asyncio.create_task(resolved(tokens, token, store))
    await until_requested(shards)
    clock.now += 4
    shards.open.set()
    assert await asking
    clock.now += 6
    with pytest.raises(AuthenticationPending):
        authenticate(tokens, token, store)


async def test_a_shard_that_cannot_be_asked_lets_nobody_in_and_is_asked_again_soon(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards, clock: Clock
) -> None:
    shards.reachable = False
    for _ in range(2):
        # A client forgets its token on a 401.
        with pytest.raises(ServiceUnavailable) as refused:
            await resolved(tokens, token, store)
        assert refused.value.details is not None and refused.value.details.retry_after_s == 1
    assert shards.requests == 1
    shards.reachable, clock.now = True, clock.now + 1
    assert await resolved(tokens, token, store)


async def test_who_was_let_in_is_out_when_his_shard_cannot_be_asked_again(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards, clock: Clock
) -> None:
    assert await resolved(tokens, token, store)
    shards.reachable, clock.now = False, clock.now + 10
    with pytest.raises(ServiceUnavailable):
        await resolved(tokens, token, store)


async def test_many_requests_with_one_token_ask_once(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards
) -> None:
    shards.open.clear()
    asking = [asyncio.create_task(resolved(tokens, token, store)) for _ in range(5)]
    await until_requested(shards)
    shards.open.set()
    assert all(await asyncio.gather(*asking))
    assert shards.requests == 1


async def test_no_more_are_asked_about_at_once_than_the_bound(
    tokens: ServiceAccountTokens, keys: KeySet, store: FakeStore, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_service_accounts, "MAX_CHECKS", 1)
    issuer = TokenIssuer(keys, ServiceAccountIssuers())
    first, second = (issuer.issue(ACCOUNT, (ISSUER,), seconds)[0] for seconds in (3600, 7200))
    shards.open.clear()
    asking = asyncio.create_task(resolved(tokens, first, store))
    await until_requested(shards)
    with pytest.raises(ServiceUnavailable):
        authenticate(tokens, second, store)
    shards.open.set()
    assert await asking and await resolved(tokens, second, store)


async def test_an_account_of_a_cluster_here_is_judged_here(
    tokens: ServiceAccountTokens, token: str, store: FakeStore, shards: Shards
) -> None:
    store.put(THERE, logical_cluster())
    with pytest.raises(Unauthorized):
        authenticate(tokens, token, store)
    metadata = {"name": "builder", "namespace": "ns", "uid": "uid-1"}
    store.put(THERE, {"kind": "ServiceAccount", "metadata": metadata})
    assert authenticate(tokens, token, store)
    assert shards.requests == 0


async def test_an_account_of_a_cluster_that_nobody_knows_is_nobody(
    tokens: ServiceAccountTokens, token: str, shards: Shards
) -> None:
    with pytest.raises(Unauthorized):
        authenticate(tokens, token, FakeStore())
    assert shards.requests == 0


@pytest.mark.parametrize(
    "metadata",
    [{"uid": "another"}, {"uid": "uid-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}, {}],
    ids=["another of its name", "being deleted", "without uid"],
)
def test_what_does_not_stand(metadata: Object) -> None:
    subject = Subject(THERE, "ns", "builder", "uid-1", secret=Reference("s", "uid-1"))
    assert not is_account({"metadata": metadata}, subject)
    assert not holds_token({"metadata": metadata}, subject, "token")
    assert not is_account(None, subject) and not holds_token(None, subject, "token")
