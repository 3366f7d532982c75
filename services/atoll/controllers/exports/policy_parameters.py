"""Parameters of admission policies for other shards: what the bindings of a workspace with exports name.

Watches: APIExports, policies and their bindings, definitions, and the objects that a binding names. Writes: one row for
each binding with parameters (`replicated_parameters`), with the objects or with the reason why they are not replicated.
Converges because a row is made from current objects, and one that says the same is not written. A workspace that is
being deleted is left to the deletion, which takes the rows as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter

from atoll.controllers.exports.named_parameters import (
    MAX_BINDINGS,
    Budget,
    Named,
    Reference,
    may_be_replicated,
    row_beyond,
    row_of,
)
from atoll.machinery.apiserver.admission.policies.parameters import resolve_kind
from atoll.machinery.apiserver.admission.policies.policy import Binding, param_kind
from atoll.machinery.apiserver.admission.policies.replicated_parameters import ParameterRow, row_key
from atoll.machinery.apiserver.writing.batch import LOST
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.sharding.replication_level import widest_level, with_derived_level
from atoll.machinery.kinds.checks import mapping
from atoll.machinery.meta import partial, wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.objects import Object, decode, encode, splice
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORTS,
    CRDS,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    POLICY_PARAMETERS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import Delete, GateState, GateUnchanged, LogEntry, Mutation, Put, Record, Scope
from atoll.machinery.storage.pages import each_page_in_snapshots, each_record
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.replication_scope import ReplicationScope

log = structlog.get_logger()

#: When a cluster is looked at again after a concurrent write.
CONFLICT = Backoff(0.01, 10.0)
#: Rows written at once.
_AT_ONCE = 100
_POLICIES = {MUTATING_POLICY_BINDINGS: MUTATING_POLICIES, VALIDATING_POLICY_BINDINGS: VALIDATING_POLICIES}
_CONFIGURED = frozenset({API_EXPORTS, *_POLICIES, *_POLICIES.values()})
_DEFINITIONS = frozenset({CRDS, API_BINDINGS})
_GOING = (GateState.DELETING, GateState.CLOSED)


class PolicyParameters(Controller):
    """Key: cluster."""

    name = "policyparameters"
    workers = 2
    batch_delay_s = 0.01
    lists_at_start = True

    def __init__(self, loopback: Loopback, facts: Lookups, registry: CollectorRegistry) -> None:
        self._loopback, self._scope = loopback, ReplicationScope(facts)
        #: What the bindings of clusters with exports name; no entry without such bindings.
        self._followed: dict[str, frozenset[Named | None]] = {}
        text = "Rows that say why a binding's parameters are not replicated."
        self._refused = Counter("atoll_policy_parameters_refused_total", text, registry=registry)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in _CONFIGURED or type in _DEFINITIONS or may_be_replicated(type)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        cluster, type = entry.key.cluster, entry.key.type
        if type in _CONFIGURED:
            return () if is_system_cluster(cluster) else (cluster,)
        found = self._followed.get(cluster)
        if found is None:
            return ()
        concerned = type in _DEFINITIONS or any(each is not None and each.concerns(entry) for each in found)
        return (cluster,) if concerned else ()

    def all_keys(self) -> Iterable[Hashable]:
        return {key.cluster for type in (*_POLICIES, POLICY_PARAMETERS) for key in self._loopback.keys(Scope(type))}

    # --- reconcile ---

    async def reconcile(self, cluster: str) -> Requeue:
        references = await self._references(cluster)
        while (named := _named(references)) != self._followed.get(cluster, frozenset()):
            # Followed before it is read, so that no change between the two is missed.
            self._follow(cluster, named)
            references = await self._references(cluster)
        budget = Budget()
        rows = {row_key(cluster, each.binding): row_beyond(each) for each in references[MAX_BINDINGS:]}
        for each in references[:MAX_BINDINGS]:
            rows[row_key(cluster, each.binding)] = await row_of(self._loopback.store, cluster, each, budget)
        return await self._write(cluster, rows, self._level(cluster) or "")

    def _follow(self, cluster: str, named: frozenset[Named | None]) -> None:
        if named:
            self._followed[cluster] = named
        else:
            self._followed.pop(cluster, None)

    def _level(self, cluster: str) -> str | None:
        """Return the replication level of a cluster's exports; None without exports."""
        with self._loopback.store.snapshot() as snapshot:
            offers = self._scope.offers(snapshot, cluster)
        return widest_level(each.level for each in offers.values()) if offers else None

    async def _references(self, cluster: str) -> list[Reference]:
        """Return what the bindings of a cluster name, in key order; without those of policies without parameters."""
        found: list[Reference] = []
        for type, policies in _POLICIES.items() if self._level(cluster) is not None else ():
            for page in each_page_in_snapshots(self._loopback.store, Scope(type, cluster)):
                bindings = (Binding.of(decode(record.value)) for record in page)
                found += (known for each in bindings if (known := self._reference(policies, cluster, each)) is not None)
                await asyncio.sleep(0)
        return found

    def _reference(self, policies: ResourceType, cluster: str, binding: Binding) -> Reference | None:
        if binding.params is None:
            return None
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(policies, cluster, "", binding.policy))
            params = param_kind(mapping(decode(record.value), "spec")) if record is not None else None
            if params is None:
                return None
            kind = resolve_kind(self._loopback.core.catalogs.of(snapshot, cluster), params)
            return Reference(binding, binding.params, params, kind)

    # --- rows ---

    async def _write(self, cluster: str, rows: Mapping[ObjectKey, ParameterRow], level: str) -> Requeue:
        with self._loopback.store.snapshot() as snapshot:
            gate = snapshot.gate(cluster)
            stored = {record.key: record for record in each_record(snapshot, Scope(POLICY_PARAMETERS, cluster))}
        if gate.state in _GOING:
            return None
        changes: list[Mutation] = [Delete(key, stored[key].revision) for key in stored.keys() - rows.keys()]
        for key, row in rows.items():
            if (put := _put(key, row, level, stored.get(key))) is not None:
                changes.append(put)
                self._report(key, row)
        try:
            for at in range(0, len(changes), _AT_ONCE):
                guard = GateUnchanged(cluster, gate.generation)
                await self._loopback.store.submit(changes[at : at + _AT_ONCE], [guard])
        except LOST:
            return CONFLICT
        return None

    def _report(self, key: ObjectKey, row: ParameterRow) -> None:
        if row.error:
            self._refused.inc()
            log.warning("policy parameters not replicated", cluster=key.cluster, binding=key.name, reason=row.error)


def _named(references: Sequence[Reference]) -> frozenset[Named | None]:
    """Return what is followed: what the first MAX_BINDINGS bindings name."""
    return frozenset(each.named for each in references[:MAX_BINDINGS])


def _put(key: ObjectKey, row: ParameterRow, level: str, stored: Record | None) -> Put | None:
    """Return the write of a row; None if the stored one says the same."""
    revision = stored.revision if stored is not None else 0
    obj: Object = {
        "apiVersion": f"{key.type.group}/v1",
        "kind": "PolicyParameters",
        "metadata": {
            "name": key.name,
            "uid": partial.identity(stored.value).uid if stored is not None else new_uid(),
            "annotations": {wellknown.CLUSTER: key.cluster},
        },
        "spec": msgspec.to_builtins(row),
    }
    value, hole = encode(with_derived_level(obj, level))
    is_same = stored is not None and splice(value, hole, revision) == stored.value
    return None if is_same else Put(key, value, hole, revision)
