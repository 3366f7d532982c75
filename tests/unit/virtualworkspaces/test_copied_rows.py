"""Objects of another shard's cached resource as a consumer here reads them from copies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.kcp.apis import copies
from atoll.machinery.kcp.apis.copies import CopySet
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.status import ServiceUnavailable
from atoll.machinery.storage.contract import Put, RevisionCompacted, Scope
from atoll.virtualworkspaces.copied_rows import CopiedRows
from atoll.virtualworkspaces.replication import Replication, _CachedResourceExport
from harness.servers.in_process.minimal_shard import Cell, cell

FAR, HERE = "faraway", "consumer"
PLANS = CopySet(FAR, "plans")
TYPE = ResourceType("plans.example.com", "plans")
SCOPE = Scope(TYPE, HERE)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HERE)
        for name in ("a", "b", "c"):
            await copied(made, name)
        yield made


async def copied(here: Cell, name: str, text: str = "first") -> None:
    """A shard's own row of a copy."""
    obj = {"metadata": {"name": name, "annotations": {"kcp.io/cluster": FAR, "x": "y"}}, "spec": text}
    value, _ = encode(copies.copy_of(PLANS.key(name), obj))
    await put(here, PLANS.kept_key(name), copies.kept_row(PLANS.kept_key(name), value))


async def whole(here: Cell, uid: str) -> int:
    """Say of which resource all copies are there; return the revision of that."""
    return await put(here, PLANS.whole, encode(copies.marker_of(PLANS.whole, uid)))


async def put(here: Cell, key: ObjectKey, stored: tuple[bytes, int]) -> int:
    with here.store.snapshot() as snapshot:
        revision = snapshot.revision_of(key)
    return (await here.store.submit([Put(key, *stored, revision)]))[0]


def rows(here: Cell, since: int = 0) -> CopiedRows:
    return CopiedRows(here.store, PLANS, HERE, since)


async def test_objects_are_those_of_the_provider_with_the_cluster_and_revisions_of_the_consumers_shard(
    here: Cell,
) -> None:
    with here.store.snapshot() as snapshot:
        stored = snapshot.revision_of(PLANS.kept_key("b"))
        record = rows(here).get(snapshot, ObjectKey(TYPE, HERE, "", "b"))
        assert rows(here).get(snapshot, ObjectKey(TYPE, HERE, "", "none")) is None
    assert record is not None and record.revision == stored
    assert json.loads(record.value) == {
        "metadata": {"name": "b", "annotations": {"kcp.io/cluster": HERE, "x": "y"}, "resourceVersion": str(stored)},
        "spec": "first",
    }


async def test_pages_and_watches_have_the_places_of_the_consumer(here: Cell) -> None:
    first = rows(here).page(SCOPE, limit=2)
    assert first.after is not None and (first.after.cluster, first.after.namespace) == (HERE, "")
    await copied(here, "d")
    rest = rows(here).page(SCOPE, at=first.revision, after=first.after)
    assert [json.loads(value)["metadata"]["name"] for value in first.values + rest.values] == ["a", "b", "c"]
    cursor = rows(here).cursor(SCOPE, first.revision)
    change = cursor.read()[0]
    cursor.close()
    assert change.key == ObjectKey(TYPE, HERE, "", "d")
    assert json.loads(change.after)["metadata"]["resourceVersion"] == str(change.revision)


async def test_no_revision_from_before_all_were_here_is_answered(here: Cell) -> None:
    with here.store.snapshot() as snapshot:
        early = snapshot.revision
    since = await whole(here, "uid")
    for read in (lambda: rows(here, since).cursor(SCOPE, early), lambda: rows(here, since).page(SCOPE, at=early)):
        with pytest.raises(RevisionCompacted):
            read()
    assert len(rows(here, since).page(SCOPE, at=since).values) == 3
    rows(here, since).cursor(SCOPE, since).close()


async def test_what_another_cached_resource_of_the_name_had_selected_is_not_read(here: Cell) -> None:
    view = Replication(here.core.catalogs, cast(Authorizer, None), here.facts.cluster_of, here.store)
    offer = _CachedResourceExport(FAR, "plans", {"metadata": {"name": "plans", "uid": "second"}}, "")

    def read(consumer: str = HERE) -> object:
        with here.store.snapshot() as snapshot:
            return view._copied(snapshot, consumer, offer)

    assert read() is None, "they are not known to be all here"
    for uid in ("first", ""):
        await whole(here, uid)
        with pytest.raises(ServiceUnavailable):
            read()
    await whole(here, "second")
    assert isinstance(read(), CopiedRows)
    assert read("another") is None, "a consumer of another shard reads there"
    assert read("") is None, "who reads for all reads at the source"
