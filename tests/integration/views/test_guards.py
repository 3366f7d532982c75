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
from harness.servers.virtual_workspaces import OfSquads, OfThirdParty
from harness.tiers import every
from integration.views import test_acting as acting
from integration.views import test_replication as replication
from integration.views import test_schemas as schemas
from integration.views import test_third_party as thirdparty
from integration.views import test_writing as writing

USERS = 'alice-token,alice,u-alice,"team-a,team-b"\nbob-token,bob,u-bob\nworker-token,worker,u-w\n'
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
ACTING: dict[str, tuple[Callable[[Api, Api, str], None], str]] = {
    "the user's own permission": (
        lambda provider, consumer, verb: acting.test_what_the_user_may_not_do_is_not_done_for_it(
            acting.Stage(provider, consumer), verb
        ),
        """
import atoll.virtualworkspaces.apiexport as apiexport
from msgspec.structs import replace
plain = apiexport.ExportView.show
def show(self, request, snapshot, own):
    scope = plain(self, request, snapshot, own)
    return replace(scope, user=apiexport.acting(request.user, request.cluster)) if request.acts_for else scope
apiexport.ExportView.show = show
""",
    ),
    "the provider's own permission": (
        acting.test_what_the_provider_may_not_do_it_does_not_do_for_another,
        """
import atoll.virtualworkspaces.export_request as export_request
export_request.Sources.may_reach_content = lambda self, view, user, export, verb: True
""",
    ),
    "the permission to act for another": (
        acting.test_who_acts_for_another_needs_to_be_allowed_to,
        """
import atoll.virtualworkspaces.export_request as export_request
export_request.ExportRequest._may_act = lambda self, view, verb: True
""",
    ),
}


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("guard", every(3, ACTING))
def test_acting_for_another_without_its_guard_is_found_out_on_every_write(shard: MutantShard, guard: str) -> None:
    trial, code = ACTING[guard]
    with shard.without(code):
        for verb in acting.VERBS:
            with pytest.raises((AssertionError, OSError)):
                trial(*pair(shard), verb)


@pytest.mark.usefixtures("impatience")
def test_privileges_taken_on_with_a_user_are_found_out(shard: MutantShard) -> None:
    code = "import atoll.machinery.apiserver.authentication.impersonation as it; it._check_privileges = lambda *_: None"
    with shard.without(code), pytest.raises(AssertionError):
        acting.test_no_privilege_is_taken_on_with_the_user(
            acting.Stage(*pair(shard)), {"Impersonate-Group": "system:kcp:admin"}
        )


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
@pytest.mark.parametrize("guard", every(3, GUARDS))
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


WRITTEN: dict[str, tuple[Callable[[OfSquads, str], None], str]] = {
    "who may write": (writing.test_who_may_not_write_the_row_does_not, THIRD_PARTYS["who may read"][1]),
    "who says who writes": (writing.test_nobody_but_a_proxy_says_who_writes, THIRD_PARTYS["who says who asks"][1]),
    "as the caller": (
        writing.test_who_may_not_change_the_source_objects_does_not_change_them_by_a_row,
        """
import atoll.virtualworkspace_sdk.writer as writer
writer.impersonation = lambda user, cluster: ()
""",
    ),
    "in the workspace of the request": (
        writing.test_a_write_stays_in_its_workspace,
        """
import atoll.virtualworkspace_sdk.reviews as reviews
from atoll.machinery.apiserver.authorization.attributes import Decision
import atoll.virtualworkspace_sdk.writer as writer
reviews.Reviews.decide = lambda self, asked: Decision(True)
writer.impersonation = lambda user, cluster: ()
""",
    ),
}


@pytest.mark.long
@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("guard", WRITTEN)
def test_a_view_that_writes_without_its_guard_is_found_out_on_every_write(tmp_path: Path, guard: str) -> None:
    trial, code = WRITTEN[guard]
    certificates = Certificates(tmp_path / "certificates")
    with ShardProcess(tmp_path / "shard", *certificates.shard_flags, *token_file(tmp_path)) as shard:
        squads = OfSquads(Api(shard, "root"), certificates, tmp_path / "view", patched(tmp_path, code))
        try:
            for verb in writing.WRITES:
                with pytest.raises((AssertionError, OSError, KeyError)):
                    trial(squads, verb)
        finally:
            squads.view.stop()


@pytest.mark.long
def test_a_third_partys_view_returns_freed_memory(tmp_path: Path) -> None:
    certificates, returns = Certificates(tmp_path / "certificates"), Returns(tmp_path)
    with ShardProcess(tmp_path / "shard", *certificates.shard_flags, *token_file(tmp_path)) as shard:
        third = OfThirdParty(Api(shard, "root"), certificates, tmp_path / "view", patched(tmp_path, returns.code))
        try:
            eventually(lambda: returns.by(third.view.pid), "it returns memory")
        finally:
            third.view.stop()


@pytest.mark.long
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
