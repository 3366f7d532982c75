"""What an edge cluster alone knows to be wrong with an object: pure.

The status of Namespaces and definitions never leaves the edge cluster, and how far a status is behind its object shows
there alone. A syncer asks for each object that changes, and reports what stays so. Invariant: what goes on in order is
sound.
"""

from __future__ import annotations

from atoll.machinery.edge.failures import MAX_MESSAGE, Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.conditions import FALSE, TRUE, find
from atoll.machinery.meta.objects import Object, conditions_of, status_of
from atoll.machinery.meta.types import CRDS, NAMESPACES

#: Operation of rows that are about no write.
OPERATION = "status"
_NAMESPACES, _DEFINITIONS = (NAMESPACES.group, NAMESPACES.resource), (CRDS.group, CRDS.resource)


def unsound(ref: ObjectRef, live: Object, now_s: float) -> Failure | None:
    """Return what is wrong with an object at the edge, None if nothing is."""
    if ref.kind == _NAMESPACES:
        found = _terminating(live)
    elif ref.kind == _DEFINITIONS:
        found = _not_established(live)
    else:
        found = _not_observed(live)
    return None if found is None else Failure(OPERATION, found[0], found[1][:MAX_MESSAGE], "", 1, now_s)


def missing(needed: ObjectRef, now_s: float) -> Failure:
    """Return what is said of an object that waits for its Namespace or its definition."""
    what = "Namespace" if needed.kind == _NAMESPACES else "definition"
    return Failure(OPERATION, "Missing", f"it waits for its {what} {needed.name}", "", 1, now_s)


def _terminating(live: Object) -> tuple[str, str] | None:
    if "deletionTimestamp" not in live["metadata"]:
        return None
    texts = [str(each.get("message") or "") for each in conditions_of(live) if each.get("status") == TRUE]
    return "Terminating", "; ".join(filter(None, texts)) or "the Namespace is being deleted"


def _not_established(live: Object) -> tuple[str, str] | None:
    for kind, reason in (("NamesAccepted", "NamesNotAccepted"), ("Established", "NotEstablished")):
        found = find(conditions_of(live), kind)
        if found is not None and found.get("status") == FALSE:
            return reason, str(found.get("message") or "")
    return None


def _not_observed(live: Object) -> tuple[str, str] | None:
    observed, generation = status_of(live).get("observedGeneration"), live["metadata"].get("generation")
    if not isinstance(observed, int) or not isinstance(generation, int) or observed >= generation:
        return None
    return "NotObserved", f"its controller has seen generation {observed} of {generation}"
