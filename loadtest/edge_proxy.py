"""Further front proxies of a site: what its own proxy was started with, in directories and at ports of their own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from harness.servers.launch import Process, launch
from harness.waits import until
from loadtest import processes
from loadtest.edge_site import COMPILED, LIMIT_S, EdgeServer

PROXY = "front-proxy"
_SERVES = re.compile(r"front-proxy serves (https://\S+)")


@asynccontextmanager
async def proxies(server: EdgeServer, directory: Path, count: int) -> AsyncIterator[list[int]]:
    """The ports of so many proxies, of which the first is the site's own; the others run while the block does."""
    (own,) = (pid for pid in processes.tree(server.pid) if processes.name(pid) == PROXY)
    ports, started = [urlsplit(server.url).port or 0], list[Process]()
    try:
        for number in range(1, count):
            out, err = directory / f"{number}.out", directory / f"{number}.err"
            out.write_bytes(b"")
            command = list(_command(own, directory / str(number)))
            started.append(launch(command, out, err, environment=COMPILED, directory=directory))

            ports.append(await until(partial(_port, out), "a further proxy serves", LIMIT_S))
        server.proxies = [each.pid for each in started]
        yield ports
    finally:
        server.proxies = []
        for each in started:
            each.send_signal(15)
            await asyncio.to_thread(each.wait, LIMIT_S)


async def _port(out: Path) -> int:
    """The port that a proxy said it serves at, 0 before."""
    found = _SERVES.search(await asyncio.to_thread(out.read_text))
    return urlsplit(found[1]).port or 0 if found else 0


def _command(pid: int, directory: Path) -> Iterator[str]:
    """The command line of a proxy, with another directory and any port."""
    for word in Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0"):
        name = word.partition("=")[0]
        own = {"--root-directory": str(directory), "--secure-port": "0"}.get(name)
        yield word if own is None else f"{name}={own}"
