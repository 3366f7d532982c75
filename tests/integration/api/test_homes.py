"""Home workspaces: one per user, created on first use, accessible to that user only."""

from __future__ import annotations

import hashlib
import secrets
import string
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.clients.api import TABLE, Api, Server, configmap, eventually, workspace_under
from harness.servers.shard_process import ShardProcess

HOME = "/apis/tenancy.kcp.io/v1alpha1/workspaces/~"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def person(master: Api) -> Api:
    """A new user, in root."""
    return at(master.shard, f"person-{secrets.token_hex(4)}")


def at(shard: Server, name: str, cluster: str = "root") -> Api:
    """A user of that name, impersonated by a master."""
    api = Api(shard, cluster, "shard-admin")
    api.name = name  # type: ignore[attr-defined]
    lent = {"Impersonate-User": name, "Impersonate-Group": "system:authenticated"}
    plain = api.headers
    api.headers = lambda accept="", more=None: {**plain(accept, more), **lent}  # type: ignore[method-assign]
    return api


def test_a_home_is_made_on_first_use_and_found_again(person: Api) -> None:
    home = person.get(HOME).json
    assert (home["kind"], home["metadata"]["name"], home["status"]["phase"]) == ("Workspace", "cluster", "Ready")
    cluster, name = home["spec"]["cluster"], person.name  # type: ignore[attr-defined]
    assert home["spec"]["URL"] == f"{person.shard.url}/clusters/{cluster}"
    inside = at(person.shard, name, cluster)
    inside.post(CONFIGMAPS, configmap("mine"))
    obj = inside.get(CLUSTER).json
    annotations = obj["metadata"]["annotations"]
    assert annotations["kcp.io/path"] == f"user:{name}"
    assert annotations["internal.tenancy.kcp.io/type"] == "root:home"
    assert "owner" not in obj["spec"]
    assert obj["spec"]["createdBy"]["username"] == name
    assert person.get(HOME).json["spec"]["cluster"] == cluster
    by_path = at(person.shard, name, f"user:{name}")
    assert by_path.get(f"{CONFIGMAPS}/mine").json["metadata"]["annotations"]["kcp.io/cluster"] == cluster
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "sub"}}
    by_path.post(WORKSPACES, body)
    row = person.get(HOME, accept=TABLE).json["rows"][0]
    assert row["cells"][0] == "cluster"


def test_its_name_is_kcps(person: Api) -> None:
    number, name = int.from_bytes(hashlib.sha224(b"alice").digest()[:8]), ""
    while number:
        number, digit = divmod(number, 36)
        name = string.digits[digit] + name if digit < 10 else string.ascii_lowercase[digit - 10] + name
    assert at(person.shard, "alice").get(HOME).json["spec"]["cluster"] == name


def test_a_home_is_nobody_elses(person: Api, admin: Api) -> None:
    cluster = person.get(HOME).json["spec"]["cluster"]
    other = at(person.shard, f"other-{secrets.token_hex(4)}")
    assert other.get(HOME).json["spec"]["cluster"] != cluster
    name = other.name  # type: ignore[attr-defined]
    assert at(person.shard, name, cluster).get(CONFIGMAPS, expect=403).json["reason"] == "Forbidden"
    Api(person.shard, "root", user="").get(HOME, expect=403)


def test_first_uses_at_once_make_one_home(person: Api) -> None:
    name = person.name  # type: ignore[attr-defined]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: at(person.shard, name).get(HOME).json["spec"]["cluster"], range(8)))
    assert len(set(found)) == 1


def test_homes_are_in_root_alone_and_not_of_service_accounts(admin: Api) -> None:
    there = admin.at(workspace_under(admin))
    there.get(HOME, expect=404)
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    for cluster in (there, admin):
        token = cluster.post(path, body).json["status"]["token"]
        Api(admin.shard, "root", token=token).get(HOME, expect=403)


@pytest.mark.parametrize(
    ("flag", "code"),
    [
        pytest.param("--enable-home-workspaces=false", 404, marks=pytest.mark.long),
        ("--home-workspaces-home-creator-groups=team-x", 403),
        pytest.param("--home-workspaces-home-creator-groups=team-a,team-x", 200, marks=pytest.mark.long),
    ],
)
def test_who_may_have_a_home_is_the_operators_to_say(
    tmp_path_factory: pytest.TempPathFactory, flag: str, code: int
) -> None:
    directory = tmp_path_factory.mktemp("homes")
    (directory / "tokens.csv").write_text('alice-token,alice,u-alice,"team-a"\n')
    name, _, value = flag.partition("=")
    with ShardProcess(directory, "--token-auth-file", str(directory / "tokens.csv"), name, value) as shard:
        Api(shard, "root", token="alice-token").get(HOME, expect=code)


@pytest.mark.parametrize("name", ["oidc:alice", "Alice", "alice@example.com"])
def test_a_name_that_is_no_path_segment_has_no_path_of_somebody_elses(person: Api, name: str) -> None:
    name = f"{name}-{secrets.token_hex(4)}".replace("Alice-", "Alice")
    home = at(person.shard, name).get(HOME).json
    cluster = home["spec"]["cluster"]
    assert home["metadata"]["annotations"]["kcp.io/path"] == cluster
    inside = at(person.shard, name, cluster)
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "sub"}}
    inside.post(WORKSPACES, body)
    found = eventually(lambda: inside.get(f"{WORKSPACES}/sub").json["spec"].get("URL"), "the child")
    assert found == f"{person.shard.url}/clusters/{cluster}:sub"
    at(person.shard, name, f"{cluster}:sub").get(CONFIGMAPS)


def test_a_path_is_not_taken_by_saying_so(person: Api) -> None:
    home, name = person.get(HOME).json["spec"]["cluster"], person.name  # type: ignore[attr-defined]
    changed = {"metadata": {"annotations": {"kcp.io/path": "acme:prod"}}}
    at(person.shard, name, home).patch(CLUSTER, changed, expect=422)
    at(person.shard, name, "acme:prod").get(CONFIGMAPS, expect=403)


def test_who_may_not_create_workspaces_gets_no_home(master: Api) -> None:
    rbac, name = "/apis/rbac.authorization.k8s.io/v1", f"guest-{secrets.token_hex(4)}"
    rules = [
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
        {"apiGroups": ["tenancy.kcp.io"], "resources": ["workspaces"], "verbs": ["get"]},
    ]
    master.post(f"{rbac}/clusterroles", {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    # Root binds tenancy.kcp.io: the second user is the first one under the export's maximal permission policy.
    users = [{**reference, "kind": "User", "name": each} for each in (name, f"apis.kcp.io:binding:{name}")]
    body = {"kind": "ClusterRoleBinding", "metadata": {"name": name}, "roleRef": reference, "subjects": users}
    master.post(f"{rbac}/clusterrolebindings", body)
    lent = {"Impersonate-User": name, "Impersonate-Group": "system:unauthenticated"}
    try:
        answer = master.send("GET", HOME, expect=403, headers=lent)
        assert answer.message == (
            f'workspaces.tenancy.kcp.io "~" is forbidden: User "{name}" cannot create resource "workspaces" '
            'in API group "tenancy.kcp.io" at the cluster scope: workspace access not permitted'
        )
    finally:
        master.delete(f"{rbac}/clusterrolebindings/{name}")
        master.delete(f"{rbac}/clusterroles/{name}")
