"""An event gateway and the shard behind it are of two versions, either way round: a subscriber misses nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.clients.api import configmap
from harness.clients.site_operations import MAPS, made
from harness.clients.site_subscriber import READ, READER, SiteSubscriber
from harness.servers.earlier_version import run_by, settings_of_earlier, unpacked
from harness.servers.site import ServingProcess, Site
from integration.views.test_apiexport import ENTER, give

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def replace(process: ServingProcess, services: Path | None) -> None:
    run_by(services, process)
    process.restart()


async def test_a_subscriber_misses_nothing_while_gateway_and_shard_are_of_two_versions(tmp_path: Path) -> None:
    earlier = unpacked(tmp_path / "earlier")
    async with Site(tmp_path / "site", shards=1) as site:
        for process in (site.gateway, site.root):
            process.command = settings_of_earlier(process.command)
        _, cluster = await asyncio.to_thread(made, site, "root", "root")
        api, written = site.proxy.api(cluster), list[str]()
        await asyncio.to_thread(give, api, READER, ENTER, READ)
        subscriber = await asyncio.to_thread(SiteSubscriber, site, api, tmp_path)
        await asyncio.to_thread(site.gateway.start)
        await subscriber.receive(written)
        for process, services in (
            (site.gateway, earlier),
            (site.root, earlier),
            (site.gateway, None),
            (site.root, None),
        ):
            await asyncio.to_thread(replace, process, services)
            for _ in range(5):
                written.append(f"w{len(written)}")
                await asyncio.to_thread(api.post, MAPS, configmap(written[-1]))
            await subscriber.receive(written)
