"""An event gateway and the shard behind it are of two versions, either way round: a subscriber misses nothing.

The gateway came after the version of `test_rolling_upgrade`, so that a later one stands for the version before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atoll.events import subscribe
from atoll.events.subscriber import Subscriber
from harness.clients.api import Api, configmap, eventually
from harness.clients.site_operations import MAPS, made
from harness.servers.earlier_version import WITH_GATEWAYS, run_by, settings_of_earlier, unpacked
from harness.servers.site import ServingProcess, Site
from integration.views.test_apiexport import ENTER, give

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READER = "system:serviceaccount:default:reader"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}
TIMEOUT_S = 120.0


def subscriber(site: Site, api: Api, directory: Path) -> Subscriber:
    """An account of a workspace that follows its ConfigMaps through the gateway."""
    api.post(ACCOUNTS, {"metadata": {"name": "reader"}})
    for rule in (ENTER, READ):
        give(api, READER, rule)
    token = str(api.post(f"{ACCOUNTS}/reader/token", {"spec": {}}).json["status"]["token"])
    authority = directory / "ca.crt"
    authority.write_bytes(site.authority)
    return subscribe(
        site.proxy.url,
        cluster=api.cluster,
        resources=["configmaps"],
        name="followed",
        token=token,
        ca_file=str(authority),
    )


def replace(process: ServingProcess, services: Path | None) -> None:
    run_by(services, process)
    process.restart()


async def test_a_subscriber_misses_nothing_while_gateway_and_shard_are_of_two_versions(tmp_path: Path) -> None:
    earlier = unpacked(tmp_path / "earlier", WITH_GATEWAYS)
    async with Site(tmp_path / "site", shards=1) as site:
        for process in (site.gateway, site.root):
            process.command = settings_of_earlier(process.command)
        _, cluster = await asyncio.to_thread(made, site, "root", "root")
        api = site.proxy.api(cluster)
        events = await asyncio.to_thread(subscriber, site, api, tmp_path)
        await asyncio.to_thread(site.gateway.start)
        written, heard = list[str](), list[str]()

        async def follow() -> None:
            async for event in events:
                if event.operation == "ADDED" and event.key is not None and event.key.name.startswith("n-"):
                    heard.append(event.key.name)

        async def write() -> None:
            for _ in range(5):
                name = f"n-{len(written)}"
                await asyncio.to_thread(api.post, MAPS, configmap(name))
                written.append(name)
            await asyncio.to_thread(
                eventually, lambda: heard == written or following.done(), "all are heard, in order and once", TIMEOUT_S
            )
            assert not following.done(), following.exception()

        async with events:
            following = asyncio.create_task(follow())
            try:
                await write()
                for process, services in (
                    (site.gateway, earlier),
                    (site.root, earlier),
                    (site.gateway, None),
                    (site.root, None),
                ):
                    await asyncio.to_thread(replace, process, services)
                    await write()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                await asyncio.to_thread(site.gateway.stop)
