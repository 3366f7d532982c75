"""Cells of Nodes, of the health of components, and of API services."""

from __future__ import annotations

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.cells.common import NONE, UNKNOWN, Accessor
from atoll.machinery.meta.objects import Object

_ROLE, _OLD_ROLE = "node-role.kubernetes.io/", "kubernetes.io/role"


def _status(obj: Object, now_s: float) -> object:
    ready = [each for _, each in objects(obj, "status", "conditions") if each.get("type") == "Ready"]
    states = [("Ready" if ready[-1].get("status") == "True" else "NotReady") if ready else "Unknown"]
    if mapping(obj, "spec").get("unschedulable") is True:
        states.append("SchedulingDisabled")
    return ",".join(states)


def _roles(obj: Object, now_s: float) -> object:
    labels = mapping(obj, "metadata", "labels")
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {text(labels, _OLD_ROLE)}
    return ",".join(sorted(roles - {""})) or NONE


def _kernel(obj: Object, now_s: float) -> object:
    version = text(obj, "status", "nodeInfo", "kernelVersion") or UNKNOWN
    architecture = text(obj, "status", "nodeInfo", "architecture")
    return f"{version} ({architecture})" if architecture else version


def _healthy(obj: Object) -> Object:
    return next((each for _, each in objects(obj, "conditions") if each.get("type") == "Healthy"), {})


def _health(obj: Object, now_s: float) -> object:
    found = _healthy(obj)
    return ("Healthy" if found.get("status") == "True" else "Unhealthy") if found else "Unknown"


def _message(obj: Object, now_s: float) -> object:
    return text(_healthy(obj), "message")


def _error(obj: Object, now_s: float) -> object:
    return text(_healthy(obj), "error")


def _backing_service(obj: Object, now_s: float) -> object:
    service = mapping(obj, "spec").get("service")
    return f"{text(service, 'namespace')}/{text(service, 'name')}" if isinstance(service, dict) else "Local"


def _availability(obj: Object, now_s: float) -> object:
    found = [each for _, each in objects(obj, "status", "conditions") if each.get("type") == "Available"]
    if not found:
        return "Unknown"
    status, reason = text(found[-1], "status"), text(found[-1], "reason")
    return status if status == "True" else f"{status} ({reason})"


ACCESSORS: dict[str, Accessor] = {
    "availability": _availability,
    "backing_service": _backing_service,
    "component_error": _error,
    "component_health": _health,
    "component_message": _message,
    "node_kernel": _kernel,
    "node_roles": _roles,
    "node_status": _status,
}
