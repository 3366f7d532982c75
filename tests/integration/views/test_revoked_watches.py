"""A watch of a view shows nothing that is written after its permission is withdrawn, however soon after.

What ends such watches is woken late in this shard, as on a machine that is busy.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import Api, workspace_under
from harness.clients.exports import an_object, bind, cluster_of, make_export, objects_path, schema
from harness.servers.mutant_shard import patched
from harness.servers.shard_process import ShardProcess
from integration.views.test_apiexport import RBAC, ended, grant, view_of

pytestmark = pytest.mark.long

CIRCLES = schema("circles")
HERE, EVERYWHERE = objects_path(CIRCLES), objects_path(CIRCLES, namespace="")
#: Tasks that follow the log go on half a second after they are woken; watches served in the wake-up itself do not.
LATE = """
import asyncio
import atoll.machinery.storage.watching.cursors as cursors
plain = cursors.LmdbCursor.wait
async def wait(self, serve=None):
    await plain(self, serve)
    if serve is None:
        await asyncio.sleep(0.5)
cursors.LmdbCursor.wait = wait
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("late")
    (directory / "tokens.csv").write_text("worker-token,worker,u-w\n")
    flags = ("--token-auth-file", str(directory / "tokens.csv"))
    with ShardProcess(directory, *flags, environment=patched(directory, LATE)) as shard:
        yield Api(shard, "root")


@pytest.mark.parametrize("wide", [False, True], ids=["one cluster", "every cluster"])
def test_what_is_written_behind_a_withdrawal_is_not_shown(late: Api, wide: bool) -> None:
    provider, consumer = (late.at(workspace_under(late, type_="universal")) for _ in range(2))
    make_export(provider, "shapes", CIRCLES)
    name = grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes")
    path = f"/*{EVERYWHERE}" if wide else f"/{cluster_of(consumer)}{HERE}"
    with view_of(provider).watch(f"{path}?watch=1") as events:
        consumer.post(HERE, an_object(CIRCLES, "seen"))
        assert events.next().name == "seen"
        provider.delete(f"{RBAC}/clusterrolebindings/{name}")
        consumer.post(HERE, an_object(CIRCLES, "late"))
        assert ended(events) == []
