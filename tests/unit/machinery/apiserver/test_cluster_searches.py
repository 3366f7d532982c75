"""Searches for clusters that a shard has no rows of: what is said before, during and after them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from atoll.machinery.apiserver.federation import cluster_searches
from atoll.machinery.apiserver.federation.cluster_searches import ClusterSearches, SearchPending
from atoll.machinery.apiserver.federation.pathindex import MAX_DEPTH, PathIndex
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.status import ServiceUnavailable

PATH = "root:acme:shop"


class Search:
    """What is found, and what was looked for."""

    def __init__(self) -> None:
        self.sought: list[str] = []
        self.unread: Sequence[str] | None = ()

    async def __call__(self, workspace: str) -> Sequence[str]:
        self.sought.append(workspace)
        if self.unread is None:
            raise OSError("the writer is gone")
        return self.unread


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def index(search: Search) -> PathIndex:
    return PathIndex(ResourceType("tenancy.kcp.io", "workspaces"), ClusterSearches(search, "not yet", lambda: 0.0))


async def fetched(index: PathIndex, path: str = PATH) -> None:
    """Search for a path."""
    with pytest.raises(SearchPending) as pending:
        index.require_none(path)
    await pending.value.fetch()


async def test_a_path_is_nobodys_once_every_shard_was_read(search: Search, index: PathIndex) -> None:
    await fetched(index)
    index.require_none(PATH)
    index.seek(PATH)
    assert search.sought == [PATH]


@pytest.mark.parametrize("unread", [("east",), None], ids=["unread", "failed"])
async def test_a_search_that_did_not_read_everything_says_neither(
    search: Search, index: PathIndex, unread: Sequence[str] | None
) -> None:
    search.unread = unread
    await fetched(index)
    index.seek(PATH)
    with pytest.raises(ServiceUnavailable) as refused:
        index.require_none(PATH)
    assert refused.value.details is not None
    assert refused.value.details.retry_after_s == 1


async def test_results_are_bounded_by_their_bytes(
    search: Search, index: PathIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_searches, "_ENTRY_BYTES", cluster_searches.MAX_RESULT_BYTES // 2)
    await fetched(index)
    await fetched(index, f"{PATH}:one")
    await fetched(index)
    assert search.sought == [PATH, f"{PATH}:one", PATH]


def test_what_leads_to_no_other_shard_is_not_sought(search: Search, index: PathIndex) -> None:
    for path in ("root", "system:admin", "root:UPPER", ":".join(["a"] * (MAX_DEPTH + 1)), "a_b", ""):
        index.require_none(path)
        index.seek(path)
    PathIndex(ResourceType("tenancy.kcp.io", "workspaces")).require_none(PATH)
    assert not search.sought
