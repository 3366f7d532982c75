"""Quotas and the limit of all objects with API workers: one writer counts for all of them, also over its death."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options
from harness.clients.api import Api, configmap, eventually, workspace_under
from harness.clients.exports import cluster_of
from harness.servers.shard_process import ShardProcess

CONFIGMAPS, QUOTAS = (f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "resourcequotas"))
WRITERS = 50
FLAGS = ("--workers", "2", "--logical-cluster-total-object-limit", "60")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory = tmp_path_factory.mktemp("shard")
    with ShardProcess(directory, *FLAGS, "--logical-cluster-object-count-scan-interval", "1s") as shard:
        yield shard


@pytest.fixture
def api(shard: ShardProcess) -> Iterator[Api]:
    root = Api(shard, "root")
    api = root.at(workspace_under(root, type_="universal"))
    yield api
    api.close()
    root.close()


def limit(api: Api, more: int, name: str = "q") -> int:
    """A quota that leaves room for so many ConfigMaps more; returns what it allows."""
    allowed = len(api.get(CONFIGMAPS).json["items"]) + more
    api.post(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": {"count/configmaps": str(allowed)}}})
    return allowed


def create(api: Api, name: str) -> int:
    """The answer's code to a create over a connection of its own, which goes to any worker."""
    own = api.at(api.cluster)
    try:
        return own.post(CONFIGMAPS, configmap(name), expect=0).code
    finally:
        own.close()


@pytest.mark.long
def test_fifty_writers_at_two_workers_leave_exactly_what_a_quota_allows(api: Api) -> None:
    allowed = limit(api, 10)
    with ThreadPoolExecutor(WRITERS) as writers:
        codes = list(writers.map(partial(create, api), (f"c{number}" for number in range(WRITERS))))
    assert sorted(codes) == [201] * 10 + [403] * (WRITERS - 10)
    assert len(api.get(CONFIGMAPS).json["items"]) == allowed
    eventually(lambda: used(api) == str(allowed), "the status", 4.0)


def used(api: Api) -> str:
    return str(api.get(f"{QUOTAS}/q").json.get("status", {}).get("used", {}).get("count/configmaps"))


def test_the_setting_limits_every_workspace_and_shows_those_that_are_nearly_full(api: Api, shard: ShardProcess) -> None:
    codes = [create(api, f"c{number}") for number in range(60)]
    refused = codes.index(403)
    assert set(codes[refused:]) == {403}
    message = api.post(CONFIGMAPS, configmap("more"), expect=403).message
    assert "has reached its total object count limit (60/60 objects)" in message
    cluster = cluster_of(api)
    system = Api(shard, "", "shard-admin")
    labels = f'{{cluster="{cluster}",shard="root"}}'

    def reported() -> bool:
        text = system.get("/metrics").body.decode()
        return f"kcp_logicalcluster_object_count{labels} 60.0" in text and f"_object_limit{labels} 60.0" in text

    eventually(reported, "the metrics of a full workspace")
    assert 'cluster="root"' not in "".join(
        line for line in system.get("/metrics").body.decode().splitlines() if "_object_limit" in line
    )
    for number in range(10):
        api.delete(f"{CONFIGMAPS}/c{number}")
    eventually(lambda: not reported() and cluster not in system.get("/metrics").body.decode(), "no metrics of it")
    system.close()


@pytest.mark.long
def test_a_killed_writer_has_counted_what_is_there_and_no_more_than_allowed(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, *FLAGS[:2]) as shard:
        root = Api(shard, "root")
        api = root.at(workspace_under(root, type_="universal"))
        allowed = limit(api, 120)
        over = threading.Event()
        acknowledged: list[str] = []

        def write(writer: int) -> None:
            """Create objects, and delete every third one, until the quota refuses or the shard is gone."""
            with (
                contextlib.closing(api.at(api.cluster)) as own,
                contextlib.suppress(OSError, http.client.HTTPException),
            ):
                for number in range(60):
                    name = f"w{writer}-{number}"
                    if own.post(CONFIGMAPS, configmap(name), expect=0).code == 201:
                        acknowledged.append(name)
                    if number % 3 == 2:
                        own.delete(f"{CONFIGMAPS}/{name}", expect=0)
                    if len(acknowledged) > 60:
                        over.set()

        with ThreadPoolExecutor(8) as writers:
            done = [writers.submit(write, writer) for writer in range(8)]
            assert over.wait(60)
            shard.kill()
            for each in done:
                each.result()
        shard.restart()
        api = Api(shard, api.cluster)
        held = len(api.get(CONFIGMAPS).json["items"])
        assert held <= allowed
        codes = [create(api, f"after{number}") for number in range(allowed - held + 3)]
        assert codes == [201] * (allowed - held) + [403] * 3
        eventually(lambda: used(api) == str(allowed), "the status")
        shard.stop()
    assert fsck(store_options(ShardConfig(root_directory=str(shard.root), allow_any_filesystem=True))) == []
