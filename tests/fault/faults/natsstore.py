"""Faults of the embedded NATS server of a shard: a kill, deleted files, a flipped bit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path


def kill_server(root: Path) -> int:
    """SIGKILL the server of a running shard; return its process id."""
    pid = int((root / "nats" / "server.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    return pid


def server_pid(root: Path) -> int:
    """The server's process id, 0 until it is written."""
    try:
        return int((root / "nats" / "server.pid").read_text())
    except (OSError, ValueError):
        return 0


@contextlib.contextmanager
def stopped_server(root: Path) -> Iterator[None]:
    """SIGSTOP the server of a running shard: changes reach the log alone. Ends with SIGKILL."""
    pid = server_pid(root)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def delete_store(root: Path) -> None:
    """Delete the JetStream store. Only while the shard is stopped."""
    shutil.rmtree(root / "nats" / "store")


def flip_bit(root: Path, stream: str, needle: bytes) -> None:
    """Flip one bit in the last message of a stream with `needle`. Only while the shard is stopped."""
    for block in sorted((root / "nats" / "store").glob(f"jetstream/*/streams/{stream}/msgs/*.blk"), reverse=True):
        data = bytearray(block.read_bytes())
        at = data.rfind(needle)
        if at >= 0:
            data[at + len(needle) - 1] ^= 0x01
            block.write_bytes(data)
            return
    raise AssertionError(f"{needle!r} is in no block of {stream}")
