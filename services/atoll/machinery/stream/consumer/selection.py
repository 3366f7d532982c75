"""The filters of a consumer that follows some resources whole, and of others only selected objects.

The state consumer keeps one `SelectedSubjects`. When the selection changes it reads what is new in it once, has the
sink release what left it, and follows the new filters from its position. Invariant: an object in `followed` was read
since it was selected and is in the filters since, so its row is current; one that is not has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.events import Event
from atoll.machinery.stream.subjects import STATE, filters, state_subject

#: Filters of one consumer for single objects. With more, the resources are followed whole and the sink selects:
#: nats-server compares each filter with each other one, which takes it 40 ms for 500 and 800 for 2,000, at each change.
MAX_SELECTED = 500


class Selection(Protocol):
    """The objects that a sink needs of the resources that it does not follow whole.

    A key without a name stands for all objects of its type in its cluster. Of these what is `held` is not known to be
    all, so they are read when they are first followed.
    """

    @property
    def covered(self) -> bool:
        """Whether the fixed filters have in them all that may be selected: then none are added."""

    @property
    def broad(self) -> tuple[str, ...]:
        """The filters of these resources."""

    @property
    def version(self) -> int:
        """A number that rises whenever `wanted` may have changed."""

    def wanted(self) -> set[ObjectKey]:
        """The objects to follow."""

    def held(self) -> set[ObjectKey]:
        """The objects that the sink has rows of, which were followed so far."""

    async def release(self, keys: Sequence[ObjectKey]) -> None:
        """Drop the rows of objects that are followed no more."""

    def read(self) -> None:
        """Every object that was wanted is followed now."""


class SelectedSubjects:
    """The filters of one consumer: `fixed` ones, and those of a selection's objects. None: there is no selection."""

    def __init__(self, shard: str, fixed: tuple[str, ...], selection: Selection | None) -> None:
        self._shard, self._fixed, self._selection = shard, fixed, selection
        self._followed = selection.held() if selection is not None else set()
        self._version = -1
        #: What came to the selection and was not read, such as when the connection was lost meanwhile.
        self._unread: set[ObjectKey] = set()

    @property
    def changed(self) -> bool:
        """Whether the selection may be another one than what is followed."""
        return self._selection is not None and (bool(self._unread) or self._selection.version != self._version)

    @property
    def has_unread(self) -> bool:
        """Whether something came to the selection that must be read."""
        return bool(self._unread)

    def follows(self, key: ObjectKey) -> bool:
        """Whether an object is followed or being read. Until it is released, nothing of it may be left out: selected
        again before that, it is not read again."""
        return key in self._followed or key in self._unread

    def filters(self) -> tuple[str, ...]:
        """The filters for what is followed."""
        if self._selection is None or self._selection.covered:
            return self._fixed
        if len(self._followed) > MAX_SELECTED:
            return (*self._fixed, *self._selection.broad)
        return (*self._fixed, *self.subjects(self._followed))

    def pages(self, keys: Sequence[ObjectKey], size: int) -> Iterator[Sequence[ObjectKey]]:
        """Yield what is read with one consumer each: one with several filters only where its user may make those."""
        step = 1 if self._selection is not None and self._selection.covered else size
        return (keys[start : start + step] for start in range(0, len(keys), step))

    def subjects(self, keys: Iterable[ObjectKey]) -> list[str]:
        """The subjects of these objects."""
        return [state_subject(self._shard, key) if key.name else self._all_of(key) for key in keys]

    def _all_of(self, key: ObjectKey) -> str:
        return filters(STATE, self._shard, type=key.type, cluster=key.cluster)[0]

    async def follow_all(self) -> None:
        """Everything is read again: follow the whole selection from now on."""
        if self._selection is None:
            return
        await self._release()
        self._followed, self._unread = self._selection.wanted(), set()
        self._version = self._selection.version

    async def unread(self) -> list[ObjectKey]:
        """Release what left the selection; return the objects that came to it, which must be read."""
        if self._selection is None:
            return []
        await self._release()
        self._unread = self._selection.wanted() - self._followed
        return list(self._unread)

    async def _release(self) -> None:
        assert self._selection is not None, "there is a selection"
        # What changes while the rows are dropped raises the version again.
        self._version, wanted = self._selection.version, self._selection.wanted()
        superfluous = list(self._followed - wanted)
        self._followed &= wanted
        # Before the wait, during which it would count as read.
        self._unread = wanted - self._followed
        await self._selection.release(superfluous)

    def read(self, keys: Iterable[ObjectKey]) -> None:
        """These objects were read, and are followed from now on."""
        self._followed.update(keys)
        self._unread.difference_update(keys)
        if self._selection is not None and not self._unread:
            self._selection.read()


def is_of_state(event: Event, lineage: str, filling: int) -> bool:
    """Whether an object's event, read out of order, belongs to the state that is followed: to no other lineage ("" if
    none was read yet), and to no earlier filling, of which a stream that sources a shard's may hold some. What is of a
    later one arrives once more."""
    if not event.intact or event.key is None:
        return False
    return not lineage or (event.lineage == lineage and event.filling >= filling)
