"""Accounts of clusters whose shard is not known: it is sought, and only then are they refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.remote_owners import RemoteOwners
from atoll.machinery.apiserver.federation import cluster_searches
from atoll.machinery.apiserver.federation.cluster_searches import ABSENT_S
from atoll.machinery.meta.status import ServiceUnavailable


class Search:
    """What is found, and how often it was looked for."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self.count, self.now = 0, 0.0

    async def __call__(self, cluster: str) -> Sequence[str]:
        self.count += 1
        await asyncio.sleep(0)
        return self.unread


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def owners(search: Search) -> RemoteOwners:
    return RemoteOwners(search, lambda: search.now)


def pending(owners: RemoteOwners, cluster: str) -> AuthenticationPending:
    with pytest.raises(AuthenticationPending) as raised:
        owners.require_none(cluster)
    return raised.value


async def test_a_cluster_is_sought_once_for_all_and_again_after_a_while(search: Search, owners: RemoteOwners) -> None:
    waiting = [pending(owners, "a") for _ in range(3)]
    await asyncio.gather(*(each.complete() for each in waiting))
    assert search.count == 1
    owners.require_none("a")
    search.now += ABSENT_S
    await pending(owners, "a").complete()
    assert search.count == 2


async def test_a_cluster_is_not_called_nobodys_while_a_shard_was_not_read(search: Search, owners: RemoteOwners) -> None:
    search.unread = ["east"]
    await pending(owners, "a").complete()
    with pytest.raises(ServiceUnavailable) as raised:
        owners.require_none("a")
    assert raised.value.details is not None
    assert raised.value.details.retry_after_s == 1


async def test_searches_at_a_time_are_bounded(
    search: Search, owners: RemoteOwners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_searches, "MAX_SEARCHES", 1)
    running = asyncio.ensure_future(pending(owners, "a").complete())
    await asyncio.sleep(0)
    with pytest.raises(ServiceUnavailable):
        owners.require_none("b")
    pending(owners, "a")
    await running
    await pending(owners, "b").complete()
