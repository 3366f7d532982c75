"""No request blocks a shard: /livez answers while large and hostile requests are served.

The promise is 100 ms; the test allows 400 ms. Only CPU time of the shard counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import Api, workspace_under
from harness.clients.loop_probe import LoopProbe
from harness.data.large_requests import REQUESTS, LargeRequest, prepare
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

PROMISED_S = 0.1


@pytest.fixture(scope="module")
def bulk(root: Api) -> Iterator[Api]:
    """kcp-admin in a workspace with the objects that the requests read."""
    here = root.at(workspace_under(root))
    prepare(here)
    yield here
    here.close()


@pytest.mark.parametrize("request_", every(6, REQUESTS), ids=lambda each: each.name.replace(" ", "-"))
def test_livez_answers_while_a_large_request_is_served(request_: LargeRequest, bulk: Api, shard: ShardProcess) -> None:
    with LoopProbe(bulk, shard.pid) as probe:
        request_.send(bulk)
    assert probe.worst_s < 4 * PROMISED_S
