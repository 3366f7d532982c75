"""Identities on the wire: identity headers, impersonation, tokens of other workspaces, system:masters."""

from __future__ import annotations

import base64
import json
import time
from functools import partial
from typing import Any

import pytest

from atoll.machinery.apiserver.authentication.service_account_keys import load_keys
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer
from harness.clients.api import Api, Object, configmap, workspace_under
from harness.servers.shard_process import process_of

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
LOGICAL_CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"


def bind(api: Api, role: str, *subjects: Object) -> None:
    body = {
        "metadata": {"generateName": "given-"},
        "subjects": list(subjects),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }
    api.post(f"{RBAC}/clusterrolebindings", body)


def user(name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def by_token(api: Api, token: str) -> Api:
    return Api(api.shard, api.cluster, token=token)


@pytest.mark.parametrize(
    "header",
    [
        {"X-Remote-User": "kcp-admin"},
        {"X-Remote-Group": "system:masters"},
        {"X-Remote-Extra-Scopes": "x"},
        {"X-Remote-User": "root", "X-Remote-Group": "system:masters"},
        {"x-remote-uid": "1"},
        {"X-REMOTE-USER": ""},
    ],
)
@pytest.mark.parametrize("token", ["", "nobody-token", "kcp-admin", "shard-admin"])
def test_identity_headers_of_everybody_but_a_trusted_proxy_say_nothing(
    root: Api, header: dict[str, str], token: str
) -> None:
    sent = root.shard.token(token) if "admin" in token else token
    api = Api(root.shard, "root", user="", token=sent)
    for path in (CONFIGMAPS, "/version", "/healthz"):
        plain, forged = api.get(path, expect=0), api.get(path, headers=header, expect=0)
        assert (forged.code, forged.body) == (plain.code, plain.body), path
    if token:
        assert whoami(api, header, 201)["status"]["userInfo"] == whoami(api, {}, 201)["status"]["userInfo"]


def whoami(api: Api, headers: dict[str, str], expect: int) -> Any:
    return api.send("POST", REVIEWS, REVIEW, headers=headers, expect=expect).json


@pytest.fixture
def helped(api: Api) -> Api:
    """A workspace in which `helper` may impersonate anybody and any group by RBAC, and is its administrator."""
    rules = [
        {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/*", "uids"], "verbs": ["impersonate"]},
    ]
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "impersonator"}, "rules": rules})
    bind(api, "impersonator", user("helper"))
    bind(api, "cluster-admin", user("helper"))
    bind(api, "system:kcp:workspace:access", user("alice"))
    return api


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Impersonate-User": "alice"}, 201),
        ({"Impersonate-User": "alice", "Impersonate-Group": "team-b"}, 201),
        ({"Impersonate-User": "alice", "Impersonate-Uid": "7"}, 201),
        ({"Impersonate-User": "alice", "Impersonate-Extra-Reason": "test"}, 201),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:authenticated"}, 201),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:masters"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:kcp:admin"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:kcp:logical-cluster-admin"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:kcp:external-logical-cluster-admin"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:kcp:tenancy:workspace-bootstrapper"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:kcp:initializer:root:universal"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "system:cluster:root"}, 403),
        ({"Impersonate-User": "alice", "Impersonate-Group": "apis.kcp.io:binding:x"}, 403),
        ({"Impersonate-User": "system:kcp:serviceaccount:root:default:default"}, 403),
        (
            {
                "Impersonate-User": "alice",
                "Impersonate-Extra-Authorization.kcp.io%2Fwarrant": '{"user":"x","groups":["system:masters"]}',
            },
            403,
        ),
        ({"Impersonate-User": "alice", "Impersonate-Extra-Authorization.kcp.io%2Fwarrant": "{}"}, 400),
        ({"Impersonate-Group": "team-b"}, 400),
        ({"Impersonate-User": ""}, 400),
        ({"Impersonate-User": "alice", "Impersonate-Nothing": "x"}, 400),
    ],
)
def test_an_administrator_of_a_workspace_impersonates_nobody_above_it(
    helped: Api, headers: dict[str, str], code: int
) -> None:
    helper = by_token(helped, "helper-token")
    if code == 201 and "system:authenticated" not in headers.values():
        # Without access on / by a group or a name, impersonation of a group gives no access.
        info = whoami(helper, headers, code)["status"]["userInfo"]
        assert (info["username"], info.get("uid", "")) == ("alice", headers.get("Impersonate-Uid", ""))
        assert headers.get("Impersonate-Group", "system:authenticated") in info["groups"]
        return
    answer = whoami(helper, headers, code)
    assert answer.get("reason", "") == {201: "", 403: "Forbidden", 400: "BadRequest"}[code]
    if code == 403:
        # The impersonation is rejected, not the request of the impersonated user.
        assert answer["message"].endswith("is not allowed for the requestor")


def test_who_may_not_impersonate_does_not(helped: Api) -> None:
    alice = by_token(helped, "alice-token")
    for headers in ({"Impersonate-User": "helper"}, {"Impersonate-User": "alice"}):
        message = whoami(alice, headers, 403)["message"]
        assert "cannot impersonate resource" in message
    whoami(Api(helped.shard, helped.cluster, user=""), {"Impersonate-User": "alice"}, 403)


@pytest.mark.parametrize(
    ("headers", "resource"),
    [
        ({}, ""),
        ({"Impersonate-Group": "team-b"}, "groups"),
        ({"Impersonate-Uid": "7"}, "uids"),
        ({"Impersonate-Extra-Reason": "test"}, "userextras/reason"),
        ({"Impersonate-User": "system:serviceaccount:default:default"}, "serviceaccounts"),
    ],
)
def test_each_part_of_an_identity_needs_a_permission_of_its_own(
    api: Api, headers: dict[str, str], resource: str
) -> None:
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "of-users"}, "rules": [rule]})
    for name in ("helper", "alice"):
        bind(api, "system:kcp:workspace:access", user(name))
    bind(api, "system:kcp:workspace:access", {"kind": "ServiceAccount", "name": "default", "namespace": "default"})
    bind(api, "of-users", user("alice"))
    answer = whoami(by_token(api, "alice-token"), {"Impersonate-User": "helper", **headers}, 403 if resource else 201)
    if resource:
        assert f'cannot impersonate resource "{resource}"' in answer["message"]
    else:
        assert answer["status"]["userInfo"]["username"] == "helper"


def test_a_borrowed_identity_counts_only_where_it_was_borrowed(helped: Api, root: Api) -> None:
    helper = by_token(helped, "helper-token")
    helper.get(CONFIGMAPS, headers={"Impersonate-User": "helper"})
    # helper may not impersonate in root; and in the workspace no user becomes a user of root.
    helper.at("root").get(CONFIGMAPS, headers={"Impersonate-User": "kcp-admin"}, expect=403)
    elsewhere = helper.at("system:admin")
    elsewhere.get(CONFIGMAPS, headers={"Impersonate-User": "kcp-admin"}, expect=403)
    root.at("*").get("/api/v1/configmaps", headers={"Impersonate-User": "kcp-admin"}, expect=403)


def test_a_master_impersonates_anybody(root: Api) -> None:
    master = Api(root.shard, "root", "shard-admin")
    headers = {"Impersonate-User": "boss", "Impersonate-Group": "system:kcp:admin"}
    found = whoami(master, headers, 201)["status"]["userInfo"]
    assert (found["username"], set(found["groups"])) == ("boss", {"system:kcp:admin", "system:authenticated"})
    master.get(CONFIGMAPS, headers={"Impersonate-User": "nobody"}, expect=403)


def account_token(api: Api, name: str = "robot", role: str = "cluster-admin") -> str:
    api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    bind(api, role, {"kind": "ServiceAccount", "name": name, "namespace": "default"})
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    answer = api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    return str(answer.json["status"]["token"])


def test_a_service_account_is_somebody_at_home_and_nobody_next_door(api: Api, root: Api) -> None:
    neighbour = root.at(workspace_under(root))
    # The other workspace has an account of the same name with all rights, and a user of that name with them.
    account_token(neighbour)
    bind(neighbour, "cluster-admin", user("system:serviceaccount:default:robot"))
    robot = by_token(api, account_token(api))
    robot.post(CONFIGMAPS, configmap("mine"))
    name = whoami(robot, {}, 201)["status"]["userInfo"]["username"]
    assert name == "system:serviceaccount:default:robot"
    for cluster in (neighbour.cluster, "root", "system:admin", "system:shard", "*", "unheard-of", f"{api.cluster}:x"):
        path = CONFIGMAPS if cluster != "*" else "/api/v1/configmaps"
        assert robot.at(cluster).get(path, expect=0).code in {401, 403}, cluster
        if cluster != "*":
            assert robot.at(cluster).send("POST", CONFIGMAPS, configmap("theirs")).code in {401, 403}, cluster
    # Without a cluster in the URL, the token's own cluster is used.
    found = Api(api.shard, token=robot.token).get(f"{CONFIGMAPS}/mine").json
    assert found["metadata"]["name"] == "mine"


def test_a_borrowed_identity_is_confined_to_the_cluster_it_was_borrowed_in(helped: Api, root: Api) -> None:
    cluster = helped.get(LOGICAL_CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    scopes = "authentication.kcp.io/scopes"
    found = whoami(by_token(helped, "helper-token"), {"Impersonate-User": "alice"}, 201)["status"]["userInfo"]
    assert found["extra"][scopes] == [f"cluster:{cluster}"]
    # Masters are not restricted, so neither are users that they impersonate.
    master = whoami(
        Api(root.shard, "root", "shard-admin"),
        {"Impersonate-User": "alice", "Impersonate-Group": "system:kcp:admin"},
        201,
    )
    assert scopes not in (master["status"]["userInfo"].get("extra") or {})


def test_a_token_for_another_audience_is_none_here(api: Api) -> None:
    robot = by_token(api, account_token(api))
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["vault"]}}
    by_token(api, robot.post(path, request).json["status"]["token"]).get(CONFIGMAPS, expect=401)
    robot.get(CONFIGMAPS)


def test_a_token_is_good_between_its_times(api: Api) -> None:
    account_token(api)
    made = api.get("/api/v1/namespaces/default/serviceaccounts/robot").json["metadata"]
    who = Account(made["annotations"]["kcp.io/cluster"], "default", "robot", made["uid"])
    keys = load_keys((process_of(api).root / "sa.key").read_bytes())
    for began_s, code in ((-300, 200), (-900, 401), (300, 401)):
        issuer = TokenIssuer(
            keys, ServiceAccountIssuers(), clock=partial(lambda began_s: time.time() + began_s, began_s)
        )
        token, _ = issuer.issue(who, ServiceAccountIssuers().audiences, 600)
        by_token(api, token).get(CONFIGMAPS, expect=code)


def test_a_token_ends_with_its_service_account(api: Api) -> None:
    robot = by_token(api, account_token(api))
    robot.get(CONFIGMAPS)
    api.delete("/api/v1/namespaces/default/serviceaccounts/robot")
    assert robot.get(CONFIGMAPS, expect=401).json["reason"] == "Unauthorized"


def with_algorithm(token: str, algorithm: str, signature: str) -> str:
    """A token whose header has our key and another algorithm."""
    header, payload, _ = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(header + "=="))
    header = base64.urlsafe_b64encode(json.dumps({**said, "alg": algorithm}).encode()).decode().rstrip("=")
    return f"{header}.{payload}.{signature}"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: with_algorithm(token, "none", ""),
        lambda token: with_algorithm(token, "none", "AAAA"),
        lambda token: with_algorithm(token, "HS256", "AAAA"),
        lambda token: with_algorithm(token, "RS256", "AAAA"),
        lambda token: token[:-4] + "AAAA",
        lambda token: token.rpartition(".")[0] + ".",
        lambda token: "eyJhbGciOiJub25lIn0." + token.split(".")[1] + ".",
        lambda token: token + ".x",
    ],
)
def test_a_token_that_was_tampered_with_is_no_token(api: Api, spoil: Any) -> None:
    token = account_token(api)
    by_token(api, token).get(CONFIGMAPS)
    by_token(api, spoil(token)).get(CONFIGMAPS, expect=401)
    Api(api.shard, token=spoil(token)).get(CONFIGMAPS, expect=401)


@pytest.mark.parametrize(
    "cluster", ["system:admin", "system:shard", "system:system-crds", "system:anything", "unheard-of"]
)
def test_only_masters_write_where_there_is_no_logical_cluster(api: Api, root: Api, cluster: str) -> None:
    name = api.cluster.replace(":", "-")
    for token in ("nobody-token", "alice-token", root.token, account_token(api)):
        somebody = Api(root.shard, cluster, token=token)
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": name}}),
            (CONFIGMAPS, configmap(name)),
            (f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": []}),
            (
                f"{RBAC}/clusterrolebindings",
                {
                    "metadata": {"name": name},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": "cluster-admin",
                    },
                },
            ),
        ):
            assert somebody.send("POST", path, body).code in {401, 403}, (token[:8], path)
    master = Api(root.shard, cluster, token="master-token")
    assert master.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": []}).code == 201
    master.delete(f"{RBAC}/clusterroles/{name}")


def test_wildcards_are_for_masters_alone_and_for_reading(api: Api, root: Api) -> None:
    api.post(CONFIGMAPS, configmap("seen-from-above"))
    master = Api(root.shard, "*", token="master-token")
    names = {item["metadata"]["name"] for item in master.get("/api/v1/configmaps").json["items"]}
    assert "seen-from-above" in names
    for token in ("", "nobody-token", "alice-token", root.token, account_token(api)):
        somebody = Api(root.shard, "*", user="", token=token)
        for path in (
            "/api/v1/configmaps",
            CONFIGMAPS,
            "/api/v1/configmaps?watch=1",
            f"{CONFIGMAPS}/seen-from-above",
            "/api/v1/secrets",
            "/apis/core.kcp.io/v1alpha1/logicalclusters",
            "/version",
            "/metrics",
            "/openapi/v3",
            "/api",
            "/apis",
        ):
            assert somebody.get(path, expect=0).code in {401, 403}, (token[:8], path)
    one = f"{CONFIGMAPS}/x"
    for method, path in (
        ("POST", CONFIGMAPS),
        ("PUT", one),
        ("PATCH", one),
        ("DELETE", one),
        ("DELETE", CONFIGMAPS),
        ("GET", one),
    ):
        status = master.send(method, path, configmap("x") if method != "GET" else None, expect=405).json
        assert status["message"].endswith(" in the `*` logical cluster")


def test_users_do_not_write_what_makes_a_workspace_one(api: Api) -> None:
    cluster = api.get(LOGICAL_CLUSTER).json
    status = api.send("DELETE", LOGICAL_CLUSTER, expect=403).json
    assert "LogicalCluster cannot be deleted" in status["message"]
    made = api.send("POST", LOGICAL_CLUSTER.rpartition("/")[0], {**cluster, "metadata": {"name": "cluster"}})
    assert made.code in {403, 409}
    assert api.get(LOGICAL_CLUSTER).json["metadata"]["uid"] == cluster["metadata"]["uid"]
