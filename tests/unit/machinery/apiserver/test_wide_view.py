"""The federated view: each cluster is read from local rows or replicas, and versions change when that changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import FederatedView, Latest, federated
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import CLUSTER_ROLES, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Gate, GateState, Position, Scope
from atoll.machinery.storage.pages import PAGE, position_after
from harness.data.stores import replica
from harness.servers.in_process.minimal_shard import Cell, cell

HERE, FAR = "mhere", "nfar"
EVERYWHERE = Scope(CLUSTER_ROLES)
PATH = "paths.internal.atoll.dev/x"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HERE)
        await made.put(CLUSTER_ROLES, HERE, role("local"))
        yield made


def role(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}, "rules": []}


def of(cluster: str, name: str) -> ObjectKey:
    return ObjectKey(CLUSTER_ROLES, cluster, "", name)


async def publish(here: Cell, cluster: str, *names: str, origin: str = "east", revision: int = 7) -> None:
    """Publish the rows of a cluster as another shard."""
    metadata = {"labels": {PATH: "p"}}
    sent = [replica(of(cluster, name), revision, origin=origin, metadata=metadata) for name in names]
    await here.store.submit([ClusterRoute(cluster, origin), *sent])


def stamp(here: Cell, cluster: str) -> int:
    with here.store.snapshot() as snapshot:
        return federated(snapshot).last(CLUSTER_ROLES, cluster)


def names(view: View, scope: Scope = EVERYWHERE, limit: int = PAGE) -> list[str]:
    """Names of a scope, page by page."""
    found: list[str] = []
    after: Position | None = None
    while True:
        page = view.scan(scope, after, limit)
        assert view.revisions(scope, after, limit) == [(record.key, record.revision) for record in page]
        found += [record.key.name for record in page]
        if len(page) < limit:
            return found
        after = position_after(page[-1].key)


async def test_where_nothing_lies_elsewhere_the_view_is_the_snapshot_itself(here: Cell) -> None:
    with here.store.snapshot() as snapshot:
        assert federated(snapshot) is snapshot
    batch = here.loopback.batch()
    assert federated(batch) is batch
    await publish(here, FAR, "a")
    with here.store.snapshot() as snapshot:
        view = federated(snapshot)
        assert isinstance(view, FederatedView)
        assert federated(view) is view


async def test_a_cluster_elsewhere_answers_from_what_its_shard_published(here: Cell) -> None:
    await publish(here, FAR, "a")
    with here.store.snapshot() as snapshot:
        view = federated(snapshot)
        record = view.get(of(FAR, "a"))
        assert record is not None
        assert (record.revision, view.revision_of(of(FAR, "a"))) == (7, 7)
        assert view.get(of(FAR, "none")) is None
        assert view.get(of(HERE, "local")) == snapshot.get(of(HERE, "local"))
        assert view.revision_of(of(HERE, "local")) == snapshot.revision_of(of(HERE, "local")) > 7
        assert snapshot.get(of(FAR, "a")) is None
        assert (names(view, Scope(CLUSTER_ROLES, FAR)), names(view, Scope(CLUSTER_ROLES, HERE))) == (["a"], ["local"])
        assert view.revision == snapshot.revision
        assert view.replicas is snapshot.replicas


async def test_a_local_cluster_and_the_systems_own_never_answer_from_replicas(here: Cell) -> None:
    await publish(here, FAR, "a")
    await publish(here, HERE, "strange")
    await publish(here, "system:admin", "strange")
    with here.store.snapshot() as snapshot:
        view = federated(snapshot)
        assert view.get(of(HERE, "strange")) is None
        assert view.get(of("system:admin", "strange")) is None
        assert view.last(CLUSTER_ROLES, HERE) == snapshot.last(CLUSTER_ROLES, HERE)
        assert "strange" not in names(view)
        assert [key.name for key in view.labelled(PATH, "p")] == ["a"]


async def test_the_gate_of_a_cluster_elsewhere_stays_closed(here: Cell) -> None:
    logical = replica(ObjectKey(LOGICAL_CLUSTERS, FAR, "", "cluster"), 7, status={"phase": "Ready"})
    await here.store.submit([ClusterRoute(FAR, "east"), logical])
    with here.store.snapshot() as snapshot:
        view = federated(snapshot)
        assert view.get(logical.key) is not None
        assert view.gate(FAR) == Gate(GateState.CLOSED, 0)
        assert view.gate(HERE).state is GateState.OPEN


@pytest.mark.parametrize("limit", [1, 2, 3, PAGE])
async def test_pages_of_all_clusters_show_both_sides_in_key_order(here: Cell, limit: int) -> None:
    await publish(here, "a", "a1", "a2")
    await publish(here, FAR, "f1", "f2" * 200, origin="west")
    await publish(here, HERE, "strange", "stranger", "z")
    with here.store.snapshot() as snapshot:
        assert names(federated(snapshot), EVERYWHERE, limit) == ["a1", "a2", "local", "f1", "f2" * 200]


@pytest.mark.parametrize("limit", [1, 2, 3, 0])
async def test_labels_are_found_on_both_sides_page_by_page(here: Cell, limit: int) -> None:
    await here.put(CLUSTER_ROLES, HERE, role("one", **{PATH: "p"}))
    await here.put(CLUSTER_ROLES, HERE, role("two", **{PATH: "p"}))
    await publish(here, FAR, "a", "b")
    await publish(here, HERE, "strange")
    with here.store.snapshot() as snapshot:
        view, found = federated(snapshot), list[ObjectKey]()
        while page := view.labelled(PATH, "p", CLUSTER_ROLES, limit, found[-1] if found else None):
            found += page
            if not limit:
                break
        assert [key.name for key in found] == ["one", "two", "a", "b"]


async def test_stamps_move_with_every_change_on_either_side_and_when_the_owner_changes(here: Cell) -> None:
    seen = [(stamp(here, FAR), stamp(here, ""))]

    async def moved() -> None:
        seen.append((stamp(here, FAR), stamp(here, "")))
        assert seen[-1][0] not in [far for far, _ in seen[:-1]]
        assert seen[-1][1] > seen[-2][1]

    await publish(here, FAR, "a")
    await moved()
    await publish(here, FAR, "a", revision=8)
    await moved()
    await here.store.submit([replica(of(FAR, "b"), 7, origin="west")])
    assert stamp(here, FAR) == seen[-1][0]
    await here.store.submit([ClusterRoute(FAR, "west")])
    await moved()
    await here.store.submit([ClusterRoute(FAR, "north")])
    await moved()
    await here.cluster(FAR)
    await here.put(CLUSTER_ROLES, FAR, role("moved-here"))
    await moved()
    far, everywhere = seen[-1]
    await here.put(CLUSTER_ROLES, HERE, role("other"))
    assert (stamp(here, FAR), stamp(here, "") > everywhere) == (far, True)


async def test_a_batch_sees_the_same_and_the_cluster_that_it_makes_itself(here: Cell) -> None:
    await publish(here, FAR, "a")
    await publish(here, "made", "strange")
    batch = here.loopback.batch()
    assert isinstance(batch.replicas, Latest)
    view = federated(batch)
    assert view.get(of(FAR, "a")) is not None
    assert view.get(of(HERE, "local")) is not None
    _create(here, batch, "made")
    view = federated(batch)
    assert view.get(of("made", "strange")) is None
    assert names(view) == ["local", "a"]


def _create(here: Cell, batch: Batch, cluster: str) -> None:
    body = {"metadata": {"name": "cluster"}, "spec": {}, "status": {"phase": "Ready"}}
    batch.create(Target(here.kind(LOGICAL_CLUSTERS), cluster, "", "cluster"), body)


async def test_a_route_lands_with_its_batch_or_not_at_all(here: Cell) -> None:
    batch = here.loopback.batch()
    batch.route("child", "east", 2)
    _create(here, batch, "made")
    assert batch.replicas.empty
    await batch.submit()
    with here.store.snapshot() as snapshot:
        assert snapshot.replicas.route_of("child") == ClusterRoute("child", "east", 2)
        assert snapshot.gate("made").generation


async def test_what_a_batch_reads_of_elsewhere_is_what_the_store_holds(here: Cell) -> None:
    await publish(here, FAR, "a", "b")
    latest = Latest(here.store)
    with here.store.snapshot() as snapshot:
        there, scope = snapshot.replicas, Scope(CLUSTER_ROLES, FAR)
        assert (latest.empty, latest.count, latest.shard_of(FAR)) == (there.empty, there.count, there.shard_of(FAR))
        assert (latest.route_of(FAR), latest.get(of(FAR, "a"))) == (there.route_of(FAR), there.get(of(FAR, "a")))
        assert latest.revision_of(of(FAR, "a")) == there.revision_of(of(FAR, "a"))
        assert latest.last(CLUSTER_ROLES, FAR) == there.last(CLUSTER_ROLES, FAR)
        assert (latest.scan(scope), latest.revisions(scope)) == (there.scan(scope), there.revisions(scope))
        assert latest.labelled(PATH, "p") == there.labelled(PATH, "p")
        assert latest.rows_of("east", scope) == there.rows_of("east", scope)
        assert latest.row_of("east", of(FAR, "a")) == there.row_of("east", of(FAR, "a"))
        assert latest.types_of("east", FAR) == there.types_of("east", FAR)
        assert latest.outdated("east", 2) == there.outdated("east", 2)
