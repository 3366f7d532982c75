"""The sets of copies of cached resources that this shard needs, because a workspace here binds them.

A controller (`controllers.exports.kept_copies`) adds and releases sets; the consumer of each shard follows what stands
here, beside what `needed_rows` selects or beside everything. They are in a mark, so a start follows the same sets
before the controller has listed anything, and drops what was released before it. Invariant: a set that is neither
needed nor released has no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from atoll.machinery.kcp.apis.copies import CopySet
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Mark, Record, Scope
from atoll.replication.notifications import OwnerChange, ReplicaChange
from atoll.replication.readable_pages import readable
from atoll.replication.replica_writer import ReplicaWriter

NEEDED_COPIES = "replication.needed-copies"
#: Rows dropped at once: they are read with their values.
_PAGE = 50


class _Sets(msgspec.Struct, frozen=True):
    """`released` are sets of which rows may be left."""

    needed: frozenset[CopySet] = frozenset()
    released: frozenset[CopySet] = frozenset()


class NeededCopies:
    """`changed` is called when the sets are other ones."""

    def __init__(self, writer: ReplicaWriter, changed: Callable[[], None]) -> None:
        self._writer, self._changed = writer, changed
        data = writer.store.get_mark(NEEDED_COPIES)
        self._sets = msgspec.json.decode(data, type=_Sets) if data else _Sets()
        #: Rises when `wanted` may be another set.
        self.version = 0

    def __contains__(self, each: CopySet) -> bool:
        return each in self._sets.needed

    def keeps(self, key: ObjectKey) -> bool:
        """Whether a copy is kept: also of a set that was released, until its rows are dropped. A set that is needed
        again before that is not read again, and has missed nothing."""
        each = CopySet(key.cluster, key.type.resource)
        return each in self._sets.needed or each in self._sets.released

    def sets(self) -> frozenset[CopySet]:
        """Return what is needed."""
        return self._sets.needed

    def wanted(self, origin: str) -> set[ObjectKey]:
        """Return the needed sets of a shard, as keys without a name."""
        if not self._sets.needed:
            return set()
        with self._writer.store.snapshot() as snapshot:
            shard_of = snapshot.replicas.shard_of
            return {each.key("") for each in self._sets.needed if shard_of(each.cluster) == origin}

    def released(self) -> set[ObjectKey]:
        """Return the sets of which rows may be left, as keys without a name."""
        return {each.key("") for each in self._sets.released}

    async def need(self, each: CopySet) -> None:
        """Follow a set from now on."""
        if each not in self._sets.needed:
            await self._save(_Sets(self._sets.needed | {each}, self._sets.released - {each}))

    async def release(self, each: CopySet) -> None:
        """Follow a set no more."""
        if each in self._sets.needed:
            await self._save(_Sets(self._sets.needed - {each}, self._sets.released | {each}))

    async def drop(self, origin: str, key: ObjectKey) -> None:
        """Drop the rows that a shard sent of a set; `key` is without a name. Nobody hears of a deletion."""
        scope = Scope(key.type, key.cluster)
        while True:
            with self._writer.store.snapshot() as snapshot:
                page = readable(partial(snapshot.replicas.rows_of, origin), scope, None, _PAGE)
            if not page:
                break
            await self._writer.release(origin, [record.key for record in page], lambda _: True)
        self._sets = _Sets(self._sets.needed, self._sets.released - {CopySet(key.cluster, key.type.resource)})
        await self._write()

    def wrote(
        self, origin: str, changes: Sequence[tuple[ReplicaChange, Record | None]], owners: Sequence[OwnerChange]
    ) -> None:
        """Owners were decided: sets may be another shard's."""
        if any(each.cluster == owner.cluster for owner in owners for each in self._sets.needed):
            self._note_change()

    async def _save(self, sets: _Sets) -> None:
        self._sets = sets
        await self._write()
        self._note_change()

    async def _write(self) -> None:
        await self._writer.write([Mark(NEEDED_COPIES, msgspec.json.encode(self._sets))])

    def _note_change(self) -> None:
        self.version += 1
        self._changed()


class SelectedCopies:
    """The copies that are kept of a shard that is followed whole: `stream.consumer.selection.Selection`."""

    #: The filter of the whole stream has them in it.
    covered = True
    broad = ()

    def __init__(self, copies: NeededCopies, origin: str) -> None:
        self._copies, self._origin = copies, origin

    @property
    def version(self) -> int:
        return self._copies.version

    def wanted(self) -> set[ObjectKey]:
        return self._copies.wanted(self._origin)

    def held(self) -> set[ObjectKey]:
        return self._copies.released()

    async def release(self, keys: Sequence[ObjectKey]) -> None:
        for key in keys:
            await self._copies.drop(self._origin, key)

    def read(self) -> None:
        """Nobody waits for a whole selection."""
