"""A second front proxy of a site: what its own one was started with, in another directory and at another port.

It follows the shards as the NATS user of a cache server, which `atoll start` makes and runs no process for: readers
that share a user share its consumer, and each gets a part of what it needs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from atoll.standalone.site.credentials import CACHE_USER
from harness.servers.launch import Process, launch
from harness.waits import until
from loadtest import processes
from loadtest.edge_site import COMPILED, LIMIT_S, EdgeServer

PROXY = "front-proxy"
_SERVES = re.compile(r"front-proxy serves (https://\S+)")


@asynccontextmanager
async def proxies(server: EdgeServer, directory: Path, count: int) -> AsyncIterator[list[int]]:
    """The ports of one or two proxies, of which the first is the site's own; the other runs while the block does."""
    if count > 2:
        raise ValueError(f"{count} proxies, where there are NATS users for two")
    (own,) = (pid for pid in processes.tree(server.pid) if processes.name(pid) == PROXY)
    ports, started = [urlsplit(server.url).port or 0], list[Process]()
    try:
        for number in range(1, count):
            out, err = directory / f"{number}.out", directory / f"{number}.err"
            out.write_bytes(b"")
            user = server.root / "pki" / f"nats-{CACHE_USER}.json"
            command = list(_command(own, directory / str(number), user))
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


def _command(pid: int, directory: Path, user: Path) -> Iterator[str]:
    """The command line of a proxy, with another directory and NATS user, and any port."""
    others = {"--root-directory": str(directory), "--secure-port": "0", "--nats-credentials-file": str(user)}
    for word in Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0"):
        name = word.partition("=")[0]
        yield f"{name}={others[name]}" if name in others else word
