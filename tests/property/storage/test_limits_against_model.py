"""Quotas and the limit of all objects against a model: under random operations counts are those of a full scan."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Delete, DeletePrefix, GuardFailed, Mutation, Scope
from atoll.machinery.storage.limits import WithinLimits
from atoll.machinery.storage.writing import first_counts
from harness.data.stores import put
from harness.models.store_machine import StoreMachine
from harness.seeds import drawn

#: A kind of the core, one of two identities, and one without a namespace.
CONFIGMAPS, WORKSPACES = ResourceType("", "configmaps"), ResourceType("tenancy.kcp.io", "workspaces")
OWN, BOUND = (ResourceType("example.com", "widgets", identity) for identity in ("", "f" * 64))
NAMES = {"count/configmaps": CONFIGMAPS, "configmaps": CONFIGMAPS, "resourcequotas": RESOURCE_QUOTAS}
NAMES |= {"count/widgets.example.com": OWN, "count/workspaces.tenancy.kcp.io": WORKSPACES}
SPACES, CLUSTERS = ("x", "admin"), ("a", "b")
WIDE = {"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}}

clusters, spaces = st.sampled_from(CLUSTERS), st.sampled_from(SPACES)
object_keys = st.one_of(
    st.builds(ObjectKey, st.sampled_from([CONFIGMAPS, OWN, BOUND]), clusters, spaces, st.sampled_from("abcd")),
    st.builds(ObjectKey, st.just(WORKSPACES), clusters, st.just(""), st.sampled_from("abc")),
)
quota_keys = st.builds(ObjectKey, st.just(RESOURCE_QUOTAS), clusters, spaces, st.sampled_from(["q", "r"]))
hards = st.dictionaries(st.sampled_from(sorted(NAMES)), st.integers(0, 5), max_size=3)


class Machine(StoreMachine):
    """One store; the model is the set of its objects, what each quota says, and how many objects a cluster may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = patch.object(first_counts, "SLICE_ROWS", 2)
        self.patched.start()
        self.revisions: dict[ObjectKey, int] = {}
        self.quotas: dict[ObjectKey, tuple[bool, dict[str, int]]] = {}
        self.allowed: dict[str, int] = {}

    def do(self, *mutations: Mutation) -> list[int] | GuardFailed:
        try:
            return self.loop.run_until_complete(self.store.submit(mutations))
        except GuardFailed as error:
            assert isinstance(error.guard, WithinLimits)
            return error

    # --- the model

    def scope(self, quota: ObjectKey) -> str:
        return "" if quota.namespace == "admin" and self.quotas[quota][0] else quota.namespace

    def count(self, name: str, cluster: str, namespace: str) -> int:
        kind = NAMES[name]
        return sum(
            (each.type.group, each.type.resource) == (kind.group, kind.resource)
            and each.cluster == cluster
            and namespace in {"", each.namespace}
            for each in self.revisions
        )

    def is_refused(self, key: ObjectKey) -> bool:
        """Whether one object more is too many for a quota or for the cluster."""
        held = sum(each.cluster == key.cluster for each in self.revisions)
        if 0 < self.allowed.get(key.cluster, 0) <= held:
            return True
        for quota, (_, hard) in self.quotas.items():
            scope = self.scope(quota)
            if quota.cluster != key.cluster or scope not in {"", key.namespace}:
                continue
            for name, most in hard.items():
                kind = NAMES[name]
                counts = (kind.group, kind.resource) == (key.type.group, key.type.resource)
                if counts and self.count(name, key.cluster, scope) >= most:
                    return True
        return False

    # --- writes

    @rule(key=object_keys)
    def write(self, key: ObjectKey) -> None:
        stands = self.revisions.get(key, 0)
        refused = not stands and self.is_refused(key)
        done = self.do(put(key, expected=stands))
        assert isinstance(done, GuardFailed) == refused
        if isinstance(done, list):
            self.revisions[key] = done[0]

    @rule(key=object_keys)
    def remove(self, key: ObjectKey) -> None:
        if key in self.revisions:
            self.do(Delete(key, self.revisions.pop(key)))

    @rule(
        kind=st.sampled_from([CONFIGMAPS, BOUND, RESOURCE_QUOTAS]),
        cluster=clusters,
        namespace=st.sampled_from(["", *SPACES]),
    )
    def remove_prefix(self, kind: ResourceType, cluster: str, namespace: str) -> None:
        self.do(DeletePrefix(Scope(kind, cluster, namespace)))
        for key in list(self.revisions):
            if key.type == kind and key.cluster == cluster and namespace in {"", key.namespace}:
                del self.revisions[key]
                self.quotas.pop(key, None)

    @rule(key=quota_keys, hard=hards, wide=st.booleans())
    def set_quota(self, key: ObjectKey, hard: dict[str, int], wide: bool) -> None:
        stands = self.revisions.get(key, 0)
        refused = not stands and self.is_refused(key)
        spec = {"hard": {name: str(most) for name, most in hard.items()}}
        done = self.do(put(key, expected=stands, metadata=WIDE if wide else None, spec=spec))
        assert isinstance(done, GuardFailed) == refused
        if isinstance(done, list):
            self.revisions[key] = done[0]
            self.quotas[key] = (wide, hard)

    @rule(key=quota_keys, made=object_keys, gone=object_keys)
    def count_beside_writes(self, key: ObjectKey, made: ObjectKey, gone: ObjectKey) -> None:
        """A quota whose first count goes on while objects come and go: either may be refused by other limits."""
        hard = {"count/configmaps": 99, "count/widgets.example.com": 99}
        spec = {"hard": {name: str(most) for name, most in hard.items()}}
        writes: dict[ObjectKey, Mutation] = {key: put(key, expected=self.revisions.get(key, 0), spec=spec)}
        if gone in self.revisions:
            writes[gone] = Delete(gone, self.revisions[gone])
        if made not in self.revisions:
            writes[made] = put(made)

        async def all_of_them() -> list[list[int] | BaseException]:
            queued = [self.store.queue([mutation]) for mutation in writes.values()]
            return await asyncio.gather(*queued, return_exceptions=True)

        for target, done in zip(writes, self.loop.run_until_complete(all_of_them()), strict=True):
            if isinstance(done, BaseException):
                assert isinstance(done, GuardFailed)
            elif isinstance(writes[target], Delete):
                del self.revisions[target]
            else:
                self.revisions[target] = done[0]
                if target == key:
                    self.quotas[key] = (False, hard)

    @rule(key=quota_keys)
    def remove_quota(self, key: ObjectKey) -> None:
        if key in self.revisions:
            self.do(Delete(key, self.revisions.pop(key)))
            del self.quotas[key]

    @rule(cluster=clusters, allowed=st.sampled_from([None, "0", "4", "9"]))
    def set_total(self, cluster: str, allowed: str | None) -> None:
        key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")
        metadata = {"annotations": {"core.kcp.io/max-total-objects": allowed}} if allowed else None
        [revision] = self.do(  # type: ignore[misc]
            put(key, expected=self.revisions.get(key, 0), metadata=metadata, status={"phase": "Ready"})
        )
        self.revisions[key] = revision
        self.allowed[cluster] = int(allowed or 0)

    @rule()
    def restart(self) -> None:
        self.reopen()

    @invariant()
    def counts_are_those_of_a_scan(self) -> None:
        with self.store.snapshot() as snapshot:
            for cluster in CLUSTERS:
                total = snapshot.total(cluster)
                assert total.used == sum(each.cluster == cluster for each in self.revisions)
                assert total.hard == self.allowed.get(cluster, 0)
            for quota, (_, hard) in self.quotas.items():
                scope = self.scope(quota)
                for name, most in hard.items():
                    found = snapshot.limits(NAMES[name], quota.cluster, scope)
                    own = [each for each in found if (each.quota, each.resource) == (quota.name, name)]
                    assert (own[0].used, own[0].hard) == (self.count(name, quota.cluster, scope), most)

    def teardown(self) -> None:
        self.patched.stop()
        super().teardown()


Machine.TestCase.settings = settings(
    max_examples=drawn(30), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLimitsAgainstModel = Machine.TestCase
