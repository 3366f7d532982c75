"""Decisions about clusters on other shards: replicas decide, and absent ones deny."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import Record
from harness.models.rbac_snapshot import FakeStore, binding, bootstrap, logical_cluster, role, rule, workspace

ALICE = User("alice", (AUTHENTICATED,))
HERE, THERE = "2consumer", "3provider"
BIND: dict[str, Any] = {"group": "apis.kcp.io", "resource": "apiexports", "name": "things"}
THINGS: dict[str, Any] = {"group": "shapes.dev", "resource": "things", "namespace": "default", "name": "one"}
UID = "schema-uid"


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    bootstrap(made)
    workspace(made, HERE, owner="alice")
    return made


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer()


def published(store: FakeStore, *objects: Object) -> None:
    """A cluster of another shard, with a LogicalCluster and other objects."""
    store.replicas.route(THERE, "east")
    for obj in (logical_cluster(), *objects):
        store.replicas.put(THERE, obj)


def may_bind(verb: str = "bind") -> Object:
    return role("binder", rule(verb, "apiexports", "apis.kcp.io", "things"))


def ask(verb: str = "bind", cluster: str = THERE, user: User = ALICE, **fields: Any) -> Attributes:
    return Attributes(user=user, verb=verb, cluster=cluster, **(fields or BIND))


def test_a_question_about_a_cluster_elsewhere_goes_by_what_its_shard_published(
    store: FakeStore, authorizer: Authorizer
) -> None:
    assert not authorizer.authorize(store, ask(), deep=True).allowed
    published(store, may_bind(), binding("binders", "binder", "User:alice"))
    decision = authorizer.authorize(store, ask(), deep=True)
    assert decision.allowed and decision.steps[-1].name == "05-global"
    assert not authorizer.authorize(store, ask(user=User("bob", (AUTHENTICATED,))), deep=True).allowed


def test_nobody_gets_into_a_cluster_that_is_elsewhere(store: FakeStore, authorizer: Authorizer) -> None:
    published(store, binding("workspace-admin", "cluster-admin", "User:alice"))
    decision = authorizer.authorize(store, ask("get", resource="configmaps", namespace="default", name="c"))
    nowhere = authorizer.authorize(store, ask("get", "4nowhere", resource="configmaps", namespace="default", name="c"))
    assert not decision.allowed
    assert (decision.reason, decision.steps[-1].name) == (nowhere.reason, nowhere.steps[-1].name)


def test_a_right_taken_back_elsewhere_is_gone_with_the_next_question(store: FakeStore, authorizer: Authorizer) -> None:
    published(store, may_bind(), binding("binders", "binder", "User:alice"))
    assert authorizer.authorize(store, ask(), deep=True).allowed
    store.replicas.delete(THERE, "ClusterRoleBinding", "binders")
    assert not authorizer.authorize(store, ask(), deep=True).allowed


def test_a_role_of_the_system_counts_where_a_binding_elsewhere_gives_it(
    store: FakeStore, authorizer: Authorizer
) -> None:
    published(store, binding("workspace-admin", "cluster-admin", "User:alice"))
    assert authorizer.authorize(store, ask(), deep=True).allowed


def test_what_stands_here_is_not_judged_by_what_another_shard_says_of_it(
    store: FakeStore, authorizer: Authorizer
) -> None:
    store.replicas.route(HERE, "east")
    store.replicas.put(HERE, logical_cluster())
    store.replicas.put(HERE, binding("intruder", "cluster-admin", "User:mallory"))
    mallory = User("mallory", (AUTHENTICATED,))
    for deep in (False, True):
        assert not authorizer.authorize(store, ask("get", HERE, mallory), deep=deep).allowed


def test_a_request_that_stays_here_reads_nothing_of_other_shards(store: FakeStore, authorizer: Authorizer) -> None:
    published(store, may_bind())
    store.replicas.rows.reads.clear()
    for name in ("a", "b", "c"):
        fields: dict[str, Any] = {"resource": "configmaps", "namespace": "default", "name": name}
        assert authorizer.authorize(store, ask("get", HERE, **fields)).allowed
        store.put(HERE, role(name, rule("get", "secrets")))
    assert not store.replicas.rows.reads


class TestAPolicyOfARemoteCluster:
    """The maximal permission policy of an export on another shard."""

    @pytest.fixture(autouse=True)
    def bound(self, store: FakeStore) -> None:
        store.put(
            HERE,
            {
                "kind": "APIBinding",
                "metadata": {"name": "things"},
                "spec": {"reference": {"export": {"path": "root:provider", "name": "things"}}},
                "status": {
                    "apiExportClusterName": THERE,
                    "boundResources": [{"group": "shapes.dev", "resource": "things", "schema": {"UID": UID}}],
                },
            },
        )

    def export(self, policed: bool = True) -> Object:
        spec: Object = {"maximalPermissionPolicy": {"local": {}}} if policed else {}
        return {"kind": "APIExport", "metadata": {"name": "things"}, "spec": spec}

    def definition(self, store: FakeStore, policed: str) -> None:
        crd = {"metadata": {"name": UID, "annotations": {bound_crds.POLICED: policed}}}
        key = bound_crds.key_of(UID)
        store.revision += 1
        store.records[key] = Record(key, store.revision, msgspec.json.encode(crd))

    def is_allowed(self, store: FakeStore, authorizer: Authorizer) -> bool:
        return authorizer.authorize(store, ask("create", HERE, **THINGS)).allowed

    def test_is_in_force(self, store: FakeStore, authorizer: Authorizer) -> None:
        published(store, self.export())
        assert not self.is_allowed(store, authorizer)
        store.replicas.put(THERE, role("everything", rule("*", "*", "*")))
        store.replicas.put(THERE, binding("policy", "everything", "User:apis.kcp.io:binding:alice"))
        assert self.is_allowed(store, authorizer)
        store.replicas.delete(THERE, "ClusterRoleBinding", "policy")
        assert not self.is_allowed(store, authorizer)

    def test_is_none_where_the_export_sets_none(self, store: FakeStore, authorizer: Authorizer) -> None:
        published(store, self.export(policed=False))
        assert self.is_allowed(store, authorizer)

    @pytest.mark.parametrize("recorded", [False, True], ids=["never heard of", "the export is missing"])
    def test_that_was_seen_once_permits_nothing_while_the_export_is_not_known(
        self, store: FakeStore, authorizer: Authorizer, recorded: bool
    ) -> None:
        self.definition(store, "things")
        if recorded:
            published(store)
        assert not self.is_allowed(store, authorizer)
        published(store, self.export(policed=False))
        assert self.is_allowed(store, authorizer)

    def test_that_was_never_seen_goes_with_the_export(self, store: FakeStore, authorizer: Authorizer) -> None:
        published(store, self.export(policed=False))
        assert self.is_allowed(store, authorizer)
        store.replicas.delete(THERE, "APIExport", "things")
        self.definition(store, "")
        assert self.is_allowed(store, authorizer)
        # The decision is not cached: the annotation is no part of any cache key.
        self.definition(store, "things")
        assert not self.is_allowed(store, authorizer)

    def test_of_an_export_that_was_deleted_here_restricts_nothing_whatever_was_noted(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        store.put(THERE, logical_cluster())
        store.put(THERE, self.export())
        self.definition(store, "things")
        assert not self.is_allowed(store, authorizer)
        store.delete(THERE, "APIExport", "things")
        assert self.is_allowed(store, authorizer)

    def test_of_a_claimed_kind_permits_nothing_while_the_export_is_not_known(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        asked = ask("create", HERE, **THINGS)
        published(store)
        assert not authorizer.permits(store, asked, THERE, "things")
        store.replicas.put(THERE, self.export(policed=False))
        assert authorizer.permits(store, asked, THERE, "things")
