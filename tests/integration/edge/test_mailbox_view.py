"""The mailbox view: one list and one watch of what goes down, what a syncer may write, and what nobody else sees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from harness.clients.api import APPLY, CRDS, MERGE, Api, Events, Object, configmap, crd, define, eventually
from harness.data.request_paths import everything
from harness.servers.edge_service import GROUP, an_object
from harness.servers.mutant_shard import MutantShard
from integration.edge.mailbox_world import (
    ACCOUNT,
    CONFIGS,
    ITEMS,
    NAMESPACE,
    RBAC,
    ROLE,
    MailboxWorld,
    namespaced,
    trespasses,
    view,
)

MAPS, SECRETS = f"{NAMESPACE}/configmaps", f"{NAMESPACE}/secrets"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
UPSYNCED, REVISION = "edge.kubestellar.io/upsynced", "edge.kubestellar.io/edge-revision"
ALL_UP = {"namespaces": ["*"], "names": ["*"]}


@pytest.fixture(scope="module")
def world(root: Api) -> Iterator[MailboxWorld]:
    found = MailboxWorld(root)
    definition = crd("circles")
    define(found.admin, definition)
    yield found


def circle(name: str, **metadata: Object) -> Object:
    return {
        "apiVersion": "shapes.example.com/v1",
        "kind": "Circle",
        "metadata": {"name": name, **metadata},
        "spec": {"replicas": 1},
    }


def up(kind: str, name: str, namespace: str = "default", **more: object) -> Object:
    """The metadata of an object of the edge."""
    return {"name": name, "annotations": {UPSYNCED: f"{kind}/{namespace}/{name}"}, **more}


def test_one_list_has_everything_that_goes_down_page_by_page(world: MailboxWorld) -> None:
    names = [f"listed-{number}" for number in range(5)]
    for name in (*names, "unlisted"):
        world.admin.post(MAPS, configmap(name, {"a": "b"}))
    world.admin.post(CIRCLES, circle("listed"))
    kinds = {"clusterScope": [{"group": "", "resource": "namespaces", "apiVersion": "v1", "objects": ["default"]}]}
    world.carry(
        namespaced("", "configmaps", "default", *names, "missing"),
        namespaced("shapes.example.com", "circles", "default", "listed"),
        kinds,
    )
    expected = {
        "syncerconfigs.edge.kubestellar.io::the-one",
        "namespaces.::default",
        "circles.shapes.example.com:default:listed",
        *(f"configmaps.:default:{name}" for name in names),
    }
    found = world.items()
    assert set(found) == expected
    stored = world.admin.get(f"{MAPS}/listed-0").json
    item = found["configmaps.:default:listed-0"]
    assert item["object"] == stored
    assert (item["kind"], item["resource"]) == ("DownsyncItem", "configmaps")
    assert item["metadata"]["uid"] == stored["metadata"]["uid"]
    assert item["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert world.syncer.get(f"{ITEMS}/configmaps.:default:listed-0").json == item
    assert world.syncer.get(f"{ITEMS}/configmaps.:default:unlisted", expect=404)
    paged: list[str] = []
    token, revisions = "", set[str]()
    while True:
        page = world.syncer.get(f"{ITEMS}?limit=2&continue={token}").json
        assert len(page["items"]) <= 2
        paged += [each["metadata"]["name"] for each in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
        world.admin.patch(f"{MAPS}/unlisted", {"data": {"page": token[:8]}})
    assert (len(paged), set(paged), len(revisions)) == (len(expected), expected, 1)


def test_one_watch_tells_of_objects_and_of_what_is_listed_in_order(world: MailboxWorld) -> None:
    world.admin.post(MAPS, configmap("old", {"a": "1"}))
    before = world.carry()
    with world.syncer.watch(f"{ITEMS}?watch=1&resourceVersion={before}&allowWatchBookmarks=true") as events:
        revision = world.carry(namespaced("", "configmaps", "default", "old", "new"))
        shown, config = events.take(2)
        assert (shown.type, shown.name, shown.revision) == ("ADDED", "configmaps.:default:old", revision - 1)
        assert (config.type, config.revision) == ("MODIFIED", revision)
        world.admin.post(MAPS, configmap("new", {"a": "1"}))
        world.admin.post(MAPS, configmap("other", {"a": "1"}))
        world.admin.patch(f"{MAPS}/old", {"data": {"a": "2"}})
        added, changed = events.take(2)
        assert [(each.type, each.name) for each in (added, changed)] == [
            ("ADDED", "configmaps.:default:new"),
            ("MODIFIED", "configmaps.:default:old"),
        ]
        assert changed.object["object"]["data"] == {"a": "2"}
        assert changed.revision == int(changed.object["object"]["metadata"]["resourceVersion"])
        world.admin.delete(f"{MAPS}/new")
        gone = events.next()
        assert (gone.type, gone.name, gone.object["object"]["data"]) == (
            "DELETED",
            "configmaps.:default:new",
            {"a": "1"},
        )
        last = world.carry()
        hidden, config = events.take(2)
        assert (hidden.type, hidden.name, hidden.revision) == ("DELETED", "configmaps.:default:old", last - 1)
        assert (config.name, config.revision) == ("syncerconfigs.edge.kubestellar.io::the-one", last)
    # Who is cut in between resumes with all of it.
    with world.syncer.watch(f"{ITEMS}?watch=1&resourceVersion={revision - 1}") as events:
        assert [(each.type, each.name) for each in events.take(7)] == [
            ("ADDED", "configmaps.:default:old"),
            ("MODIFIED", "syncerconfigs.edge.kubestellar.io::the-one"),
            ("ADDED", "configmaps.:default:new"),
            ("MODIFIED", "configmaps.:default:old"),
            ("DELETED", "configmaps.:default:new"),
            ("DELETED", "configmaps.:default:old"),
            ("MODIFIED", "syncerconfigs.edge.kubestellar.io::the-one"),
        ]


def test_a_kind_that_is_defined_later_comes_without_a_change_of_what_is_listed(world: MailboxWorld) -> None:
    revision = world.carry(namespaced("shapes.example.com", "squares", "default", "one"))
    with world.syncer.watch(f"{ITEMS}?watch=1&resourceVersion={revision}") as events:
        define(world.admin, crd("squares"))
        body = {"apiVersion": "shapes.example.com/v1", "kind": "Square", "metadata": {"name": "one"}}
        world.admin.post(CIRCLES.replace("circles", "squares"), body)
        assert events.next().name == "squares.shapes.example.com:default:one"
        world.admin.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/squares.shapes.example.com")
        assert events.until("DELETED").name == "squares.shapes.example.com:default:one"


def test_a_definition_that_is_listed_is_told_of_when_it_changes_and_when_it_goes(world: MailboxWorld) -> None:
    name = "ovals.shapes.example.com"
    define(world.admin, crd("ovals"))
    kind = {"group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "apiVersion": "v1"}
    revision = world.carry({"clusterScope": [{**kind, "objects": [name]}]})
    with world.syncer.watch(f"{ITEMS}?watch=1&resourceVersion={revision}") as events:
        changed = world.admin.patch(f"{CRDS}/{name}", {"metadata": {"labels": {"a": "b"}}}).json["metadata"]
        event = events.next()
        while "labels" not in event.object["object"]["metadata"]:
            # The status of before.
            event = events.next()
        assert (event.type, event.name) == ("MODIFIED", f"customresourcedefinitions.apiextensions.k8s.io::{name}")
        assert event.revision == int(changed["resourceVersion"])
        world.admin.delete(f"{CRDS}/{name}")
        assert events.until("DELETED").name == event.name


def test_a_syncer_reads_what_is_listed_and_nothing_else(world: MailboxWorld) -> None:
    for name in ("read", "hidden"):
        world.admin.post(MAPS, configmap(name, {"a": "b"}))
    world.carry(namespaced("", "configmaps", "default", "read"))
    assert world.syncer.get(f"{MAPS}/read").json["data"] == {"a": "b"}
    assert [each["metadata"]["name"] for each in world.syncer.get(MAPS).json["items"]] == ["read"]
    assert world.syncer.get(f"{CONFIGS}/the-one").json["kind"] == "SyncerConfig"
    assert view(world.admin, world.path, world.token).get(f"{MAPS}/read").code == 200
    for path in (
        f"{MAPS}/hidden",
        f"{MAPS}/never-made",
        f"{SECRETS}/any",
        f"{RBAC}/clusterroles/{ROLE}",
        f"{LEASES}/other",
        f"{LEASES}",
        f"{NAMESPACE}/events",
        ACCOUNT,
        "/apis/apis.kcp.io/v1alpha2/apibindings",
        "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
        f"{GROUP}/synctargets",
        "/metrics",
    ):
        assert world.syncer.send("GET", path).code in ({403, 404} if path == "/metrics" else {403}), path


def test_system_objects_are_never_carried(world: MailboxWorld) -> None:
    token: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "minted", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    world.admin.post(SECRETS, token)
    secrets = [{"group": "", "resource": "secrets", "apiVersion": "v1"}]
    spec = {"namespaceScope": {"namespaces": ["default"], "resources": secrets}}
    world.admin.post(CONFIGS, an_object("SyncerConfig", "all-secrets", spec))
    assert not [name for name in world.items() if name.startswith("secrets.")]
    assert world.syncer.get(SECRETS).json["items"] == []
    world.carry({"upsync": [{"apiGroup": "", "resources": ["*"], **ALL_UP}]})
    forged: Object = {**token, "metadata": {**token["metadata"], **up("Secret", "forged")}}
    forged["metadata"]["annotations"]["kubernetes.io/service-account.name"] = "default"
    assert world.syncer.send("POST", SECRETS, forged).code == 403
    world.admin.delete(f"{CONFIGS}/all-secrets")


def test_a_status_comes_up_with_where_it_is_from_and_nothing_else(world: MailboxWorld) -> None:
    for name in ("reported", "quiet"):
        world.admin.post(CIRCLES, circle(name, labels={"of": "owner"}))
    world.carry(namespaced("shapes.example.com", "circles", "default", "reported"))
    body = {
        "metadata": {"annotations": {REVISION: "edge/7", "else": "x"}, "labels": {"of": "syncer"}},
        "spec": {"replicas": 9},
        "status": {"replicas": 3},
    }
    after = world.syncer.patch(f"{CIRCLES}/reported/status", body).json
    assert (after["status"], after["spec"]["replicas"]) == ({"replicas": 3}, 1)
    annotations = {key: value for key, value in after["metadata"]["annotations"].items() if "kcp.io" not in key}
    assert (annotations, after["metadata"]["labels"]) == ({REVISION: "edge/7"}, {"of": "owner"})
    applied = {
        "apiVersion": "shapes.example.com/v1",
        "kind": "Circle",
        "metadata": {"name": "reported", "annotations": {REVISION: "edge/8"}},
        "status": {"replicas": 4},
    }
    path = f"{CIRCLES}/reported/status?fieldManager=kubestellar-syncer&force=true"
    again = world.syncer.patch(path, applied, APPLY).json
    assert (again["status"], again["metadata"]["annotations"][REVISION]) == ({"replicas": 4}, "edge/8")
    for method, target, sent in (
        ("PATCH", f"{CIRCLES}/quiet/status", body),
        ("PATCH", f"{CIRCLES}/reported", {"spec": {"replicas": 2}}),
        ("DELETE", f"{CIRCLES}/reported", None),
        ("DELETE", CIRCLES, None),
        ("POST", CIRCLES, circle("made")),
        ("PATCH", f"{CONFIGS}/the-one", {"spec": {}}),
        ("DELETE", f"{CONFIGS}/the-one", None),
    ):
        answer = world.syncer.send(method, target, sent, kind=MERGE if method == "PATCH" else "")
        assert answer.code in {403, 405}, (method, target, answer.body)
    status = {"status": {"appliedRevision": "5", "syncerVersion": "1"}}
    assert world.syncer.patch(f"{CONFIGS}/the-one/status", status).json["status"]["appliedRevision"] == "5"


def test_an_object_without_a_status_takes_where_it_is_from_alone(world: MailboxWorld) -> None:
    world.admin.post(MAPS, configmap("plain", {"a": "b"}))
    world.carry(namespaced("", "configmaps", "default", "plain"))
    world.syncer.patch(f"{MAPS}/plain", {"metadata": {"annotations": {REVISION: "edge/7"}}})
    for change in ({"data": {"a": "c"}}, {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"finalizers": ["a/b"]}}):
        world.syncer.patch(f"{MAPS}/plain", change, expect=403)


def test_a_syncer_keeps_its_lease_and_writes_events(world: MailboxWorld) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "pod"}}
    world.syncer.post(LEASES, {**lease, "metadata": {"name": "syncer"}})
    world.syncer.patch(f"{LEASES}/syncer", {"spec": {"holderIdentity": "other"}})
    world.syncer.post(LEASES, {**lease, "metadata": {"name": "another"}}, expect=403)
    world.syncer.send("DELETE", f"{LEASES}/syncer", expect=403)
    involved = {"kind": "Namespace", "name": "default", "namespace": "default", "apiVersion": "v1"}
    event = {"apiVersion": "v1", "kind": "Event", "involvedObject": involved, "reason": "Adopted", "type": "Normal"}
    own = {**event, "metadata": {"name": "own"}, "source": {"component": "kubestellar-syncer"}}
    world.syncer.post(f"{NAMESPACE}/events", own)
    world.syncer.patch(f"{NAMESPACE}/events/own", {"count": 2})
    world.admin.post(f"{NAMESPACE}/events", {**event, "metadata": {"name": "foreign"}})
    world.syncer.patch(f"{NAMESPACE}/events/foreign", {"count": 2}, expect=403)


def test_objects_of_the_edge_come_up_where_a_set_asks_for_them(world: MailboxWorld) -> None:
    everything_up = {
        "upsync": [{"apiGroup": group, "resources": ["*"], **ALL_UP} for group in ("", "shapes.example.com")]
    }
    roles = {"upsync": [{"apiGroup": "rbac.authorization.k8s.io", "resources": ["*"], **ALL_UP}]}
    world.carry(everything_up, roles)
    world.syncer.post(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": up("Namespace", "far", "")}
    )
    there = CIRCLES.replace("default", "far")
    world.syncer.post(there, {**circle("x"), "metadata": up("Circle", "x", "far")})
    world.syncer.patch(f"{there}/x/status", {"status": {"replicas": 2}})
    held = world.syncer.get(f"{there}/x").json
    world.syncer.put(f"{there}/x", {**held, "spec": {"replicas": 5}})
    assert world.admin.get(f"{there}/x").json["spec"]["replicas"] == 5
    assert [each["metadata"]["name"] for each in world.syncer.get(there).json["items"]] == ["x"]
    world.syncer.patch(f"{there}/x", {"metadata": {"annotations": None}}, expect=403)
    for wrong in (
        {"name": "y"},
        up("Circle", "z") | {"name": "y"},
        up("Circle", "y", finalizers=["a/b"]),
        up("Circle", "y", labels={"edge.kubestellar.io/projected": "yes"}),
    ):
        world.syncer.post(CIRCLES, {**circle("y"), "metadata": wrong}, expect=403)
    world.admin.post(CIRCLES, circle("owners"))
    world.syncer.patch(
        f"{CIRCLES}/owners", {"metadata": {"annotations": {UPSYNCED: "Circle/default/owners"}}}, expect=403
    )
    world.syncer.send("DELETE", f"{CIRCLES}/owners", expect=403)
    # What would be in effect here is data.
    power = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": up("ClusterRole", ROLE, ""),
    }
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    world.syncer.post(f"{RBAC}/clusterroles", {**power, "rules": rules})
    assert world.syncer.get(f"{RBAC}/clusterroles/{ROLE}").json["rules"] == rules
    assert world.admin.get(f"{RBAC}/clusterroles/{ROLE}").json["rules"] != rules
    assert world.syncer.send("GET", f"{SECRETS}/any").code in {403, 404}
    world.carry()
    world.syncer.patch(f"{there}/x", {"spec": {"replicas": 6}}, expect=403)
    world.syncer.post(CIRCLES, {**circle("late"), "metadata": up("Circle", "late")}, expect=403)
    world.syncer.delete(f"{there}/x")
    world.syncer.delete(f"{RBAC}/clusterroles/{ROLE}")
    world.syncer.delete("/api/v1/namespaces/far")
    eventually(lambda: world.admin.send("GET", "/api/v1/namespaces/far").code == 404, "the namespace goes")


def test_whole_associated_objects_come_up_for_placed_ones_of_which_a_collector_asks_and_never_go_down(
    world: MailboxWorld,
) -> None:
    rule = {"resource": "secrets", "label": "part-of"}
    query = {"source": "", "target": [{"resources": ["configmaps"]}], "objects": [rule]}
    world.admin.post(MAPS, configmap("owner", {"a": "b"}))
    world.admin.post(CIRCLES, circle("round"))
    listed = (
        namespaced("", "configmaps", "default", "owner"),
        namespaced("shapes.example.com", "circles", "default", "round"),
    )

    def comes_up(name: str, of: str) -> int:
        metadata = up("Secret", name)
        metadata["annotations"] |= {"edge.kubestellar.io/associated-with": of}
        return world.syncer.send("POST", SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}).code

    world.carry(*listed, {"associated": [query]})
    assert comes_up("copy", "ConfigMap/default/owner") == 403, "a digest is asked for"
    world.carry(*listed, {"associated": [{**query, "objects": [{**rule, "copies": True}]}]})
    for of in ("ConfigMap/default/other", "Circle/default/round", "Unheard/default/owner", "owner", ""):
        assert comes_up("copy", of) == 403, of
    assert comes_up("copy", "ConfigMap/default/owner") == 201
    body = configmap("copied") | {"metadata": up("ConfigMap", "copied")}
    body["metadata"]["annotations"] |= {"edge.kubestellar.io/associated-with": "ConfigMap/default/owner"}
    world.syncer.post(MAPS, body, expect=403)
    secrets = [{"group": "", "resource": "secrets", "apiVersion": "v1"}]
    scope = {"namespaceScope": {"namespaces": ["default"], "resources": secrets}}
    world.admin.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "placed"}})
    world.admin.post(CONFIGS, an_object("SyncerConfig", "wide", scope))
    found = [name for name in world.items() if name.startswith("secrets.")]
    assert found == ["secrets.:default:placed"], "what came up is not wanted at the edge"
    world.admin.delete(f"{CONFIGS}/wide")
    world.carry()
    world.syncer.patch(f"{SECRETS}/copy", {"data": {"a": "MQ=="}}, expect=403)
    world.syncer.delete(f"{SECRETS}/copy")
    world.admin.delete(f"{SECRETS}/placed")


def test_an_account_renews_its_own_token_alone(world: MailboxWorld) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 900}}
    token = world.syncer.post(f"{ACCOUNT}/token", request).json["status"]["token"]
    assert view(world.admin, world.cluster, token).get(ITEMS).code == 200
    world.syncer.post(f"{NAMESPACE}/serviceaccounts/default/token", request, expect=403)
    view(world.admin, world.cluster).post(f"{ACCOUNT}/token", request, expect=403)
    bob = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "bob"}}
    world.admin.post(f"{NAMESPACE}/serviceaccounts", bob)
    world.syncer.post(f"{NAMESPACE}/serviceaccounts/bob/token", request, expect=403)


def test_a_token_of_a_syncer_reaches_its_own_mailbox_only(world: MailboxWorld, root: Api) -> None:
    paths = list(everything(root))
    assert len(paths) > 100
    assert list(trespasses(Api(root.shard, token=world.token), world, paths)) == []
    other = MailboxWorld(root)
    for cluster in ("root", "root:espw", other.cluster, other.path, "unheard-of", "*", ""):
        for path in (ITEMS, MAPS, "/api", "/apis", f"{CONFIGS}/the-one", ""):
            assert view(root, cluster, world.token).send("GET", path).code == 403, (cluster, path)


def test_a_revoked_account_is_nobody_and_its_watches_end(world: MailboxWorld) -> None:
    world.admin.post(MAPS, configmap("revoked"))
    world.carry(namespaced("", "configmaps", "default", "revoked"))

    def ended_by(revoke: str) -> int:
        with view(world.admin, world.cluster, world.new_token()).watch(f"{ITEMS}?watch=1") as events:
            events.next()
            world.admin.delete(revoke)
            events.rest()
        return view(world.admin, world.cluster, world.token).send("GET", ITEMS).code

    assert ended_by(f"{RBAC}/clusterrolebindings/{ROLE}") == 403
    world.grant()
    assert ended_by(ACCOUNT) == 401
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "syncer"}}
    world.admin.post(f"{NAMESPACE}/serviceaccounts", account)
    assert view(world.admin, world.cluster, world.token).send("GET", ITEMS).code == 401


@pytest.mark.long
def test_a_token_that_expires_ends_its_watch_and_one_that_does_not_goes_on(
    edge: MutantShard, world: MailboxWorld
) -> None:
    world.grant()
    query = f"{ITEMS}?watch=1&resourceVersion={world.carry()}"
    lasting = view(world.admin, world.cluster, world.new_token(expirationSeconds=600))
    with contextlib.ExitStack() as stack:
        goes_on = stack.enter_context(lasting.watch(query))
        brief, ends = watched_briefly(edge, world, query, stack)
        assert ends.rest() == []
        revision = world.carry(namespaced("", "configmaps", "default", "none"))
        assert goes_on.next().revision == revision
    assert brief.send("GET", ITEMS).code == 401


def watched_briefly(
    edge: MutantShard, world: MailboxWorld, query: str, stack: contextlib.ExitStack
) -> tuple[Api, Events]:
    """A watch with a token that ends soon; on a slow machine only a longer one lives when the watch begins."""
    for life_s in (5, 20, 60):
        with edge.without("import atoll.machinery.apiserver.authentication.token_issuer as it\nit.MIN_LIFETIME_S = 1"):
            brief = view(world.admin, world.cluster, world.new_token(expirationSeconds=life_s))
        with contextlib.suppress(AssertionError):
            return brief, stack.enter_context(brief.watch(query))
    pytest.fail("no token lived until its watch began")
