"""The two forms of a backup: a directory, and a tar archive that goes through a pipe.

Both hold the pages of the store and, written last, the manifest; an archive has the pages in parts, as their size is
not known before. `atoll backup` writes them, `atoll restore` reads them; `tarfile` is imported with the first archive,
as a shard's start imports this module. Invariant: what was received agrees with its
manifest in size and hash, or BadBackup is raised.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from atoll.machinery.storage.environment.filesystem import DATA_FILE, sync_directory
from atoll.machinery.storage.maintenance.backup import BACKUP_FORMAT, CHUNK_BYTES, Manifest
from atoll.machinery.storage.options import MIB

if TYPE_CHECKING:
    import tarfile

MANIFEST = "manifest.json"
_PART_BYTES, _MAX_MANIFEST_BYTES = 8 * MIB, 64 * 1024
#: So much of a backup is on the disk before more of it is written: a commit of the shard waits for what is not.
_SYNC_BYTES = 128 * 1024
_parse = msgspec.json.Decoder(Manifest)


class BadBackup(Exception):
    """What was read is no whole backup of this system. Nothing was changed."""


class Target(Protocol):
    """Where a backup goes."""

    def write(self, chunk: bytes) -> None:
        """Take the next bytes."""

    def finish(self, manifest: Manifest) -> None:
        """Everything was taken: make the backup whole, durably where it is a file."""


class DirectoryTarget:
    """A new directory (0700). Raises FileExistsError."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True)
        self._directory = directory
        fd = os.open(directory / DATA_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file, self._unsynced = os.fdopen(fd, "wb", buffering=0), 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._unsynced += len(chunk)
        if self._unsynced >= _SYNC_BYTES:
            os.fdatasync(self._file.fileno())
            # Nobody reads it again soon: the store's pages stay in memory.
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._unsynced = 0

    def finish(self, manifest: Manifest) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        path = self._directory / f"{MANIFEST}.new"
        with path.open("wb") as file:
            file.write(_encoded(manifest))
            file.flush()
            os.fsync(file.fileno())
        path.replace(self._directory / MANIFEST)
        sync_directory(self._directory)

    def close(self) -> None:
        """Give the file up; without a manifest it is no backup."""
        self._file.close()


class ArchiveTarget:
    """A tar archive that is written to a stream."""

    def __init__(self, stream: BinaryIO) -> None:
        import tarfile

        self._archive = tarfile.TarFile.open(fileobj=stream, mode="w|")
        self._held, self._parts = bytearray(), 0

    def write(self, chunk: bytes) -> None:
        self._held += chunk
        if len(self._held) >= _PART_BYTES:
            self._flush()

    def finish(self, manifest: Manifest) -> None:
        self._flush()
        self._add(MANIFEST, _encoded(manifest))
        self._archive.close()

    def _flush(self) -> None:
        if self._held:
            self._add(f"{DATA_FILE}.{self._parts:06}", bytes(self._held))
            self._held.clear()
            self._parts += 1

    def _add(self, name: str, data: bytes) -> None:
        entry = self._archive.tarinfo(name)
        entry.size, entry.mode = len(data), 0o600
        self._archive.addfile(entry, io.BytesIO(data))


def receive(source: Path | BinaryIO, into: Path) -> Manifest:
    """Copy the pages of a backup into a directory; return its manifest. Raises BadBackup, OSError."""
    if isinstance(source, Path) and source.is_dir():
        manifest = _decoded(_small(source / MANIFEST))
        copied = _write((into / DATA_FILE), _chunks(source / DATA_FILE))
    elif isinstance(source, Path):
        with source.open("rb") as stream:
            manifest, copied = _from_archive(stream, into)
    else:
        manifest, copied = _from_archive(source, into)
    if copied != (manifest.size_bytes, manifest.sha256):
        raise BadBackup("the pages are not those that the manifest describes")
    return manifest


def _from_archive(stream: BinaryIO, into: Path) -> tuple[Manifest, tuple[int, str]]:
    import tarfile

    held: list[bytes] = []
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            copied = _write(into / DATA_FILE, _parts(archive, held))
    except tarfile.TarError as error:
        raise BadBackup(f"it is no archive, or not a whole one: {error}") from error
    if not held:
        raise BadBackup("it ends without a manifest")
    return _decoded(held[0]), copied


def _parts(archive: tarfile.TarFile, held: list[bytes]) -> Iterator[bytes]:
    """Yield the pages; put the manifest into `held`."""
    number = 0
    for entry in archive:
        file = archive.extractfile(entry)
        limit = _MAX_MANIFEST_BYTES if entry.name == MANIFEST else _PART_BYTES + MIB
        if file is None or held or entry.size > limit:
            raise BadBackup(f"{entry.name!r} does not belong into it")
        data = file.read()
        if entry.name == MANIFEST:
            held.append(data)
        elif entry.name == f"{DATA_FILE}.{number:06}":
            number += 1
            yield data
        else:
            raise BadBackup(f"{entry.name!r} stands where part {number} belongs")


def _write(path: Path, chunks: Iterator[bytes]) -> tuple[int, str]:
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("wb", buffering=0) as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size_bytes += len(chunk)
    return size_bytes, digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except FileNotFoundError as error:
        raise BadBackup(f"there is no {path.name}") from error


def _small(path: Path) -> bytes:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(_MAX_MANIFEST_BYTES)
    raise BadBackup(f"{path.parent} has no {path.name}: no backup was finished there")


def _encoded(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def _decoded(data: bytes) -> Manifest:
    try:
        found = _parse.decode(data)
    except msgspec.DecodeError as error:
        raise BadBackup(f"the manifest cannot be read: {error}") from error
    if found.format > BACKUP_FORMAT:
        raise BadBackup(f"it was made by a later version: its format is {found.format}, not {BACKUP_FORMAT}")
    return found
