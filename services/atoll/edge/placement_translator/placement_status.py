"""What a placement says of its objects: pure, of what is known in memory.

`statuses` writes it. Invariant: each destination is counted once, as failing, silent, up to date or behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from atoll.edge.placement_translator.content import Kind
from atoll.edge.placement_translator.reading import EVERY_KIND
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import ERROR, FALSE, INFO, TRUE, WARNING, Condition, with_conditions
from atoll.machinery.meta.objects import Object, status_of

#: Most names in a condition's text.
MAX_NAMED = 5
#: Whether a placement sends an object, or, without a name, anything of a kind.
Sends: TypeAlias = Callable[[ObjectRef], bool]
PROJECTED, SYNCED, CONFLICTING = "Projected", "Synced", "Conflicting"
#: Most objects that a conflict names.
MAX_CONTESTED = 10


class DestinationState(msgspec.Struct, frozen=True):
    """One destination: the name of its SyncTarget, what the mailbox and what the edge refuse, and what is missing."""

    name: str
    refused: Mapping[ObjectRef, str] = {}
    errors: tuple[str, ...] = ()
    is_projected: bool = False
    is_silent: bool = False
    is_applied: bool = False

    @property
    def count_as(self) -> str:
        """The field of `status.destinations` that it counts in."""
        if self.refused or self.errors:
            return "failing"
        if self.is_silent:
            return "silent"
        return "upToDate" if self.is_projected and self.is_applied else "behind"


class Projected(msgspec.Struct, frozen=True):
    """What is known of a placement: its number of objects, kinds that may not be read or are not carried, and where.

    Of destinations without a state it has the number: all is there, applied, and their syncers are heard of.
    """

    is_valid: bool
    object_count: int
    forbidden: Collection[Kind]
    not_carried: Collection[Kind]
    destinations: Sequence[DestinationState]
    #: Objects that other workspaces send too, with the first field that is not the same.
    contested: tuple[str, ...] = ()
    up_to_date: int = 0


def status_with(obj: Object, found: Projected) -> Object:
    """Return the status of a placement; other fields stay as they are. The same again if nothing changed."""
    counts = {"upToDate": found.up_to_date, "behind": 0, "failing": 0, "silent": 0}
    for each in found.destinations:
        counts[each.count_as] += 1
    status = {
        "matchingLocationCount": 0,
        **status_of(obj),
        "objectCount": found.object_count,
        "destinations": {**(status_of(obj).get("destinations") or {}), **counts, "total": sum(counts.values())},
    }
    conditions = [projected_condition(found), synced_condition(found)]
    if found.contested:
        text = _some(list(found.contested), "; ", MAX_CONTESTED)
        conditions.append(Condition(CONFLICTING, TRUE, "WorkloadConflict", text))
        status["conflictCount"] = len(found.contested)
    else:
        # Both are there while there is a conflict.
        status.pop("conflictCount", None)
        status["conditions"] = [each for each in status.get("conditions") or () if each["type"] != CONFLICTING]
    return with_conditions(status, times.now(), *conditions)


def projected_condition(found: Projected) -> Condition:
    """Return whether the mailboxes have the objects."""
    if not found.is_valid:
        return Condition(PROJECTED, FALSE, "Invalid", "the placement has no effect", WARNING)
    if EVERY_KIND in found.forbidden:
        text = "the workspace does not let the account of the placement translator in"
        return Condition(PROJECTED, FALSE, "Forbidden", text, WARNING)
    if found.forbidden:
        text = f"the account of the placement translator may not list {_kinds(found.forbidden)}"
        return Condition(PROJECTED, FALSE, "Forbidden", text, WARNING)
    refused = sorted({f"{name_of(ref)}: {text}" for each in found.destinations for ref, text in each.refused.items()})
    if refused:
        return Condition(PROJECTED, FALSE, "ObjectsRefused", _some(refused, "; "), ERROR)
    if found.not_carried:
        return Condition(PROJECTED, FALSE, "NotCarried", f"not carried: {_kinds(found.not_carried)}", WARNING)
    waiting = [each.name for each in found.destinations if not each.is_projected]
    if waiting:
        return Condition(PROJECTED, FALSE, "InProgress", f"mailboxes of {_some(waiting)}", INFO)
    return Condition(PROJECTED, TRUE)


def synced_condition(found: Projected) -> Condition:
    """Return whether the edge clusters have the objects."""
    if not found.is_valid:
        return Condition(SYNCED, FALSE, "Invalid", "the placement has no effect", WARNING)
    errors = [f"{each.name}: {text}" for each in found.destinations for text in each.errors]
    if errors:
        return Condition(SYNCED, FALSE, "ObjectsFailing", _some(errors, "; "), ERROR)
    for field, reason, severity in (
        ("failing", "ObjectsRefused", ERROR),
        ("silent", "DestinationsSilent", WARNING),
        ("behind", "InProgress", INFO),
    ):
        names = [each.name for each in found.destinations if each.count_as == field]
        if names:
            return Condition(SYNCED, FALSE, reason, _some(names), severity)
    return Condition(SYNCED, TRUE)


def edge_errors(rows: Iterable[Object], sends: Sends) -> tuple[str, ...]:
    """Return the errors of an edge that are about what is sent; a row without a name is about all of a kind."""
    found = []
    for row in rows:
        ref = ObjectRef(*(str(row.get(field) or "") for field in ("group", "resource", "namespace", "name")))
        if sends(ref):
            found.append(f"{name_of(ref)}: {row.get('message', '')}")
    return tuple(found)


def name_of(ref: ObjectRef) -> str:
    """Return a reference as a text: `deployments.apps namespace/name`."""
    kind = f"{ref.resource}.{ref.group}" if ref.group else ref.resource
    return f"{kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{kind} {ref.name}".rstrip()


def _kinds(kinds: Iterable[Kind]) -> str:
    return _some(sorted(f"{resource}.{group}" if group else resource for group, resource in kinds))


def _some(texts: list[str], separator: str = ", ", most: int = MAX_NAMED) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more
