"""What can happen to the embedded NATS server of a shard: killed, its files deleted, a bit of them turned over."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path


def kill_server(root: Path) -> int:
    """SIGKILL the server of a running shard; gives its process id."""
    pid = int((root / "nats" / "server.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    return pid


def server_pid(root: Path) -> int:
    """The server's process id, 0 while it has written none."""
    try:
        return int((root / "nats" / "server.pid").read_text())
    except (OSError, ValueError):
        return 0


@contextlib.contextmanager
def stopped_server(root: Path) -> Iterator[None]:
    """SIGSTOP the server of a running shard: what is written reaches the log alone. Ends with SIGKILL."""
    pid = server_pid(root)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def delete_store(root: Path) -> None:
    """Drop all that JetStream keeps. Only while the shard is stopped."""
    shutil.rmtree(root / "nats" / "store")


def flip_bit(root: Path, stream: str, needle: bytes) -> None:
    """Turn one bit over in the last message of a stream that holds `needle`. Only while the shard is stopped."""
    for block in sorted((root / "nats" / "store").glob(f"jetstream/*/streams/{stream}/msgs/*.blk"), reverse=True):
        data = bytearray(block.read_bytes())
        at = data.rfind(needle)
        if at >= 0:
            data[at + len(needle) - 1] ^= 0x01
            block.write_bytes(data)
            return
    raise AssertionError(f"{needle!r} is in no block of {stream}")
