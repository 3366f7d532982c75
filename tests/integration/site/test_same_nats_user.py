"""Two front proxies that were given the credential of one NATS user: both say so, and neither lacks a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from atoll.standalone.site.processes import ProcessSpec
from harness.clients.api import eventually
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import ServingProcess, Site

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CONTENDED, SAID = b"[-]stream-readers failed (not counted)", "another process reads as the same NATS user"
PATIENCE_S = 120.0


class Town(Site):
    """A site, and a second proxy that is not started."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, shards=2)
        port = self._ports.reserve(0)
        changed = {"--secure-port": str(port), "--root-directory": str(directory / "second-proxy")}
        arguments = [each for each in self.proxy.command[3:] if each.partition("=")[0] not in changed]
        arguments += [f"{name}={value}" for name, value in changed.items()]
        self.second = ServingProcess(self, ProcessSpec("second-proxy", tuple(arguments), f"https://127.0.0.1:{port}"))

    def make(self, count: int) -> list[str]:
        """Make workspaces on both shards; return their paths."""
        root = self.proxy.api("root")
        made = [ready(root, workspace(root, selector=on(shard))) for shard in self.shards for _ in range(count)]
        return [f"root:{each['metadata']['name']}" for each in made]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    with made:
        try:
            yield made
        finally:
            made.second.stop()


def is_contended(proxy: ServingProcess) -> bool:
    """Whether it is ready, and lists why it may not be current."""
    code, text = proxy.get("/readyz?verbose")
    return code == 200 and CONTENDED in text


def serves(proxy: ServingProcess, path: str) -> bool:
    return bool(proxy.api(path).get(CONFIGMAPS, expect=0).code == 200)


@pytest.mark.long
def test_both_say_so_and_serve_all_workspaces_and_one_that_is_alone_goes_on(town: Town) -> None:
    paths = town.make(5)
    town.second.start()
    for proxy in (town.proxy, town.second):
        eventually(partial(is_contended, proxy), f"{proxy.name} says so", PATIENCE_S)
        assert SAID in proxy.log()
    paths += town.make(1)
    for proxy in (town.proxy, town.second):
        for path in paths:
            eventually(partial(serves, proxy, path), f"{proxy.name} serves {path}", PATIENCE_S)
    town.second.stop()
    for path in town.make(1):
        eventually(partial(serves, town.proxy, path), "it is served", PATIENCE_S)
    eventually(lambda: not is_contended(town.proxy), "the other one has gone", PATIENCE_S)


@pytest.mark.long
def test_a_proxy_that_is_replaced_while_it_still_runs_is_followed_by_a_ready_one(town: Town) -> None:
    paths = town.make(2)
    town.second.start()
    town.proxy.stop()
    for path in paths:
        eventually(partial(serves, town.second, path), "it is served", PATIENCE_S)
    assert not is_contended(town.second)
    assert SAID not in town.second.log()
