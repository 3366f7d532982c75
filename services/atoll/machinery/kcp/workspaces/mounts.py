"""Mounted Workspaces: URL, phase and conditions taken from the mounted object.

The mount controller calls `desired_workspace`; path resolution and admission call `reference`. Any object with
`status.URL` and `status.phase` can be mounted.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.conditions import FALSE, TRUE, Condition, with_conditions
from atoll.machinery.meta.objects import Object, labels_of, spec_of, status_of
from atoll.machinery.meta.wellknown import PHASE

#: An annotation by which objects are marked as mountable; as in kcp, none is required.
IS_MOUNT = "experimental.tenancy.kcp.io/is-mount"
MOUNT_READY = "WorkspaceMountReady"
READY, UNAVAILABLE = "Ready", "Unavailable"
#: The phases of mounted objects; any other one is Unknown.
_PHASES = frozenset({"Initializing", "Connecting", READY})


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    """The mounted object, in the Workspace's own logical cluster."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


def reference(workspace: Object) -> Reference | None:
    """Return the reference to the mounted object; None for an ordinary Workspace."""
    mount = spec_of(workspace).get("mount")
    return msgspec.convert(mount.get("ref") or {}, Reference) if mount else None


def desired_workspace(workspace: Object, mounted: Object | None, now: str) -> Object:
    """Return the Workspace with the state of the mounted object; `mounted` None: it does not exist."""
    condition, url = _mount_condition(mounted)
    phase = READY if condition.status == TRUE else UNAVAILABLE
    spec = {**workspace["spec"], "URL": url} if url else workspace["spec"]
    labels = {**labels_of(workspace), PHASE: phase}
    return {
        **workspace,
        "metadata": {**workspace["metadata"], "labels": labels},
        "spec": spec,
        "status": with_conditions({**status_of(workspace), "phase": phase}, now, condition),
    }


def _mount_condition(mounted: Object | None) -> tuple[Condition, str]:
    if mounted is None:
        return Condition(MOUNT_READY, FALSE, "MountObjectNotFound", "the mounted object does not exist", "Error"), ""
    status = mounted.get("status")
    status = status if isinstance(status, dict) else {}
    url, phase = status.get("URL"), status.get("phase")
    url = url if isinstance(url, str) else ""
    phase = phase if isinstance(phase, str) and phase in _PHASES else "Unknown"
    if phase != READY or not url:
        message = f"the mounted object is {phase}" + ("" if url else " and has no URL")
        return Condition(MOUNT_READY, FALSE, "MountObjectNotReady", message, "Error"), url
    return Condition(MOUNT_READY, TRUE), url
