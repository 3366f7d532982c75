"""Who is told what the placement translator learned of objects and their copies.

The status summarizer is, and it knows what syncers are asked beside the copies. Invariant: a call returns at once; it
notes what to look at.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.edge.changes import Change
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object


class Observer:
    """Is not interested. Clusters are workspaces, mailboxes logical clusters too."""

    def content_changed(self, cluster: str, refs: Iterable[ObjectRef]) -> None:
        """Objects are sent otherwise than before."""

    def placement_changed(self, cluster: str, placement: str, mailboxes: Iterable[str]) -> None:
        """A placement, or its destinations, changed; something else may come up in these mailboxes."""

    def copies_changed(self, mailbox: str, refs: Iterable[ObjectRef]) -> None:
        """Objects of a mailbox were looked at."""

    def report_changed(self, mailbox: str, config: Object | None) -> None:
        """The syncer of a mailbox said something else."""

    def silence_changed(self, mailbox: str) -> None:
        """The syncer of a mailbox is heard of again, or not any more."""

    def mailbox_gone(self, mailbox: str) -> None:
        """A mailbox is gone."""

    def own_changed(self, change: Change) -> None:
        """An object of the edge API changed in a workspace or a mailbox."""

    def associated(self, mailbox: str) -> list[Object] | None:
        """Return what the syncer of a mailbox is asked of associated objects; None leaves what it is asked."""
        return []

    def reread(self) -> None:
        """Anything may have changed."""
