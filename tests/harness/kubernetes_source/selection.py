"""The resources that are read: those of Kubernetes that a workspace does not serve by itself."""

from __future__ import annotations

from typing import NamedTuple

#: Versions of a group, in order of preference, and resources.
GROUPS: dict[str, tuple[tuple[str, ...], str]] = {
    "": (
        ("v1",),
        "services endpoints limitranges podtemplates replicationcontrollers persistentvolumes persistentvolumeclaims "
        "pods nodes componentstatuses",
    ),
    "apps": (("v1",), "deployments replicasets statefulsets daemonsets controllerrevisions"),
    "batch": (("v1",), "jobs cronjobs"),
    "autoscaling": (("v2", "v1"), "horizontalpodautoscalers"),
    "policy": (("v1",), "poddisruptionbudgets"),
    "networking.k8s.io": (("v1",), "ingresses ingressclasses networkpolicies servicecidrs ipaddresses"),
    "discovery.k8s.io": (("v1",), "endpointslices"),
    "node.k8s.io": (("v1",), "runtimeclasses"),
    "scheduling.k8s.io": (("v1",), "priorityclasses"),
    "storage.k8s.io": (
        ("v1",),
        "storageclasses csidrivers csinodes csistoragecapacities volumeattachments volumeattributesclasses",
    ),
    "resource.k8s.io": (("v1",), "deviceclasses resourceclaims resourceclaimtemplates resourceslices"),
    "apiregistration.k8s.io": (("v1",), "apiservices"),
    "flowcontrol.apiserver.k8s.io": (("v1",), "flowschemas prioritylevelconfigurations"),
}
#: Subresources that reach a process: without nodes nothing answers them.
NOT_SERVED = frozenset({"attach", "exec", "portforward", "proxy", "log", "binding", "eviction"})


class GroupVersion(NamedTuple):
    group: str
    version: str

    @property
    def file(self) -> str:
        """The middle of the names of its files in Kubernetes' source."""
        return f"apis__{self.group}__{self.version}" if self.group else f"api__{self.version}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def resources(group: str) -> list[str]:
    return GROUPS[group][1].split()


def group_versions() -> list[GroupVersion]:
    return [GroupVersion(group, version) for group, (versions, _) in GROUPS.items() for version in versions]
