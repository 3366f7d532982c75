"""The guards of virtual workspaces, removed one by one: tests in the files beside this one must detect it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually, workspace_under
from harness.servers.memory import Returns
from harness.servers.mutant_shard import MutantShard, patched
from harness.servers.shard_process import ShardProcess
from harness.servers.third_party_view import Certificates
from harness.servers.virtual_workspaces import OfThirdParty
from integration.views import test_replication as replication
from integration.views import test_schemas as schemas
from integration.views import test_third_party as thirdparty

USERS = 'alice-token,alice,u-alice,"team-a,team-b"\nbob-token,bob,u-bob\n'
Trial = Callable[[Api, Api], None]

GUARDS: dict[str, tuple[Trial, str]] = {
    "who opens the schemas of a consumer": (
        schemas.test_who_may_not_get_the_bindings_gets_nothing,
        """
import atoll.virtualworkspaces.bound_schemas as boundschemas
boundschemas.BoundSchemas.opens = lambda self, view, user, own: True
""",
    ),
    "which schemas are shown": (
        schemas.test_it_shows_what_is_bound_and_nothing_else_of_the_provider,
        """
import atoll.virtualworkspaces.bound_schemas as boundschemas
from msgspec.structs import replace
plain = boundschemas.bound_by
boundschemas.bound_by = lambda bindings: replace(plain(bindings), matches=lambda cluster, value: True)
""",
    ),
    "another cluster's schemas": (
        schemas.test_another_cluster_is_not_reached_through_it,
        """
import atoll.virtualworkspaces.bound_schemas as boundschemas
plain = boundschemas.BoundSchemas.show
def show(self, request, snapshot, own):
    request.cluster = own[0]
    return plain(self, request, snapshot, own)
boundschemas.BoundSchemas.show = show
""",
    ),
    "content of the export": (
        replication.test_the_view_asks_for_content_and_for_a_binding,
        """
import atoll.virtualworkspaces.replication as replication
from atoll.machinery.apiserver.authorization.attributes import Decision
replication.Replication._may = lambda self, view, user, offer, verb: Decision(True)
""",
    ),
    "a binding that holds the resource": (
        replication.test_the_view_asks_for_content_and_for_a_binding,
        """
import atoll.virtualworkspaces.replication as replication
replication.Replication._is_bound = lambda self, view, cluster, offer: True
""",
    ),
    "cached objects are not written": (
        replication.test_it_is_read_only_in_verbs_discovery_and_openapi,
        """
import atoll.virtualworkspaces.replication as replication
replication.view_kind = lambda kind: kind
""",
    ),
    "the end of watches": (
        replication.test_an_open_watch_ends_with_the_binding,
        """
import atoll.machinery.apiserver.serving.open_watches as openwatches
openwatches.OpenWatches._read = lambda self, cursor, check: cursor.read(openwatches.READ_LIMIT)
openwatches.OpenWatches._check_dependent = lambda self, cluster, revision=0: None
""",
    ),
    "circles of forwards": (
        replication.test_a_circle_of_forwards_ends,
        """
import atoll.shard.forwarding.virtual_resources as virtualresources
virtualresources.MAX_HOPS = 9
""",
    ),
    "offers of one workspace": (
        replication.test_nobody_gives_away_what_another_workspace_caches,
        """
import atoll.virtualworkspaces.replication as replication
def offer(self, view, own):
    slice = self._read(view, replication.ObjectKey(replication.CACHED_RESOURCE_ENDPOINT_SLICES, own[0], "", own[1]))
    reference, cached = replication.endpointslices.reference_of(slice), replication.cachedresources.cached_of(slice)
    at, of = self._cluster_of(view, reference.path), self._cluster_of(view, cached.path)
    export = self._read(view, replication.ObjectKey(replication.API_EXPORTS, at, "", reference.name))
    found = self._read(view, replication.ObjectKey(replication.CACHED_RESOURCES, of, "", cached.name))
    return replication._CachedResourceExport(at, reference.name, found, replication._schema_of(export, found))
replication.Replication._offer = offer
""",
    ),
}

TRIALS = list(dict.fromkeys(trial for trial, _ in GUARDS.values()))
#: Guards that are assembled when the process starts.
STARTING: dict[str, tuple[Trial, str]] = {
    "schemas are not written through the view": (
        schemas.test_it_is_read_only_and_says_so,
        """
import atoll.virtualworkspaces.bound_schemas as boundschemas
boundschemas.view_kind = lambda kind: kind
boundschemas.READ_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
""",
    ),
    "who may offer a resource": (
        replication.test_who_may_not_list_a_resource_does_not_offer_it,
        """
import atoll.shard.admission.cachedresources as cachedresources
plain = cachedresources.CachedResourceReferences.__init__
cachedresources.CachedResourceReferences.__init__ = (
    lambda self, catalogs, may: plain(self, catalogs, lambda view, asked: True))
""",
    ),
}


def token_file(directory: Path) -> tuple[str, str]:
    (directory / "tokens.csv").write_text(USERS)
    return "--token-auth-file", str(directory / "tokens.csv")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory = tmp_path_factory.mktemp("guards")
    with MutantShard(directory, *token_file(directory)) as running:
        yield running


def pair(shard: ShardProcess) -> tuple[Api, Api]:
    """A provider and a consumer."""
    admin = Api(shard, "root")
    return admin.at(workspace_under(admin, type_="universal")), admin.at(workspace_under(admin, type_="universal"))


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten waits: without its guard a test waits for an event that never comes."""
    monkeypatch.setattr("harness.clients.api.TIMEOUT_S", 5.0)
    monkeypatch.setattr("harness.clients.exports.PATIENCE_S", 5.0)


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("guard", GUARDS)
def test_a_view_without_its_guard_is_found_out(shard: MutantShard, guard: str) -> None:
    trial, code = GUARDS[guard]
    with shard.without(code), pytest.raises((AssertionError, OSError)):
        trial(*pair(shard))


@pytest.mark.parametrize(
    "trial", dict.fromkeys(trial for trial, _ in GUARDS.values()), ids=lambda trial: trial.__name__
)
def test_with_all_guards_in_place_again_no_trial_fails(shard: MutantShard, trial: Trial) -> None:
    trial(*pair(shard))


THIRD_PARTYS: dict[str, tuple[Callable[[OfThirdParty], None], str]] = {
    "who may read": (
        thirdparty.test_who_may_not_read_it_in_the_workspace_does_not_even_from_the_shard,
        """
import atoll.virtualworkspace_sdk.reviews as reviews
from atoll.machinery.apiserver.authorization.attributes import Decision
reviews.Reviews.decide = lambda self, asked: Decision(True)
""",
    ),
    "who says who asks": (
        thirdparty.test_nobody_but_a_shard_says_who_asks,
        """
import atoll.machinery.apiserver.authentication.authenticator as authenticator
plain = authenticator.Authenticator._sender
def sender(self, request, certificate, *more):
    sent = self._headers.sent(request.headers)
    return self._headers.user(request.headers, sent) if sent else plain(self, request, certificate, *more)
authenticator.Authenticator._sender = sender
""",
    ),
}


def test_a_third_partys_view_returns_freed_memory(tmp_path: Path) -> None:
    certificates, returns = Certificates(tmp_path / "certificates"), Returns(tmp_path)
    with ShardProcess(tmp_path / "shard", *certificates.shard_flags, *token_file(tmp_path)) as shard:
        third = OfThirdParty(Api(shard, "root"), certificates, tmp_path / "view", patched(tmp_path, returns.code))
        try:
            eventually(lambda: returns.by(third.view.pid), "it returns memory")
        finally:
            third.view.stop()


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("guard", THIRD_PARTYS)
def test_a_third_partys_view_without_its_guard_is_found_out(tmp_path: Path, guard: str) -> None:
    trial, code = THIRD_PARTYS[guard]
    certificates = Certificates(tmp_path / "certificates")
    with ShardProcess(tmp_path / "shard", *certificates.shard_flags, *token_file(tmp_path)) as shard:
        third = OfThirdParty(Api(shard, "root"), certificates, tmp_path / "view", patched(tmp_path, code))
        try:
            with pytest.raises((AssertionError, OSError)):
                trial(third)
        finally:
            third.view.stop()
