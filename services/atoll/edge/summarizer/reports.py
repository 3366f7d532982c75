"""What syncers say of their mailboxes: up to where everything was applied, and what edge clusters refuse.

`summarizer` puts SyncerConfigs in, `summaries` asks. Invariant: a report that says nothing new of an object changes
nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from atoll.machinery.edge.failures import MAX_ROWS
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.summaries.broken import Breakage
from atoll.machinery.meta.objects import Object, status_of


class MailboxReport(msgspec.Struct, frozen=True):
    """What one syncer says; a reference without a name is about all of a kind.

    With as many errors as are told at most, nothing counts as applied.
    """

    applied: int = 0
    errors: dict[ObjectRef, Breakage] = {}
    is_whole: bool = True

    def breakage(self, ref: ObjectRef) -> Breakage | None:
        """Return what the edge cluster refuses of an object."""
        if not self.errors:
            return None
        return self.errors.get(ref) or self.errors.get(ObjectRef(ref.group, ref.resource, "", ""))

    def has_applied(self, ref: ObjectRef, written: int) -> bool:
        """Whether an object is at the edge as it was written last."""
        return self.is_whole and 0 < written <= self.applied and self.breakage(ref) is None


NONE = MailboxReport()


class Reports:
    """Reports by mailbox."""

    def __init__(self) -> None:
        self._reports: dict[str, MailboxReport] = {}

    def get(self, mailbox: str) -> MailboxReport:
        """Return what is known of a mailbox."""
        return self._reports.get(mailbox, NONE)

    def put(self, mailbox: str, config: Object | None) -> Callable[[ObjectRef, int], bool] | None:
        """Take over a SyncerConfig; return whether it says something else of an object that was written last then.

        None: it says nothing else of any, as when only the time of a heartbeat changed.
        """
        before, after = self.get(mailbox), _report(status_of(config)) if config is not None else NONE
        if before == after:
            return None
        if after == NONE:
            self._reports.pop(mailbox, None)
        else:
            self._reports[mailbox] = after

        def is_new(ref: ObjectRef, written: int) -> bool:
            applied = before.has_applied(ref, written), after.has_applied(ref, written)
            return applied[0] != applied[1] or before.breakage(ref) != after.breakage(ref)

        return is_new


def _report(status: Object) -> MailboxReport:
    applied, rows = str(status.get("appliedRevision") or ""), status.get("errors") or ()
    return MailboxReport(int(applied) if applied.isdecimal() else 0, dict(_errors(rows)), len(rows) < MAX_ROWS)


def _errors(rows: Iterable[Object]) -> Iterable[tuple[ObjectRef, Breakage]]:
    for row in rows:
        ref = ObjectRef(*(str(row.get(field) or "") for field in ("group", "resource", "namespace", "name")))
        yield ref, Breakage(str(row.get("reason") or ""), str(row.get("message") or ""))
