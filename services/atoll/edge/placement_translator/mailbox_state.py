"""What is to be done in one mailbox, and what failed in it: data, no I/O.

`projection` keeps one for each mailbox with destinations or copies. Invariant: what was taken and not done is put back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncerconfigs import digest_of, is_part
from atoll.machinery.meta.objects import Object

#: Between two writes of a list: what is due meanwhile is in the second.
BURST_S = 0.05


class Due(msgspec.Struct):
    """What to look at. Objects with True may have been changed in the mailbox."""

    #: All copies, by lists of the mailbox.
    is_unread: bool = False
    #: All that is sent, against the records.
    is_moved: bool = False
    #: What the mailbox serves.
    is_redefined: bool = False
    #: The list for the syncer.
    is_unlisted: bool = False
    #: Whether the list in the mailbox is another than the one that was written.
    is_list_seen: bool = False
    refs: dict[ObjectRef, bool] = msgspec.field(default_factory=dict)
    #: Of objects that are with True for a change alone: the revision of the last one.
    changes: dict[ObjectRef, int] = msgspec.field(default_factory=dict)

    def add(self, ref: ObjectRef, *, is_live_due: bool) -> None:
        """Add an object."""
        self.refs[ref] = self.refs.get(ref, False) or is_live_due
        if is_live_due:
            self.changes.pop(ref, None)

    def add_sent(self, refs: Iterable[ObjectRef], edited: Iterable[ObjectRef] = ()) -> None:
        """Add what is sent otherwise than before; where all that is sent is looked at anyway, only what was edited."""
        for ref in edited if self.is_moved else refs:
            self.add(ref, is_live_due=False)

    def add_change(self, ref: ObjectRef, revision: int) -> None:
        """Add an object that changed in the mailbox. A record of this revision says that it is what was written."""
        if not self.refs.get(ref) or ref in self.changes:
            self.refs[ref], self.changes[ref] = True, revision

    def join(self, other: Due) -> None:
        """Add what another one has."""
        self.is_unread |= other.is_unread
        self.is_moved |= other.is_moved
        self.is_redefined |= other.is_redefined
        self.is_unlisted |= other.is_unlisted
        self.is_list_seen |= other.is_list_seen
        for ref, is_live_due in other.refs.items():
            if is_live_due and ref in other.changes:
                if ref not in self.changes:
                    self.add_change(ref, other.changes[ref])
            else:
                self.add(ref, is_live_due=is_live_due)


class MailboxState:
    """One mailbox."""

    def __init__(self) -> None:
        self.due = Due(is_moved=True)
        #: Whether all that was due at first was done.
        self.is_read = False
        #: Whether what was taken is in work.
        self.is_busy = False
        self.failures: dict[ObjectRef, Failure] = {}
        #: Namespaces that are there.
        self.namespaces: set[str] = set()
        #: When to write the list, None while it is as it should be; and when it was written last.
        self.list_at_s: float | None = None
        self.listed_at_s = 0.0
        #: Revision of the last write of the list, and of all its parts as they were written.
        self.listed, self.written_parts = 0, dict[str, int]()
        #: Digest of the list as it was written, if it has one part, and objects that may be another in it; None: any.
        self.listed_as = ""
        self.relisted: set[ObjectRef] | None = None

    def list_again(self, now_s: float) -> None:
        """Have the list written: at once, but not twice in BURST_S."""
        if self.list_at_s is None:
            self.list_at_s = max(now_s, self.listed_at_s + BURST_S)

    def take_list(self, configs: Collection[Object]) -> None:
        """Take over the list as it is now: among these SyncerConfigs it is as it should be."""
        digests = [digest_of(each) for each in configs if is_part(each)]
        self.listed_as, self.relisted = (digests[0] if len(digests) == 1 else ""), set()

    def take(self) -> Due:
        """Return what is due, which is then not any more."""
        taken, self.due = self.due, Due()
        return taken

    def take_first(self, first: Iterable[ObjectRef]) -> Due:
        """Return a part of what is due, which is then not any more."""
        taken = Due()
        for ref in first:
            is_live_due, revision = self.due.refs.pop(ref), self.due.changes.pop(ref, None)
            if revision is None:
                taken.add(ref, is_live_due=is_live_due)
            else:
                taken.add_change(ref, revision)
        return taken

    @property
    def is_done(self) -> bool:
        """Whether all that is sent was written, or failed, and the list after it."""
        due = self.due
        is_due = self.is_busy or due.is_unread or due.is_moved or bool(due.refs)
        return self.is_read and not is_due and self.list_at_s is None
