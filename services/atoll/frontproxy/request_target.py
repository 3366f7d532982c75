"""What of a request's target goes on to a backend. Pure; `doors` calls it.

The bytes behind the workspace go on as they came, so that a shard reads what the client wrote; what names the workspace
is written anew, by the logical cluster's name, whatever spelling it had.
"""

from __future__ import annotations

from collections.abc import Sequence

_PREFIX = b"/clusters/"


def below(base_path: str, cluster: str, rest: bytes) -> str:
    """A target in a logical cluster; `rest` is empty or begins with a slash or a question mark."""
    return f"{base_path}/clusters/{cluster}{rest.decode('latin-1')}"


def behind_workspace(target: bytes) -> bytes:
    """What follows `/clusters/<workspace>` in a target that begins with it."""
    path, question, query = target.partition(b"?")
    if path.startswith(_PREFIX) and path[len(_PREFIX) : len(_PREFIX) + 1] not in {b"/", b""}:
        _, slash, rest = path[len(_PREFIX) :].partition(b"/")
    else:
        # An odd spelling: slashes too many, or escapes where none are needed.
        segments = [raw for raw in path.split(b"/") if raw]
        slash, rest = (b"/" if len(segments) > 2 else b""), b"/".join(segments[2:])
    return slash + rest + question + query


def workspace_at(segments: Sequence[str]) -> int:
    """Where in a decoded path a workspace is named behind the first segment: the index behind `clusters`; 0 for
    nowhere."""
    for index in range(1, len(segments) - 1):
        if segments[index] == "clusters" and segments[index + 1] != "clusters":
            return index + 1
    return 0


def elsewhere(base_path: str, target: bytes, at: int, cluster: str) -> str:
    """A target for a backend that is no shard of ours; the segment at index `at` (0: none) becomes `cluster`."""
    path, question, query = target.partition(b"?")
    if at or b"//" in path:
        segments = [raw for raw in path.split(b"/") if raw]
        if at:
            segments[at] = cluster.encode()
        path = b"/" + b"/".join(segments) + (b"/" if path.endswith(b"/") and segments else b"")
    return base_path + (path + question + query).decode("latin-1")
