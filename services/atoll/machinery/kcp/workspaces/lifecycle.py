"""How a logical cluster's life moves on: initializers before it is Ready, terminators before its content goes.

The phase controller calls `advance`; the lifecycle views ask what waits for whom, and what one of those may change.
Invariant: labels mirror status, so a selector finds what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from atoll.machinery.kcp.workspaces.logicalcluster import INITIALIZING, READY, initialized
from atoll.machinery.kcp.workspaces.workspace import owner_of, reduced_owner
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.conditions import set_condition
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, finalizers_of, labels_of, status_of
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.wellknown import OWNER, PHASE, TERMINATOR_FINALIZER

TERMINATING, INACTIVE = "Terminating", "Inactive"


class Lifecycle(msgspec.Struct, frozen=True):
    """One end of a logical cluster's life, and the names that kcp has for it.

    `field` is that of status which lists who is not done; `label` gives the label that mirrors one of them.
    """

    service: str
    verb: str
    phase: str
    field: str
    actor: str
    group_prefix: str
    label: Callable[[str], tuple[str, str]]

    def waits(self, cluster: Object, name: str) -> bool:
        """Whether a LogicalCluster waits for one of the field's members."""
        status = status_of(cluster)
        return status.get("phase") == self.phase and name in (status.get(self.field) or [])

    def selector(self, name: str) -> str:
        """Selects the LogicalClusters that wait for a member."""
        key, value = self.label(name)
        return f"{PHASE}={self.phase},{key}={value}"

    def refused(self, new: Object, old: Object, name: str) -> list[FieldError]:
        """Return the error for a member's change of the field other than removing itself."""
        now, then = (status_of(each).get(self.field) or [] for each in (new, old))
        if now in (then, [each for each in then if each != name]):
            return []
        text = f'only removing the "{name}" {self.actor} is supported'
        return [FieldError("FieldValueInvalid", f"status.{self.field}", f"Invalid value: {_listed(now)}: {text}")]


INITIALIZATION = Lifecycle(
    service="initializingworkspaces",
    verb="initialize",
    phase=INITIALIZING,
    field="initializers",
    actor="initializer",
    group_prefix="system:kcp:initializer:",
    label=hashes.initializer_label,
)
TERMINATION = Lifecycle(
    service="terminatingworkspaces",
    verb="terminate",
    phase=TERMINATING,
    field="terminators",
    actor="terminator",
    group_prefix="system:kcp:terminator:",
    label=hashes.terminator_label,
)
_LABEL_PREFIXES = (hashes.INITIALIZER_LABEL_PREFIX, hashes.TERMINATOR_LABEL_PREFIX)


def advance(cluster: Object, now: str) -> Object:
    """The LogicalCluster as its status and annotations say it should be; equal to the given one if nothing is to do.

    Without an initializer left it is Ready, and forgets all of its owner but the name; without a terminator left
    nothing but its content holds it. Ready and Inactive follow the annotations.
    """
    status, metadata = dict(status_of(cluster)), dict(cluster["metadata"])
    if status.get("phase") == INITIALIZING and not status.get("initializers"):
        status["phase"] = READY
        status["conditions"] = set_condition(conditions_of(cluster), initialized(()), now)
        if (owner := owner_of(cluster)) is not None:
            metadata["annotations"] = {**metadata["annotations"], OWNER: reduced_owner(owner)}
    elif status.get("phase") in (READY, INACTIVE):
        status["phase"] = INACTIVE if is_inactive(cluster) else READY
    metadata["labels"] = _labels(labels_of(cluster), status)
    metadata["finalizers"] = _finalizers(finalizers_of(cluster), status)
    return {**cluster, "metadata": metadata, "status": status}


def is_inactive(cluster: Object) -> bool:
    """Return whether an annotation takes a LogicalCluster offline."""
    notes = annotations_of(cluster)
    return "true" in (notes.get(wellknown.INACTIVE), notes.get(wellknown.INTERNAL_INACTIVE))


def _labels(labels: Mapping[str, str], status: Object) -> dict[str, str]:
    found = {key: value for key, value in labels.items() if not key.startswith(_LABEL_PREFIXES)}
    for lifecycle in (INITIALIZATION, TERMINATION):
        found.update(lifecycle.label(name) for name in status.get(lifecycle.field) or [])
    return {**found, PHASE: status["phase"]} if status.get("phase") else found


def _finalizers(finalizers: list[str], status: Object) -> list[str]:
    others = [each for each in finalizers if each != TERMINATOR_FINALIZER]
    if not status.get("terminators"):
        return others
    return finalizers if TERMINATOR_FINALIZER in finalizers else [*others, TERMINATOR_FINALIZER]


def _listed(names: object) -> str:
    return msgspec.json.encode(names).decode()
