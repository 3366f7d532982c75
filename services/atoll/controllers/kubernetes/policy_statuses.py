"""The status of ValidatingAdmissionPolicies: warnings of type checking, and the generation that was checked.

Watches: the policies, CustomResourceDefinitions and APIBindings. Writes: the status of policies, by server-side apply.
A policy is checked when its generation changes, and all policies of a cluster when the kinds of the cluster may have
changed. Converges because a status that says the same is not written. Checking takes milliseconds to seconds and runs
in slices beside the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import NamedTuple

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.kinds.checks import mapping
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS, CRDS, VALIDATING_POLICIES
from atoll.machinery.process.time_slicing import run_sliced
from atoll.machinery.storage.contract import LogEntry, Operation, Scope

#: Time limit of the check of one policy, including the wait for a slot.
CHECK_TIMEOUT_S = 60.0
_KINDS = (CRDS, API_BINDINGS)


class PolicyKey(NamedTuple):
    """A policy, or with an empty name all policies of a cluster."""

    cluster: str
    name: str


class PolicyStatuses(Controller):
    """Key: PolicyKey."""

    name = "validatingadmissionpolicy-status"
    workers = 1
    batch_delay_s = 0.05

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return type == VALIDATING_POLICIES or type in _KINDS

    def operations(self, type: ResourceType) -> Collection[Operation]:
        """A definition or binding serves nothing when it is created, and a policy that is gone has no status."""
        if type in _KINDS:
            return (Operation.MODIFIED, Operation.DELETED)
        return (Operation.ADDED, Operation.MODIFIED)

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        yield PolicyKey(entry.key.cluster, "" if entry.key.type in _KINDS else entry.key.name)

    def all_keys(self) -> Iterable[Hashable]:
        return {PolicyKey(key.cluster, "") for key in self._loopback.keys(Scope(VALIDATING_POLICIES))}

    async def reconcile(self, key: PolicyKey) -> float | None:
        if key.name:
            policy = self._loopback.get(VALIDATING_POLICIES, key.cluster, "", key.name)
            if policy is not None and not _is_observed(policy):
                await self._check(key.cluster, policy)
            return None
        for policy in list(self._loopback.each(Scope(VALIDATING_POLICIES, key.cluster))):
            await self._check(key.cluster, policy)
        return None

    async def _check(self, cluster: str, policy: Object) -> None:
        core = self._loopback.core
        with core.store.snapshot() as snapshot:
            catalog = core.catalogs.of(snapshot, cluster)

        def check(pause: Callable[[], None]) -> list[Object]:
            from atoll.machinery.apiserver.admission.policies.type_checking import type_warnings

            return type_warnings(mapping(policy, "spec"), catalog, pause)

        warnings = await run_sliced(check, CHECK_TIMEOUT_S)
        status: Object = {
            "observedGeneration": policy["metadata"]["generation"],
            "typeChecking": {"expressionWarnings": warnings} if warnings else {},
        }
        if mapping(policy, "status") == status:
            return
        name = policy["metadata"]["name"]
        target = Target(self._kind, cluster, "", name, "status")
        api_version, kind = self._kind.api_version, self._kind.kind
        patch = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "status": status}
        await self._loopback.apply(target, patch, self.name)


def _is_observed(policy: Object) -> bool:
    return bool(mapping(policy, "status").get("observedGeneration") == policy["metadata"]["generation"])
