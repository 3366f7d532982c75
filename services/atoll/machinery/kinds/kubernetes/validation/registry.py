"""The checks of each kind by its component, such as `io.k8s.api.apps.v1.Deployment`.

Modules are imported with the first kind that is served, because most shards serve none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from atoll.machinery.kinds.kubernetes.validation.checks_of_kind import Entry, Validators


@cache
def table() -> Mapping[str, Validators]:
    """Return the checks of all components that have any."""
    groups = {"core": _core(), "apps": _apps(), "batch": _batch()}
    return MappingProxyType(
        {
            f"io.k8s.api.{group}.v1.{kind}": Validators(*checks)
            for group, kinds in groups.items()
            for kind, checks in kinds.items()
        }
    )


def _core() -> dict[str, Entry]:
    from atoll.machinery.kinds.kubernetes.validation import (
        claims,
        pod_status,
        pod_subresources,
        pods,
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
        "PersistentVolumeClaim": (claims.validate, claims.validate_update, {"status": claims.validate_status}),
    }


def _apps() -> dict[str, Entry]:
    from atoll.machinery.kinds.kubernetes.validation import workloads

    return {
        "Deployment": workloads.DEPLOYMENT,
        "ReplicaSet": workloads.REPLICA_SET,
        "StatefulSet": workloads.STATEFUL_SET,
        "DaemonSet": workloads.DAEMON_SET,
        "ControllerRevision": workloads.CONTROLLER_REVISION,
    }


def _batch() -> dict[str, Entry]:
    from atoll.machinery.kinds.kubernetes.validation import job_status, jobs

    return {
        "Job": (jobs.validate, jobs.validate_update, {"status": job_status.validate_status}),
        "CronJob": (jobs.validate_cron, jobs.validate_cron_update, {}),
    }
