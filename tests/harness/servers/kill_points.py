"""Steps of a shard's process on behalf of one Workspace or home: recorded, or the last thing that the process does.

A step is a commit of the subject's Workspace or LogicalCluster, a call to another shard, or an answer to one; each has
a point before and one after it. A process of a site that started with `environment` is steered from the test:

    with Site(...) as site:                     # each shard with environment(directory, address_of(name))
        record(address, subject, file)          # from now on every point is a line of the file
        kill_at(address, subject, file, point)  # SIGKILL at the n-th time that this point is reached
        forget(address)
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.environment import SERVER_PATH, TESTS
from harness.servers import code_patches

#: What a subject consists of.
RESOURCES = ("workspaces", "logicalclusters")
_OF_PATH = re.compile(rb"/(workspaces|logicalclusters)(?:[/?]|$)")
_CLUSTER = re.compile(rb"/clusters/([^/?]+)/")
_SCHEDULED = re.compile(rb'"internal\.tenancy\.kcp\.io/cluster":"([^"]+)"')


class Point(NamedTuple):
    """The n-th time, from 1, that a step is reached, in one process."""

    step: str
    number: int


# --- in the test


def environment(directory: Path, address: str, program: str = "") -> dict[str, str]:
    """The environment of a process that runs `program` and can be told to record, or to end at, its steps."""
    folder = directory / "patch"
    folder.mkdir(parents=True, exist_ok=True)
    install = f"from harness.servers import kill_points; kill_points.install({address!r})\n"
    (folder / "sitecustomize.py").write_text(install + program)
    return {"PYTHONPATH": f"{folder}:{SERVER_PATH}:{TESTS}"}


def record(address: str, subject: str, file: Path) -> None:
    """Have a process append each point that it reaches for a subject to a file."""
    file.write_text("")
    _set(address, subject, str(file), Point("", 0))


def kill_at(address: str, subject: str, file: Path, point: Point) -> None:
    """As `record`, and have the process kill itself at a point, which is then the last one in the file."""
    file.write_text("")
    _set(address, subject, str(file), point)


def forget(address: str) -> None:
    """Have a process go on as any other."""
    code_patches.send(address, "")


def points(file: Path) -> list[Point]:
    """The points that were recorded, in order."""
    seen = Counter[str]()
    found = []
    for step in file.read_text().splitlines():
        seen[step] += 1
        found.append(Point(step, seen[step]))
    return found


def _set(address: str, subject: str, file: str, point: Point) -> None:
    watch = f"module.Watch({subject!r}, {file!r}, {tuple(point)!r})"
    code_patches.send(address, f"import harness.servers.kill_points as module\nmodule.watch = {watch}")


# --- in the process


class Watch:
    """The subject that this process watches for, by its name and by the clusters that belong to it."""

    def __init__(self, subject: str, file: str, point: tuple[str, int]) -> None:
        self._names = [subject.encode()]
        self._file, self._point = file, point
        self._seen = Counter[str]()

    def concerns(self, *texts: bytes) -> bool:
        """Whether one of the texts is about the subject."""
        return any(name in text for name in self._names for text in texts)

    def know(self, *clusters: bytes) -> None:
        """Take clusters for the subject's too."""
        self._names += [each for each in clusters if each not in self._names and each != b"root"]

    def reach(self, step: str) -> None:
        """Note that a step is reached; at the point of the test, nothing follows."""
        with Path(self._file).open("a") as file:
            file.write(f"{step}\n")
        self._seen[step] += 1
        if (step, self._seen[step]) == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


watch: Watch | None = None


def install(address: str) -> None:
    """Wrap commits, calls and answers of this process, and listen for what to do with them."""
    from atoll.machinery.storage.writing.writer import Writer
    from atoll.machinery.wire.client import HttpClient
    from atoll.machinery.wire.server_exchange import ServerExchange

    Writer.queue = _committing(Writer.queue)  # type: ignore[method-assign]
    HttpClient.request = _calling(HttpClient.request)  # type: ignore[method-assign]
    ServerExchange.reply = _answering(ServerExchange.reply)  # type: ignore[method-assign]
    code_patches.serve(address)


def _committing(queue: Callable[..., asyncio.Future[Any]]) -> Callable[..., asyncio.Future[Any]]:
    def queued(self: Any, mutations: Sequence[Any], *rest: Any, **named: Any) -> asyncio.Future[Any]:
        kinds = "+".join(sorted({kind for kind in map(_committed, mutations) if kind}))
        if not kinds or watch is None:
            return queue(self, mutations, *rest, **named)
        now = watch
        now.reach(f"before the commit of {kinds}")
        future = queue(self, mutations, *rest, **named)
        # The first callback of the future: nothing that waits for the commit has gone on yet.
        future.add_done_callback(lambda done: None if done.cancelled() or done.exception() else _after(now, kinds))
        return future

    return queued


def _after(now: Watch, kinds: str) -> None:
    now.reach(f"after the commit of {kinds}")


def _committed(mutation: Any) -> str:
    """The resource of an object of the subject that a mutation writes; "" for any other mutation."""
    key, value = getattr(mutation, "key", None), getattr(mutation, "value", b"")
    if watch is None or key is None or hasattr(mutation, "origin") or key.type.resource not in RESOURCES:
        return ""
    if not watch.concerns(key.name.encode(), key.cluster.encode(), value):
        return ""
    watch.know(*([key.cluster.encode()] if key.type.resource == "logicalclusters" else _SCHEDULED.findall(value)))
    return str(key.type.resource)


def _calling(request: Callable[..., Any]) -> Callable[..., Any]:
    async def called(self: Any, method: str, target: str, headers: Any = (), body: bytes = b"", **named: Any) -> Any:
        text, found = target.encode(), _OF_PATH.search(target.encode())
        now = watch
        if now is None or found is None or not now.concerns(text, body):
            return await request(self, method, target, headers, body, **named)
        if b"logicalclusters" in found[0]:
            now.know(*_CLUSTER.findall(text))
        name = f"the call {method} {found[1].decode()}"
        now.reach(f"before {name}")
        answer = await request(self, method, target, headers, body, **named)
        now.reach(f"after {name}")
        return answer

    return called


def _answering(reply: Callable[..., None]) -> Callable[..., None]:
    def answered(self: Any, status: int, headers: Any, body: Any = b"") -> None:
        method, target = self.request.method, self.request.target
        found = _OF_PATH.search(target)
        whole = body if isinstance(body, bytes) else b"".join(body)
        now = watch
        is_read = method in {"GET", "HEAD"} and not target.split(b"?")[0].endswith(b"/~")
        if now is None or found is None or is_read or not now.concerns(target, whole):
            reply(self, status, headers, body)
            return
        name = f"the answer {status} to {method} {found[1].decode()}"
        now.reach(f"before {name}")
        reply(self, status, headers, whole)
        now.reach(f"after {name}")

    return answered
