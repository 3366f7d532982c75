"""Records of copies in mailboxes: what was applied, and what the server answered.

`copies` reads and writes them. They lie in the store of the process. Invariant: a record says that the copy was in the
mailbox; without records the mailboxes are listed, and nothing is written that is in force. While a copy is written that
has no record yet, its mailbox counts as not swept, on disk too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

import msgspec

from atoll.edge.placement_translator.content import Kind
from atoll.edge.store import APPLIED, KINDS, LATE, SWEPT, EdgeStore
from atoll.machinery.client.waves import Waves
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.names import ObjectRef

_COPY, _REPORTED, _CHANGE, _RENDERED = b"c", b"r", b"d", b"g"
#: Between the beginnings of two commits: each is an fsync and a turn of a thread, whatever is in it.
GATHER_S = 0.005
#: Objects of which the hash is kept: a summary reads the records of one in all mailboxes.
MAX_HASHES = 1024


class Copy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A copy: its version, a digest of its sources, the last apply, its uid, its revision, that of our last write.

    `holder` is the workspace whose value counts, where that is to stay. `has_status`: somebody in the mailbox may have
    written a status, or it is not known.
    """

    version: str
    sources: str
    applied: ApplyRecord
    uid: str
    revision: int
    written: int
    holder: str = ""
    has_status: bool = True


class LastChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an object of a workspace gives to its copies, as a digest, since a revision."""

    digest: str
    revision: int


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ref: ObjectRef
    copy: Copy | None = None
    version: str = ""
    change: LastChange | None = None


_decode = msgspec.msgpack.Decoder(_Row).decode
_encode = msgspec.msgpack.Encoder().encode
_decode_renderings = msgspec.msgpack.Decoder(dict[str, bytes]).decode
_decode_kinds = msgspec.msgpack.Decoder(set[Kind]).decode


class CopyRecords:
    """Reads see what was put, before it is on disk; `flush` writes it, in one commit with what others put meanwhile."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store
        self._unwritten: dict[bytes, bytes | None] = {}
        #: How many rows were put, and how many of these are on disk.
        self._puts = self._written = 0
        self._lock = asyncio.Lock()
        self._commits = Waves(GATHER_S)
        #: Mailboxes with other copies, or copies of another version, than when they were taken.
        self._moved: set[str] = set()

    def get(self, mailbox: str, ref: ObjectRef) -> Copy | None:
        """Return the record of a copy, None without one."""
        value = self._read(_key(_COPY, mailbox, ref))
        return None if value is None else _decode(value).copy

    def written(self, mailboxes: Iterable[str], ref: ObjectRef) -> list[int]:
        """Return the revision of the last write of an object's copy in each mailbox, 0 without a record."""
        keys = [_key(_COPY, each, ref) for each in mailboxes]
        values = [
            self._unwritten.get(key, found) for key, found in zip(keys, self._store.applied.get_many(keys), strict=True)
        ]
        copies = [_decode(value).copy if value is not None else None for value in values]
        return [copy.written if copy is not None else 0 for copy in copies]

    def put(self, mailbox: str, ref: ObjectRef, copy: Copy | None) -> None:
        """Replace or remove the record of a copy."""
        before = self.get(mailbox, ref)
        if (before and before.version) != (copy and copy.version):
            self._moved.add(mailbox)
        self._put(_key(_COPY, mailbox, ref), None if copy is None else _encode(_Row(ref, copy)))
        if copy is None:
            self.put_renderings(mailbox, ref, {})

    def renderings(self, mailbox: str, ref: ObjectRef) -> dict[str, bytes]:
        """Return what workspaces gave to a copy, customized, when the mailbox took it last."""
        value = self._read(_key(_RENDERED, mailbox, ref))
        return {} if value is None else _decode_renderings(value)

    def put_renderings(self, mailbox: str, ref: ObjectRef, found: Mapping[str, bytes]) -> None:
        """Replace what workspaces gave to a copy, customized."""
        if found != self.renderings(mailbox, ref):
            self._put(_key(_RENDERED, mailbox, ref), _encode(found) if found else None)

    def take_moved(self, mailbox: str) -> bool:
        """Return whether a mailbox has other copies, or copies of another version, than at the last call."""
        is_moved = mailbox in self._moved
        self._moved.discard(mailbox)
        return is_moved

    def of(self, mailbox: str) -> dict[ObjectRef, Copy]:
        """Return all records of a mailbox."""
        return {row.ref: row.copy for row in self._rows(_COPY, mailbox) if row.copy is not None}

    def has_any(self, mailbox: str) -> bool:
        """Whether a mailbox has copies on disk."""
        return next(iter(self._store.applied.items(_prefix(_COPY, mailbox))), None) is not None

    def reported(self, cluster: str) -> dict[ObjectRef, str]:
        """Return the objects of a workspace with a reported state, and their versions."""
        return {row.ref: row.version for row in self._rows(_REPORTED, cluster)}

    def reporting(self) -> set[str]:
        """Return the workspaces with reported states."""
        return {key[len(_REPORTED) :].partition(b"\0")[0].decode() for key, _ in self._store.applied.items(_REPORTED)}

    def put_reported(self, cluster: str, ref: ObjectRef, version: str) -> None:
        """Take down that an object has a reported state, "" that it has none."""
        self._put(_key(_REPORTED, cluster, ref), _encode(_Row(ref, None, version)) if version else None)

    def last_change(self, cluster: str, ref: ObjectRef) -> LastChange | None:
        """Return the last change of an object that is sent, None if it was not sent before."""
        value = self._read(_key(_CHANGE, cluster, ref))
        return None if value is None else _decode(value).change

    def put_last_change(self, cluster: str, ref: ObjectRef, change: LastChange | None) -> None:
        """Replace or remove the last change of an object that is sent."""
        self._put(_key(_CHANGE, cluster, ref), None if change is None else _encode(_Row(ref, None, "", change)))

    def changed(self, cluster: str) -> list[ObjectRef]:
        """Return the objects of a workspace whose last change is known."""
        return [row.ref for row in self._rows(_CHANGE, cluster)]

    def is_swept(self, mailbox: str) -> bool:
        """Whether all copies in a mailbox have a record."""
        return self._read(_prefix(SWEPT, mailbox)) is not None

    def put_swept(self, mailbox: str) -> None:
        """Take down that all copies in a mailbox have a record."""
        kinds = {ref.kind for ref in self.of(mailbox)}.union(self.kinds(mailbox) or ())
        self._put(_prefix(SWEPT, mailbox), b"1")
        self._put(_prefix(KINDS, mailbox), _encode(sorted(kinds)))

    def put_late(self, mailbox: str, revision: int) -> None:
        """Take down that up to a revision writes may come of a process that ended amid new copies."""
        self._put(_prefix(LATE, mailbox), str(revision).encode())

    def late_until(self, mailbox: str) -> int:
        """Return up to which revision a mailbox may get copies of an earlier process that have no record; 0: none."""
        return int(self._read(_prefix(LATE, mailbox)) or b"0")

    def kinds(self, mailbox: str) -> set[Kind] | None:
        """Return the kinds of which a mailbox may have copies; None if it may have some of any kind."""
        value = self._read(_prefix(KINDS, mailbox))
        return None if value is None else _decode_kinds(value)

    def swept(self) -> set[str]:
        """Return the mailboxes, on disk, of which all copies have a record."""
        return {key[len(SWEPT) :].removesuffix(b"\0").decode() for key, _ in self._store.applied.items(SWEPT)}

    def add_kinds(self, mailbox: str, kinds: Collection[Kind]) -> bool:
        """Take down that a mailbox may have copies of kinds; return whether that is new."""
        before = self.kinds(mailbox)
        if before is None or before.issuperset(kinds):
            return False
        self._put(_prefix(KINDS, mailbox), _encode(sorted(before.union(kinds))))
        return True

    async def expect(self, mailbox: str, kinds: Collection[Kind], *, has_new: bool) -> None:
        """Take down, on disk, that copies of kinds are about to be written, new ones among them.

        With new ones `put_written` has to follow. Raises the errors of the store.
        """
        is_due = self.add_kinds(mailbox, kinds)
        if has_new and self.is_swept(mailbox):
            self._put(_prefix(SWEPT, mailbox), None)
            is_due = True
        if is_due:
            await self.flush()

    def put_written(self, mailbox: str) -> None:
        """Take down that all new copies have their record, unless the mailbox was never swept."""
        if not self.is_swept(mailbox) and self.kinds(mailbox) is not None:
            self._put(_prefix(SWEPT, mailbox), b"1")

    def forget(self, mailbox: str) -> None:
        """Remove everything about a mailbox that is gone."""
        for ref in self.of(mailbox):
            self.put(mailbox, ref, None)
        for part in (SWEPT, KINDS, LATE):
            self._put(_prefix(part, mailbox), None)

    async def flush(self) -> None:
        """Return once all that was put is on disk. Raises the errors of the store."""
        wanted = self._puts
        async with self._lock:
            if self._written >= wanted:
                return
            await self._commits.join()
            batch, puts = dict(self._unwritten), self._puts
            await asyncio.to_thread(self._store.write, {APPLIED: batch})
            self._written = puts
            for key, value in batch.items():
                if self._unwritten[key] is value:
                    del self._unwritten[key]

    def _put(self, key: bytes, value: bytes | None) -> None:
        self._unwritten[key] = value
        self._puts += 1

    def _read(self, key: bytes) -> bytes | None:
        return self._unwritten[key] if key in self._unwritten else self._store.applied.get(key)

    def _rows(self, part: bytes, cluster: str) -> list[_Row]:
        prefix = _prefix(part, cluster)
        found: Mapping[bytes, bytes | None] = {
            **dict(self._store.applied.items(prefix)),
            **{key: value for key, value in self._unwritten.items() if key.startswith(prefix)},
        }
        return [_decode(value) for value in found.values() if value is not None]


def _prefix(part: bytes, cluster: str) -> bytes:
    return part + cluster.encode() + b"\0"


def _key(part: bytes, cluster: str, ref: ObjectRef) -> bytes:
    """Return the key of a record. Names may be longer than a key, so it has their hash."""
    return _prefix(part, cluster) + _hash(ref)


@lru_cache(MAX_HASHES)
def _hash(ref: ObjectRef) -> bytes:
    text = "\0".join((ref.group, ref.resource, ref.namespace, ref.name))
    return hashlib.sha256(text.encode()).digest()[:16]
