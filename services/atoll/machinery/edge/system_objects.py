"""System objects: what servers and controllers make in every cluster. They are copied neither down nor up.

What resolution, the edge view (which does not list them) and syncers ask here. The rules know an object by its name, or
by the mark that its maker sets, so that an object of a user with another name is never taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from atoll.machinery.edge.names import REPORT_NAMESPACE, ObjectRef
from atoll.machinery.meta.objects import Object, annotations_of, labels_of

_TOKENS = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
_MANDATORY = ("exempt", "catch-all")
_API_SERVER = ("default", "kubernetes")


def _is_of_api_server(ref: ObjectRef, obj: Object) -> bool:
    return (ref.namespace, ref.name) == _API_SERVER


def _is_flow_control(ref: ObjectRef, obj: Object) -> bool:
    return ref.name in _MANDATORY or "apf.kubernetes.io/autoupdate-spec" in annotations_of(obj)


def _is_bootstrap_policy(ref: ObjectRef, obj: Object) -> bool:
    return labels_of(obj).get("kubernetes.io/bootstrapping") == "rbac-defaults"


_RULES: Mapping[tuple[str, str], Callable[[ObjectRef, Object], bool]] = {
    ("", "secrets"): lambda ref, obj: obj.get("type") in _TOKENS,
    ("", "configmaps"): lambda ref, obj: ref.name == "kube-root-ca.crt",
    ("", "serviceaccounts"): lambda ref, obj: ref.name == "default",
    ("", "services"): _is_of_api_server,
    ("", "endpoints"): _is_of_api_server,
    ("discovery.k8s.io", "endpointslices"): _is_of_api_server,
    ("networking.k8s.io", "servicecidrs"): lambda ref, obj: ref.name == "kubernetes",
    ("networking.k8s.io", "ipaddresses"): lambda ref, obj: (
        labels_of(obj).get("ipaddress.kubernetes.io/managed-by") == "ipallocator.k8s.io"
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): _is_flow_control,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): _is_flow_control,
    ("scheduling.k8s.io", "priorityclasses"): lambda ref, obj: ref.name.startswith("system-"),
    ("rbac.authorization.k8s.io", "clusterroles"): _is_bootstrap_policy,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _is_bootstrap_policy,
    ("rbac.authorization.k8s.io", "roles"): _is_bootstrap_policy,
    ("rbac.authorization.k8s.io", "rolebindings"): _is_bootstrap_policy,
    ("apiregistration.k8s.io", "apiservices"): lambda ref, obj: (
        "kube-aggregator.kubernetes.io/automanaged" in labels_of(obj)
    ),
}


def is_system_object(ref: ObjectRef, obj: Object) -> bool:
    """Whether an object is one of these, or a result of the edge layer."""
    if ref.namespace == REPORT_NAMESPACE or (ref.kind == ("", "namespaces") and ref.name == REPORT_NAMESPACE):
        return True
    rule = _RULES.get(ref.kind)
    return rule is not None and rule(ref, obj)


def may_be_system(kind: tuple[str, str]) -> bool:
    """Whether some objects of a kind, by group and resource, are system objects wherever they are."""
    return kind in _RULES or kind == ("", "namespaces")
