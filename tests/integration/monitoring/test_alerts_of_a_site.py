"""Alerts of a whole site: its processes show what alerts and dashboards name, and what fails in it fires."""

from __future__ import annotations

from functools import partial

import pytest

from harness.clients.api import configmap, eventually
from harness.clients.prometheus import Scrape, evaluate
from harness.servers.site import Site
from harness.servers.stand_ins.admission import AdmissionServer, allow, register
from integration.monitoring.scraped import DISK, MAPS, WAIT_S, fires, has, scrape, value

pytestmark = pytest.mark.long

CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
#: What the processes of edge clusters show.
EDGE = ("atoll_edge_", "syncer_")


def test_processes_show_every_metric_that_alerts_and_dashboards_name_and_nothing_fires(site: Site, place: str) -> None:
    site.proxy.api(place).post(MAPS, configmap("a"), expect=201)
    processes = [site.proxy, *site.shards.values(), site.gateway]
    scrapes = [Scrape(0, "atoll", each.name, scrape(each)) for each in processes]
    found = evaluate(scrapes, 3600, dashboards=True)
    missing = set(found.wanted) - set(found.metrics)
    assert {name for name in missing if not name.startswith(EDGE)} == set()
    assert {each.alert for each in found.fired} <= DISK


def test_a_shard_that_is_down_fires_at_itself_and_at_the_proxy(site: Site, place: str) -> None:
    shard, texts, own = site.shards["shard-1"], [scrape(site.proxy)], [scrape(site.shards["shard-1"])]
    shard.kill()
    api = site.proxy.api(place).at_once()
    for _ in range(5):
        assert {api.get(MAPS, expect=0).code for _ in range(10)} <= {502, 503, 504}
        texts.append(scrape(site.proxy))
    shard.start()
    eventually(lambda: api.get(MAPS, expect=0).code == 200, "it is back", WAIT_S)
    assert fires([*own, None]) == {"AtollDown": 1}
    assert fires([*texts]) == {"AtollProxyErrors": 1, "AtollBackendsDown": 1}


def test_a_nats_server_that_is_down_fires_at_shards(site: Site) -> None:
    before = scrape(site.root)
    lag = 'atoll_replication_lag_seconds{shard="shard-1"}'
    site.nats.stop()
    eventually(partial(has, site.root, "atoll_stream_connected 0.0"), "the shard says so", WAIT_S)
    eventually(lambda: value(site.root, lag) > 15, "it has not heard of the other", WAIT_S)
    after = scrape(site.root)
    site.nats.start()
    eventually(partial(has, site.root, "atoll_stream_connected 1.0"), "it is back", WAIT_S)
    eventually(lambda: value(site.root, lag) == 0, "it has heard of the other", WAIT_S)
    assert fires([before, after]) == {"AtollStreamBehind": 1, "AtollReplicationBehind": 1}
    assert fires([before, scrape(site.root)]) == {}


def test_requests_that_fail_fire(site: Site, place: str) -> None:
    shard, api = site.shards["shard-1"], site.proxy.api(place)
    with AdmissionServer({"/allow": allow}) as server:
        register(api, server, "Validating", server.webhook("/allow"))
    texts: list[str | None] = [scrape(shard)]
    for number in range(6):
        # Nobody listens there any more.
        assert {api.post(MAPS, configmap(f"b{number}-{each}"), expect=0).code for each in range(5)} == {500}
        texts.append(scrape(shard))
    api.delete("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks")
    assert fires(texts) == {"AtollServerErrors": 1}


def test_a_workspace_at_its_limit_fires(site: Site, place: str) -> None:
    shard = site.shards["shard-1"]
    before, api = scrape(shard), shard.api(place, "shard-admin")
    api.patch(CLUSTER, {"metadata": {"annotations": {"core.kcp.io/max-total-objects": "1"}}})
    eventually(lambda: value(shard, "kcp_logicalcluster_object_limit") == 1, "it is shown", WAIT_S)
    after = scrape(shard)
    api.patch(CLUSTER, {"metadata": {"annotations": {"core.kcp.io/max-total-objects": None}}})
    assert fires([before, after]) == {"AtollWorkspaceNearLimit": 1}


def test_a_process_that_starts_again_and_again_fires(site: Site) -> None:
    texts: list[str | None] = [scrape(site.proxy)]
    for _ in range(3):
        site.proxy.restart()
        texts.append(scrape(site.proxy))
    assert fires(texts[:2]) == {}
    assert fires(texts) == {"AtollRestarts": 1}
