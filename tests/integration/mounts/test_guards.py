"""Guards of mounts of workspaces of the installation: without each guard, a trial of `test_mounts` must fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from atoll.machinery.process.pki import make_ca
from harness.clients.api import Api
from harness.servers.mutant_shard import MutantShard
from harness.tiers import every
from integration.mounts import test_mounts as mounts

Trial = Callable[[mounts.Scene], None]

GUARDS: dict[str, tuple[Trial, str]] = {
    "authorization in the destination": (
        mounts.test_a_mount_of_a_workspace_here_is_served_as_that_workspace,
        """
import atoll.machinery.apiserver.serving.pipeline as pipeline
plain = pipeline.RequestPipeline.authorize
def authorize(self, request, snapshot):
    if request.sent_on:
        request.decision = pipeline.Decision(True)
    else:
        plain(self, request, snapshot)
pipeline.RequestPipeline.authorize = authorize
""",
    ),
    "authorization by the RBAC of the destination": (
        mounts.test_a_mount_of_a_workspace_here_is_served_as_that_workspace,
        """
import atoll.machinery.apiserver.serving.pipeline as pipeline
plain = pipeline.RequestPipeline.authorize
def authorize(self, request, snapshot):
    if not request.sent_on:
        return plain(self, request, snapshot)
    served, parent = request.cluster, pipeline.parse(request.http.method, request.target).workspace.rpartition(":")[0]
    request.cluster = self._resolver.find(snapshot, parent).cluster
    self._enter(request, snapshot)
    try:
        return plain(self, request, snapshot)
    finally:
        request.cluster = served
pipeline.RequestPipeline.authorize = authorize
""",
    ),
    "the end of loops": (
        mounts.test_mounts_that_lead_to_each_other_are_refused,
        """
import atoll.machinery.apiserver.federation.mount_routes as routes
import atoll.shard.forwarding.mounts as mounts
mounts.Mounts.destination = (
    lambda self, snapshot, workspace: routes.destination(self._index, snapshot, workspace, self._own) or workspace)
""",
    ),
    "the bound of chains": (
        mounts.test_mounts_that_lead_to_each_other_are_refused,
        """
import atoll.machinery.apiserver.federation.mount_routes as routes
routes.MAX_ROUTES = 5
""",
    ),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MutantShard, mounts.Echo]]:
    """A shard that may call the address of the other server, and that server."""
    directory, authority = tmp_path_factory.mktemp("guards"), make_ca("mount test")
    (directory / "ca.pem").write_bytes(authority.certificate)
    (directory / "tokens.csv").write_text(mounts.USERS)
    files = ("--mount-proxy-ca-file", str(directory / "ca.pem"), "--token-auth-file", str(directory / "tokens.csv"))
    echo = mounts.Echo(authority, directory)
    try:
        with MutantShard(directory, "--egress-allow-cidr", "127.0.0.0/8", *files) as shard:
            yield shard, echo
    finally:
        echo.close()


@pytest.mark.parametrize("guard", every(2, GUARDS))
def test_a_mount_without_its_guard_is_found_out(scenes: tuple[MutantShard, mounts.Echo], guard: str) -> None:
    shard, echo = scenes
    trial, code = GUARDS[guard]
    scene = mounts.Scene(Api(shard, "root"), echo)
    with shard.without(code), pytest.raises(AssertionError):
        trial(scene)


@pytest.mark.parametrize(
    "trial", dict.fromkeys(trial for trial, _ in GUARDS.values()), ids=lambda trial: trial.__name__
)
def test_with_all_guards_in_place_again_no_trial_fails(scenes: tuple[MutantShard, mounts.Echo], trial: Trial) -> None:
    shard, echo = scenes
    trial(mounts.Scene(Api(shard, "root"), echo))
