"""Requests of a front proxy to the shards of its site, from their audit logs: the user and target of each.

    with heard(site) as told:
        site.proxy.api("root:org").get("/api")
    told["shard-1"] == [("kcp-admin", "/clusters/1abc/api")]

The site was started with `audit_log_path` "-". Shards that do not run are left out.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator

from harness.clients.api import eventually
from harness.servers.site import ServingProcess, Site

_THROUGH = "authentication.atoll.dev/front-proxy"
_PROXY = "front-proxy"


@contextlib.contextmanager
def audited_requests(site: Site) -> Iterator[dict[str, list[tuple[str, str]]]]:
    """User and target of each request of the proxy within the context, by shard; filled at its end."""
    requests: dict[str, list[tuple[str, str]]] = {}
    running = [shard for shard in site.shards.values() if shard.running]
    begun = {shard.name: _marked(shard) for shard in running}
    yield requests
    for shard in running:
        end = _marked(shard)
        requests[shard.name] = list(_between(shard, begun[shard.name], end))


def _marked(shard: ServingProcess) -> int:
    """The length of the log once it has all requests so far."""
    mark, begun = uuid.uuid4().hex, shard.out_path.stat().st_size
    shard.api("root", "shard-admin").send("GET", f"/version?mark={mark}")

    def written() -> int:
        lines = _read(shard, begun)
        found = lines.find(mark.encode())
        return begun + lines.find(b"\n", found) + 1 if found >= 0 and b"\n" in lines[found:] else 0

    return int(eventually(written, f"{shard.name} wrote its audit log"))


def _read(shard: ServingProcess, begin: int, end: int = -1) -> bytes:
    with shard.out_path.open("rb") as out:
        out.seek(begin)
        return out.read(end - begin if end >= 0 else -1)


def _between(shard: ServingProcess, begin: int, end: int) -> Iterator[tuple[str, str]]:
    for line in _read(shard, begin, end).splitlines():
        event = json.loads(line) if line.startswith(b"{") else {}
        if event.get("stage") == "ResponseComplete" and event.get("annotations", {}).get(_THROUGH) == _PROXY:
            yield event["user"]["username"], event["requestURI"]
