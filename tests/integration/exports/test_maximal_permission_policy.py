"""The maximal permission policy: RBAC of the provider's workspace limits consumers, whatever their own RBAC permits."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, workspace_under
from harness.clients.exports import EXPORTS, an_object, bind, cluster_of, make_export, objects_path, schema

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CIRCLES = schema("circles")
HERE = objects_path(CIRCLES)
RULE = {"apiGroups": ["shapes.example.com"], "resources": ["circles"]}
REVIEWS = "/apis/authorization.k8s.io/v1"


def give(api: Api, kind: str, name: str, *rules: dict[str, Any]) -> str:
    """Bind rules to a user or a group; the name of the ClusterRoleBinding."""
    made = api.post(f"{RBAC}/clusterroles", {"metadata": {"generateName": "given-"}, "rules": list(rules)}).json
    role = made["metadata"]["name"]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    api.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference})
    return str(role)


def administers(api: Api, token: str) -> Api:
    """A user with all rights in a workspace, as far as its RBAC can grant them."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    user = token.removesuffix("-token")
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    api.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": user}, "subjects": [subject], "roleRef": reference})
    return Api(api.shard, api.cluster, token=token)


@pytest.fixture
def alice(provider: Api, consumer: Api) -> Api:
    """The administrator of a consumer's workspace, under a policy that grants nothing yet."""
    make_export(provider, "shapes", CIRCLES, maximalPermissionPolicy={"local": {}})
    bind(consumer, provider.cluster, "shapes")
    return administers(consumer, "alice-token")


def review(api: Api, verb: str, user: str = "") -> bool:
    """The answer of an access review about a verb on circles, for the caller or for a user."""
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    attributes = {"group": "shapes.example.com", "resource": "circles", "verb": verb, "namespace": "default"}
    spec = {"resourceAttributes": attributes, **({"user": user} if user else {})}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    return bool(api.post(f"{REVIEWS}/{kind.lower()}s", body).json["status"]["allowed"])


def test_it_is_an_upper_bound_and_holds_as_it_stands(provider: Api, alice: Api) -> None:
    alice.get(HERE, expect=403)
    assert not review(alice, "list")
    reading = give(provider, "User", "apis.kcp.io:binding:alice", {**RULE, "verbs": ["get", "list", "watch"]})
    alice.get(HERE)
    assert review(alice, "list") and not review(alice, "create")
    alice.post(HERE, an_object(CIRCLES, "a"), expect=403)
    give(provider, "Group", "apis.kcp.io:binding:team-a", {**RULE, "verbs": ["create"]})
    alice.post(HERE, an_object(CIRCLES, "a"))
    alice.send("PATCH", f"{HERE}/a/status", {"status": {}}, kind="application/merge-patch+json", expect=403)
    provider.delete(f"{RBAC}/clusterrolebindings/{reading}")
    alice.get(HERE, expect=403)
    alice.get("/api/v1/namespaces/default/configmaps")


def test_it_grants_nothing_by_itself(provider: Api, consumer: Api, alice: Api) -> None:
    for user in ("alice", "bob"):
        give(provider, "User", f"apis.kcp.io:binding:{user}", {**RULE, "verbs": ["*"]})
    give(consumer, "User", "bob", {"nonResourceURLs": ["/"], "verbs": ["access"]})
    alice.get(HERE)
    Api(consumer.shard, consumer.cluster, token="bob-token").get(HERE, expect=403)
    assert not review(alice, "list", "bob")


def test_accounts_are_named_with_their_cluster(admin: Api, provider: Api, consumer: Api, alice: Api) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = consumer.post(path, request).json["status"]["token"]
    give(consumer, "User", "system:serviceaccount:default:default", {**RULE, "verbs": ["*"]})
    account = Api(consumer.shard, consumer.cluster, token=token)
    account.get(HERE, expect=403)
    other = cluster_of(admin.at(workspace_under(admin)))
    for cluster, code in ((other, 403), (cluster_of(consumer), 200)):
        name = f"apis.kcp.io:binding:system:kcp:serviceaccount:{cluster}:default:default"
        give(provider, "User", name, {**RULE, "verbs": ["list"]})
        account.get(HERE, expect=code)


def test_it_goes_with_the_policy_and_with_the_export(provider: Api, alice: Api) -> None:
    alice.get(HERE, expect=403)
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"maximalPermissionPolicy": None}})
    alice.get(HERE)
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"maximalPermissionPolicy": {"local": {}}}})
    alice.get(HERE, expect=403)
    provider.delete(f"{EXPORTS}/shapes")
    alice.get(HERE)


def test_its_own_provider_is_under_it_where_he_acts_in_a_workspace(provider: Api, consumer: Api, alice: Api) -> None:
    content = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["*"]}
    give(provider, "User", "worker", content)
    give(provider, "User", "worker", {"nonResourceURLs": ["/"], "verbs": ["access"]})
    view = Api(provider.shard, token="worker-token")
    view.prefix = f"/services/apiexport/{cluster_of(provider)}/shapes/clusters"
    view.get(f"/*{objects_path(CIRCLES, namespace='')}")
    view.get(f"/{cluster_of(consumer)}{HERE}", expect=403)
    give(provider, "User", "apis.kcp.io:binding:worker", {**RULE, "verbs": ["list"]})
    view.get(f"/{cluster_of(consumer)}{HERE}")
