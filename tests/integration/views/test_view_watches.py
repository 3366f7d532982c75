"""Open watches at a third party's view: judged by changes that it follows, and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.clients.exports import PATIENCE_S, cluster_of
from harness.servers.mutant_shard import patched
from harness.servers.shard_process import ShardProcess
from harness.servers.third_party_view import Certificates
from harness.servers.virtual_workspaces import SQUADS_GROUP, OfSquads
from integration.views.test_third_party import RBAC, allow

SQUADS = f"/apis/{SQUADS_GROUP}/v1/namespaces/default/squads"
EVERYWHERE = f"/clusters/*/apis/{SQUADS_GROUP}/v1/squads"
#: No watch is judged by the clock, and no result is forgotten by it.
ONLY_CHANGES = """
import atoll.virtualworkspace_sdk.permissions as permissions
import atoll.virtualworkspace_sdk.reviews as reviews
permissions.POLL_S, reviews.KEEP_S = 36000.0, 36000.0
"""
UNFOLLOWED = (
    ONLY_CHANGES
    + """
permissions.Permissions.changed = lambda self, cluster: None
"""
)


def stage(directory: Path, code: str) -> Iterator[OfSquads]:
    certificates = Certificates(directory / "certificates")
    (directory / "tokens.csv").write_text("bob-token,bob,u-bob\n")
    flags = [*certificates.shard_flags, "--token-auth-file", str(directory / "tokens.csv")]
    with ShardProcess(directory / "shard", *flags) as shard:
        made = OfSquads(Api(shard, "root"), certificates, directory / "view", patched(directory, code))
        yield made
        made.view.stop()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfSquads]:
    yield from stage(tmp_path_factory.mktemp("quiet"), ONLY_CHANGES)


@pytest.fixture(scope="module")
def deaf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfSquads]:
    yield from stage(tmp_path_factory.mktemp("deaf"), UNFOLLOWED)


def let_bob(consumer: Api) -> str:
    """Let bob read squads in a workspace; the path of its squads at the view."""
    readable = {"apiGroups": [SQUADS_GROUP], "resources": ["squads"], "verbs": ["list", "watch"]}
    allow(consumer, "bob", readable, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    return f"/clusters/{cluster_of(consumer)}{SQUADS}"


def code(squads: OfSquads, path: str, user: str) -> int:
    return squads.view.send("GET", f"/services/squads{path}", **{"X-Remote-User": user})[0]


def test_a_withdrawn_permission_ends_a_watch_without_any_clock(quiet: OfSquads) -> None:
    consumer = quiet.consumer()
    path = let_bob(consumer)
    eventually(lambda: code(quiet, path, "bob") == 200, "bob lists", PATIENCE_S)
    with quiet.view.watch("squads", path, "bob") as response:
        consumer.delete(f"{RBAC}/clusterrolebindings/bob-2")
        assert response.read() == b""


def test_a_refusal_is_forgotten_when_a_permission_is_given(quiet: OfSquads) -> None:
    consumer = quiet.consumer()
    assert code(quiet, f"/clusters/{cluster_of(consumer)}{SQUADS}", "bob") == 403
    path = let_bob(consumer)
    eventually(lambda: code(quiet, path, "bob") == 200, "bob lists", PATIENCE_S)


@pytest.mark.long
def test_a_watch_of_all_workspaces_ends_with_the_permission_of_the_provider(quiet: OfSquads) -> None:
    content = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["list", "watch"]}
    allow(quiet.provider, "carol", content, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    eventually(lambda: code(quiet, EVERYWHERE, "carol") == 200, "carol lists", PATIENCE_S)
    with quiet.view.watch("squads", EVERYWHERE, "carol") as response:
        quiet.provider.delete(f"{RBAC}/clusterrolebindings/carol-2")
        while response.readline():
            pass


@pytest.mark.long
def test_a_view_that_follows_nothing_is_found_out(deaf: OfSquads) -> None:
    consumer = deaf.consumer()
    path = let_bob(consumer)
    assert code(deaf, path, "bob") == 200
    with deaf.view.watch("squads", path, "bob", timeout_s=5.0) as response:
        consumer.delete(f"{RBAC}/clusterrolebindings/bob-2")
        with pytest.raises(TimeoutError):
            response.read()
