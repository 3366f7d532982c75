"""What the list of a mailbox is to be: what is in it and wanted there, what comes up, and what collectors ask.

`projection` writes it. A list is made of the one before by what changed since, where that is what was written here: to
read the records of everything in a mailbox costs more. Equal lists of mailboxes are kept once, the last ones of all in
bounded memory. Invariant: it names what has a record and is wanted, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from atoll.edge.placement_translator.copies import Copies
from atoll.edge.placement_translator.mailbox_state import MailboxState
from atoll.edge.placement_translator.records import Copy, CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.applied import digest_of_encoded
from atoll.machinery.edge.list_edits import edited
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.syncerconfigs import digest_of, specs_of
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, decode, encode_json, spec_of

#: Bytes of specs that are kept.
MAX_BYTES = 4 << 20


class Listing:
    """The lists of all mailboxes."""

    def __init__(self, topology: Topology, records: CopyRecords, copies: Copies) -> None:
        self._topology, self._records, self._copies = topology, records, copies
        #: Digest -> spec of a list of one part.
        self._specs: LruCache[str, bytes] = LruCache(MAX_BYTES, len)
        #: What the syncer of a mailbox is asked beside the list; None before all is known.
        self.associated: Callable[[str], list[Object] | None] = lambda mailbox: []

    def specs(self, mailbox: str, state: MailboxState, parts: Collection[Object]) -> list[Object]:
        """Return the specs of all parts, given the parts that are there now."""
        spec = self._edited(mailbox, state, parts)
        specs = [spec] if spec is not None else self._whole(mailbox, parts)
        if len(specs) == 1:
            encoded = encode_json(specs[0])
            self._specs.put(digest_of_encoded(encoded), encoded)
        return specs

    def _edited(self, mailbox: str, state: MailboxState, parts: Collection[Object]) -> Object | None:
        """Return the list before with what changed; None if that is not known, or not enough."""
        if state.relisted is None or [digest_of(each) for each in parts] != [state.listed_as]:
            return None
        before = self._specs.get(state.listed_as)
        if before is None:
            return None
        changes = {ref: self._version(mailbox, ref, self._records.get(mailbox, ref)) for ref in state.relisted}
        return edited(decode(before), changes)

    def _whole(self, mailbox: str, parts: Collection[Object]) -> list[Object]:
        associated = self.associated(mailbox)
        if associated is None:
            associated = [row for part in parts for row in spec_of(part).get("associated") or ()]
        return specs_of(self._objects(mailbox), self._upsync(mailbox), associated=associated)

    def _objects(self, mailbox: str) -> dict[ObjectRef, str]:
        """Return what is in a mailbox and wanted there, with versions."""
        found = self._records.of(mailbox).items()
        return {ref: version for ref, record in found if (version := self._version(mailbox, ref, record))}

    def _version(self, mailbox: str, ref: ObjectRef, record: Copy | None) -> str:
        """Return the version at which an object is listed, "" if it is not."""
        if record is None or ref in self._copies.composition.definitions.waiting(mailbox):
            return ""
        return record.version if self._copies.wanted_one(mailbox, ref) else ""

    def _upsync(self, mailbox: str) -> set[UpsyncSet]:
        senders = self._topology.senders(mailbox)
        return {
            each
            for cluster, names in senders.items()
            for placement in self._topology.placements(cluster)
            if placement.name in names
            for each in placement.upsync
        }
