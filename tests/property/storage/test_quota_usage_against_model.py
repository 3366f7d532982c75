"""What Pods use of quotas against a model that runs them: under random writes the use is that of a full scan."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Delete, DeletePrefix, GuardFailed, Mutation, Put, Scope
from atoll.machinery.storage.writing import first_counts, first_use
from harness.data.stores import put
from harness.models.store_machine import StoreMachine
from harness.seeds import drawn

PODS = ResourceType("", "pods", "f" * 64)
SPACES = ("x", "admin")
WIDE = {"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}}
NAMES = ("count/pods", "pods", "requests.cpu", "limits.ephemeral-storage")
SCOPES: tuple[list[str], ...] = ([], ["Terminating"], ["NotTerminating"])

spaces, millis = st.sampled_from(SPACES), st.integers(0, 4).map(lambda number: number * 250)
pod_keys = st.builds(ObjectKey, st.just(PODS), st.just("a"), spaces, st.sampled_from("abcd"))
quota_keys = st.builds(ObjectKey, st.just(RESOURCE_QUOTAS), st.just("a"), spaces, st.sampled_from(["q", "r"]))
pods = st.fixed_dictionaries(
    {
        "runs": st.lists(millis, max_size=2),
        #: Whether each stays, and what it asks for.
        "starts": st.lists(st.tuples(st.booleans(), millis), max_size=3),
        "ends": st.booleans(),
        "is_over": st.sampled_from([False, False, True]),
    }
)


def resources(amount: int) -> Object:
    return {"requests": {"cpu": f"{amount}m"}, "limits": {"ephemeral-storage": amount / 1000}}


def stored(key: ObjectKey, pod: Object, expected: int) -> Put:
    starts = [
        {"name": "s", "resources": resources(amount), **({"restartPolicy": "Always"} if stays else {})}
        for stays, amount in pod["starts"]
    ]
    runs = [{"name": "c", "resources": resources(amount)} for amount in pod["runs"]]
    spec = {"containers": runs, "initContainers": starts, **({"activeDeadlineSeconds": 5} if pod["ends"] else {})}
    return put(key, expected=expected, spec=spec, status={"phase": "Failed" if pod["is_over"] else "Running"})


def peak(pod: Object) -> int:
    """The most that runs at a time, step by step from the start of the Pod."""
    most, stay = 0, 0
    for stays, amount in pod["starts"]:
        most = max(most, stay + amount)
        stay += amount if stays else 0
    return max(most, stay + sum(pod["runs"]))


class Machine(StoreMachine):
    """One store; the model is its Pods, and what each quota says. Amounts are in thousandths."""

    def __init__(self) -> None:
        super().__init__()
        rows = ((first_counts, "SLICE_ROWS"), (first_use, "SLICE_ROWS"), (first_use, "LOG_ROWS"))
        self.patched = [patch.object(module, name, 2) for module, name in rows]
        for each in self.patched:
            each.start()
        self.revisions: dict[ObjectKey, int] = {}
        self.pods: dict[ObjectKey, Object] = {}
        self.quotas: dict[ObjectKey, tuple[bool, list[str], dict[str, int]]] = {}

    def do(self, *mutations: Mutation) -> list[int] | None:
        """Return None where a quota refuses."""
        try:
            return self.loop.run_until_complete(self.store.submit(mutations))
        except GuardFailed:
            return None

    def scope(self, quota: ObjectKey) -> str:
        return "" if quota.namespace == "admin" and self.quotas[quota][0] else quota.namespace

    def uses(self, quota: ObjectKey, name: str, pod: Object | None) -> int:
        scopes = self.quotas[quota][1]
        if pod is None or (scopes and pod["ends"] != (scopes == ["Terminating"])):
            return 0
        if name == "count/pods" or pod["is_over"]:
            return 1000 if name == "count/pods" else 0
        return 1000 if name == "pods" else peak(pod)

    def used(self, quota: ObjectKey, name: str) -> int:
        space = self.scope(quota)
        return sum(self.uses(quota, name, pod) for key, pod in self.pods.items() if space in {"", key.namespace})

    def is_refused(self, key: ObjectKey, new: Object) -> bool:
        old = self.pods.get(key)
        if old is not None and all(old[each] == new[each] for each in ("runs", "starts", "ends")):
            return False
        for quota, (_, _, hard) in self.quotas.items():
            if self.scope(quota) in {"", key.namespace}:
                for name, most in hard.items():
                    more = self.uses(quota, name, new) - self.uses(quota, name, old)
                    if more > 0 and self.used(quota, name) + more > most:
                        return True
        return False

    @rule(key=pod_keys, pod=pods)
    def write(self, key: ObjectKey, pod: Object) -> None:
        refused = self.is_refused(key, pod)
        done = self.do(stored(key, pod, self.revisions.get(key, 0)))
        assert (done is None) == refused
        if done is not None:
            [self.revisions[key]], self.pods[key] = done, pod

    @rule(key=pod_keys)
    def remove(self, key: ObjectKey) -> None:
        if key in self.pods:
            self.do(Delete(key, self.revisions.pop(key)))
            del self.pods[key]

    @rule(namespace=st.sampled_from(["", *SPACES]))
    def remove_prefix(self, namespace: str) -> None:
        self.do(DeletePrefix(Scope(PODS, "a", namespace)))
        for key in [each for each in self.pods if namespace in {"", each.namespace}]:
            del self.pods[key], self.revisions[key]

    @rule(
        key=quota_keys,
        wide=st.booleans(),
        scopes=st.sampled_from(SCOPES),
        hard=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6).map(lambda number: number * 500), max_size=3),
    )
    def set_quota(self, key: ObjectKey, wide: bool, scopes: list[str], hard: dict[str, int]) -> None:
        whole = {name: most // 1000 * 1000 if name in NAMES[:2] else most for name, most in hard.items()}
        spec = {"hard": {name: f"{most}m" for name, most in whole.items()}, "scopes": scopes}
        done = self.do(put(key, expected=self.revisions.get(key, 0), metadata=WIDE if wide else None, spec=spec))
        assert done is not None
        [self.revisions[key]], self.quotas[key] = done, (wide, scopes, whole)

    @rule(key=quota_keys)
    def remove_quota(self, key: ObjectKey) -> None:
        if key in self.quotas:
            self.do(Delete(key, self.revisions.pop(key)))
            del self.quotas[key]

    @rule()
    def restart(self) -> None:
        self.reopen()

    @invariant()
    def the_use_is_that_of_a_scan(self) -> None:
        with self.store.snapshot() as snapshot:
            for quota, (_, _, hard) in self.quotas.items():
                found = snapshot.limits(PODS, "a", self.scope(quota))
                for name, most in hard.items():
                    own = [each for each in found if (each.quota, each.resource) == (quota.name, name)]
                    assert (own[0].used * 1000, own[0].hard * 1000) == (self.used(quota, name), most)

    def teardown(self) -> None:
        for each in self.patched:
            each.stop()
        super().teardown()


Machine.TestCase.settings = settings(
    max_examples=drawn(30), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestQuotaUsageAgainstModel = Machine.TestCase
