"""What a syncer remembers from start to start: the state file.

Invariant: all of it may be lost; then the cluster is searched once for objects with the syncer's label, and an apply
of some kinds is repeated. A file that cannot be read counts as lost.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.process.private_files import write_private

log = structlog.get_logger()


class _Record(msgspec.Struct, frozen=True):
    ref: ObjectRef
    record: ApplyRecord


class _Stored(msgspec.Struct, frozen=True):
    """The file."""

    syncer: str
    edge: str
    identity: str
    number: int
    kinds: list[tuple[str, str, str]]
    records: list[_Record]
    copies: list[tuple[ObjectRef, str]]
    read: tuple[int, int] = (0, 0)
    mark: str = ""


class State:
    """The memory of one syncer. `kinds` are those it ever wrote (group, resource, version), None while unknown."""

    def __init__(self, syncer: str, edge: str, path: Path | None) -> None:
        """`edge` is the uid of the cluster: what was remembered of another one does not count."""
        self.syncer = syncer
        self._edge, self._path = edge, path
        self.identity = secrets.token_hex(4)
        #: What the cluster goes by at the center: its uid, until a copy of it turned up.
        self.mark = edge
        self.number = 0
        self.kinds: set[tuple[str, str, str]] | None = None
        self.records: dict[ObjectRef, ApplyRecord] = {}
        #: What came up, and in which version.
        self.copies: dict[ObjectRef, str] = {}
        #: Revision of the mailbox that was read, and that of its last change.
        self.read = 0, 0
        self.failures: dict[ObjectRef, Failure] = {}
        self._saved = b""
        self._load()

    def save(self) -> None:
        """Write the file, if there is one and something changed. Raises OSError."""
        if self._path is None:
            return
        records = [_Record(ref, each) for ref, each in sorted(self.records.items())]
        kinds = sorted(self.kinds or ())
        copies = sorted(self.copies.items())
        head = self.syncer, self._edge, self.identity, self.number
        stored = _Stored(*head, kinds, records, copies, self.read, self.mark)
        data = msgspec.json.encode(stored)
        if data != self._saved:
            write_private(self._path, data)
            self._saved = data

    def _load(self) -> None:
        if self._path is None:
            return
        with contextlib.suppress(FileNotFoundError):
            try:
                found = msgspec.json.decode(self._path.read_bytes(), type=_Stored)
            except msgspec.MsgspecError as error:
                log.warning("state file not read", reason=str(error))
                return
            if (found.syncer, found.edge) == (self.syncer, self._edge):
                self.identity, self.number, self.kinds = found.identity, found.number, set(found.kinds)
                self.copies, self.read = dict(found.copies), found.read
                self.mark = found.mark or self.mark
                self.records = {each.ref: each.record for each in found.records}
