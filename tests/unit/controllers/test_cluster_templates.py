"""New clusters from templates are those that planning makes, and no template outlives what it was planned from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from atoll.machinery.apiserver.writing.batch import Batch, Overtaken
from atoll.machinery.apiserver.writing.recorded_batch import Reads, Recorded, RecordedBatch
from atoll.machinery.kcp.sharding.replication_level import LEVEL
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, resolve
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.hashes import cluster_name_of
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode_json, labels_of
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS, CONFIG_MAPS, VALIDATING_POLICIES
from atoll.machinery.storage.contract import Put, RevisionUnchanged
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.cluster_templates import _template
from harness.clients.exports import export, schema
from harness.servers.in_process.shard import InsideShard, shard_inside

pytestmark = pytest.mark.asyncio(loop_scope="module")
SQUARES = schema("squares")
ADA = {"username": 'ada "%(name)s" Ödön', "groups": ["a"]}
CLAIM = {"group": "", "resource": "configmaps", "verbs": ["get"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shard(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideShard]:
    async with shard_inside(Path(tmp_path_factory.mktemp("shard"))) as made:
        await made.loopback.create(made.target(API_RESOURCE_SCHEMAS, ROOT, "", SQUARES["metadata"]["name"]), SQUARES)
        await made.loopback.create(made.target(API_EXPORTS, ROOT, "", "shapes"), export("shapes", SQUARES))
        spec = {
            "initializer": True,
            "extend": {"with": [{"name": "universal", "path": "root"}]},
            "defaultAPIBindings": [{"path": "root", "export": "shapes"}],
        }
        kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType"}
        target = made.target(made.app.identities.workspace_types, ROOT, "", "shaped")
        await made.loopback.create(target, {**kind, "metadata": {"name": "shaped"}, "spec": spec})
        # The first one that binds the export makes its bound CRD.
        await made.workspace("shaped", type={"name": "shaped", "path": "root"})
        yield made


Filled = tuple[Batch, workspace.WorkspacePlan]


class Clusters:
    """Plans new clusters of one type, in batches that are not submitted."""

    def __init__(self, shard: InsideShard, type: str) -> None:
        self.shard, self._type = shard, TypeReference(type, "root")
        self.builder, self._number = ClusterBuilder(shard.loopback, shard.app.facts), 0

    def plan(self, batch: Batch, name: str, parent: str = "root", owner: Object = ADA) -> workspace.WorkspacePlan:
        self._number += 1
        facts, uids, path = self.shard.app.facts, _uids(self._number), f"root:{parent}:{name}"
        metadata = {"name": name, "uid": next(uids), "annotations": {wellknown.OWNER: encode_json(owner).decode()}}
        return workspace.WorkspacePlan(
            workspace={"metadata": metadata},
            parent_cluster=parent,
            path=path,
            cluster=cluster_name_of(parent, str(metadata["uid"]), "root"),
            resolution=resolve(self._type, {}, lambda path, name: facts.workspace_type(batch, path, name)),
            shard=workspace.Shard("root", "https://atoll:6443", "a certificate"),
            find_export=lambda where, name: export_for(batch, facts, where, name, path),
            now=times.now(),
            new_uid=lambda: next(uids),
        )

    def filled(
        self, name: str, parent: str = "root", owner: Object = ADA
    ) -> tuple[Batch, workspace.WorkspacePlan] | None:
        """A batch with the objects of a template; None if they are to be planned."""
        batch = self.shard.loopback.batch()
        plan = self.plan(batch, name, parent, owner)
        return (batch, plan) if self.builder._templates.fill(batch, plan) is not None else None

    def planned(self, plan: workspace.WorkspacePlan) -> Batch:
        """A batch with the same objects, each planned and admitted at the plan's time."""
        batch = RecordedBatch(self.shard.loopback.core, "test", plan.cluster, plan.now)
        facts, uids = self.shard.app.facts, _uids(self._number)
        next(uids)
        own = replace(
            plan,
            find_export=lambda where, name: export_for(batch, facts, where, name, plan.path),
            new_uid=lambda: next(uids),
        )
        self.builder.add(batch, workspace.build(own))
        return batch

    def begin(self) -> None:
        """Plan until there is a template."""
        for _ in range(64):
            if self.filled("again") is not None:
                return
        raise AssertionError("no template was made")


def _uids(number: int) -> Iterator[str]:
    return (f"00000000-0000-4000-8000-{number:06}{place:06}" for place in range(100))


def config_map(batch: Batch) -> Object:
    """The first ConfigMap of a batch."""
    values = (each.value for each in batch._mutations if isinstance(each, Put) and each.key.type == CONFIG_MAPS)
    return decode(next(values))


@pytest.mark.parametrize("type", ["universal", "organization", "shaped"])
async def test_a_filled_template_is_byte_for_byte_what_planning_gives(shard: InsideShard, type: str) -> None:
    clusters = Clusters(shard, type)
    clusters.begin()
    for name, parent in (("t", "root"), ("default", "a1"), ("cluster", "organization"), ("a-b.c", "root")):
        found = clusters.filled(name, parent)
        assert found is not None
        batch, again = found[0], clusters.planned(found[1])
        assert batch._mutations == again._mutations
        assert batch._guards == again._guards
        assert len(batch) >= 8


async def test_a_template_is_made_for_those_that_recur_and_not_across_creators(shard: InsideShard) -> None:
    clusters = Clusters(shard, "universal")
    assert clusters.filled("first") is None
    clusters.begin()
    assert clusters.filled("third", owner={"username": "eve"}) is None
    assert clusters.filled("fourth") is not None
    cache = clusters.builder._templates._entries
    assert cache._total == sum(each.size_bytes for each in cache.values()) > 5_000


async def test_what_an_export_claims_since_is_accepted_by_the_next_cluster(shard: InsideShard) -> None:
    clusters = Clusters(shard, "shaped")
    clusters.begin()
    found = clusters.filled("before")
    assert found is not None and not labels_of(config_map(found[0]))
    old = shard.loopback.get(API_EXPORTS, ROOT, "", "shapes")
    assert old is not None
    spec = {**old["spec"], "permissionClaims": [CLAIM]}
    await shard.loopback.update(shard.target(API_EXPORTS, ROOT, "", "shapes"), {**old, "spec": spec})
    await shard.until_idle()
    assert clusters.filled("after") is None
    clusters.begin()
    found = clusters.filled("later")
    assert found is not None and labels_of(config_map(found[0]))
    assert found[0]._mutations == clusters.planned(found[1])._mutations


async def test_no_template_is_used_across_a_change_of_configured_admission(shard: InsideShard) -> None:
    clusters = Clusters(shard, "universal")
    clusters.begin()
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "all"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
            },
            "validations": [{"expression": "true"}],
        },
    }
    await shard.loopback.create(shard.target(VALIDATING_POLICIES, ROOT, "", "all"), policy)
    assert clusters.filled("after") is None


async def test_a_cluster_that_exists_is_not_filled(shard: InsideShard) -> None:
    cluster = await shard.workspace("exists")
    clusters = Clusters(shard, "universal")
    clusters.begin()
    batch = shard.loopback.batch()
    plan = replace(clusters.plan(batch, "exists"), cluster=cluster)
    assert clusters.builder._templates.fill(batch, plan) is None
    assert not len(batch)


async def test_a_batch_that_is_planned_again_later_does_not_keep_an_outdated_template(shard: InsideShard) -> None:
    holding = [True]
    batch = shard.loopback.batch()
    batch.add_planned((), (), lambda snapshot: holding.pop())
    holding.append(False)
    with pytest.raises(Overtaken):
        batch._plan_again()


async def test_clusters_that_bind_what_only_their_organization_may_have_no_template(shard: InsideShard) -> None:
    old = shard.loopback.get(API_EXPORTS, ROOT, "", "shapes")
    assert old is not None
    metadata = {**old["metadata"], "annotations": {**old["metadata"]["annotations"], LEVEL: "organization"}}
    await shard.loopback.update(shard.target(API_EXPORTS, ROOT, "", "shapes"), {**old, "metadata": metadata})
    await shard.until_idle()
    clusters = Clusters(shard, "shaped")
    assert [clusters.filled(f"n{number}") for number in range(6)] == [None] * 6


async def test_plans_that_depend_on_a_stand_in_beyond_its_own_places_make_no_template() -> None:
    reads = Reads()
    recorded = Recorded((), (), reads)
    assert _template(recorded, "new", {b"t123": b"name"}) is not None
    reads.note(0, "revision_of", ObjectKey(API_EXPORTS, ROOT, "", "t123"))
    assert _template(recorded, "new", {b"t123": b"name"}) is None
    guard = RevisionUnchanged(ObjectKey(API_EXPORTS, ROOT, "", "t123"), 1)
    assert _template(Recorded((), (guard,), Reads()), "new", {b"t123": b"name"}) is None
    elsewhere = Put(ObjectKey(API_EXPORTS, ROOT, "", "a"), b"{}", 1, 0)
    assert _template(Recorded((elsewhere,), (), Reads()), "new", {b"t123": b"name"}) is None
