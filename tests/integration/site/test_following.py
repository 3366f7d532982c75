"""The shards of a site replicate one another, and report it in their metrics."""

from __future__ import annotations

import re
from functools import partial

from harness.clients.api import eventually
from harness.servers.site import Site

PATIENCE_S = 60.0
_SAMPLE = re.compile(r'^atoll_replication_lag_seconds\{shard="([^"]+)"\} (\S+)$', re.MULTILINE)


def lags(site: Site, shard: str) -> dict[str, float]:
    """The replication lag of one shard, by origin."""
    text = site.shards[shard].api("", "shard-admin").get("/metrics").body.decode()
    return {name: float(value) for name, value in _SAMPLE.findall(text)}


def test_each_shard_follows_all_others_and_never_itself(site: Site) -> None:
    for name in site.shards:
        others = dict.fromkeys(set(site.shards) - {name}, 0.0)
        eventually(partial(lambda name, others: lags(site, name) == others, name, others), timeout_s=PATIENCE_S)
