"""Rights and APIs of workspaces on other shards: a shard binds, permits and rejects by replicated rows."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from atoll.machinery.kcp.sharding import replication_level
from harness.clients.api import MERGE, Api, Object, configmap, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    accepted,
    an_object,
    binding,
    claim,
    condition,
    export,
    make_export,
    objects_path,
    phase,
    schema,
)
from harness.clients.site_workspaces import WORKSPACES, on, ready, workspace
from harness.servers.site import ServingProcess, Site

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES, ROLE_BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
MAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = schema("circles")
PATIENCE_S = 60.0


def place(site: Site, admin: Api, shard: str) -> Api:
    """kcp-admin in a new workspace below root on a shard, at that shard."""
    made = ready(admin, workspace(admin, selector=on(shard)))
    return site.shards[shard].api(made["spec"]["cluster"])


def role(name: str, *rules: Object) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }


def given(name: str, of: str, user: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": of, "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }


def may_bind(provider: Api, user: str) -> None:
    provider.post(
        ROLES,
        role(
            "binder",
            {"verbs": ["bind"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "resourceNames": ["shapes"]},
        ),
    )
    provider.post(ROLE_BINDINGS, given("binder", "binder", user))


def is_code(api: Api, method: str, path: str, code: int, body: Any = None) -> bool:
    return api.send(method, path, body).code == code


def bound(api: Api, provider: str, called: str = "") -> Object:
    """Bind as soon as it is allowed, and wait until it is Bound."""
    made = binding(provider, "shapes", called=called)
    name = made["metadata"]["name"]
    eventually(lambda: api.send("POST", BINDINGS, made).code in (201, 409), "a binding that is let in", PATIENCE_S)
    return wait_bound(api, name)


def wait_bound(api: Api, name: str) -> Object:
    def found() -> Object | None:
        obj: Object = api.get(f"{BINDINGS}/{name}").json
        return obj if phase(obj) == "Bound" else None

    bound: Object = eventually(found, f"{name} is Bound", PATIENCE_S)
    return bound


@pytest.fixture
def provider(site: Site, admin: Api) -> Api:
    return place(site, admin, "shard-1")


@pytest.fixture
def consumer(site: Site, admin: Api) -> Api:
    return place(site, admin, "shard-2")


@pytest.fixture
def user(site: Site, consumer: Api) -> str:
    """A user who administers the consumer, without rights elsewhere."""
    name = f"alice-{uuid.uuid4().hex[:6]}"
    consumer.post(ROLE_BINDINGS, given(name, "cluster-admin", name))
    return name


@pytest.fixture
def own(site: Site, consumer: Api, user: str) -> Api:
    """The consumer's workspace as that user."""
    return site.shards["shard-2"].api(consumer.cluster, user)


def test_who_may_bind_an_export_elsewhere_is_said_where_it_is(
    provider: Api, consumer: Api, own: Api, user: str
) -> None:
    make_export(provider, "shapes", CIRCLES)
    refused = own.send("POST", BINDINGS, binding(provider.cluster, "shapes"))
    unknown = own.send("POST", BINDINGS, binding("0nosuchcluster00", "shapes"))
    assert (refused.code, unknown.code) == (403, 403)
    assert refused.message == unknown.message.replace("0nosuchcluster00", provider.cluster)
    may_bind(provider, user)
    bound(own, provider.cluster)
    own.post(objects_path(CIRCLES), an_object(CIRCLES, "round"))

    provider.delete(f"{ROLE_BINDINGS}/binder")
    another = binding(provider.cluster, "shapes", called="another")
    eventually(lambda: is_code(own, "POST", f"{BINDINGS}?dryRun=All", 403, another), "the right is gone", PATIENCE_S)
    # Existing bindings stay.
    own.get(f"{objects_path(CIRCLES)}/round")


def test_the_administrator_of_a_provider_may_bind_his_own_export_from_anywhere(
    site: Site, admin: Api, provider: Api, consumer: Api, own: Api, user: str
) -> None:
    provider.post(ROLE_BINDINGS, given("admins", "cluster-admin", user))
    make_export(provider, "shapes", CIRCLES)
    bound(own, provider.cluster)


def test_a_provider_limits_his_consumers_on_other_shards(provider: Api, own: Api, user: str) -> None:
    make_export(provider, "shapes", CIRCLES, maximalPermissionPolicy={"local": {}})
    may_bind(provider, user)
    bound(own, provider.cluster)
    body = an_object(CIRCLES, "round")
    assert is_code(own, "POST", objects_path(CIRCLES), 403, body)
    provider.post(ROLES, role("limits", {"verbs": ["*"], "apiGroups": [CIRCLES["spec"]["group"]], "resources": ["*"]}))
    provider.post(ROLE_BINDINGS, given("limits", "limits", f"apis.kcp.io:binding:{user}"))
    eventually(lambda: is_code(own, "POST", objects_path(CIRCLES), 201, body), "it is permitted", PATIENCE_S)
    provider.delete(f"{ROLE_BINDINGS}/limits")
    path = f"{objects_path(CIRCLES)}/round"
    eventually(lambda: is_code(own, "GET", path, 403), "it is permitted no more", PATIENCE_S)
    # A deleted export has no policy: consumers access their objects by their own RBAC.
    provider.delete(f"{EXPORTS}/shapes")
    eventually(lambda: is_code(own, "GET", path, 200), "it polices no more", PATIENCE_S)
    assert phase(own.get(f"{BINDINGS}/shapes").json) == "Bound"


def test_without_its_export_a_binding_stays_bound(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    bound(consumer, provider.cluster)
    provider.delete(f"{EXPORTS}/shapes")

    def reason() -> str:
        found = condition(consumer.get(f"{BINDINGS}/shapes").json, "APIExportValid")
        return str(found.get("reason", ""))

    eventually(lambda: reason() == "APIExportNotFound", "the binding says so", PATIENCE_S)
    assert phase(consumer.get(f"{BINDINGS}/shapes").json) == "Bound"
    consumer.post(objects_path(CIRCLES), an_object(CIRCLES, "round"))


@pytest.mark.long
def test_an_export_elsewhere_made_anew_gets_nothing_of_a_binding_that_pins_its_identity(
    site: Site, provider: Api, consumer: Api
) -> None:
    everything = claim("configmaps")
    identity = make_export(provider, "shapes", CIRCLES, claims=[everything])["status"]["identityHash"]
    made = binding(provider.cluster, "shapes", [accepted(everything)])
    made["metadata"]["annotations"] = {"bindings.atoll.dev/identity": identity}
    eventually(lambda: consumer.send("POST", BINDINGS, made).code == 201, "the binding is let in", PATIENCE_S)
    wait_bound(consumer, "shapes")
    consumer.post(MAPS, configmap("mine"))

    def claimed() -> bool:
        return "claimed.internal" in str(consumer.get(f"{MAPS}/mine").json["metadata"].get("labels"))

    def reason() -> str:
        found = condition(consumer.get(f"{BINDINGS}/shapes").json, "APIExportValid")
        return str(found.get("reason", ""))

    eventually(claimed, "the claim is applied", PATIENCE_S)
    provider.delete(f"{EXPORTS}/shapes")
    provider.delete("/api/v1/namespaces/kcp-system/secrets/shapes")
    eventually(lambda: reason() == "APIExportNotFound", "the export is gone", PATIENCE_S)
    provider.post(EXPORTS, export("shapes", CIRCLES, claims=[everything]))
    eventually(lambda: reason() == "IdentityMismatch", "it is another one", PATIENCE_S)
    eventually(lambda: not claimed(), "the claim is withdrawn", PATIENCE_S)
    found = consumer.get(f"{BINDINGS}/shapes").json
    assert [each["schema"]["identityHash"] for each in found["status"]["boundResources"]] == [identity]
    consumer.post(objects_path(CIRCLES), an_object(CIRCLES, "round"))


def test_an_export_that_is_to_stay_in_its_region_does(provider: Api, consumer: Api, own: Api, user: str) -> None:
    """No shard of this site has a region, so no shard is in that of another."""
    narrow, wide = (
        {"metadata": {"annotations": {replication_level.LEVEL: value}}} for value in (replication_level.REGION, None)
    )
    make_export(provider, "shapes", CIRCLES)
    may_bind(provider, user)
    trial = binding(provider.cluster, "shapes", called="trial")

    def tried(code: int) -> None:
        eventually(lambda: is_code(own, "POST", f"{BINDINGS}?dryRun=All", code, trial), f"a {code}", PATIENCE_S)

    tried(201)
    for _ in range(2):
        provider.patch(f"{EXPORTS}/shapes", narrow, kind=MERGE)
        tried(403)
        provider.patch(f"{EXPORTS}/shapes", wide, kind=MERGE)
        tried(201)
    refused = provider.send(
        "PATCH", f"{EXPORTS}/shapes", {"metadata": {"annotations": {replication_level.LEVEL: "planet"}}}, kind=MERGE
    )
    assert refused.code == 403


def test_a_path_to_another_shard_says_so_and_a_name_says_nothing(site: Site, admin: Api, provider: Api) -> None:
    made = next(each for each in admin.get(WORKSPACES).json["items"] if each["spec"].get("cluster") == provider.cluster)
    path = f"root:{made['metadata']['name']}"
    api = site.root.api(path)
    eventually(lambda: is_code(api, "GET", MAPS, 429), "its own Workspace leads there", PATIENCE_S)
    answer = api.send("GET", MAPS)
    assert (answer.code, answer.header("retry-after")) == (429, "1")
    assert answer.body.strip() == b"Not found on this shard"
    for shard in ("root", "shard-2"):
        process = site.shards[shard]
        by_name = process.api(provider.cluster, "somebody").send("GET", MAPS)
        unknown = process.api("0nosuchcluster00", "somebody").send("GET", MAPS)
        assert by_name.code == unknown.code == 403
        assert by_name.message == unknown.message.replace("0nosuchcluster00", provider.cluster)
        assert process.api("root:nosuchworkspace", "somebody").send("GET", MAPS).code == 403
    assert site.shards["shard-1"].api(path).send("GET", MAPS).code == 200


@pytest.mark.long
def test_default_bindings_of_a_type_reach_workspaces_on_every_shard(site: Site, admin: Api, provider: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    name = f"shaped-{uuid.uuid4().hex[:6]}"
    spec: Object = {
        "extend": {"with": [{"name": "universal", "path": "root"}]},
        "defaultAPIBindingLifecycle": "Maintain",
        "defaultAPIBindings": [{"path": provider.cluster, "export": "shapes"}],
    }
    meta = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}}
    eventually(lambda: is_code(admin, "POST", TYPES, 201, {**meta, "spec": spec}), "the type is let in", PATIENCE_S)
    for shard in ("root", "shard-2"):
        made = ready(admin, workspace(admin, type=name, selector=on(shard)))
        api = site.shards[shard].api(made["spec"]["cluster"])
        api.post(objects_path(CIRCLES), an_object(CIRCLES, "round"))
    # A default binding added to the type later is created in existing workspaces.
    make_export(provider, "more", schema("squares"))
    spec["defaultAPIBindings"].append({"path": provider.cluster, "export": "more"})
    gaining = {"spec": spec}
    eventually(
        lambda: admin.send("PATCH", f"{TYPES}/{name}", gaining, kind=MERGE).code == 200, "it gains one", PATIENCE_S
    )
    squares = schema("squares")
    one = an_object(squares, "a")
    eventually(lambda: is_code(api, "POST", objects_path(squares), 201, one), "it is bound", PATIENCE_S)


@pytest.mark.long
def test_a_service_account_is_somebody_on_other_shards_until_it_is_deleted(
    site: Site, provider: Api, consumer: Api
) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    provider.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = provider.post(f"{accounts}/bot/token", asked).json["status"]["token"]
    bot = site.shards["shard-2"].with_token(token, consumer.cluster)
    eventually(lambda: is_code(bot, "GET", MAPS, 403), "it is somebody", PATIENCE_S)
    name = f"system:kcp:serviceaccount:{provider.cluster}:default:bot"
    consumer.post(ROLE_BINDINGS, given("bot", "cluster-admin", name))
    made = configmap("from-elsewhere")
    eventually(lambda: is_code(bot, "POST", MAPS, 201, made), "it is let in", PATIENCE_S)
    assert site.shards["shard-2"].with_token(token + "x", consumer.cluster).send("GET", MAPS).code == 401
    provider.delete(f"{accounts}/bot")
    eventually(lambda: is_code(bot, "GET", MAPS, 401), "the account is gone", PATIENCE_S)


@contextlib.contextmanager
def stopped(process: ServingProcess) -> Iterator[None]:
    process.stop()
    try:
        yield
    finally:
        process.start()


@pytest.mark.long
def test_without_the_root_shard_others_bind_authorize_and_make_workspaces_in_their_own(
    site: Site, provider: Api, consumer: Api, own: Api, user: str
) -> None:
    make_export(provider, "shapes", CIRCLES)
    may_bind(provider, user)
    with stopped(site.root):
        bound(own, provider.cluster)
        own.post(objects_path(CIRCLES), an_object(CIRCLES, "round"))
        own.post(MAPS, configmap("meanwhile"))
        assert is_code(site.shards["shard-2"].api(consumer.cluster, "mallory"), "GET", MAPS, 403)
        child = ready(own, workspace(own, selector=on("shard-2")))
        site.shards["shard-2"].api(child["spec"]["cluster"], user).post(MAPS, configmap("in-the-child"))
        provider.delete(f"{ROLE_BINDINGS}/binder")
        another = binding(provider.cluster, "shapes", called="another")
        eventually(lambda: is_code(own, "POST", f"{BINDINGS}?dryRun=All", 403, another), "a revocation", PATIENCE_S)
