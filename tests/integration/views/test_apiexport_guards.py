"""Guards of the apiexport view that the matrix does not cover: without each guard, a test here must fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.clients.api import JSON, MERGE, Api, configmap, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    accepted,
    an_object,
    bind,
    claim,
    cluster_of,
    make_export,
    objects_path,
    schema,
)
from harness.servers.mutant_shard import MutantShard
from integration.exports import test_maximal_permission_policy as policy
from integration.views import test_apiexport as views

USERS = 'alice-token,alice,u-alice,"team-a,team-b"\nbob-token,bob,u-bob\nworker-token,worker,u-w\n'
#: Whether the request that the guard blocks succeeds; with provider and consumer.
Trial = Callable[[Api, Api], bool]
CIRCLES, SQUARES = schema("circles"), schema("squares", "else.example.com")
WIDE = "/*/api/v1/configmaps"


def _claiming(provider: Api, consumer: Api) -> Api:
    make_export(provider, "shapes", CIRCLES, claims=[claim("configmaps")])
    bind(consumer, provider.cluster, "shapes", [accepted(claim("configmaps"))])
    return views.view_of(provider)


def a_watch_goes_on_without_the_right_to_the_content(provider: Api, consumer: Api) -> bool:
    view = _claiming(provider, consumer)
    name = views.grant(provider, "worker")
    with view.watch(f"/*{objects_path(CIRCLES, namespace='')}?watch=1") as events:
        provider.delete(f"{views.RBAC}/clusterrolebindings/{name}")
        consumer.post(objects_path(CIRCLES), an_object(CIRCLES, "late"))
        return _has_event(events)


def a_watch_goes_on_without_the_claim(provider: Api, consumer: Api) -> bool:
    view = _claiming(provider, consumer)
    views.grant(provider, "worker")
    with view.watch(f"/{cluster_of(consumer)}/api/v1/configmaps?watch=1&labelSelector=late") as events:
        rejected = [accepted(claim("configmaps"), "Rejected")]
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": rejected}})
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": [accepted(claim("configmaps"))]}})
        consumer.post("/api/v1/namespaces/default/configmaps", configmap("late", labels={"late": "yes"}))
        return _has_event(events)


def a_claimed_kind_is_reached_without_its_policy(provider: Api, consumer: Api) -> bool:
    other = consumer.at(workspace_under(consumer, type_="universal"))
    made = make_export(other, "elsewhere", SQUARES, maximalPermissionPolicy={"local": {}})
    wanted = claim("squares", "else.example.com", identity=made["status"]["identityHash"])
    make_export(provider, "shapes", CIRCLES, claims=[wanted])
    views.grant(provider, "worker")
    answer = views.view_of(provider).get(f"/*{objects_path(SQUARES, namespace='')}", expect=0)
    return answer.code == 200


def a_bound_kind_is_reached_without_its_policy(provider: Api, consumer: Api) -> bool:
    make_export(provider, "shapes", CIRCLES, maximalPermissionPolicy={"local": {}})
    bind(consumer, provider.cluster, "shapes")
    alice = policy.administers(consumer, "alice-token")
    return alice.get(objects_path(CIRCLES), expect=0).code == 200


def a_kind_of_another_identity_is_reached(provider: Api, consumer: Api) -> bool:
    homes = [consumer.at(workspace_under(consumer, type_="universal")) for _ in range(2)]
    made = [make_export(home, "elsewhere", SQUARES) for home in homes]
    wanted = claim("squares", "else.example.com", identity=made[0]["status"]["identityHash"])
    make_export(provider, "shapes", CIRCLES, claims=[wanted])
    views.grant(provider, "worker")
    bind(consumer, homes[1].cluster, "elsewhere")
    bind(consumer, provider.cluster, "shapes", [accepted(wanted)])
    url = f"/{cluster_of(consumer)}{objects_path(SQUARES)}"
    return views.view_of(provider).post(url, an_object(SQUARES, "a"), expect=0).code == 201


def a_stranger_learns_whether_an_export_exists(provider: Api, consumer: Api) -> bool:
    make_export(provider, "shapes", CIRCLES)
    codes = {views.view_of(provider, name).get("/*/apis", expect=0).code for name in ("shapes", "unheard-of")}
    return codes != {403}


def an_inactive_workspace_is_reached(provider: Api, consumer: Api) -> bool:
    view = _claiming(provider, consumer)
    views.grant(provider, "worker")
    cluster = cluster_of(consumer)
    inactive = {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}}
    Api(consumer.shard, cluster, "shard-admin").patch("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", inactive)
    return view.get(f"/{cluster}/api/v1/configmaps", expect=0).code == 200


def an_export_that_is_gone_is_served(provider: Api, consumer: Api) -> bool:
    view = _claiming(provider, consumer)
    views.grant(provider, "worker")
    view.get(WIDE)
    provider.delete(f"{EXPORTS}/shapes")
    return view.get(WIDE, expect=0).code == 200


def a_write_leaves_a_label_of_the_selector_out(provider: Api, consumer: Api) -> bool:
    given = accepted(claim("configmaps"), matchLabels={"team": "a"})
    view, cluster = views.claiming(provider, consumer, given)
    left_out = []
    for name, method, body, kind in (
        ("updated", "PUT", configmap("updated"), JSON),
        ("patched", "PATCH", {"metadata": {"labels": {"team": None}}}, MERGE),
    ):
        consumer.post(views.CONFIGMAPS, configmap(name, labels={"team": "a"}))
        view.send(method, f"/{cluster}{views.CONFIGMAPS}/{name}", body, kind=kind)
        left_out.append("team" not in views.labels_of(consumer, name))
    assert len(set(left_out)) == 1, "an update and a patch keep the label alike"
    return left_out[0]


def a_write_takes_an_object_out_of_the_selector(provider: Api, consumer: Api) -> bool:
    given = accepted(claim("configmaps"), matchLabels={"team": "a"})
    view, cluster = views.claiming(provider, consumer, given)
    consumer.post(views.CONFIGMAPS, configmap("moved", labels={"team": "a"}))
    path = f"/{cluster}{views.CONFIGMAPS}/moved"
    view.send("PUT", path, configmap("moved", labels={"team": "b"}))
    return views.labels_of(consumer, "moved")["team"] == "b"


def _has_event(events: object) -> bool:
    """Whether a watch that should have ended still delivers an event."""
    line = events._response.readline()  # type: ignore[attr-defined]
    return bool(line)


GUARDS: dict[str, tuple[Trial, str]] = {
    "the end with the right to the content": (
        a_watch_goes_on_without_the_right_to_the_content,
        """
import atoll.machinery.apiserver.serving.open_watches as openwatches
openwatches.OpenWatches._check_dependent = lambda self, cluster, revision=0: None
""",
    ),
    "the end with the claim": (
        a_watch_goes_on_without_the_claim,
        """
import atoll.machinery.apiserver.serving.open_watches as openwatches
openwatches.OpenWatches._end = lambda self, snapshot, watches, revision: None
""",
    ),
    "the policy of a claimed kind": (
        a_claimed_kind_is_reached_without_its_policy,
        """
import atoll.machinery.apiserver.authorization.authorizer as authorizer
authorizer.Authorizer.permits = lambda self, snapshot, attributes, cluster, export: True
""",
    ),
    "the policy of a bound kind": (
        a_bound_kind_is_reached_without_its_policy,
        """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name == "04-maxpermissionpolicy" else (name, step)
                    for name, step in chain.STEPS)
""",
    ),
    "the identity of a kind": (
        a_kind_of_another_identity_is_reached,
        """
import atoll.virtualworkspaces.apiexport as apiexport
from atoll.machinery.apiserver.catalog.catalog import Catalog
plain = apiexport.ExportView._kind_in
def there(self, view, cluster, offered):
    if offered is None:
        return plain(self, view, cluster, offered)
    found = self._catalogs.of(view, cluster).find(offered.group, offered.version, offered.plural)
    return Catalog([found] if found is not None else [])
apiexport.ExportView._kind_in = there
""",
    ),
    "who opens a view": (
        a_stranger_learns_whether_an_export_exists,
        """
import atoll.virtualworkspaces.apiexport as apiexport
apiexport.ExportView.opens = lambda self, view, user, own: True
""",
    ),
    "the gate": (
        an_inactive_workspace_is_reached,
        """
import atoll.machinery.apiserver.serving.pipeline as pipeline
pipeline.check_gate = lambda *arguments: None
""",
    ),
    "the labels of the selector in an update": (
        a_write_leaves_a_label_of_the_selector_out,
        """
import atoll.virtualworkspaces.export_request as passage
plain = passage.ExportRequest.write_rule
passage.ExportRequest.write_rule = (
    lambda self, view, obj, old: plain(self, view, obj if old is None else None, old))
""",
    ),
    "the selector in an update": (
        a_write_takes_an_object_out_of_the_selector,
        """
import atoll.virtualworkspaces.export_request as passage
passage.ExportRequest._check_selected = lambda self, claim, obj, labels: None
""",
    ),
    "what an offer is made of": (
        an_export_that_is_gone_is_served,
        """
import atoll.virtualworkspaces.export_catalog as offers
plain = offers.ExportCatalogs.of
def of(self, view, key):
    kept = self._kept.get(key)
    return kept.offer if kept is not None else plain(self, view, key)
offers.ExportCatalogs.of = of
""",
    ),
}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory = tmp_path_factory.mktemp("guards")
    (directory / "tokens.csv").write_text(USERS)
    with MutantShard(directory, "--token-auth-file", str(directory / "tokens.csv")) as running:
        yield running


@pytest.fixture
def pair(shard: MutantShard) -> tuple[Api, Api]:
    """A provider and a consumer."""
    root = Api(shard, "root")
    return root.at(workspace_under(root, type_="universal")), root.at(workspace_under(root, type_="universal"))


def test_a_list_of_a_claimed_kind_in_all_workspaces_reads_what_is_claimed_alone(
    shard: MutantShard, pair: tuple[Api, Api]
) -> None:
    provider, consumer = pair
    view = _claiming(provider, consumer)
    views.grant(provider, "worker")
    consumer.post(views.CONFIGMAPS, configmap("mine"))
    master = Api(consumer.shard, "*", "shard-admin")
    no_scan = """
import atoll.machinery.storage.reading.lists as lists
def refuse(*arguments):
    raise AssertionError("every object is read")
lists.Lists._plain = refuse
"""
    with shard.without(no_scan):
        assert master.get("/api/v1/configmaps", expect=0).code == 500
        found = view.get(WIDE).json["items"]
        page = view.get(f"{WIDE}?limit=1").json
    assert "mine" in [each["metadata"]["name"] for each in found]
    assert len(page["items"]) == 1
    assert len(view.get(f"{WIDE}?limit=1&continue={page['metadata']['continue']}").json["items"]) == 1


@pytest.mark.long
@pytest.mark.parametrize("guard", GUARDS)
def test_without_its_guard_a_trial_of_the_view_does(shard: MutantShard, pair: tuple[Api, Api], guard: str) -> None:
    trial, code = GUARDS[guard]
    with shard.without(code):
        assert trial(*pair), f"without {guard} nothing was different"


@pytest.mark.parametrize("guard", GUARDS)
def test_with_its_guard_in_place_again_a_trial_of_the_view_lets_nothing_in(pair: tuple[Api, Api], guard: str) -> None:
    trial, _ = GUARDS[guard]
    assert not trial(*pair)
