"""The checks of each kind by its component, such as `io.k8s.api.apps.v1.Deployment`.

Modules are imported with the first kind that is served, because most shards serve none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from atoll.machinery.kinds.kubernetes.validation.checks_of_kind import Entry, Validators

Kinds = Mapping[str, Entry]


@cache
def table() -> Mapping[str, Validators]:
    """Return the checks of all components that have any."""
    return MappingProxyType(
        {f"{prefix}.{kind}": Validators(*checks) for prefix, load in _GROUPS.items() for kind, checks in load().items()}
    )


def _core() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import (
        claims,
        endpoints,
        nodes,
        persistentvolumes,
        pod_status,
        pod_subresources,
        pods,
        policy,
        services,
        workloads,
    )

    of_pods = {
        "status": pod_status.validate_status,
        "ephemeralcontainers": pod_subresources.validate_ephemeral,
        "resize": pod_subresources.validate_resize,
    }
    return {
        "Pod": (pods.validate, pods.validate_update, of_pods),
        "PodTemplate": workloads.POD_TEMPLATE,
        "ReplicationController": workloads.REPLICATION_CONTROLLER,
        "Service": (services.validate, services.validate_update, {"status": services.validate_status}),
        "Endpoints": (endpoints.validate, endpoints.validate_update, {}),
        "Node": (nodes.validate, nodes.validate_update, {"status": nodes.validate_status}),
        "LimitRange": (policy.validate_limits, lambda obj, old: policy.validate_limits(obj), {}),
        "PersistentVolume": (persistentvolumes.validate, persistentvolumes.validate_update, _NO_STATUS),
        "PersistentVolumeClaim": (claims.validate, claims.validate_update, {"status": claims.validate_status}),
    }


def _apps() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import workloads

    return {
        "Deployment": workloads.DEPLOYMENT,
        "ReplicaSet": workloads.REPLICA_SET,
        "StatefulSet": workloads.STATEFUL_SET,
        "DaemonSet": workloads.DAEMON_SET,
        "ControllerRevision": workloads.CONTROLLER_REVISION,
    }


def _batch() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import job_status, jobs

    return {
        "Job": (jobs.validate, jobs.validate_update, {"status": job_status.validate_status}),
        "CronJob": (jobs.validate_cron, jobs.validate_cron_update, _NO_STATUS),
    }


def _autoscaling() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import autoscaling

    checks = (autoscaling.validate, autoscaling.validate_update, {"status": autoscaling.validate_status})
    return {"HorizontalPodAutoscaler": checks}


def _policy() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import policy

    of_budgets = {"status": policy.validate_budget_status}
    return {"PodDisruptionBudget": (policy.validate_budget, policy.validate_budget_update, of_budgets)}


def _networking() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import networking as of
    from atoll.machinery.kinds.kubernetes.validation import networkpolicies

    return {
        "Ingress": (of.validate_ingress, of.validate_ingress_update, {"status": of.validate_ingress_status}),
        "IngressClass": (of.validate_class, of.validate_class_update, {}),
        "NetworkPolicy": (networkpolicies.validate, networkpolicies.validate_update, {}),
        "IPAddress": (of.validate_address, of.validate_address_update, {}),
        "ServiceCIDR": (of.validate_range, of.validate_range_update, _NO_STATUS),
    }


def _discovery() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import endpoints

    return {"EndpointSlice": (endpoints.validate_slice, endpoints.validate_slice_update, {})}


def _node() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import policy

    return {"RuntimeClass": (policy.validate_runtime, policy.validate_runtime_update, {})}


def _scheduling() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import policy

    return {"PriorityClass": (policy.validate_priority, policy.validate_priority_update, {})}


def _storage() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import storage as of

    return {
        "StorageClass": (of.validate_class, of.validate_class_update, {}),
        "CSIDriver": (of.validate_driver, of.validate_driver_update, {}),
        "CSINode": (of.validate_node, of.validate_node_update, {}),
        "CSIStorageCapacity": (of.validate_capacity, of.validate_capacity_update, {}),
        "VolumeAttachment": (
            of.validate_attachment,
            of.validate_attachment_update,
            {"status": of.validate_attachment_update},
        ),
        "VolumeAttributesClass": (of.validate_attributes, of.validate_attributes_update, {}),
    }


def _resource() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import resource_claim_status, resource_slices
    from atoll.machinery.kinds.kubernetes.validation import resource_claims as of

    of_claims = {"status": resource_claim_status.validate_status}
    return {
        "DeviceClass": (of.validate_class, of.validate_class_update, {}),
        "ResourceClaim": (of.validate_claim, of.validate_claim_update, of_claims),
        "ResourceClaimTemplate": (of.validate_template, of.validate_template_update, {}),
        "ResourceSlice": (resource_slices.validate, resource_slices.validate_update, {}),
    }


def _flowcontrol() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import flowcontrol as of

    of_both = {"status": of.validate_status}
    return {
        "FlowSchema": (of.validate_schema, lambda obj, old: of.validate_schema(obj), of_both),
        "PriorityLevelConfiguration": (of.validate_level, lambda obj, old: of.validate_level(obj), of_both),
    }


def _apiregistration() -> Kinds:
    from atoll.machinery.kinds.kubernetes.validation import apiservices as of

    return {"APIService": (of.validate, of.validate_update, {"status": of.validate_status})}


_NO_STATUS = Validators().subresources
_GROUPS: Mapping[str, Callable[[], Kinds]] = {
    "io.k8s.api.core.v1": _core,
    "io.k8s.api.apps.v1": _apps,
    "io.k8s.api.batch.v1": _batch,
    "io.k8s.api.autoscaling.v1": _autoscaling,
    "io.k8s.api.autoscaling.v2": _autoscaling,
    "io.k8s.api.policy.v1": _policy,
    "io.k8s.api.networking.v1": _networking,
    "io.k8s.api.discovery.v1": _discovery,
    "io.k8s.api.node.v1": _node,
    "io.k8s.api.scheduling.v1": _scheduling,
    "io.k8s.api.storage.v1": _storage,
    "io.k8s.api.resource.v1": _resource,
    "io.k8s.api.flowcontrol.v1": _flowcontrol,
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1": _apiregistration,
}
