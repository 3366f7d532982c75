"""A syncer's token in foreign hands: what it may ask is bounded, its neighbours are served, and it forges nothing.

Limits are set low for the trials, each of which begins with nothing taken; each guard is taken out once, and is missed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from harness.clients.api import CRDS, MERGE, Answer, Api, Object, configmap, crd, define
from harness.servers.mutant_shard import MutantShard
from integration.edge.mailbox_world import CONFIGS, ITEMS, NAMESPACE, RBAC, MailboxWorld, namespaced
from integration.edge.test_mailbox_view import ALL_UP, CIRCLES, LEASES, MAPS, UPSYNCED, circle, up

STATES = "/apis/edge.kubestellar.io/v2alpha1/namespaces/default/associatedstates"
EVENTS = f"{NAMESPACE}/events"
PROJECTED = {"edge.kubestellar.io/projected": "yes"}
#: Limits of the trials. What would wait is refused, and each time that the loop is held counts as a millisecond.
LIMITS = """
import atoll.virtualworkspaces.edge.allowance as a
import atoll.virtualworkspaces.edge.loop_time as t
import atoll.virtualworkspaces.edge.mailbox as m
import atoll.virtualworkspaces.edge.mailbox_rules as r
import atoll.virtualworkspaces.edge.refusals as f
import atoll.virtualworkspaces.edge.upsync_use as u
kept, refusals = {}, f.Refusals()
rates, times = a.Allowances(refusals), t.LoopTime(refusals)
took, take = t.Turns.took, a.Allowances.take
t.LoopTime.of = lambda self, cluster, user: kept.setdefault((cluster, user), t.Turns(times, (cluster, user)))
t.Turns.took = lambda self, seconds: took(self, 0.001 if seconds else 0.0)
m.WRITE_S = 0.0
t.SHARE = 1.0
t.RATE = 0.0001
t.BURST_S = 0.05
t.LONGEST_WAIT_S = 0.0
a.Allowances.take = lambda self, *arguments: take(rates, *arguments)
a.EVENT_WRITES = a.Rate(0.01, 20.0)
u.MOST = u.Bounds(3, 20_000)
u.COUNT_AGAIN_S = u._REST = 0
f.HOLD_S = 0.0
m.MAX_WATCHES = 2
"""


class Town:
    """The mailbox of which the syncer's token was stolen, and one beside it."""

    def __init__(self, root: Api) -> None:
        self.robbed, self.neighbour = MailboxWorld(root), MailboxWorld(root)
        define(self.robbed.admin, crd("circles"))
        self.robbed.admin.post(CIRCLES, circle("down"))
        self.robbed.admin.post(MAPS, configmap("down", {"a": "b"}))
        ups = [{"apiGroup": group, "resources": ["*"], **ALL_UP} for group in ("", "shapes.example.com")]
        ups.append({"apiGroup": "rbac.authorization.k8s.io", "resources": ["*"], **ALL_UP})
        rules = [{"source": "", "target": [], "objects": [{"resource": "pods"}]}]
        self.robbed.carry(
            namespaced("", "configmaps", "default", "down"),
            namespaced("shapes.example.com", "circles", "default", "down"),
            {"upsync": ups, "associated": rules},
        )
        self.thief = self.robbed.syncer

    def serves_the_neighbour(self) -> None:
        """The syncer and the administrator of the mailbox beside it are answered."""
        self.neighbour.syncer.get(ITEMS)
        self.neighbour.syncer.patch(f"{CONFIGS}/the-one/status", {"status": {"appliedRevision": "5"}})
        self.neighbour.admin.get(MAPS)


@pytest.fixture(scope="module")
def town(root: Api) -> Town:
    found = Town(root)
    found.neighbour.carry()
    return found


def is_slowed(answers: Iterator[Answer]) -> bool:
    """Whether one of these requests is answered that it is too early, with the time to wait."""
    for answer in answers:
        if answer.code == 429:
            assert int(answer.header("retry-after")) > 0
            return True
    return False


#: By verb: one request of a syncer, as method, path and body.
REQUESTS: dict[str, tuple[str, str, Object | None]] = {
    "get": ("GET", f"{MAPS}/down", None),
    "list": ("GET", ITEMS, None),
    "watch": ("GET", f"{ITEMS}?watch=1&labelSelector=a==b==c", None),
    "create": ("POST", MAPS, configmap("u1") | {"metadata": up("ConfigMap", "u1")}),
    "update": ("PUT", f"{MAPS}/u2", configmap("u2") | {"metadata": up("ConfigMap", "u2")}),
    "patch": ("PATCH", f"{MAPS}/u2", {"data": {"a": "b"}}),
    "patch of a status": ("PATCH", f"{CIRCLES}/down/status", {"status": {"replicas": 1}}),
    "delete": ("DELETE", f"{MAPS}/u3", None),
    "discovery": ("GET", "/apis", None),
}


def asks_without_end(verb: str) -> Callable[[Town], bool]:
    """Whether one user may make any number of these requests."""
    method, path, body = REQUESTS[verb]

    def ask(town: Town) -> bool:
        kind = MERGE if method == "PATCH" else ""
        slowed = is_slowed(town.thief.send(method, path, body, kind=kind) for _ in range(70))
        town.robbed.admin.send("DELETE", f"{MAPS}/u1")
        return not slowed

    return ask


def event(name: str, text: str = "") -> Object:
    involved = {"apiVersion": "v1", "kind": "ConfigMap", "name": "down", "namespace": "default"}
    head = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": involved}
    return {**head, "reason": "Flood", "message": text, "source": {"component": "kubestellar-syncer"}}


def makes_events_without_end(town: Town) -> bool:
    return not is_slowed(town.thief.send("POST", EVENTS, event(f"e{number}")) for number in range(30))


def makes_large_events(town: Town) -> bool:
    large = (event(f"large{number}", "x" * 900) | {"action": "y" * 100} for number in range(14))
    return not is_slowed(town.thief.send("POST", EVENTS, each) for each in large)


def opens_watches_without_end(town: Town) -> bool:
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(town.thief.watch(f"{ITEMS}?watch=1"))
        return town.thief.send("GET", f"{ITEMS}?watch=1&timeoutSeconds=1").code != 429


def brings_up(town: Town, *names: str, size_bytes: int = 1) -> list[int]:
    """Codes of the creations, of which nothing is left."""
    codes = []
    for name in names:
        body = configmap(name, {"a": "x" * size_bytes}) | {"metadata": up("ConfigMap", name)}
        codes.append(town.thief.send("POST", MAPS, body).code)
    for name in names:
        town.robbed.admin.send("DELETE", f"{MAPS}/{name}")
    return codes


def brings_up_without_end(town: Town) -> bool:
    return brings_up(town, "u1", "u2", "u3", "u4", "u5") != [201, 201, 201, 403, 403]


def brings_up_large_ones(town: Town) -> bool:
    return brings_up(town, "large", size_bytes=30_000) != [403]


def lets_one_grow(town: Town) -> bool:
    town.thief.post(MAPS, configmap("grows", {"a": "b"}) | {"metadata": up("ConfigMap", "grows")})
    codes = [
        town.thief.send("PATCH", f"{MAPS}/grows", {"data": {str(number): "x" * 9_000}}, kind=MERGE).code
        for number in range(3)
    ]
    town.robbed.admin.delete(f"{MAPS}/grows")
    return codes != [200, 200, 403]


def writes_a_vast_status(town: Town) -> bool:
    body = {"status": {"selector": "x" * 300_000}}
    code = town.thief.send("PATCH", f"{CIRCLES}/down/status", body, kind=MERGE).code
    town.robbed.admin.patch(f"{CIRCLES}/down/status", {"status": {"selector": None}})
    return code != 403


def forges_what_was_projected(town: Town) -> bool:
    subject = {"group": "", "resource": "configmaps", "namespace": "default", "name": "down"}
    name = "configmaps.67f8893c04e5960a55e1773cab87e447"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "pod"}}
    state = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "AssociatedState", "subject": subject, "total": 0}
    tries: tuple[tuple[str, Object], ...] = (
        (EVENTS, event("p1") | {"metadata": {"name": "p1", "labels": PROJECTED}}),
        (LEASES, {**lease, "metadata": {"name": "syncer", "labels": PROJECTED}}),
        (STATES, {**state, "metadata": {"name": name, "labels": PROJECTED}}),
        (MAPS, configmap("p1") | {"metadata": up("ConfigMap", "p1", labels=PROJECTED)}),
    )
    codes = [town.thief.send("POST", path, body).code for path, body in tries]
    for path, body in tries:
        town.robbed.admin.send("DELETE", f"{path}/{body['metadata']['name']}")
    return codes != [403] * 4


def takes_the_time_with_refusals(town: Town) -> bool:
    """Whether one connection gets many refusals in a second."""
    for _ in range(70):
        if town.thief.send("GET", f"{MAPS}/down").code == 429:
            break
    began_s, count = time.monotonic(), 0
    while time.monotonic() - began_s < 1.0:
        count += town.thief.send("GET", f"{MAPS}/down").code == 429
    return count > 4


UNHURRIED = "t.Turns.take = lambda self, http: None"
RATELESS = "a.Allowances.take = lambda self, *arguments: None"
ROOMY = "u.UpsyncUse.take = lambda self, *arguments: True"
NO_STATUS_LIMIT = "r.MAX_STATUS_BYTES = 10_000_000"
PROJECTED_BY_ANYBODY = """
plain = r.MailboxRules._refusal
def _refusal(self, view, ref, obj, old):
    found = plain(self, view, ref, obj, old)
    return "" if "placement translator" in found or "not the edge" in found else found
r.MailboxRules._refusal = _refusal
"""
#: Boundary -> what crosses it, and what takes its guard out.
BOUNDARIES: dict[str, tuple[Callable[[Town], bool], str]] = {
    **{verb: (asks_without_end(verb), UNHURRIED) for verb in REQUESTS},
    "refusals": (takes_the_time_with_refusals, "f.HOLD_S = 0.0"),
    "Events": (makes_events_without_end, RATELESS),
    "bytes of Events": (makes_large_events, RATELESS),
    "watches": (opens_watches_without_end, "m.MAX_WATCHES = 0"),
    "objects that come up": (brings_up_without_end, ROOMY),
    "bytes that come up": (brings_up_large_ones, ROOMY),
    "bytes that come up later": (lets_one_grow, ROOMY),
    "bytes of a status": (writes_a_vast_status, NO_STATUS_LIMIT),
    "what was projected": (forges_what_was_projected, PROJECTED_BY_ANYBODY),
}
#: Refusals are held back in this trial alone: they take the time of the others.
HELD = {"refusals": "f.HOLD_S = 0.3\n"}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_boundary_holds_and_the_neighbours_are_served(edge: MutantShard, town: Town, name: str) -> None:
    attack, _ = BOUNDARIES[name]
    with edge.without(LIMITS + HELD.get(name, "")):
        assert not attack(town)
        town.serves_the_neighbour()


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_guard_that_is_taken_out_is_missed(edge: MutantShard, town: Town, name: str) -> None:
    attack, guard = BOUNDARIES[name]
    with edge.without(LIMITS + HELD.get(name, "") + guard):
        assert attack(town), name


def test_a_request_that_waits_for_its_turn_takes_of_its_rate_once(edge: MutantShard, town: Town) -> None:
    waits = "t.RATE = 1.0\nt.SHARE = 0.02\nt.LONGEST_WAIT_S = 10.0\n"
    with edge.without(f"{LIMITS}{waits}a.EVENT_WRITES = a.Rate(0.01, 3.9)"):
        codes = [town.thief.send("POST", EVENTS, event(f"waits{number}")).code for number in range(4)]
    assert codes == [201, 201, 201, 429]


def test_a_write_counts_for_its_commit_too(edge: MutantShard, town: Town) -> None:
    commits = (
        "m.WRITE_S = 0.001\nt.Turns.took = lambda self, seconds: took(self, 0.001 if seconds == m.WRITE_S else 0.0)\n"
    )
    with edge.without(LIMITS + commits):
        assert asks_without_end("get")(town)
        assert not asks_without_end("create")(town)


def test_a_status_that_is_none_of_its_kind_is_refused(town: Town) -> None:
    path = f"{CIRCLES}/down/status"
    assert town.thief.send("PATCH", path, {"status": {"replicas": "many"}}, kind=MERGE).code == 422
    kept = town.thief.patch(path, {"status": {"replicas": 4, "else": {"a": "b"}}}).json["status"]
    assert kept == {"replicas": 4}
    assert town.thief.send("PATCH", f"{CONFIGS}/the-one/status", {"status": {"errors": "no"}}, kind=MERGE).code == 422


def test_rights_and_definitions_that_come_up_give_no_right(town: Town) -> None:
    rbac = RBAC.removeprefix("/apis/").removesuffix("/v1")
    subject = {"kind": "ServiceAccount", "name": "syncer", "namespace": "default"}
    bodies: dict[str, Object] = {
        "clusterroles": {"kind": "ClusterRole", "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        "clusterrolebindings": {
            "kind": "ClusterRoleBinding",
            "subjects": [subject],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "power"},
        },
    }
    for plural, body in bodies.items():
        metadata = up(str(body["kind"]), "power", "")
        town.thief.post(f"{RBAC}/{plural}", {"apiVersion": f"{rbac}/v1", "metadata": metadata, **body})
    direct = Api(town.thief.shard, town.robbed.cluster, token=town.robbed.token)
    for path in (f"{NAMESPACE}/secrets", MAPS, f"{RBAC}/clusterroles"):
        assert direct.send("GET", path).code == 403, path
    assert town.robbed.admin.send("GET", f"{RBAC}/clusterroles/power").code == 404, "it is data"
    definition = crd("squares") | {"metadata": up("CustomResourceDefinition", "squares.shapes.example.com", "")}
    assert town.thief.send("POST", CRDS, definition).code in {403, 405}
    binding = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": up("APIBinding", "b", "")}
    binding["spec"] = {"reference": {"export": {"path": "root", "name": "tenancy.kcp.io"}}}
    assert town.thief.send("POST", "/apis/apis.kcp.io/v1alpha2/apibindings", binding).code in {403, 404}
    for plural in bodies:
        town.thief.delete(f"{RBAC}/{plural}/power")


def test_what_is_wanted_of_the_edge_is_not_the_syncers_to_change(town: Town) -> None:
    before = (town.robbed.admin.get(f"{CONFIGS}/the-one").json, town.robbed.admin.get(f"{CIRCLES}/down").json)
    whole = {"metadata": {"annotations": {"edge.kubestellar.io/whole": "9" * 18}, "labels": PROJECTED}}
    for method, path, body in (
        ("PATCH", f"{CONFIGS}/the-one", whole),
        ("PATCH", f"{CONFIGS}/the-one/status", {**whole, "spec": {"namespaceScope": {}, "upsync": []}}),
        ("PATCH", f"{CIRCLES}/down", whole),
        ("PATCH", f"{CIRCLES}/down/status", {**whole, "spec": {"replicas": 9}}),
        ("PATCH", f"{CIRCLES}/down", {"metadata": {"annotations": {UPSYNCED: "Circle/default/down"}}}),
        ("PATCH", f"{CIRCLES}/down/status", {"metadata": {"annotations": {UPSYNCED: "Circle/default/down"}}}),
        ("PATCH", f"{MAPS}/down", {"data": {"a": "c"}}),
        ("DELETE", f"{CIRCLES}/down", None),
        ("DELETE", f"{CONFIGS}/the-one", None),
    ):
        answer = town.thief.send(method, path, body, kind=MERGE if body else "")
        assert answer.code in ({200} if path.endswith("/status") else {403, 405}), (method, path, answer.body)
    after = (town.robbed.admin.get(f"{CONFIGS}/the-one").json, town.robbed.admin.get(f"{CIRCLES}/down").json)
    for was, now in zip(before, after, strict=True):
        assert now["spec"] == was["spec"]
        for part in ("labels", "annotations"):
            assert now["metadata"].get(part) == was["metadata"].get(part), part
    assert town.robbed.admin.get(f"{MAPS}/down").json["data"] == {"a": "b"}
