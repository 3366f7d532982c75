"""Which of several definitions of one kind a mailbox has, and the conflicts about them.

A mailbox decides as every workspace does: names that a definition or a binding holds are refused to the next one, which
waits there and takes over once they are free. `copies` tells what it saw, `projection` asks after definers were put.
Memory: one value a definer, which mailboxes and workspaces with the same one share. Invariants: definers of one export
are in no conflict; a definition that waits is on no list, so it replaces nothing at the edge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from atoll.edge.placement_translator.conflicts import Conflicts
from atoll.edge.placement_translator.content import DEFINERS, Kind
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.defined import Defined, defined_by
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.merging import Conflict
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object

_NOTHING: Defined = {}


class Definitions:
    """Definers in all mailboxes."""

    def __init__(self, topology: Topology, contents: Contents, conflicts: Conflicts) -> None:
        self._topology, self._contents, self._conflicts = topology, contents, conflicts
        #: Mailbox -> definer -> what it defines there now.
        self._effective: defaultdict[str, dict[ObjectRef, Defined]] = defaultdict(dict)
        #: Mailbox -> definer -> conflicts about it; only where there are any.
        self._contested: dict[str, dict[ObjectRef, frozenset[Conflict]]] = {}
        #: Mailbox -> definers that wait for another one to leave.
        self._waiting: dict[str, frozenset[ObjectRef]] = {}
        #: Mailbox -> kinds that were defined otherwise before, or not.
        self._renewed: dict[str, set[Kind]] = {}

    def saw(self, mailbox: str, ref: ObjectRef, live: Object | None) -> None:
        """A definer in a mailbox is like this now; any other object is no news."""
        if ref.kind not in DEFINERS:
            return
        found, before = defined_by(live), self._effective[mailbox].get(ref, _NOTHING)
        if live is None:
            self._effective[mailbox].pop(ref, None)
        else:
            self._effective[mailbox][ref] = found
        renewed = {kind for kind, identity in found.items() if before.get(kind) != identity}
        if renewed:
            self._renewed.setdefault(mailbox, set()).update(renewed)

    def settle(self, mailbox: str) -> tuple[set[Kind], bool]:
        """Find the conflicts; return the kinds whose copies are to be looked at, and if other definers wait."""
        senders, effective = self._senders(mailbox), self._effective[mailbox]
        found, waiting = defaultdict[ObjectRef, set[Conflict]](set), set[ObjectRef]()
        for kind, definers in self._several(mailbox).items():
            holders = sorted(ref for ref in definers if kind in effective.get(ref, _NOTHING))
            waiting.update(definers.difference(holders))
            for ref in definers if holders else ():
                found[ref].add(Conflict(field_of(kind), min(senders[holders[0]])))
        before = self._contested.pop(mailbox, {})
        if found:
            self._contested[mailbox] = {ref: frozenset(each) for ref, each in found.items()}
        for ref in sorted(before.keys() | found.keys()):
            gone, new = before.get(ref, frozenset()), found.get(ref, set())
            if gone != new and ref in senders:
                known = self._conflicts.found(mailbox, ref)
                self._conflicts.put(mailbox, ref, senders[ref], {*known} - gone | new)
        return self._renewed.pop(mailbox, set()), self._set_waiting(mailbox, frozenset(waiting))

    def _set_waiting(self, mailbox: str, waiting: frozenset[ObjectRef]) -> bool:
        before = self._waiting.pop(mailbox, frozenset())
        if waiting:
            self._waiting[mailbox] = waiting
        return before != waiting

    def waiting(self, mailbox: str) -> frozenset[ObjectRef]:
        """Return the definers in a mailbox whose kinds another one defines."""
        return self._waiting.get(mailbox, frozenset())

    def contested(self, mailbox: str, ref: ObjectRef) -> frozenset[Conflict]:
        """Return the conflicts about a definer as `settle` found them."""
        return self._contested.get(mailbox, {}).get(ref, frozenset())

    def winners(self, mailbox: str, kind: Kind) -> set[str]:
        """Return the workspaces whose definition of a kind counts, if workspaces do not agree on it."""
        fields = ("spec", field_of(kind))
        definers = {ref for _, ref, defined in self._sent(mailbox) if kind in defined}
        found = (each for ref in definers for each in self._conflicts.found(mailbox, ref))
        return {each.winner for each in found if each.field in fields}

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        for each in (self._effective, self._contested, self._waiting, self._renewed):
            each.pop(mailbox, None)

    def _sent(self, mailbox: str) -> Iterator[tuple[str, ObjectRef, Defined]]:
        """Yield workspaces that send a definer, with what it defines there."""
        for cluster, placements in self._topology.senders(mailbox).items():
            content = self._contents.get(cluster)
            for ref, defined in content.defined.items() if content is not None else ():
                item = content.items.get(ref) if content is not None else None
                if item is not None and not placements.isdisjoint(item.selection.placements):
                    yield cluster, ref, defined

    def _senders(self, mailbox: str) -> dict[ObjectRef, set[str]]:
        found = defaultdict[ObjectRef, set[str]](set)
        for cluster, ref, _ in self._sent(mailbox):
            found[ref].add(cluster)
        return found

    def _several(self, mailbox: str) -> Mapping[Kind, set[ObjectRef]]:
        """Return the kinds that several definers define, unless all of these have it from one export."""
        definers, identities = defaultdict[Kind, set[ObjectRef]](set), defaultdict[Kind, set[str]](set)
        for _, ref, defined in self._sent(mailbox):
            for kind, identity in defined.items():
                definers[kind].add(ref)
                identities[kind].add(identity)
        return {kind: refs for kind, refs in definers.items() if len(refs) > 1 and len(identities[kind]) > 1}


def field_of(kind: Kind) -> str:
    """Return what conflicts name that are about who defines a kind."""
    return f"definition of {kind[1]}.{kind[0]}".removesuffix(".")
