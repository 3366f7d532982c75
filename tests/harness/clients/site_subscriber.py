"""A subscriber who follows the ConfigMaps of a workspace, and comes again and again.

subscriber = SiteSubscriber(site, api, directory)
await subscriber.receive(["a", "b"])       # over a new connection, which the event gateway lets in
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from atoll.events import subscribe
from harness.clients.api import Api
from harness.servers.site import Site

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READER = "system:serviceaccount:default:reader"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}
TIMEOUT_S = 120.0


class SiteSubscriber:
    """An account of a workspace; `received` has the names of ConfigMaps that were added, in order.

    READER must have READ and the right to enter."""

    def __init__(self, site: Site, api: Api, directory: Path) -> None:
        api.post(ACCOUNTS, {"metadata": {"name": "reader"}})
        self._token = str(api.post(f"{ACCOUNTS}/reader/token", {"spec": {}}).json["status"]["token"])
        self._url, self._cluster, self._authority = site.proxy.url, api.cluster, directory / "subscriber-ca.crt"
        self._authority.write_bytes(site.authority)
        self.received: list[str] = []

    async def receive(self, names: Sequence[str]) -> None:
        """Connect, and receive so many. Raises TimeoutError, and AssertionError for others, or another order."""
        events = subscribe(
            self._url,
            cluster=self._cluster,
            resources=["configmaps"],
            name="followed",
            token=self._token,
            ca_file=str(self._authority),
        )
        async with asyncio.timeout(TIMEOUT_S), events:
            while len(self.received) < len(names):
                event = await anext(events)
                if event.operation == "ADDED" and event.key is not None and event.key.name.startswith("w"):
                    self.received.append(event.key.name)
        assert self.received == list(names)
