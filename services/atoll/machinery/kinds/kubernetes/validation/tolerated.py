"""What an update lets pass because the old object has it already: rules that later versions of Kubernetes added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.paths import not_reserved
from atoll.machinery.kinds.kubernetes.validation.resources import requirements
from atoll.machinery.kinds.kubernetes.validation.scheduling import affinity, match_label_keys, selector
from atoll.machinery.kinds.kubernetes.validation.security import host_sysctl
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


class Tolerated(msgspec.Struct, frozen=True):
    """The rules that are not checked. Nothing is tolerated of a new object."""

    selector_values: bool = False
    node_values: bool = False
    spread_selectors: bool = False
    former_label_keys: bool = False
    partial_pages: bool = False
    token_paths: bool = False
    host_sysctls: bool = False
    selinux_policies: bool = False
    comparisons: bool = False
    devices: bool = False
    host_network_users: bool = False
    restarts: bool = False
    deletion_cost: bool = False


NOTHING = Tolerated()


def containers_of(spec: Object, at: str) -> Iterator[tuple[str, Object]]:
    """Yield the path and the value of every container of a spec."""
    for name in CONTAINERS:
        for index, container in objects(spec, name):
            yield f"{at}.{name}[{index}]", container


def _any(errors: Iterable[FieldError], part: str = "") -> bool:
    return any(part in each.field for each in errors)


def tolerated(spec: Object, *, deletion_cost: bool = False) -> Tolerated:
    """Return what a change of the PodSpec `spec` may keep."""
    containers = [container for _, container in containers_of(spec, "")]
    initial = [each for _, each in objects(spec, "initContainers") if each.get("restartPolicy") != "Always"]
    policies = [each for container in initial for _, each in objects(container, "resizePolicy")]
    constraints = [each for _, each in objects(spec, "topologySpreadConstraints")]
    nodes = list(affinity(spec, ""))
    sources = [source for _, volume in objects(spec, "volumes") for source in items(volume, "projected", "sources")]
    paths = [text(source, "serviceAccountToken", "path") for source in sources]
    sysctls = [text(each, "name") for _, each in objects(spec, "securityContext", "sysctls")]
    shares_users = spec.get("hostUsers") is not False
    return Tolerated(
        selector_values=_any(nodes, "elector.matchExpressions["),
        node_values=_any(nodes, ".nodeSelectorTerms["),
        spread_selectors=any(selector(each.get("labelSelector"), "") for each in constraints),
        former_label_keys=any(_any(match_label_keys(each, "")) for each in constraints),
        partial_pages=any(
            "is not positive integer multiple of" in error.detail
            for container in containers
            for error in requirements(mapping(container, "resources"), "", ())
        ),
        token_paths=any(_any(not_reserved(path, "")) for path in paths),
        host_sysctls=any(_any(host_sysctl(spec, name, "")) for name in sysctls),
        selinux_policies=mapping(spec, "securityContext").get("seLinuxChangePolicy") is not None,
        comparisons=any(text(each, "operator") in ("Lt", "Gt") for _, each in objects(spec, "tolerations")),
        devices=not shares_users and any(items(container, "volumeDevices") for container in containers),
        host_network_users=not shares_users and spec.get("hostNetwork") is True,
        restarts=any(text(each, "restartPolicy") == "RestartContainer" for each in policies),
        deletion_cost=deletion_cost,
    )
