"""Rows of the matrix of access for the edge service: its accounts, syncers, and the owner of a workspace for workloads.

Each is tried in every sort of workspace that the service knows and at every view, and each guard is taken out once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api, Object, workspace_under
from harness.seeds import seed_of_run
from harness.servers.edge_service import GROUP, edge_init
from harness.servers.mutant_shard import MutantShard
from integration.edge.mailbox_world import ITEMS, NAMESPACE, RBAC, MailboxWorld
from integration.security import matrix
from integration.security.test_matrix import GUARDS as GENERAL_GUARDS

EXPORT_VIEW = "/services/apiexport/{service}/edge.kubestellar.io/clusters"
ACCOUNTS = ("mailbox-controller", "where-resolver", "placement-translator", "status-summarizer")
SYNCERS = ("syncer", "other syncer")
CALLERS = (*ACCOUNTS, *SYNCERS, "owner")
PLACES = ("root", "service", "inventory", "workload", "mailbox", "other mailbox", "plain")
READ = ("get", "list", "watch")
EVERYTHING: Object = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def rule(group: str, resource: str, *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


_SLICES = rule("apis.kcp.io", "apiexportendpointslices", *READ)
#: What each may do where; in all other places nothing. Who may enter and do nothing has an empty list.
RIGHTS: dict[tuple[str, str], list[Object]] = {
    **{(caller, "service"): [] for caller in ACCOUNTS},
    # Whoever is somebody may enter root and read what it says of itself, and enter an inventory, as its Locations are
    # used from elsewhere.
    **{(caller, "root"): [rule("core.kcp.io", "logicalclusters", *READ)] for caller in CALLERS},
    **{(caller, "inventory"): [] for caller in CALLERS},
    ("mailbox-controller", "service"): [
        _SLICES,
        rule("tenancy.kcp.io", "workspaces", "create", "delete", *READ),
        rule("coordination.k8s.io", "leases", "create"),
    ],
    ("where-resolver", "service"): [_SLICES],
    ("placement-translator", "service"): [_SLICES, rule("tenancy.kcp.io", "workspaces", *READ)],
    ("placement-translator", "workload"): [rule("*", "*", "get", "list", "patch")],
    ("placement-translator", "mailbox"): [EVERYTHING],
    ("placement-translator", "other mailbox"): [EVERYTHING],
    ("status-summarizer", "service"): [_SLICES],
    ("status-summarizer", "workload"): [rule("", "namespaces", "create")],
    ("status-summarizer", "mailbox"): [rule("*", "*", "get", "list")],
    ("status-summarizer", "other mailbox"): [rule("*", "*", "get", "list")],
    ("syncer", "mailbox"): [],
    ("other syncer", "other mailbox"): [],
    ("owner", "workload"): [EVERYTHING, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
}
#: Path of a view, with the places in braces -> who gets an answer there. All others are forbidden.
ENTRANCES: dict[str, tuple[str, ...]] = {
    f"/services/mailbox/clusters/{{mailbox}}{ITEMS}": ("syncer", "placement-translator"),
    f"/services/mailbox/clusters/{{other mailbox}}{ITEMS}": ("other syncer", "placement-translator"),
    f"/services/mailbox/clusters/{{workload}}{ITEMS}": ("owner",),
    f"/services/edge-view/clusters/{{workload}}{NAMESPACE}/configmaps": ("owner", "placement-translator"),
    f"/services/edge-view/clusters/{{mailbox}}{NAMESPACE}/configmaps": ("placement-translator", "status-summarizer"),
    f"{EXPORT_VIEW}/*{GROUP}/edgeplacements": ACCOUNTS,
    f"{EXPORT_VIEW}/{{workload}}{GROUP}/edgeplacements": ACCOUNTS,
    f"{EXPORT_VIEW}/{{mailbox}}/apis/coordination.k8s.io/v1/leases": ACCOUNTS,
    f"{EXPORT_VIEW}/{{mailbox}}/api/v1/secrets": (),
    f"{EXPORT_VIEW}/{{workload}}/api/v1/configmaps": (),
    "/services/initializingworkspaces/{service}:edge-mailbox/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters": (
        "mailbox-controller",
    ),
    "/services/initializingworkspaces/{service}:edge-mailbox/clusters/{mailbox}/api/v1/secrets": (),
    "/services/terminatingworkspaces/{service}:edge-mailbox/clusters/{mailbox}/api/v1/secrets": (),
}
#: Resources that are tried in every run, by these verbs.
DEAR = (
    ("", "secrets"),
    ("", "serviceaccounts/token"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("edge.kubestellar.io", "syncerconfigs"),
    ("tenancy.kcp.io", "workspaces"),
)
DEAR_VERBS = ("list", "create", "delete")
SAMPLE = 6


class Estate:
    """One workspace of each sort, and a token of each caller."""

    def __init__(self, root: Api, edge: MutantShard, directory: Path) -> None:
        self.root = root
        workload, plain = root.at("root:wmw1"), root.at(workspace_under(root, type_="universal"))
        apis = {"service": root.at("root:espw"), "inventory": root.at("root:imw1"), "workload": workload}
        self.clusters = {place: cluster_of(api) for place, api in {**apis, "root": root, "plain": plain}.items()}
        output = directory / "edge.kubeconfig"
        edge_init(edge, output)
        users = yaml.safe_load(output.read_text())["users"]
        self.tokens = {user["name"]: user["user"]["token"] for user in users}
        self.tokens["owner"] = owner_of(workload)
        self.routes = matrix.routes_of(self.renew())

    def renew(self) -> Api:
        """Have new mailboxes, about which nothing was decided yet; return the administrator of the first."""
        first, second = MailboxWorld(self.root), MailboxWorld(self.root)
        self.clusters |= {"mailbox": first.cluster, "other mailbox": second.cluster}
        self.tokens |= {"syncer": first.token, "other syncer": second.token}
        return first.admin

    def sender(self, caller: str) -> Api:
        return Api(self.root.shard, token=self.tokens[caller])

    def path(self, entrance: str) -> str:
        for place, cluster in self.clusters.items():
            entrance = entrance.replace(f"{{{place}}}", cluster)
        return entrance


def cluster_of(api: Api) -> str:
    found = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    return str(found["metadata"]["annotations"]["kcp.io/cluster"])


def owner_of(workload: Api) -> str:
    """A token of an account that administers a workspace for workloads."""
    workload.post(f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "owner"}})
    subject = {"kind": "ServiceAccount", "name": "owner", "namespace": "default"}
    bind(workload, subject)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(workload.post(f"{NAMESPACE}/serviceaccounts/owner/token", request).json["status"]["token"])


def bind(api: Api, subject: Object) -> str:
    """Make somebody an administrator; the path of the binding."""
    reference = {"apiGroup": RBAC[6:-3], "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": {"generateName": "isolation-"}, "subjects": [subject], "roleRef": reference}
    made = api.post(f"{RBAC}/clusterrolebindings", body).json
    return f"{RBAC}/clusterrolebindings/{made['metadata']['name']}"


@pytest.fixture(scope="module")
def estate(edge: MutantShard, root: Api, tmp_path_factory: pytest.TempPathFactory) -> Estate:
    return Estate(root, edge, tmp_path_factory.mktemp("estate"))


#: Where the account of each is from: there it may read the keys that tokens are verified by.
HOMES = {
    **dict.fromkeys(ACCOUNTS, "service"),
    "owner": "workload",
    "syncer": "mailbox",
    "other syncer": "other mailbox",
}
KEYS = "/openid/v1/jwks"


def expects(caller: str, place: str, route: matrix.Route) -> bool:
    """The model's result for a caller in a workspace."""
    is_at_home = HOMES[caller] == place and (route.path, route.verb) == (KEYS, "get")
    return is_at_home or allowed(RIGHTS.get((caller, place)), route)


def allowed(rights: list[Object] | None, route: matrix.Route) -> bool:
    """The model's result for who has these rights in a workspace; None for who may not enter it."""
    if route.path in matrix.PUBLIC and route.verb == "get":
        return True
    if rights is None:
        return False
    if not route.resource:
        documents = (route.path == each or route.path.startswith(f"{each}/") for each in matrix.DISCOVERY)
        return any("nonResourceURLs" in each for each in rights) or (route.verb == "get" and any(documents))
    remaining = matrix.SYSTEMS.get((route.group, route.resource))
    if remaining is not None and route.verb not in remaining:
        return False
    if (route.group, route.resource) in matrix.ABOUT_ONESELF and route.verb == "create":
        return True
    wanted = {"apiGroups": route.group, "resources": route.resource, "verbs": route.verb}
    return any(
        all(value in each.get(field, ()) or "*" in each.get(field, ()) for field, value in wanted.items())
        for each in rights
    )


def mistakes(estate: Estate, callers: tuple[str, ...], places: tuple[str, ...], count: int = SAMPLE) -> Iterator[str]:
    """Cells in which the server and the model differ: some routes, and those that matter most."""
    dear = [each for each in estate.routes if (each.group, each.resource) in DEAR and each.verb in DEAR_VERBS]
    dear += [each for each in estate.routes if each.path == "/api"]
    seed = seed_of_run(18)
    for caller in callers:
        api = estate.sender(caller)
        for place in places:
            api.prefix = f"/clusters/{estate.clusters[place]}"
            chance = random.Random(f"{seed} {caller} {place}")
            some = chance.sample(estate.routes, min(count, len(estate.routes)))
            for route in dict.fromkeys((*dear, *some)):
                expected = expects(caller, place, route)
                if matrix.tried(api, route) != expected:
                    yield f"{caller} at {place}: {route.verb} {route.url()} expected {expected}"
        api.close()


def mistaken_entrances(estate: Estate, callers: tuple[str, ...] = CALLERS) -> Iterator[str]:
    """Entrances of views that are open to whom they should not be, or the other way round."""
    for caller in callers:
        api = estate.sender(caller)
        for entrance, guests in ENTRANCES.items():
            code = api.send("GET", f"{estate.path(entrance)}?limit=1").code
            if (code == 200) != (caller in guests) or code not in {200, 403, 404}:
                yield f"{caller} at {entrance}: {code}"
        api.close()


def test_each_gets_what_the_model_says_in_every_workspace(estate: Estate) -> None:
    assert list(mistakes(estate, CALLERS, PLACES)) == []


@pytest.mark.long
def test_each_gets_what_the_model_says_on_every_route(estate: Estate) -> None:
    assert list(mistakes(estate, CALLERS, PLACES, len(estate.routes))) == []


def test_each_opens_the_views_that_are_for_it_and_no_other(estate: Estate) -> None:
    assert list(mistaken_entrances(estate)) == []


OPEN_MAILBOXES = """
import atoll.virtualworkspaces.edge.mailbox as mailbox
mailbox.MailboxView.opens = lambda self, view, user, own: True
"""
OPEN_LIFECYCLE = """
import atoll.virtualworkspaces.lifecycle as lifecycle
lifecycle.LifecycleView.opens = lambda self, view, user, own: True
"""
#: Guard -> who and where it shows that it is missing (a place, or "" for the views), and what takes it out.
GUARDS = {
    "the verb of mailboxes": ("other syncer", "", OPEN_MAILBOXES),
    "the home of service accounts": ("other syncer", "", GENERAL_GUARDS["the home of service accounts"][2]),
    "the content of the export": ("owner", "", GENERAL_GUARDS["the content of exports"][2]),
    "the verb of waiting workspaces": ("where-resolver", "", OPEN_LIFECYCLE),
    "the entrance of mailboxes": ("where-resolver", "mailbox", GENERAL_GUARDS["the door of workspaces"][2]),
    "the authorizer": ("owner", "mailbox", GENERAL_GUARDS["the authorizer"][2]),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_is_taken_out_is_missed(estate: Estate, edge: MutantShard, guard: str) -> None:
    caller, place, code = GUARDS[guard]
    estate.renew()
    with edge.without(code):
        found = list(mistakes(estate, (caller,), (place,)) if place else mistaken_entrances(estate, (caller,)))
    assert found, guard


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_right_too_many_is_missed(estate: Estate, account: str) -> None:
    """As if a role of the service were wider than it is."""
    place = "plain" if account in {"placement-translator", "status-summarizer"} else "mailbox"
    name = f"system:kcp:serviceaccount:{estate.clusters['service']}:edge:{account}"
    api = estate.root.at(estate.clusters[place])
    binding = bind(api, {"apiGroup": RBAC[6:-3], "kind": "User", "name": name})
    assert list(mistakes(estate, (account,), (place,), 0))
    api.delete(binding)
    assert list(mistakes(estate, (account,), (place,), 0)) == []
    api.close()
