"""Request targets for backends. Pure; `handler` calls it.

The bytes after the workspace go on as they arrived, so that a shard reads what the client wrote; the workspace itself
is replaced by the name of its logical cluster, whatever its spelling.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(rb"/clusters/[^/?]+")


def in_cluster(cluster: str, rest: bytes) -> str:
    """A target in a logical cluster; `rest` is empty or begins with a slash or a question mark."""
    return f"/clusters/{cluster}{rest.decode('latin-1')}"


def after_workspace(target: bytes) -> bytes:
    """The part after `/clusters/<workspace>` of a target that begins with it."""
    plain = _PLAIN.match(target)
    if plain is not None:
        return target[plain.end() :]
    # An odd spelling: too many slashes, or unneeded escapes.
    path, question, query = target.partition(b"?")
    segments = [raw for raw in path.split(b"/") if raw]
    return (b"/" if len(segments) > 2 else b"") + b"/".join(segments[2:]) + question + query


def workspace_index(segments: Sequence[str]) -> int:
    """The index of the segment that names a workspace, after `clusters` and a first segment; 0 if there is none."""
    for index in range(1, len(segments) - 1):
        if segments[index] == "clusters" and segments[index + 1] != "clusters":
            return index + 1
    return 0


def with_cluster(target: bytes, at: int, cluster: str) -> str:
    """A target whose segment at index `at` (0: none) is replaced by `cluster`."""
    path, question, query = target.partition(b"?")
    if at or b"//" in path:
        segments = [raw for raw in path.split(b"/") if raw]
        if at:
            segments[at] = cluster.encode()
        path = b"/" + b"/".join(segments) + (b"/" if path.endswith(b"/") and segments else b"")
    return (path + question + query).decode("latin-1")
