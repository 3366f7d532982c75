"""`kubectl atoll import` from one site into another: order, identities, claims, rights, owners, and runs after runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import pytest

from atoll.cli.kubectl.tree_import import command, source
from harness.clients.api import Api, configmap, crd, define, eventually
from harness.clients.exports import BINDINGS, EXPORTS, accepted, bind, claim, make_export, schema, wait_bound
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.long

WORKSPACES, TYPES = (f"/apis/tenancy.kcp.io/v1alpha1/{each}" for each in ("workspaces", "workspacetypes"))
RBAC, CLUSTER = "/apis/rbac.authorization.k8s.io/v1", "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
BOATS = "/apis/sea.example.com/v1/namespaces/default/boats"
CONFIGMAPS, SECRETS = (f"/api/v1/namespaces/default/{each}" for each in ("configmaps", "secrets"))
CLAIMS = [claim("secrets", "", "get"), claim("configmaps")]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    """The other site."""
    directory = tmp_path_factory.mktemp("origin")
    (directory / "tokens.csv").write_text("alice-token,alice,u-alice\n")
    with ShardProcess(directory, "--token-auth-file", str(directory / "tokens.csv")) as shard:
        yield shard


class Tree:
    """Workspaces below `root:<name>`. The first by name is of a type of the last, whose exports it binds."""

    def __init__(self, origin: ShardProcess, shard: ShardProcess, name: str) -> None:
        self._open = contextlib.ExitStack()
        self._places: dict[tuple[ShardProcess, str], Api] = {}
        self.servers, self.top = (origin, shard), f"root:{name}"
        self.origin, self.shard = self._at(origin, "root"), self._at(shard, "root")
        self.kubeconfigs = origin.kubeconfig, shard.kubeconfig
        self._workspace("root", name, "organization")
        self._provider()
        self._consumer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def origin_at(self, workspace: str = "") -> Api:
        """A workspace at the source."""
        return self._at(self.servers[0], ":".join(filter(None, [self.top, workspace])))

    def site_at(self, workspace: str = "") -> Api:
        """A workspace of the site."""
        return self._at(self.servers[1], ":".join(filter(None, [self.top, workspace])))

    def _at(self, server: ShardProcess, path: str) -> Api:
        if (server, path) not in self._places:
            self._places[server, path] = self._open.enter_context(contextlib.closing(Api(server, path)))
        return self._places[server, path]

    def run(self, *flags: str) -> int:
        source, site = map(str, self.kubeconfigs)
        flags = ("--rate", "1000", "--path", self.top, *flags)
        return command.dispatch(["--from-kubeconfig", source, "--kubeconfig", site, *flags])

    def _workspace(self, parent: str, name: str, kind: str, path: str = "root") -> None:
        there = self._at(self.servers[0], parent)
        body = {"metadata": {"name": name}, "spec": {"type": {"name": kind, "path": path}}}
        there.post(WORKSPACES, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", **body})
        eventually(lambda: there.get(f"{WORKSPACES}/{name}").json.get("status", {}).get("phase") == "Ready", name)

    def _provider(self) -> None:
        self._workspace(self.top, "provider", "universal")
        provider, path = self.origin_at("provider"), f"{self.top}:provider"
        sails = make_export(provider, "sails", schema("sails", "sea.example.com"))
        identity = sails["status"]["identityHash"]
        workspaces = self.origin.get(f"{EXPORTS}/tenancy.kcp.io").json["status"]["identityHash"]
        self.claims = [
            *CLAIMS,
            claim("sails", "sea.example.com", identity=identity),
            claim("workspaces", "tenancy.kcp.io", identity=workspaces),
        ]
        make_export(provider, "boats", schema("boats", "sea.example.com"), claims=self.claims)
        spec = {
            "extend": {"with": [{"name": "universal", "path": "root"}]},
            "defaultAPIBindings": [{"path": path, "export": "sails"}],
            "defaultChildWorkspaceType": {"name": "universal", "path": "root"},
        }
        kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType"}
        provider.post(TYPES, {**kind, "metadata": {"name": "harbour"}, "spec": spec})

    def _consumer(self) -> None:
        path = f"{self.top}:provider"
        self._workspace(self.top, "bay", "harbour", path)
        bay = self.origin_at("bay")
        wait_bound(
            bay,
            next(
                each["metadata"]["name"]
                for each in bay.get(BINDINGS).json["items"]
                if each["spec"]["reference"]["export"]["name"] == "sails"
            ),
        )
        answers = [accepted(each, "Rejected" if each["resource"] == "secrets" else "Accepted") for each in self.claims]
        bind(bay, path, "boats", answers)
        boat = {"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": {"name": "ark"}, "spec": {"size": 3}}
        made = bay.post(BOATS, boat).json
        bay.put(f"{BOATS}/ark/status", {**made, "status": {"replicas": 4}})
        owner = {"apiVersion": "sea.example.com/v1", "kind": "Boat", "name": "ark", "uid": made["metadata"]["uid"]}
        bay.post(CONFIGMAPS, configmap("cargo", {"a": "b"}, ownerReferences=[owner]))
        bay.post(
            SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "code"}, "data": {"key": "c2VhIQ=="}}
        )
        define(bay, crd("gulls", "sky.example.com"))
        gull = {
            "apiVersion": "sky.example.com/v1",
            "kind": "Gull",
            "metadata": {"name": "jon", "finalizers": ["a.b/c"]},
        }
        bay.post("/apis/sky.example.com/v1/namespaces/default/gulls", gull)
        cluster = self.origin_at("provider").get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User"}
        names = ["alice", f"system:kcp:serviceaccount:{cluster}:default:default"]
        bay.post(
            f"{RBAC}/clusterrolebindings",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "friends"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [{**subject, "name": name} for name in names],
            },
        )
        admins = bay.get(f"{RBAC}/clusterrolebindings/workspace-admin").json
        bay.put(f"{RBAC}/clusterrolebindings/workspace-admin", {**admins, "subjects": [{**subject, "name": "alice"}]})
        bay.post(
            "/api/v1/namespaces/default/resourcequotas",
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "few"},
                "spec": {"hard": {"configmaps": "1"}},
            },
        )
        limits = {
            "authorization.kcp.io/required-groups": "system:authenticated",
            "core.kcp.io/max-total-objects": "9000",
        }
        bay.patch(CLUSTER, {"metadata": {"annotations": limits}})


@pytest.fixture(scope="module")
def tree(origin: ShardProcess, shard: ShardProcess) -> Iterator[Tree]:
    with Tree(origin, shard, "lagoon") as made:
        yield made


def test_a_dry_run_writes_nothing_and_says_what_it_would(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree.run("--dry-run") == 0
    out = capsys.readouterr().out
    assert "3 workspaces from root:lagoon down." in out
    assert "Would be: " in out
    assert "Not carried: uids" in out
    assert tree.shard.get(f"{WORKSPACES}/lagoon", expect=0).code == 404


def test_a_tree_is_carried_whole_and_a_second_run_writes_nothing(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tree.run() == 0, capsys.readouterr()
    _check(tree)
    before = _revisions(tree)
    capsys.readouterr()
    assert tree.run() == 0
    out = capsys.readouterr().out
    assert "created" not in out
    assert "changed" not in out
    assert _revisions(tree) == before


def _revisions(tree: Tree) -> list[tuple[str, str, str]]:
    """Every object's name and revision, but of what the system renews."""
    kinds = (WORKSPACES, TYPES, EXPORTS, BINDINGS, f"{RBAC}/clusterrolebindings", CONFIGMAPS, SECRETS, BOATS)
    found = []
    for name in ("", "bay", "provider"):
        for kind in kinds:
            answer = tree.site_at(name).get(kind, expect=0)
            items = answer.json["items"] if answer.code == 200 else []
            found += [(kind, each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in items]
    return found


def _check(tree: Tree) -> None:
    """What is in the site is what is at the source, with the site's own names."""
    there, here = tree.origin_at("provider"), tree.site_at("provider")
    for name in ("boats", "sails"):
        assert (
            here.get(f"{EXPORTS}/{name}").json["status"]["identityHash"]
            == there.get(f"{EXPORTS}/{name}").json["status"]["identityHash"]
        )
    workspaces = tree.shard.get(f"{EXPORTS}/tenancy.kcp.io").json["status"]["identityHash"]
    bay, bound = tree.site_at("bay"), wait_bound(tree.site_at("bay"), "boats")
    states = {each["resource"]: each["state"] for each in bound["spec"]["permissionClaims"]}
    assert states == {"secrets": "Rejected", "configmaps": "Accepted", "sails": "Accepted", "workspaces": "Accepted"}
    assert workspaces in {each.get("identityHash") for each in bound["spec"]["permissionClaims"]}
    references = [each["spec"]["reference"]["export"]["name"] for each in bay.get(BINDINGS).json["items"]]
    assert sorted(references) == ["boats", "sails", "tenancy.kcp.io", "topology.kcp.io"]
    boat = bay.get(f"{BOATS}/ark").json
    assert (boat["spec"], boat["status"]) == ({"size": 3}, {"replicas": 4})
    cargo = bay.get(f"{CONFIGMAPS}/cargo").json
    assert cargo["metadata"]["ownerReferences"][0]["uid"] == boat["metadata"]["uid"]
    assert bay.get(f"{SECRETS}/code").json["data"] == {"key": "c2VhIQ=="}
    gull = bay.get("/apis/sky.example.com/v1/namespaces/default/gulls/jon").json
    assert gull["metadata"]["finalizers"] == ["a.b/c"]
    cluster = here.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
    friends = bay.get(f"{RBAC}/clusterrolebindings/friends").json["subjects"]
    assert [each["name"] for each in friends] == ["alice", f"system:kcp:serviceaccount:{cluster}:default:default"]
    admins = bay.get(f"{RBAC}/clusterrolebindings/workspace-admin").json["subjects"]
    assert [each["name"] for each in admins] == ["alice"]
    annotations = bay.get(CLUSTER).json["metadata"]["annotations"]
    assert annotations["authorization.kcp.io/required-groups"] == "system:authenticated"
    assert annotations["core.kcp.io/max-total-objects"] == "9000"


def test_what_is_there_with_other_content_is_named_and_replaced_only_when_asked(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.run()
    bay = tree.site_at("bay")
    cargo = bay.get(f"{CONFIGMAPS}/cargo").json
    bay.put(f"{CONFIGMAPS}/cargo", {**cargo, "data": {"a": "other"}})
    capsys.readouterr()
    assert tree.run() == 1
    assert "root:lagoon:bay: configmaps default/cargo is in the site with other content" in capsys.readouterr().err
    assert bay.get(f"{CONFIGMAPS}/cargo").json["data"] == {"a": "other"}
    assert tree.run("--overwrite") == 0
    assert bay.get(f"{CONFIGMAPS}/cargo").json["data"] == {"a": "b"}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("writes", [1, 3, 5, 8, 13, 21])
def test_a_run_after_one_that_was_killed_ends_the_same(
    origin: ShardProcess, shard: ShardProcess, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    left = [writes]
    send = source.SpacedHttpClient.request

    async def dying(self: source.SpacedHttpClient, method: str, target: str, *rest: Any, **more: Any) -> Any:
        if method != "GET":
            left[0] -= 1
        if left[0] < 0:
            raise Killed
        return await send(self, method, target, *rest, **more)

    with Tree(origin, shard, f"kill-{writes}") as tree:
        monkeypatch.setattr(source.SpacedHttpClient, "request", dying)
        with pytest.raises(Killed):
            tree.run()
        monkeypatch.undo()
        assert tree.run() == 0
        _check(tree)
