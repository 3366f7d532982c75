"""APIBindings of a new logical cluster, bound at once where possible.

The workspace builder, home workspaces and bootstrap write the result of `bind` after the LogicalCluster, whose locks it
also returns. Invariant: bindings are planned in order, each against those before it, by `apibindings.desired_status`,
which the binding controller calls later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from atoll.machinery.kcp.apis import claim_status, permission_claims
from atoll.machinery.kcp.apis.apibindings import BOUND, BindingContext, Export, desired_status, held_by
from atoll.machinery.kcp.apis.locks import Lock, lock_annotation
from atoll.machinery.kcp.apis.naming_conflicts import Holder
from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.meta.wellknown import BINDING_FINALIZER


class InitialBinding(msgspec.Struct, frozen=True):
    """One binding to create. `path` is its reference to the export's workspace; `export` None: not found."""

    name: str
    path: str
    export_name: str
    export: Export | None


class Bindings(msgspec.Struct, frozen=True):
    """The bindings of a new cluster, and the value of its lock annotation."""

    manifests: tuple[Manifest, ...]
    locks: str
    #: Names of those that are not bound yet.
    waiting: tuple[str, ...] = ()

    @property
    def all_bound(self) -> bool:
        return not self.waiting


def bind(stamp: ObjectStamp, wanted: Sequence[InitialBinding]) -> Bindings:
    """Bind each export that can be bound at once; other bindings are left without status for the binding controller.

    Claims are accepted and marked as applied: objects written into the cluster after the bindings are labelled.
    """
    locks: Mapping[str, Lock] = {}
    holders: list[Holder] = []
    manifests, waiting = [], []
    for each in wanted:
        binding, bound = _requested(stamp, each), False
        if each.export is not None and each.export.can_bind_at_once:
            around = BindingContext(locks, lambda groups: holders, lambda uid: True)
            planned = desired_status(binding, each.export, around, stamp.now)
            binding["status"], locks = planned.status, planned.locks
            bound = planned.status["phase"] == BOUND
            if bound and each.export.claims:
                binding = claim_status.labelling_finished(binding, each.export.claims, {}, stamp.now)
            holders.extend(held_by(binding, each.export.resources))
        if not bound:
            waiting.append(each.name)
        manifests.append(Manifest(stamp.cluster, binding, API_BINDINGS))
    return Bindings(tuple(manifests), lock_annotation(locks), tuple(waiting))


def _requested(stamp: ObjectStamp, wanted: InitialBinding) -> Object:
    metadata = stamp.pathed_metadata("apibindings", wanted.name)
    metadata["finalizers"] = [BINDING_FINALIZER]
    spec: Object = {"reference": {"export": {"path": wanted.path, "name": wanted.export_name}}}
    if wanted.export is not None:
        key, value = hashes.reflexive_claim_label(wanted.export.cluster, wanted.export.name)
        export_hash = key.removeprefix(hashes.CLAIM_LABEL_PREFIX)
        metadata["labels"] = {hashes.EXPORT_LABEL: export_hash, key: value}
        if wanted.export.claims:
            spec["permissionClaims"] = [permission_claims.accept(claim) for claim in wanted.export.claims]
    return {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": metadata, "spec": spec}
