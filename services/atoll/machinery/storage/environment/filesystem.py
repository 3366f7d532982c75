"""Checks and setup of a store's directory: a local file system, private modes, one owner, durable entries.

`opening` calls it before LMDB opens the directory. Invariant: if a check fails nothing in the directory was changed,
and of two processes that want to write only one gets past `own`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

#: Not local, or gone after a reboot. LMDB needs a coherent mmap and an fsync that reaches a disk.
_NETWORK = {"afs", "beegfs", "ceph", "cifs", "glusterfs", "lustre", "nfs", "nfs4", "smb2", "smb3", "smbfs"}
_SHARED_DISK = {"gfs", "gfs2", "gpfs", "ocfs2"}
_FROM_THE_HOST = {"9p", "vboxsf", "virtiofs"}
_TEMPORARY = {"ramfs", "tmpfs"}
_REFUSED_FILE_SYSTEMS = _NETWORK | _SHARED_DISK | _FROM_THE_HOST | _TEMPORARY
_MOUNTS = Path("/proc/self/mounts")
_DESCRIPTORS = Path("/dev/fd")
#: Errors of a disk, or of a quota on it, that takes no more.
NO_ROOM = errno.ENOSPC, errno.EDQUOT
DATA_FILE = "data.mdb"
OWNER_FILE = "writer.lock"


class StoreInUse(Exception):
    """Another process has the store open for writing."""


class UnsupportedFileSystem(Exception):
    """The directory is on a network or temporary file system."""


def prepare_directory(directory: Path) -> None:
    """Create the directory (0700) if it is absent, and make its entry durable."""
    if directory.exists():
        return
    directory.mkdir(mode=0o700, parents=True)
    directory.chmod(0o700)
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """fsync a directory: neither LMDB nor rename does, and a file without its entry is lost."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def keep_to_this_process(file: Path) -> None:
    """Have no program that this process starts inherit an open file. LMDB leaves them one descriptor of its data."""
    wanted = file.stat()
    for descriptor in (int(each.name) for each in _DESCRIPTORS.iterdir()):
        # That of the listing itself is closed by now.
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), wanted):
                os.set_inheritable(descriptor, False)


def file_system_of(directory: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system of a path, "" if the system does not say."""
    if not mounts.exists():
        return ""
    target = directory.resolve()
    best, found = -1, ""
    for line in mounts.read_text(errors="replace").splitlines():
        fields = line.split(" ")
        point = Path(fields[1].encode("latin-1", "replace").decode("unicode_escape"))
        if target.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), fields[2]
    return found


def require_local(directory: Path, mounts: Path = _MOUNTS) -> None:
    """Raise UnsupportedFileSystem for a file system on which an acknowledged write may be lost."""
    kind = file_system_of(directory if directory.exists() else directory.parent, mounts)
    if kind in _REFUSED_FILE_SYSTEMS or kind.startswith("fuse."):
        raise UnsupportedFileSystem(f"{directory} is on {kind}: a store needs a local disk that survives a reboot")


def own(directory: Path) -> int:
    """Lock the directory for this process; the lock ends with the returned descriptor. Raise StoreInUse."""
    fd = os.open(directory / OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StoreInUse(f"the store in {directory} is open in another process") from None
    return fd


def measure_sync_s(directory: Path, rounds: int = 5) -> float:
    """Return the (upper) median seconds of a 4 KiB write with fdatasync."""
    path = directory / "probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return sorted(_timed_sync(fd, index) for index in range(rounds))[rounds // 2]
    finally:
        os.close(fd)
        path.unlink()


def _timed_sync(fd: int, index: int) -> float:
    started = time.perf_counter()
    os.pwrite(fd, b"\0" * 4096, index * 4096)
    os.fdatasync(fd)
    return time.perf_counter() - started


def disk_bytes(directory: Path) -> int:
    """Return the size of the file system of a directory."""
    stat = os.statvfs(directory)
    return stat.f_blocks * stat.f_frsize


def size_bytes(directory: Path) -> int:
    """Return the bytes of a directory's disk that are used, or that an unprivileged process may still write."""
    stat = os.statvfs(directory)
    return (stat.f_blocks - stat.f_bfree + stat.f_bavail) * stat.f_frsize


def free_bytes(directory: Path) -> int:
    """Return the bytes that an unprivileged process may still write."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def has_room(directory: Path, size_bytes: int) -> bool:
    """Return whether a file of so many bytes finds a place now. Free bytes do not tell what a quota leaves."""
    if free_bytes(directory) < size_bytes:
        return False
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
    except OSError as error:
        return error.errno not in NO_ROOM
    return True
