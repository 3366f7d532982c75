"""Tokens of OpenID Connect issuers: those of the operator's configuration, and those of workspaces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import Api, eventually, workspace_under
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess, process_of
from harness.servers.stand_ins.oidc_issuer import Issuer, encoded

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN = "https://kcp.default.svc"


def configuration(*issuers: dict[str, Any]) -> str:
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return json.dumps({**kind, "jwt": issuers})


def trusted(issuer: Issuer, audience: str = "atoll", **more: Any) -> dict[str, Any]:
    mappings = {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "oidc:"}}
    return {
        "issuer": {"url": issuer.url, "audiences": [audience], "certificateAuthority": issuer.ca_pem},
        "claimMappings": {**mappings, **more.pop("claimMappings", {})},
        **more,
    }


RULES: dict[str, Any] = {
    "claimMappings": {
        "username": {"expression": "'x:' + claims.email"},
        "groups": {"expression": "claims.roles.split(',')"},
        "uid": {"claim": "sub"},
        "extra": [{"key": "example.com/tenant", "valueExpression": "claims.?tenant.orValue('')"}],
    },
    "claimValidationRules": [
        {"expression": "claims.email_verified", "message": "verify your address"},
        {"claim": "hd", "requiredValue": "example.com"},
    ],
    "userValidationRules": [{"expression": "!user.username.startsWith('x:root')", "message": "not root"}],
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def ruled() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "authentication.yaml"


@pytest.fixture(scope="module")
def shard(
    issuer: Issuer, ruled: Issuer, config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ShardProcess]:
    config.write_text(configuration(trusted(issuer), trusted(ruled, **RULES)))
    flags = ("--authentication-config", str(config), "--egress-allow-cidr", "127.0.0.0/8")
    with ShardProcess(tmp_path_factory.mktemp("shard"), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def root(shard: ShardProcess) -> Api:
    return Api(shard, "root")


def who(api: Api, token: str, expect: int = 201) -> dict[str, Any]:
    answer = Api(api.shard, api.cluster, token=token).send("POST", REVIEWS, REVIEW, expect=expect).json
    return dict(answer["status"]["userInfo"]) if expect == 201 else dict(answer)


def test_a_token_makes_the_user_that_its_claims_say(root: Api, issuer: Issuer) -> None:
    found = who(root, issuer.token(sub="alice", aud="atoll", groups=["a", "b", "a"]))
    assert (found["username"], found["groups"]) == ("oidc:alice", ["oidc:a", "oidc:b", "system:authenticated"])
    assert who(root, issuer.token(sub="bob", aud=["x", "atoll"]))["username"] == "oidc:bob"
    found = who(root, issuer.token(sub="bob", aud="atoll", groups="one"))
    assert found["groups"] == ["oidc:one", "system:authenticated"]


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"aud": None},
        {"aud": 7},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": 4e9},
        {"groups": [1]},
        {"iss": "https://elsewhere.example.com"},
    ],
    ids=str,
)
def test_a_token_that_says_something_else_is_refused(root: Api, issuer: Issuer, claims: dict[str, Any]) -> None:
    status = who(root, issuer.token(**{"sub": "alice", "aud": "atoll", **claims}), 401)
    assert status["message"] == "Unauthorized"


def test_a_signature_counts_by_the_issuers_keys_alone(root: Api, issuer: Issuer) -> None:
    token = issuer.token(sub="alice", aud="atoll")
    head, claims, signature = token.split(".")
    with Issuer() as other:
        other.url = issuer.url
        strange = other.token(sub="alice", aud="atoll")
    spoiled = [
        f"{head}.{claims}.",
        f"{head}.{claims}.{encoded(b'x' * 256)}",
        strange,
        f"{encoded(json.dumps({'alg': 'none'}).encode())}.{claims}.{signature}",
        f"{encoded(json.dumps({'alg': 'HS256', 'kid': 'first'}).encode())}.{claims}.{signature}",
        issuer.token(sub="alice", aud="atoll", header={"crit": ["b64"]}),
        issuer.token(sub="alice", aud="atoll", header={"alg": "ES256"}),
    ]
    for each in spoiled:
        who(root, each, 401)
    who(root, token)


@pytest.mark.long
def test_keys_that_come_later_are_fetched_and_unknown_ones_cost_little(root: Api, issuer: Issuer) -> None:
    issuer.curve("second")
    somebody = Api(root.shard, "root", token=issuer.token("second", sub="a", aud="atoll"))
    eventually(lambda: somebody.send("POST", REVIEWS, REVIEW).code == 201, "the new key")
    before = len(issuer.requests)
    for number in range(50):
        who(root, issuer.token(sub="a", aud="atoll", header={"kid": f"unknown-{number}"}), 401)
    assert len(issuer.requests) - before <= 4


def test_rules_and_expressions_decide_over_claims_and_user(root: Api, ruled: Issuer) -> None:
    good: dict[str, Any] = {"email": "a@example.com", "email_verified": True, "roles": "x,y", "hd": "example.com"}
    good |= {"aud": "atoll", "sub": "7"}
    found = who(root, ruled.token(**good, tenant="t1"))
    assert (found["username"], found["uid"], found["extra"]["example.com/tenant"]) == ("x:a@example.com", "7", ["t1"])
    assert found["groups"] == ["x", "y", "system:authenticated"]
    assert "example.com/tenant" not in who(root, ruled.token(**good)).get("extra", {})
    wrong: tuple[dict[str, Any], ...] = (
        {"email_verified": False},
        {"hd": "other"},
        {"email": "root@x"},
        {"roles": 7},
        {"email": None},
    )
    for bad in wrong:
        who(root, ruled.token(**{**good, **bad}), 401)


def test_rbac_knows_the_users(root: Api, issuer: Issuer) -> None:
    token = issuer.token(sub="carol", aud="atoll")
    api = root.at(workspace_under(root))
    Api(api.shard, api.cluster, token=token).get("/api/v1/configmaps", expect=403)
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "oidc:carol"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    api.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "c"}, "subjects": [subject], "roleRef": reference})
    Api(api.shard, api.cluster, token=token).get("/api/v1/configmaps")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = api.post("/apis/authentication.k8s.io/v1/tokenreviews", review).json["status"]
    assert (answer["authenticated"], answer["user"]["username"]) == (True, "oidc:carol")


@pytest.mark.long
def test_the_configuration_is_read_again_and_a_broken_one_changes_nothing(
    root: Api, issuer: Issuer, ruled: Issuer, config: Path
) -> None:
    before, token = config.read_text(), issuer.token(sub="alice", aud="later")
    who(root, token, 401)

    def named(name: str) -> bool:
        answer = Api(root.shard, "root", token=token).send("POST", REVIEWS, REVIEW)
        return answer.code == 201 and answer.json["status"]["userInfo"]["username"] == name

    config.write_text(configuration(trusted(issuer, "later"), trusted(ruled, **RULES)))
    eventually(lambda: named("oidc:alice"), "the new audience")
    config.write_text("jwt: [{")
    message = "authentication configuration not reloaded"
    eventually(lambda: named("oidc:alice") and message in process_of(root).log_tail(200), "a word in the log")
    assert named("oidc:alice")
    config.write_text(before)
    eventually(lambda: not named("oidc:alice"), "the old audience")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "flow"),
        ("{}", "AuthenticationConfiguration"),
        (configuration({"issuer": {"url": "http://x"}}), "https"),
        (configuration({"nonsense": 1}), "nonsense"),
        (
            configuration(
                {
                    "issuer": {"url": "https://x", "audiences": ["a"]},
                    "claimMappings": {"username": {"expression": "claims.email"}},
                }
            ),
            "email_verified",
        ),
        (
            configuration(
                {
                    "issuer": {"url": "https://x", "audiences": ["a"]},
                    "claimMappings": {"username": {"expression": "claims. +"}},
                }
            ),
            "compilation failed",
        ),
        (
            configuration(
                {"issuer": {"url": "https://x", "audiences": ["a"]}, "claimMappings": {"username": {"claim": "sub"}}}
            ),
            "prefix is required",
        ),
    ],
)
def test_a_configuration_that_cannot_be_meant_refuses_to_start(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "authentication.yaml").write_text(text)
    result = atoll(
        "start",
        "--root-directory",
        str(tmp_path / "atoll"),
        "--allow-any-filesystem",
        "true",
        "--secure-port",
        "0",
        "--authentication-config",
        str(tmp_path / "authentication.yaml"),
    )
    assert result.code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


class Tenant:
    """A workspace whose type names issuers of its own."""

    def __init__(self, root: Api, issuer: Issuer) -> None:
        self.root, self.home = root, root.at(workspace_under(root))
        mappings = {
            "username": {"claim": "sub", "prefix": ""},
            "groups": {"claim": "groups", "prefix": ""},
            "extra": [
                {"key": "authorization.kcp.io/warrant", "valueExpression": "claims.?warrant.orValue('')"},
                {"key": "example.com/a", "valueExpression": "claims.?a.orValue('')"},
            ],
        }
        spec = {
            "jwt": [
                {
                    "issuer": {"url": issuer.url, "audiences": ["tenant"], "certificateAuthority": issuer.ca_pem},
                    "claimMappings": mappings,
                }
            ]
        }
        self.create("workspaceauthenticationconfigurations", "WorkspaceAuthenticationConfiguration", "own", spec)
        base = {"with": [{"name": "universal", "path": "root"}]}
        self.create(
            "workspacetypes",
            "WorkspaceType",
            "with-issuer",
            {"extend": base, "authenticationConfigurations": [{"name": "own"}]},
        )
        self.create("workspaces", "Workspace", "inside", {"type": {"name": "with-issuer", "path": self.home.cluster}})
        eventually(lambda: self.workspace().get("status", {}).get("phase") == "Ready", "the workspace")
        self.inside = root.at(f"{self.home.cluster}:inside")
        self.cluster = self.workspace()["spec"]["cluster"]

    def create(self, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.home.post(f"{TENANCY}/{plural}", body)

    def workspace(self) -> dict[str, Any]:
        return dict(self.home.get(f"{TENANCY}/workspaces/inside").json)


@pytest.fixture(scope="module")
def own() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def tenant(root: Api, own: Issuer) -> Tenant:
    return Tenant(root, own)


def grant(api: Api, name: str) -> None:
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": {"generateName": "g-"}, "subjects": [subject], "roleRef": reference}
    api.post(f"{RBAC}/clusterrolebindings", body)


def test_a_tenants_issuer_makes_users_of_its_workspace_alone(tenant: Tenant, own: Issuer, root: Api) -> None:
    token = own.token(sub="dora", aud=["tenant", OWN], groups=["staff"], a="b")
    grant(tenant.inside, "dora")
    grant(tenant.home, "dora")
    found = who(tenant.inside, token)
    assert (found["username"], found["groups"], found["extra"]["example.com/a"]) == (
        "dora",
        ["staff", "system:authenticated"],
        ["b"],
    )
    assert found["extra"]["authentication.kcp.io/scopes"] == [f"cluster:{tenant.cluster}"]
    # Another workspace does not trust the issuer, even if it has a role for that user name.
    for elsewhere in (tenant.home, root, root.at("system:admin"), root.at("*"), root.at("")):
        path = "/api/v1/configmaps"
        assert Api(root.shard, elsewhere.cluster, token=token).get(path, expect=0).code in {401, 403}


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "system:masters"},
        {"sub": "system:serviceaccount:default:default"},
        {"sub": "system:anonymous"},
        {"aud": "tenant"},
        {"aud": OWN},
    ],
    ids=str,
)
def test_a_tenants_issuer_mints_nobody_of_the_systems(tenant: Tenant, own: Issuer, claims: dict[str, Any]) -> None:
    who(tenant.inside, own.token(**{"sub": "dora", "aud": ["tenant", OWN], **claims}), 401)


def test_groups_and_extras_of_power_are_dropped(tenant: Tenant, own: Issuer) -> None:
    grant(tenant.inside, "eve")
    warrant = json.dumps({"user": "x", "groups": ["system:masters"]})
    groups = ["system:masters", "system:kcp:admin", "system:kcp:initializer:root:universal", "mine"]
    found = who(tenant.inside, own.token(sub="eve", aud=["tenant", OWN], groups=groups, warrant=warrant))
    assert found["groups"] == ["mine", "system:authenticated"]
    assert "authorization.kcp.io/warrant" not in found["extra"]


def test_a_changed_configuration_counts_with_the_next_request(tenant: Tenant, own: Issuer) -> None:
    grant(tenant.inside, "finn")
    token = own.token(sub="finn", aud=["tenant", OWN])
    who(tenant.inside, token)
    tenant.home.patch(f"{TENANCY}/workspacetypes/with-issuer", {"spec": {"authenticationConfigurations": []}})
    who(tenant.inside, token, 401)
    tenant.home.patch(
        f"{TENANCY}/workspacetypes/with-issuer", {"spec": {"authenticationConfigurations": [{"name": "own"}]}}
    )
    who(tenant.inside, token)
    tenant.home.delete(f"{TENANCY}/workspaceauthenticationconfigurations/own")
    who(tenant.inside, token, 401)


@pytest.mark.long
def test_an_issuer_at_an_address_that_must_not_be_called_is_not_called(tmp_path: Path, own: Issuer) -> None:
    with ShardProcess(tmp_path) as shard:
        tenant = Tenant(Api(shard, "root"), own)
        before = len(own.requests)
        who(tenant.inside, own.token(sub="dora", aud=["tenant", OWN]), 401)
        assert len(own.requests) == before


@pytest.mark.long
def test_the_first_request_of_an_issuer_may_be_any(issuer: Issuer, tmp_path: Path) -> None:
    """Its keys are fetched first; then a write proceeds as with cached keys."""
    path = tmp_path / "authentication.yaml"
    path.write_text(configuration(trusted(issuer)))
    flags = ("--authentication-config", str(path), "--egress-allow-cidr", "127.0.0.0/8")
    with ShardProcess(tmp_path / "shard", *flags) as shard:
        api = Api(shard, "root").at(workspace_under(Api(shard, "root")))
        grant(api, "oidc:alice")
        alice = Api(shard, api.cluster, token=issuer.token(sub="alice", aud="atoll"))
        alice.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "first"}})


@pytest.mark.long
def test_a_review_of_a_token_whose_issuer_is_silent_is_no_refusal_of_who_asks(root: Api, tmp_path: Path) -> None:
    with Issuer() as caller, Issuer() as silent:
        silent.down = True
        path = tmp_path / "authentication.yaml"
        path.write_text(configuration(trusted(caller), trusted(silent)))
        flags = ("--authentication-config", str(path), "--egress-allow-cidr", "127.0.0.0/8")
        with ShardProcess(tmp_path / "shard", *flags) as shard:
            api = Api(shard, "root").at(workspace_under(Api(shard, "root")))
            grant(api, "oidc:alice")
            alice = Api(shard, api.cluster, token=caller.token(sub="alice", aud="atoll"))
            spec = {"token": silent.token(sub="x", aud="atoll")}
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
            answer = alice.post("/apis/authentication.k8s.io/v1/tokenreviews", review).json
            assert not answer["status"].get("authenticated")


def test_a_workspace_may_trust_the_installations_issuer_for_an_audience_of_its_own(root: Api, issuer: Issuer) -> None:
    tenant = Tenant(root, issuer)
    grant(tenant.inside, "gina")
    token = issuer.token(sub="gina", aud=["tenant", OWN])
    found = who(tenant.inside, token)
    assert found["extra"]["authentication.kcp.io/scopes"] == [f"cluster:{tenant.cluster}"]
    who(tenant.home, token, 401)
    # What is meant for the installation is what the installation says it is, there too.
    both = issuer.token(sub="gina", aud=["atoll", "tenant", OWN])
    grant(tenant.inside, "oidc:gina")
    assert who(tenant.inside, both)["username"] == "oidc:gina"
