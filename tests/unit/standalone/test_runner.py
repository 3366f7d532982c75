"""What a shard without room says."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.standalone.runner import no_room

MB = 1 << 20


@pytest.mark.parametrize(
    ("room_bytes", "said"),
    [
        (100 * MB, "has room for 100 MB and at least 256 MB are needed: free some space"),
        (-MB, "has room for 0 MB and at least 256 MB are needed: free some space"),
        (900 * MB, "takes nothing more, though it has room for 900 MB: raise the quota on it"),
    ],
)
def test_a_disk_without_room_and_one_with_a_quota_are_told_apart(room_bytes: int, said: str) -> None:
    assert no_room(Path("/data"), room_bytes, 256 * MB) == f"the disk of /data {said}"
