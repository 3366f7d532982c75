"""How kube-apiserver treats writes and deletions of its kinds, by name of the kind; the tables of `schemas` do not say.

`served_kinds` reads it. A kind without an entry stores what it is given: no generation, a PUT without a resourceVersion
overwrites, a deletion answers with a Status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from atoll.machinery.kinds.kubernetes.pod_deletion import grace_period_s
from atoll.machinery.meta.objects import Object


class Traits(msgspec.Struct, frozen=True):
    """`resets` are the dotted paths that a write through /status does not change."""

    generation: bool = False
    generation_at_creation: bool = True
    generation_counts: bool = True
    annotations_count: bool = False
    status_at_creation: bool = False
    update_creates: bool = False
    unconditional_update: bool = True
    returns_deleted: bool = False
    name_rule: str = "subdomain"
    resets: tuple[str, ...] = ("spec",)
    #: Names of fields at any depth that hold arbitrary JSON, in which a null is a value.
    open_values: tuple[str, ...] = ()
    grace_period_s: Callable[[Object, int | None], int] | None = None


_COUNTED = Traits(generation=True)
_RETURNED = Traits(returns_deleted=True)
_NEEDS_VERSION = Traits(unconditional_update=False)
_METADATA_AND_SPEC = ("metadata", "spec")
_DEVICES = ("parameters", "data")

TRAITS: Mapping[str, Traits] = MappingProxyType(
    {
        "Service": Traits(update_creates=True, returns_deleted=True, name_rule="label"),
        "Endpoints": Traits(update_creates=True),
        "LimitRange": Traits(update_creates=True),
        "PodTemplate": Traits(generation=True, returns_deleted=True),
        "ReplicationController": _COUNTED,
        "PersistentVolume": _RETURNED,
        "PersistentVolumeClaim": _RETURNED,
        "Pod": Traits(
            generation=True,
            returns_deleted=True,
            resets=("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
            grace_period_s=grace_period_s,
        ),
        "Node": Traits(status_at_creation=True),
        "Deployment": Traits(generation=True, annotations_count=True, resets=("spec", "metadata.labels")),
        "ReplicaSet": _COUNTED,
        "StatefulSet": Traits(generation=True, name_rule="label"),
        "DaemonSet": _COUNTED,
        "ControllerRevision": Traits(open_values=("data",)),
        "Job": _COUNTED,
        "CronJob": _COUNTED,
        "PodDisruptionBudget": Traits(generation=True, unconditional_update=False),
        "Ingress": _COUNTED,
        "IngressClass": _COUNTED,
        "NetworkPolicy": _COUNTED,
        "ServiceCIDR": Traits(resets=_METADATA_AND_SPEC),
        "IPAddress": Traits(name_rule="path-segment"),
        "EndpointSlice": _COUNTED,
        "RuntimeClass": Traits(update_creates=True, unconditional_update=False),
        "PriorityClass": Traits(generation=True, generation_counts=False),
        "StorageClass": _RETURNED,
        "CSIDriver": Traits(
            generation=True, generation_at_creation=False, returns_deleted=True, unconditional_update=False
        ),
        "CSINode": Traits(returns_deleted=True, unconditional_update=False),
        "CSIStorageCapacity": _NEEDS_VERSION,
        "VolumeAttachment": Traits(returns_deleted=True, unconditional_update=False, resets=_METADATA_AND_SPEC),
        "VolumeAttributesClass": _RETURNED,
        "DeviceClass": Traits(generation=True, returns_deleted=True, open_values=_DEVICES),
        "ResourceClaim": Traits(returns_deleted=True, resets=_METADATA_AND_SPEC, open_values=_DEVICES),
        "ResourceClaimTemplate": Traits(returns_deleted=True, open_values=_DEVICES),
        "ResourceSlice": Traits(generation=True, returns_deleted=True),
        "APIService": Traits(unconditional_update=False, name_rule="path-segment"),
        "FlowSchema": Traits(generation=True, resets=_METADATA_AND_SPEC),
        "PriorityLevelConfiguration": Traits(generation=True, resets=_METADATA_AND_SPEC),
    }
)
NONE = Traits()


def traits_of(kind: str) -> Traits:
    """Return the traits of a kind."""
    return TRAITS.get(kind, NONE)
