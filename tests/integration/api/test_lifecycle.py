"""The initializing and the terminating view: which workspaces a controller sees, and its rights in them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from harness.clients.api import APPLY, JSON, JSON_PATCH, YAML, Api, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import bind, make_export, schema_of
from harness.clients.put_back import check_all_put_back, check_put_back
from harness.oracles.audit_log import audit_events

GROUP = "tenancy.kcp.io/v1alpha1"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CONFIGMAP_RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}]
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]
INITIALIZE, TERMINATE = "initialize", "terminate"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
#: As client-go.
AGGREGATED_OR_PLAIN = f"{AGGREGATED},{AGGREGATED.replace('v2', 'v2beta1')},application/json"
VIEWS = {INITIALIZE: "initializingworkspaces", TERMINATE: "terminatingworkspaces"}


class Site:
    """A workspace with its own WorkspaceType, and a controller with access to workspaces of the type."""

    def __init__(self, home: Api) -> None:
        self.home = home
        cluster = home.get(f"{CLUSTERS}/cluster").json["metadata"]["annotations"]["kcp.io/cluster"]
        self.cluster, self.made = cluster, 0

    def type(self, name: str, base: str = "universal", **spec: Any) -> str:
        """A WorkspaceType that extends another; return its name as initializer."""
        spec = {"extend": {"with": [{"name": base, "path": "root"}]}, **spec}
        body = {"apiVersion": GROUP, "kind": "WorkspaceType", "metadata": {"name": name}, "spec": spec}
        self.home.post(TYPES, body)
        return f"{self.cluster}:{name}"

    def allow(self, user: str, verb: str, *names: str) -> None:
        role = {"apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"], "verbs": [verb]}
        name = f"{verb}-{self.made}"
        self.made += 1
        self.home.post(
            f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [{**role, "resourceNames": list(names)}]}
        )
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
        self.home.post(f"{RBAC}/clusterrolebindings", body)
        reference = {**reference, "name": "system:kcp:workspace:access"}
        body = {"metadata": {"name": f"enter-{name}"}, "subjects": [subject], "roleRef": reference}
        self.home.post(f"{RBAC}/clusterrolebindings", body)

    def workspace(self, type: str, name: str = "w", phase: str = "Initializing") -> str:
        """Create a Workspace of a type and wait for a phase; return its logical cluster."""
        spec = {"type": {"name": type, "path": self.home.cluster}}
        body = {"apiVersion": GROUP, "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
        self.home.post(WORKSPACES, body)
        return str(self.reach(name, phase)["spec"]["cluster"])

    def reach(self, name: str, phase: str) -> dict[str, Any]:
        def exists() -> bool:
            return bool(self.home.get(f"{WORKSPACES}/{name}").json.get("status", {}).get("phase") == phase)

        eventually(exists, f"{name} {phase}")
        return dict(self.home.get(f"{WORKSPACES}/{name}").json)

    def view(self, initializer: str, token: str = "worker-token", verb: str = INITIALIZE) -> Api:
        view = Api(self.home.shard, token=token)
        view.prefix = f"/services/{VIEWS[verb]}/{initializer}/clusters"
        return view


@pytest.fixture
def site(admin: Api) -> Site:
    return Site(admin.at(workspace_under(admin)))


def names(view: Api) -> set[str]:
    found = view.get(f"/*{CLUSTERS}").json
    return {item["metadata"]["annotations"]["kcp.io/cluster"] for item in found["items"]}


def without(cluster: dict[str, Any], member: str, field: str = "initializers") -> dict[str, Any]:
    left = [each for each in cluster["status"][field] if each != member]
    return {**cluster, "status": {**cluster["status"], field: left}}


FILLED = ("apibindings", "blobs", "configmaps", "namespaces", "scale", "secrets", "wheels")


def fill(here: Api, provider: str, prefix: str = "") -> None:
    """Objects of many kinds: bound, defined, with a scale, sealed, held by a finalizer."""
    at = Api(here.shard, token=here.token)
    at.prefix = here.prefix + prefix
    bind(at, provider, "blobs")
    define(at, crd("wheels", "sized.example.com"))
    for group, kind in (("kept.example.com", "Blob"), ("sized.example.com", "Wheel")):
        metadata = {"name": "one", "finalizers": ["example.com/hold"]}
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": {"replicas": 2}}
        at.post(f"/apis/{group}/v1/namespaces/default/{kind.lower()}s", body)
    at.post(CONFIGMAPS, {**configmap("raw"), "data": {"a": ""}, "binaryData": {"b": "AP8="}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sealed"}, "data": {"k": "AA=="}}
    at.post("/api/v1/namespaces/default/secrets", secret)
    at.close()


def offer_blobs(provider: Api) -> str:
    make_export(provider, "blobs", schema_of(crd("blobs", "kept.example.com")))
    return provider.cluster


def test_what_an_initializer_reads_it_can_put_back(site: Site) -> None:
    initializer = site.type("made", initializer=True, initializerPermissions=EVERYTHING)
    site.allow("worker", INITIALIZE, "made")
    view, cluster = site.view(initializer), site.workspace("made")
    fill(site.home.at(cluster), offer_blobs(site.home))
    check_all_put_back(view, *FILLED, prefix=f"/{cluster}")
    check_own_cluster_put_back(view, cluster)
    view.close()


def check_own_cluster_put_back(view: Api, cluster: str) -> None:
    for path in (f"{CLUSTERS}/cluster", f"{CLUSTERS}/cluster/status"):
        before = view.get(f"/{cluster}{path}").json
        for accept in (JSON, YAML):
            answer = view.get(f"/{cluster}{path}", accept=accept)
            assert view.put(f"/{cluster}{CLUSTERS}/cluster/status", answer.body, kind=accept).json == before


@pytest.mark.long
def test_what_a_terminator_reads_it_can_put_back(site: Site) -> None:
    """The workspace's owner can, too, while the deletion waits for the terminator."""
    provider = offer_blobs(site.home)
    with terminating(site, lambda here: fill(here, provider), terminatorPermissions=EVERYTHING) as (
        terminator,
        cluster,
    ):
        view = site.view(terminator, verb=TERMINATE)
        check_all_put_back(view, *FILLED, prefix=f"/{cluster}")
        check_own_cluster_put_back(view, cluster)
        for path in (f"{CONFIGMAPS}/raw", "/apis/kept.example.com/v1/namespaces/default/blobs/one"):
            check_put_back(site.home.at(cluster), path)
        view.close()


def test_an_initializer_sees_what_waits_for_it_works_there_and_takes_itself_away(site: Site) -> None:
    initializer = site.type("made", initializer=True, initializerPermissions=CONFIGMAP_RULES)
    site.allow("worker", INITIALIZE, "made")
    view = site.view(initializer)
    assert names(view) == set()
    revision = view.get(f"/*{CLUSTERS}").json["metadata"]["resourceVersion"]
    with view.watch(f"/*{CLUSTERS}?watch=1&resourceVersion={revision}") as events:
        cluster = site.workspace("made")
        assert names(view) == {cluster}
        added = events.next()
        assert (added.type, added.object["metadata"]["annotations"]["kcp.io/cluster"]) == ("ADDED", cluster)
        assert added.object["status"]["initializers"] == [initializer]
        view.post(f"/{cluster}{CONFIGMAPS}", configmap("made-by-initializer"))
        found = view.get(f"/{cluster}{CLUSTERS}/cluster").json
        answer = view.put(f"/{cluster}{CLUSTERS}/cluster/status", without(found, initializer)).json
        assert not answer["status"].get("initializers")
        gone = events.until("DELETED")
        assert gone.object["metadata"]["annotations"]["kcp.io/cluster"] == cluster
    ready = site.reach("w", "Ready")
    assert "initializers" not in ready["status"]
    assert names(view) == set()
    view.get(f"/{cluster}{CLUSTERS}/cluster", expect=404)
    view.get(f"/{cluster}{CONFIGMAPS}", expect=403)
    inside = site.home.at(cluster).get(f"{CLUSTERS}/cluster").json
    assert not [key for key in inside["metadata"]["labels"] if key.startswith("initializer.internal")]
    owner = inside["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"]
    assert owner == '{"username":"kcp-admin"}'
    site.home.at(cluster).get(f"{CONFIGMAPS}/made-by-initializer")


def test_by_json_patch_too(site: Site) -> None:
    initializer = site.type("made", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    cluster, view = site.workspace("made"), site.view(initializer)
    test = {"op": "test", "path": "/status/initializers/0", "value": initializer}
    remove = {"op": "remove", "path": "/status/initializers/0"}
    view.patch(f"/{cluster}{CLUSTERS}/cluster/status", [test, remove], JSON_PATCH)
    site.reach("w", "Ready")


def test_content_is_judged_by_the_types_own_rules_as_they_are_now(site: Site) -> None:
    initializer = site.type("made", initializer=True, initializerPermissions=CONFIGMAP_RULES)
    site.allow("worker", INITIALIZE, "made")
    cluster, view = site.workspace("made"), site.view(initializer)
    view.post(f"/{cluster}{CONFIGMAPS}", configmap("a"))
    view.get(f"/{cluster}{CONFIGMAPS}/a")
    view.send("DELETE", f"/{cluster}{CONFIGMAPS}/a", expect=403)
    view.get(f"/{cluster}/api/v1/namespaces/default/secrets", expect=403)
    view.send("POST", f"/{cluster}{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": []}, expect=403)
    view.get(f"/{cluster}/apis", expect=403)
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
        {"nonResourceURLs": ["/apis", "/api"], "verbs": ["get"]},
    ]
    site.home.patch(f"{TYPES}/made", {"spec": {"initializerPermissions": rules}})
    view.get(f"/{cluster}/api/v1/namespaces/default/secrets")
    view.get(f"/{cluster}/apis")
    view.get(f"/{cluster}{CONFIGMAPS}/a", expect=403)


def test_rules_of_one_initializer_are_not_those_of_another(site: Site) -> None:
    first = site.type("first", initializer=True, initializerPermissions=CONFIGMAP_RULES)
    secrets = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    both = [{"name": "first", "path": site.home.cluster}]
    second = site.type("second", initializer=True, initializerPermissions=secrets, extend={"with": both})
    site.allow("worker", INITIALIZE, "first", "second")
    cluster = site.workspace("second")
    assert site.reach("w", "Initializing")["status"]["initializers"] == [first, second]
    site.view(first).get(f"/{cluster}{CONFIGMAPS}")
    site.view(first).get(f"/{cluster}/api/v1/namespaces/default/secrets", expect=403)
    site.view(second).get(f"/{cluster}/api/v1/namespaces/default/secrets")
    site.view(second).get(f"/{cluster}{CONFIGMAPS}", expect=403)
    found = site.view(first).get(f"/{cluster}{CLUSTERS}/cluster").json
    status = site.view(first).send("PUT", f"/{cluster}{CLUSTERS}/cluster/status", without(found, second), expect=422)
    assert f'only removing the \\"{first}\\" initializer is supported' in status.body.decode()
    site.view(first).put(f"/{cluster}{CLUSTERS}/cluster/status", without(found, first))
    # A controller takes the label away by which the view selects.
    eventually(lambda: names(site.view(first)) == set(), "the first sees it no more")
    assert names(site.view(second)) == {cluster}


def test_without_rules_the_owner_is_impersonated_in_this_workspace_only(site: Site) -> None:
    initializer = site.type("made", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    cluster, view = site.workspace("made"), site.view(initializer)
    view.post(f"/{cluster}{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": []})
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = view.post(f"/{cluster}/apis/authentication.k8s.io/v1/selfsubjectreviews", review).json
    assert found["status"]["userInfo"]["username"] == "kcp-admin"
    assert f"cluster:{cluster}" in found["status"]["userInfo"]["extra"]["authentication.kcp.io/scopes"]


def test_the_audit_log_says_which_initializer_did_what_and_as_whom(site: Site, audit_path: Path) -> None:
    as_owner = site.type("plain", initializer=True)
    by_rules = site.type("ruled", initializer=True, initializerPermissions=CONFIGMAP_RULES)
    site.allow("worker", INITIALIZE, "plain", "ruled")
    plain, ruled = site.workspace("plain", "plain"), site.workspace("ruled", "ruled")
    owned, views = site.view(as_owner), site.view(by_rules)
    steps = {
        "as the owner": owned.post(f"/{plain}{CONFIGMAPS}", configmap("a")),
        "by rules": views.post(f"/{ruled}{CONFIGMAPS}", configmap("a")),
        "refused": views.send("GET", f"/{ruled}/api/v1/namespaces/default/secrets", expect=403),
        "another's": views.send("GET", f"/{plain}{CONFIGMAPS}", expect=403),
        "list": owned.get(f"/*{CLUSTERS}"),
    }
    found = owned.get(f"/{plain}{CLUSTERS}/cluster").json
    steps["done"] = owned.put(f"/{plain}{CLUSTERS}/cluster/status", without(found, as_owner))
    wanted = {what: answer.header("audit-id") for what, answer in steps.items()}

    def written() -> dict[str, dict[str, Any]]:
        last = {line["auditID"]: line for line in audit_events(audit_path) if line["stage"] == "ResponseComplete"}
        return last if last.keys() >= set(wanted.values()) else {}

    last = eventually(written, "all lines are written")
    lines = {what: last[audit_id] for what, audit_id in wanted.items()}
    assert {line["user"]["username"] for line in lines.values()} == {"worker"}
    assert all(line["requestURI"].startswith("/services/initializingworkspaces/") for line in lines.values())
    as_whom = {what: line["impersonatedUser"] for what, line in lines.items() if "impersonatedUser" in line}
    assert as_whom.keys() == {"as the owner", "by rules", "refused"}
    assert as_whom["as the owner"]["username"] == "kcp-admin"
    assert as_whom["as the owner"]["extra"] == {"authentication.kcp.io/scopes": [f"cluster:{plain}"]}
    assert as_whom["by rules"]["username"] == as_whom["refused"]["username"] == "worker"
    assert f"system:kcp:initializer:{by_rules}" in as_whom["by rules"]["groups"]
    outcomes = {what: line["responseStatus"]["code"] for what, line in lines.items()}
    assert outcomes == {what: answer.code for what, answer in steps.items()}
    decisions = {what: line["annotations"].get("authorization.k8s.io/decision") for what, line in lines.items()}
    # Another initializer's workspace is refused before anybody is authorized in it.
    expected = {"as the owner": "allow", "by rules": "allow", "list": "allow", "done": "allow"}
    assert decisions == {**expected, "refused": "forbid", "another's": None}
    assert lines["refused"]["annotations"]["authorization.k8s.io/reason"] == f"no rule of {by_rules} allows it"
    clusters = {what: line["annotations"].get("kcp.io/cluster") for what, line in lines.items()}
    in_plain = dict.fromkeys(("as the owner", "another's", "done"), plain)
    assert clusters == {**in_plain, **dict.fromkeys(("by rules", "refused"), ruled), "list": None}


def test_nobody_opens_a_view_without_the_verb(site: Site) -> None:
    initializer = site.type("made", initializer=True)
    site.type("other", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    cluster = site.workspace("made")
    paths = [f"/*{CLUSTERS}", f"/{cluster}{CLUSTERS}/cluster", f"/{cluster}{CONFIGMAPS}", "/*/apis", f"/{cluster}/apis"]
    for path in paths:
        site.view(initializer, "nobody-token").get(path, expect=403)
        site.view(f"{site.cluster}:other").get(path, expect=403)
        site.view("root:universal").get(path, expect=403)
        site.view("nothing").get(path, expect=403)
        site.view(initializer, verb=TERMINATE).get(path, expect=403)
    # A caller cannot send the group that the view assigns.
    group = {"Impersonate-User": "worker", "Impersonate-Group": f"system:kcp:initializer:{initializer}"}
    answer = site.home.at(cluster).send("GET", CONFIGMAPS, headers=group)
    assert answer.code == 403


def test_a_view_serves_nothing_but_its_own(site: Site) -> None:
    initializer = site.type("made", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    cluster, view = site.workspace("made"), site.view(initializer)
    view.get("/*/api/v1/configmaps", expect=404)
    view.get(f"/{site.home.cluster}{CLUSTERS}/cluster", expect=404)
    view.get(f"/{site.cluster}{CLUSTERS}/cluster", expect=404)
    view.get(f"/{site.cluster}{CONFIGMAPS}", expect=403)
    view.send("DELETE", f"/{cluster}{CLUSTERS}/cluster", expect=405)
    view.send("PUT", f"/{cluster}{CLUSTERS}/cluster", {}, expect=405)
    groups = view.get("/*/apis").json["groups"]
    assert [group["name"] for group in groups] == ["core.kcp.io"]


@pytest.mark.parametrize("verb", [INITIALIZE, TERMINATE])
def test_discovery_of_all_clusters_is_the_legacy_form_of_kcp(site: Site, verb: str) -> None:
    site.allow("worker", verb, "made")
    view = site.view(site.type("made", initializer=True, terminator=True), verb=verb)
    for path in ("/*/api", "/*/apis", "/*/apis/core.kcp.io/v1alpha1"):
        found = view.get(path, accept=AGGREGATED_OR_PLAIN)
        assert found.headers["content-type"] == "application/json"
        assert found.json == view.get(path).json
    for path in ("/*/api", "/*/apis"):
        view.get(path, accept=AGGREGATED, expect=406)
    groups = view.get("/*/apis").json
    assert groups["kind"] == "APIGroupList"
    assert [group["name"] for group in groups["groups"]] == ["core.kcp.io"]
    version = {"groupVersion": "core.kcp.io/v1alpha1", "version": "v1alpha1"}
    group = {"name": "core.kcp.io", "versions": [version], "preferredVersion": version}
    assert view.get("/*/apis/core.kcp.io").json == {"kind": "APIGroup", "apiVersion": "v1", **group}
    logical_clusters, status = view.get("/*/apis/core.kcp.io/v1alpha1").json["resources"]
    assert logical_clusters["verbs"] == ["get", "list", "watch"]
    hashed = hashlib.sha256(b"/core.kcp.io/v1alpha1/LogicalCluster").digest()[:8]
    assert logical_clusters["storageVersionHash"] == base64.b64encode(hashed).decode()
    names = {"name": "logicalclusters/status", "singularName": "", "namespaced": False, "kind": "LogicalCluster"}
    assert status == {**names, "verbs": None}


def test_discovery_of_a_waiting_workspace_is_that_of_the_workspace(site: Site) -> None:
    site.allow("worker", INITIALIZE, "made")
    initializer = site.type("made", initializer=True)
    cluster, view = site.workspace("made"), site.view(initializer)
    for path in ("/api", "/apis"):
        found = view.get(f"/{cluster}{path}", accept=AGGREGATED)
        assert found.json == site.home.at(cluster).get(path, accept=AGGREGATED).json


def test_withdrawing_the_verb_closes_the_view(site: Site) -> None:
    initializer = site.type("made", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    view = site.view(initializer)
    view.get(f"/*{CLUSTERS}")
    site.home.delete(f"{RBAC}/clusterrolebindings/initialize-0")
    view.get(f"/*{CLUSTERS}", expect=403)


@contextlib.contextmanager
def terminating(site: Site, prepare: Callable[[Api], None] | None = None, **spec: Any) -> Iterator[tuple[str, str]]:
    """A terminator, and a workspace that waits for it; `prepare` fills the workspace before its deletion."""
    terminator = site.type("made", terminator=True, **spec)
    site.allow("worker", TERMINATE, "made")
    cluster = site.workspace("made", phase="Ready")
    site.home.at(cluster).post(CONFIGMAPS, configmap("kept"))
    if prepare is not None:
        prepare(site.home.at(cluster))
    site.home.delete(f"{WORKSPACES}/w")
    site.reach("w", "Terminating")
    yield terminator, cluster


def test_a_terminator_holds_content_until_it_takes_itself_away(site: Site) -> None:
    with terminating(site, terminatorPermissions=CONFIGMAP_RULES) as (terminator, cluster):
        view = site.view(terminator, verb=TERMINATE)
        assert names(view) == {cluster}
        view.get(f"/{cluster}{CONFIGMAPS}/kept")
        view.get(f"/{cluster}/api/v1/namespaces/default/secrets", expect=403)
        # The owner keeps access during deletion.
        site.home.at(cluster).get(f"{CONFIGMAPS}/kept")
        found = view.get(f"/{cluster}{CLUSTERS}/cluster").json
        assert "kcp.io/has-terminators" in found["metadata"]["finalizers"]
        view.put(f"/{cluster}{CLUSTERS}/cluster/status", without(found, terminator, "terminators"))
        eventually(lambda: site.home.send("GET", f"{WORKSPACES}/w").code == 404, "the workspace is gone")
        assert names(view) == set()
        view.get(f"/{cluster}{CONFIGMAPS}", expect=403)


def test_what_is_not_terminating_is_not_in_the_terminating_view(site: Site) -> None:
    terminator = site.type("made", terminator=True)
    site.allow("worker", TERMINATE, "made")
    cluster = site.workspace("made", phase="Ready")
    view = site.view(terminator, verb=TERMINATE)
    assert names(view) == set()
    view.get(f"/{cluster}{CLUSTERS}/cluster", expect=404)
    view.get(f"/{cluster}{CONFIGMAPS}", expect=403)


def test_a_member_changes_nothing_of_the_status_but_that_it_waits(site: Site) -> None:
    first = site.type("first", initializer=True)
    both = {"with": [{"name": "first", "path": site.home.cluster}]}
    second = site.type("second", initializer=True, extend=both)
    site.allow("worker", INITIALIZE, "first", "second")
    cluster, view = site.workspace("second"), site.view(first)
    status = f"/{cluster}{CLUSTERS}/cluster/status"
    for change in ({"phase": "Ready"}, {"URL": "https://elsewhere.example.com"}, {"terminators": [first]}):
        for query in ("", "?dryRun=All"):
            view.patch(f"{status}{query}", {"status": change}, expect=422)
    applied = {"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": {"name": "cluster"}}
    forced = f"{status}?fieldManager=me&force=true"
    view.patch(forced, {**applied, "status": {"phase": "Ready"}}, APPLY, expect=422)
    view.patch(f"{status}?dryRun=All", {"status": {"initializers": [first]}}, expect=422)
    view.patch(status, {"metadata": {"annotations": {"kcp.io/path": "root"}, "labels": {"a": "b"}}})
    found = view.get(f"/{cluster}{CLUSTERS}/cluster").json
    assert found["metadata"]["annotations"]["kcp.io/path"] != "root"
    assert found["status"]["initializers"] == [first, second]


def test_nobody_declares_a_workspace_ready_for_which_somebody_waits(site: Site) -> None:
    initializer = site.type("made", initializer=True)
    cluster = site.workspace("made")
    inside = site.home.at(cluster)
    status = inside.patch(f"{CLUSTERS}/cluster/status", {"status": {"phase": "Ready"}}, expect=422).json
    assert "status.phase" in status["message"]
    assert inside.get(f"{CLUSTERS}/cluster").json["status"]["initializers"] == [initializer]


def test_what_the_system_says_of_a_logical_cluster_is_not_its_owners_to_change(site: Site) -> None:
    inside = site.home
    for name in (
        "kcp.io/path",
        "internal.tenancy.kcp.io/type",
        "core.kcp.io/shard",
        "experimental.tenancy.kcp.io/owner",
    ):
        for value in ("acme:prod", None):
            changed = {"metadata": {"annotations": {name: value}}}
            status = inside.patch(f"{CLUSTERS}/cluster", changed, expect=422).json
            assert f"metadata.annotations[{name}]" in status["message"]
    for owner in (None, {"name": "other"}):
        inside.patch(f"{CLUSTERS}/cluster", {"spec": {"owner": owner}}, expect=422)
    inside.patch(f"{CLUSTERS}/cluster", {"metadata": {"annotations": {"example.com/mine": "1"}}})


def test_nobody_says_afterwards_who_made_a_workspace(site: Site) -> None:
    """Initializers impersonate the owner, and an unscheduled Workspace could name system:masters as one."""
    spec = {"location": {"selector": {"matchLabels": {"no": "shard"}}}}
    body = {"apiVersion": GROUP, "kind": "Workspace", "metadata": {"name": "late"}, "spec": spec}
    made = site.home.post(WORKSPACES, body).json["metadata"]["annotations"]
    forged = '{"username":"x","groups":["system:masters"]}'
    owner, groups = "experimental.tenancy.kcp.io/owner", "authorization.kcp.io/required-groups"
    for name, value in ((owner, forged), (owner, None), (groups, "nobody-at-all")):
        site.home.patch(f"{WORKSPACES}/late", {"metadata": {"annotations": {name: value}}})
    found = site.home.get(f"{WORKSPACES}/late").json["metadata"]["annotations"]
    assert (found[owner], found.get(groups)) == (made[owner], made.get(groups))


def test_a_maker_of_the_systems_lends_no_more_than_a_name(site: Site, master: Api) -> None:
    initializer = site.type("made", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    body = {
        "apiVersion": GROUP,
        "kind": "Workspace",
        "metadata": {
            "name": "w",
            "annotations": {
                "experimental.tenancy.kcp.io/owner": (
                    '{"username":"x","groups":["system:masters","system:kcp:initializer:root:universal","mine"]}'
                )
            },
        },
        "spec": {"type": {"name": "made", "path": site.home.cluster}},
    }
    master.at(site.home.cluster).post(WORKSPACES, body)
    cluster = site.reach("w", "Initializing")["spec"]["cluster"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = f"/{cluster}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    found = site.view(initializer).send("POST", path, review, expect=0)
    groups = found.json["status"]["userInfo"]["groups"] if found.code == 201 else []
    assert not [group for group in groups if group.startswith("system:")]


def test_a_watch_of_content_ends_when_the_workspace_waits_no_more(site: Site) -> None:
    initializer = site.type(
        "made",
        initializer=True,
        initializerPermissions=[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["watch"]}],
    )
    site.allow("worker", INITIALIZE, "made")
    cluster, view = site.workspace("made"), site.view(initializer)
    with view.watch(f"/{cluster}/api/v1/namespaces/default/secrets?watch=1&resourceVersion=0") as events:
        found = view.get(f"/{cluster}{CLUSTERS}/cluster").json
        view.put(f"/{cluster}{CLUSTERS}/cluster/status", without(found, initializer))
        site.reach("w", "Ready")
        assert not [event for event in events.rest() if event.type != "BOOKMARK"]


@pytest.mark.parametrize("selector", ["a in (b", "a=b,", "!", "x notin (", "a in (b),", "%00", "a="])
def test_no_selector_widens_what_a_view_shows(site: Site, selector: str) -> None:
    initializer = site.type("made", initializer=True)
    site.allow("worker", INITIALIZE, "made")
    site.workspace("made")
    answer = site.view(initializer).send("GET", f"/*{CLUSTERS}?labelSelector={quote(selector)}")
    assert answer.code == 400 or not answer.json["items"]
