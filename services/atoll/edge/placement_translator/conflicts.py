"""Conflicts between workspaces that send the same object to one mailbox: who is told, and what placements say.

`copies` puts in what it found, `statuses` asks. Memory: what several workspaces send. Invariants: a conflict is told to
each workspace that takes part when it begins, and is here until it ends; nothing that is told has a value.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import structlog

from atoll.edge.placement_translator.rendering import Tell
from atoll.machinery.edge.merging import Conflict
from atoll.machinery.edge.names import ObjectRef

log = structlog.get_logger()

REASON = "WorkloadConflict"


class Contested(msgspec.Struct, frozen=True):
    """An object that several workspaces send to one mailbox, and what they do not agree on."""

    clusters: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


class Conflicts:
    """Conflicts in all mailboxes."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._contested: dict[str, dict[ObjectRef, Contested]] = {}
        #: Workspace -> object with a conflict -> mailboxes.
        self._places: dict[str, dict[ObjectRef, set[str]]] = {}
        #: Copies in mailboxes about which there is a conflict.
        self.copies = 0

    def has_seen(self, mailbox: str, ref: ObjectRef) -> bool:
        """Whether the conflicts about an object are known, or that there is none."""
        return ref in self._contested.get(mailbox, {})

    def found(self, mailbox: str, ref: ObjectRef) -> tuple[Conflict, ...]:
        """Return the conflicts about an object in a mailbox."""
        contested = self._contested.get(mailbox, {}).get(ref)
        return contested.conflicts if contested is not None else ()

    def put(self, mailbox: str, ref: ObjectRef, clusters: Collection[str], conflicts: Collection[Conflict]) -> None:
        """Replace the conflicts about an object in a mailbox; `clusters` are all workspaces that send it."""
        before, after = self._take(mailbox, ref), Contested(tuple(sorted(clusters)), tuple(sorted(conflicts)))
        if len(after.clusters) < 2 and not conflicts:
            return
        self._contested.setdefault(mailbox, {})[ref] = after
        self.copies += bool(conflicts)
        for cluster in after.clusters if conflicts else ():
            self._places.setdefault(cluster, {}).setdefault(ref, set()).add(mailbox)
        new = [each for each in after.conflicts if before is None or each not in before.conflicts]
        if not new:
            return
        kind = {"group": ref.group, "resource": ref.resource}
        log.info("workspaces in conflict", mailbox=mailbox, **kind, clusters=after.clusters, fields=len(new))
        for cluster in after.clusters:
            for each in new:
                self._tell(cluster, ref, REASON, text_of(each))

    def _take(self, mailbox: str, ref: ObjectRef) -> Contested | None:
        found = self._contested.get(mailbox, {}).pop(ref, None)
        if found is None:
            return None
        self.copies -= bool(found.conflicts)
        if not self._contested[mailbox]:
            del self._contested[mailbox]
        for cluster in found.clusters if found.conflicts else ():
            places = self._places[cluster]
            places[ref].discard(mailbox)
            if not places[ref]:
                del places[ref]
            if not places:
                del self._places[cluster]
        return found

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        for ref in list(self._contested.get(mailbox, ())):
            self._take(mailbox, ref)

    def has_any(self, cluster: str) -> bool:
        """Whether there are conflicts about objects of a workspace."""
        return cluster in self._places

    def of(self, cluster: str, mailboxes: Collection[str]) -> dict[ObjectRef, tuple[Conflict, ...]]:
        """Return the conflicts about objects of a workspace in any of these mailboxes."""
        found: dict[ObjectRef, tuple[Conflict, ...]] = {}
        for ref, places in self._places.get(cluster, {}).items():
            if here := places.intersection(mailboxes):
                found[ref] = self._contested[min(here)][ref].conflicts
        return found


def text_of(conflict: Conflict) -> str:
    """Return what to say of a conflict."""
    return f"{conflict.field} is not the same in all workspaces that send it: that of {conflict.winner} counts"
