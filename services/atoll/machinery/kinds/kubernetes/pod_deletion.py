"""How long a Pod that is deleted stays for its node, which stops its containers and then deletes it with no grace."""

from __future__ import annotations

from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.meta.objects import Object

_ENDED = ("Failed", "Succeeded")


def grace_period_s(pod: Object, requested_s: int | None) -> int:
    """Return the seconds that are asked for, else those of the Pod; 0 without a node and for an ended one."""
    if not text(pod, "spec", "nodeName") or text(pod, "status", "phase") in _ENDED:
        return 0
    if requested_s is not None:
        return requested_s
    own = mapping(pod, "spec").get("terminationGracePeriodSeconds")
    if not isinstance(own, int):
        return 0
    return own if own >= 0 else 1
