"""A file system of its own that a test fills up: what lies on it finds no room.

with small_disk(tmp_path / "image", tmp_path / "disk", 16 << 30) as disk:
    leave(disk, 0.01)
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: What the file system needs to keep account of a large file.
ALMOST = 0.002
BLOCK_BYTES = 4096


@contextmanager
def small_disk(image: Path, directory: Path, size_bytes: int) -> Iterator[Path]:
    """A file system at a new directory. The file that holds it is sparse. Skips where this user may not mount one."""
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    mount = f"mkfs.ext4 -q -m 0 {image} && mount -o loop {image} {directory}"
    if subprocess.run(["/bin/sh", "-c", mount], check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def leave(disk: Path, share: float) -> None:
    """Have another file take all but this share of the disk: allocated, not written."""
    with (disk / "other").open("ab") as other:
        stat = os.statvfs(disk)
        held = other.tell()
        size = max(0, int(held + (stat.f_bavail - share * stat.f_blocks) * stat.f_frsize))
        other.truncate(min(size, held))
        if size > held:
            os.posix_fallocate(other.fileno(), 0, size)


def fill(disk: Path, spare: int = 0) -> None:
    """Have another file take all of the disk but so many blocks."""
    leave(disk, ALMOST)
    with contextlib.suppress(OSError), (disk / "other").open("ab", buffering=0) as other:
        while True:
            other.write(bytes(BLOCK_BYTES))
    os.truncate(disk / "other", (disk / "other").stat().st_size - spare * BLOCK_BYTES)
