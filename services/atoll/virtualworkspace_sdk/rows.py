"""The rows of a view in its own store, written only when they changed.

`projection` writes through here; the pipeline reads the store. Invariant: a row keeps its uid and creation time as long
as it exists, also over a restart, and each change has a revision of its own, as for any object.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage.contract import Delete, Put, Record, Scope
from atoll.machinery.storage.environment.filesystem import DATA_FILE, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.pages import each_key_in_snapshots
from atoll.virtualworkspace_sdk.view import Key

_SYNCED = "virtual-synced"


def open_rows(directory: str, *, anywhere: bool) -> LmdbStore:
    """Open the store of a directory, created if missing. `anywhere` accepts any file system.

    Raises StoreInUse, UnsupportedFileSystem, UnknownFormat, OSError.
    """
    root = Path(directory)
    if not anywhere:
        require_local(root)
    if not (root / DATA_FILE).exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_store(StoreOptions(directory=directory, shard="view", allow_any_filesystem=anywhere))


class RowRefused(Exception):
    """The author's row does not match its schema."""


class Rows:
    """The rows of one kind."""

    def __init__(self, store: LmdbStore, kind: Kind) -> None:
        self.store, self._kind = store, kind
        self._synced = f"{_SYNCED}/{kind.group_resource}"

    @property
    def complete(self) -> bool:
        """Whether the rows were complete once, in this process or an earlier one, so that they may be served."""
        return self.store.get_mark(self._synced) is not None

    def completed(self) -> None:
        """Record that the rows are complete."""
        if not self.complete:
            self.store.set_mark(self._synced, b"1")

    @property
    def kind(self) -> Kind:
        """The kind in its first version."""
        return self._kind

    def get(self, key: Key) -> Record | None:
        """Return the stored row, None if it does not exist."""
        with self.store.snapshot() as snapshot:
            return snapshot.get(ObjectKey(self._kind.type, *key))

    def each_key(self) -> Iterator[Key]:
        """Yield the key of every row, a page at a time."""
        found = each_key_in_snapshots(self.store, Scope(self._kind.type))
        return (Key(key.cluster, key.namespace, key.name) for key in found)

    async def write(self, key: Key, content: Object | None) -> None:
        """Create, update or delete a row; None deletes it. Raises RowRefused, and the store's errors."""
        at = ObjectKey(self._kind.type, *key)
        record = self.get(key)
        if content is None:
            if record is not None:
                await self.store.submit([Delete(at, record.revision)])
            return
        old = decode(record.value) if record is not None else None
        row = self._row(key, content, old)
        if old is not None and _plain(old) == _plain(row):
            return
        value, hole = encode(row)
        await self.store.submit([Put(at, value, hole, record.revision if record is not None else 0)])

    def _row(self, key: Key, content: Object, old: Object | None) -> Object:
        said = content.get("metadata") or {}
        metadata: Object = {
            "name": key.name,
            "annotations": {**(said.get("annotations") or {}), wellknown.CLUSTER: key.cluster},
            "uid": old["metadata"]["uid"] if old is not None else new_uid(),
            "creationTimestamp": old["metadata"]["creationTimestamp"] if old is not None else times.now(),
        }
        if key.namespace:
            metadata["namespace"] = key.namespace
        if said.get("labels"):
            metadata["labels"] = dict(said["labels"])
        kind = self._kind
        row = {**content, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind.schema is not None and (found := kind.schema.validate(row)):
            raise RowRefused(f"row {key}: {'; '.join(str(error) for error in found)}")
        return row


def _plain(row: Object) -> Object:
    metadata = {name: value for name, value in row["metadata"].items() if name != "resourceVersion"}
    return {**row, "metadata": metadata}
