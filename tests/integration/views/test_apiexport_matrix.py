"""The apiexport view in every state of consent; each guard is removed as well, to prove that the matrix detects it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import Api
from harness.servers.mutant_shard import MutantShard
from harness.tiers import every
from integration.views import apiexport_matrix as matrix


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory = tmp_path_factory.mktemp("matrix")
    (directory / "tokens.csv").write_text(matrix.USERS)
    with MutantShard(directory, "--token-auth-file", str(directory / "tokens.csv")) as running:
        yield running


#: Each a guard, the state of a workspace in which that is seen, and the Python that takes it out of a shard's process.
#: Whoever holds all of the content misses it, or who holds nothing. Selection and rows both keep to the labels.
GUARDS = {
    "the consent of a workspace": (
        "unbound",
        """
import atoll.virtualworkspaces.export_request as passage
from atoll.virtualworkspaces.accepted_claims import AcceptedClaims
passage.ExportRequest._consent = lambda self, view, offer, verb: AcceptedClaims(frozenset(), {}, ())
""",
    ),
    "what a workspace binds and grants": (
        "rejected",
        """
import atoll.virtualworkspaces.accepted_claims as consents
consents.AcceptedClaims.allows = lambda self, verb, name, claimed, subresource="": True
""",
    ),
    "the content of the export": (
        "accepted",
        """
import atoll.virtualworkspaces.export_request as passage
passage.Sources.may_reach_content = lambda self, view, user, export, verb: True
""",
    ),
    "the answer to a claim": (
        "rejected",
        """
import atoll.machinery.kcp.apis.permission_claims as claims
claims.effective = lambda export, binding: claims.granted(claims.exported(export), claims._requested(binding))
""",
    ),
    "the verbs of a claim": (
        "reading",
        """
import atoll.machinery.kcp.apis.permission_claims as claims
claims.Claim.allows = lambda self, verb: True
""",
    ),
    "labels, for one object": (
        "accepted",
        """
import atoll.machinery.apiserver.call.call as call
import atoll.machinery.apiserver.rest.get as get
import atoll.machinery.apiserver.rest.write as write
get.look_up = write.look_up = lambda call, view, name: view.get(call.key(name))
""",
    ),
    "labels, in lists": (
        "accepted",
        """
import atoll.machinery.apiserver.rest.list as listing
import atoll.machinery.apiserver.serving.reads as reads
plain = listing.selection
listing.selection = lambda kind, options, view_selector=None: plain(kind, options)
reads.rows_of = lambda call, store: store if call.restrictions.rows is None else call.restrictions.rows
""",
    ),
    "labels, in watches": (
        "accepted",
        """
import atoll.machinery.apiserver.rest.watch as watch
import atoll.machinery.apiserver.serving.watches as watches
plain = watch.selection
watch.selection = lambda kind, options, view_selector=None: plain(kind, options)
watches.rows_of = lambda call, store: store if call.restrictions.rows is None else call.restrictions.rows
""",
    ),
    "the selector of what is written": (
        "accepted",
        """
import atoll.virtualworkspaces.export_request as passage
passage.ExportRequest._keep_selected = lambda self, claim, obj: None
""",
    ),
    "the bindings of others": (
        "bound",
        """
import atoll.virtualworkspaces.export_request as passage
plain = passage.ExportRequest.labels
def labels(self, view, offer):
    return None if self._name == passage.BINDINGS else plain(self, view, offer)
passage.ExportRequest.labels = labels
""",
    ),
    "subresources": (
        "bound",
        """
import atoll.virtualworkspaces.export_catalog as offers
offers._served = lambda kind: kind
""",
    ),
}


@pytest.mark.parametrize("guard", every(3, GUARDS))
def test_a_guard_of_the_view_that_is_taken_out_is_missed(shard: MutantShard, guard: str) -> None:
    state, code = GUARDS[guard]
    town = matrix.Town(Api(shard, "root"), (matrix.state_of(state),))
    who = "stranger" if guard == "the content of the export" else "owner"
    with shard.without(code):
        assert next(matrix.mistakes(town, (who,)), ""), f"without {guard} nothing was different"


# --- with all guards in place again ---


@pytest.fixture(scope="module")
def town(shard: MutantShard) -> matrix.Town:
    return matrix.Town(Api(shard, "root"))


def test_the_matrix_is_large(town: matrix.Town) -> None:
    cells = list(matrix.cells())
    assert len(cells) > 2000
    assert 100 < sum(map(matrix.allowed, cells)) < len(cells) // 2


@pytest.mark.parametrize("caller", every(2, matrix.CALLERS))
def test_everybody_reaches_what_was_consented_to_and_nothing_else(town: matrix.Town, caller: str) -> None:
    assert list(matrix.mistakes(town, (caller,))) == []
