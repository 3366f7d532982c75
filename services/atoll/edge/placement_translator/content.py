"""What one workspace sends: data, no I/O.

`reading` fills it, `contents` keeps one for each workspace with placements. Invariant: `items` has what was read last,
and `by_uid` the same objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from atoll.edge.placement_translator.defined import Defined
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta import types
from atoll.machinery.meta.objects import Object

Kind = tuple[str, str]
NAMESPACES = (types.NAMESPACES.group, types.NAMESPACES.resource)
#: Kinds of objects that define kinds.
DEFINERS = tuple((each.group, each.resource) for each in (types.CRDS, types.API_BINDINGS))


class Item(msgspec.Struct, frozen=True):
    """An object that is sent. `digest` is of what it gives to its copies; `owners` are uids in its workspace.

    `versions` are those of its kind there, the one that it was read at first. `revision` is that of the last change of
    what it gives, whatever else changed since. `customizer` is the one that it names;
    with `expands` it has parameters of the destination's Location.
    """

    selection: Selection
    versions: tuple[str, ...]
    digest: str
    uid: str
    owners: tuple[str, ...] = ()
    customizer: ObjectRef | None = None
    expands: bool = False
    revision: int = 0

    @property
    def version(self) -> str:
        """The version that it was read at."""
        return self.versions[0]


class CustomizerState(msgspec.Struct, frozen=True):
    """A Customizer as it was read last: a digest of what it says, or why it says nothing."""

    digest: str = ""
    expands: bool = False
    problem: str = ""


class Offers(msgspec.Struct, frozen=True):
    """Of each API group of which something is sent: the versions that the workspace serves, and who sends of it."""

    versions: dict[str, frozenset[str]] = {}
    placements: dict[str, frozenset[str]] = {}


class Content:
    """What one workspace sends."""

    def __init__(self) -> None:
        self.items: dict[ObjectRef, Item] = {}
        self.by_uid: dict[str, ObjectRef] = {}
        #: Uid of an owner -> what it owns.
        self._owned: dict[str, set[ObjectRef]] = {}
        #: Customizer -> what names it, and Customizers that something names, as they are.
        self._customized: dict[ObjectRef, set[ObjectRef]] = {}
        self.customizers: dict[ObjectRef, CustomizerState] = {}
        self._expanding: set[ObjectRef] = set()
        #: Kind -> placement -> number of objects.
        self._counts: dict[Kind, Counter[str]] = {}
        self.kinds: dict[Kind, ServedKind] = {}
        #: Kinds that placements ask for and the account may not read.
        self.forbidden: set[Kind] = set()
        #: Namespaces by name with their labels, where a placement selects by these.
        self.namespaces: dict[str, Object] = {}
        self.selected: dict[Kind, Selection] = {}
        #: What definers that are sent define.
        self.defined: dict[ObjectRef, Defined] = {}
        #: What the last reading found otherwise than it was sent last, also by an earlier process.
        self.edited: set[ObjectRef] = set()
        #: Made anew only when it says something else.
        self.offers = Offers()
        #: What the reading under way found otherwise, which no mailbox has due yet.
        self.changing: Mapping[ObjectRef, set[str]] = {}
        #: What to read: everything, and single objects.
        self.is_stale, self.stale_refs = True, set[ObjectRef]()
        #: Whether everything was read once.
        self.is_complete = False

    def select(self, selected: dict[Kind, Selection]) -> None:
        """Take over the kinds of what is sent, once `kinds` was read."""
        self.selected = selected
        placements: dict[str, set[str]] = {}
        for (group, _), found in selected.items():
            placements.setdefault(group, set()).update(found.placements)
        served: dict[str, set[str]] = {group: set() for group in placements}
        for (group, _), kind in self.kinds.items():
            if group in served:
                served[group].update(kind.versions)
        offers = Offers(*({group: frozenset(each) for group, each in found.items()} for found in (served, placements)))
        if offers != self.offers:
            self.offers = offers

    def put(self, ref: ObjectRef, item: Item | None) -> None:
        """Replace what is sent of an object."""
        before = self.items.pop(ref, None)
        if before is not None:
            self.by_uid.pop(before.uid, None)
            self._counts[ref.kind].subtract(before.selection.placements)
            for uid in before.owners:
                self._owned[uid].discard(ref)
                if not self._owned[uid]:
                    del self._owned[uid]
            self._expanding.discard(ref)
            if (customizer := before.customizer) is not None:
                self._customized[customizer].discard(ref)
                if not self._customized[customizer]:
                    del self._customized[customizer]
        if item is not None:
            self.items[ref], self.by_uid[item.uid] = item, ref
            self._counts.setdefault(ref.kind, Counter()).update(item.selection.placements)
            for uid in item.owners:
                self._owned.setdefault(uid, set()).add(ref)
            if item.expands:
                self._expanding.add(ref)
            if item.customizer is not None:
                self._customized.setdefault(item.customizer, set()).add(ref)

    def count(self, placement: str) -> int:
        """Return the number of objects that a placement sends."""
        return sum(each[placement] for each in self._counts.values())

    def placements_of_kinds(self) -> dict[Kind, tuple[str, ...]]:
        """Return the kinds of all that is sent, and the placements that send any of them, sorted."""
        found = {kind: tuple(sorted(+each)) for kind, each in self._counts.items()}
        return {kind: names for kind, names in found.items() if names}

    def sends(self, ref: ObjectRef, placement: str) -> bool:
        """Whether a placement sends an object, or, without a name, anything of its kind."""
        if not ref.name:
            return self._counts.get(ref.kind, Counter())[placement] > 0
        item = self.items.get(ref)
        return item is not None and placement in item.selection.placements

    def owned_by(self, uid: str) -> set[ObjectRef]:
        """Return what an object owns, by its uid."""
        return self._owned.get(uid, set())

    def named_customizers(self) -> set[ObjectRef]:
        """Return the Customizers that something names."""
        return set(self._customized)

    def customized_by(self, customizer: ObjectRef) -> set[ObjectRef]:
        """Return what names a Customizer."""
        return self._customized.get(customizer, set())

    def located(self) -> set[ObjectRef]:
        """Return what has parameters of its destination's Location, or of whose Customizer some are."""
        rules = (self.customized_by(ref) for ref, state in self.customizers.items() if state.expands)
        return self._expanding.union(*rules)
