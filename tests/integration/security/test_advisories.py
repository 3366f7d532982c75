"""Published vulnerabilities of similar servers; each guard is removed as well, to prove that its test fails."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from atoll.machinery.apiserver.authorization import groups
from harness.clients.api import APPLY, JSON_PATCH, MERGE, Api, Object, configmap
from harness.clients.tenants import CLUSTER, CONFIGMAPS, RBAC, TENANCY, Scene, allow, bind, token_file, user, whoami
from harness.servers.mutant_shard import MutantShard
from harness.servers.shard_process import ShardProcess, process_of

SCOPES, WARRANT = "Authentication.kcp.io%2Fscopes", "Authorization.kcp.io%2Fwarrant"


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantShard]:
    directory = tmp_path_factory.mktemp("town")
    with MutantShard(directory, *token_file(directory)) as running:
        yield running


@pytest.fixture
def scene(shard: MutantShard) -> Scene:
    return Scene(Api(shard, "root"))


# --- impersonation ---


def reserved() -> Iterator[dict[str, str]]:
    """Headers with each name that the code reserves."""
    made = (f"{prefix}x" for prefix in (*groups.RESERVED_PREFIXES, *groups.LIFECYCLE_PREFIXES))
    for group in (*groups.PRIVILEGED_GROUPS, *made):
        if group != "system:authenticated":
            yield {"Impersonate-User": "alice", "Impersonate-Group": group}
    for prefix in groups.RESERVED_PREFIXES:
        yield {"Impersonate-User": f"{prefix}x"}
    for key in ("Authentication.kcp.io%2Fcluster-name", "Anything.kcp.io%2fx"):
        yield {"Impersonate-User": "alice", f"Impersonate-Extra-{key}": "x"}
    for power in ({"user": "system:kcp:x"}, {"user": "x", "groups": ["system:masters"]}):
        yield {"Impersonate-User": "alice", f"Impersonate-Extra-{WARRANT}": json.dumps(power)}


def test_who_administers_a_workspace_borrows_no_power_over_it(scene: Scene) -> None:
    assert whoami(scene.helper, {"Impersonate-User": "alice"})["status"]["userInfo"]["username"] == "alice"
    for headers in reserved():
        answer = scene.helper.send("GET", CONFIGMAPS, headers=headers)
        assert answer.code == 403, headers
        assert answer.message.endswith("is not allowed for the requestor"), headers


def test_whom_one_becomes_here_is_nobody_in_another_workspace(scene: Scene) -> None:
    """Not even within one request that reads another workspace: a type there, which alice may use."""
    other = Scene(scene.root)
    other.type("hers")
    allow(other.here, "use", "alice", apiGroups=["tenancy.kcp.io"], resources=["workspacetypes"], verbs=["use"])
    allow(scene.here, "make", "alice", apiGroups=["tenancy.kcp.io"], resources=["workspaces"], verbs=["create"])
    body = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"generateName": "w-"},
        "spec": {"type": {"name": "hers", "path": other.here.cluster}},
    }
    scene.alice.post(f"{TENANCY}/workspaces", body)
    answer = scene.helper.send("POST", f"{TENANCY}/workspaces", body, headers={"Impersonate-User": "alice"})
    assert answer.code == 403
    assert "missing verb='use' permission" in answer.message


def test_what_a_provider_keeps_for_the_system_no_administrator_writes(scene: Scene) -> None:
    scene.child(scene.here, "w", scene.type("plain").rpartition(":")[2], "Ready")
    path = f"{TENANCY}/workspaces/w/status"
    for headers in ({}, {"Impersonate-User": "alice"}, {"Impersonate-User": "helper"}):
        answer = scene.helper.send("PATCH", path, {"status": {"phase": "Unavailable"}}, kind=MERGE, headers=headers)
        assert answer.code == 403, headers
    for resource in ("apibindings", "apiexports"):
        path = f"/apis/apis.kcp.io/v1alpha2/{resource}/any/status"
        for method, kind in (("GET", ""), ("PUT", ""), ("PATCH", MERGE)):
            assert scene.helper.send(method, path, None if method == "GET" else {}, kind=kind).code == 403, path


# --- writes through the views ---


def test_through_a_view_an_initializer_takes_itself_away_and_does_no_more(scene: Scene) -> None:
    first = scene.type("first", initializer=True)
    second = scene.type("second", {"name": "first", "path": scene.here.cluster}, initializer=True)
    scene.lets_initialize("worker")
    cluster = scene.child(scene.helper, "w", "second")
    view, path = scene.view(first, cluster), f"{CLUSTER}/status"
    whole = view.get(CLUSTER).json
    changes: list[Object] = [
        {"phase": "Ready"},
        {"phase": "Deleting"},
        {"URL": "https://192.0.2.1"},
        {"initializers": []},
        {"initializers": [first]},
        {"initializers": [first, second, "root:universal"]},
        {"terminators": ["root:x1"]},
    ]
    for status in changes:
        patch = [{"op": "add", "path": f"/status/{field}", "value": value} for field, value in status.items()]
        applied = {"apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": {"name": "cluster"}}
        apply = json.dumps({**applied, "status": status}).encode()
        put = {**whole, "status": {**whole["status"], **status}}
        for query in ("", "?dryRun=All"):
            assert view.send("PATCH", path + query, {"status": status}, kind=MERGE).code == 422, status
            assert view.send("PATCH", path + query, patch, kind=JSON_PATCH).code == 422, status
            assert view.send("PUT", path + query, put).code in {409, 422}, status
        answer = view.send("PATCH", f"{path}?fieldManager=me&force=true", apply, kind=APPLY)
        assert answer.code in {403, 415, 422}, status
    view.patch(path, {"spec": {"directlyDeletable": True}, "metadata": {"annotations": {"kcp.io/path": "root:x"}}})
    found = view.get(CLUSTER).json
    assert found["status"]["initializers"] == [first, second]
    assert (found["status"]["phase"], found["spec"]) == ("Initializing", whole["spec"])
    assert found["metadata"]["annotations"] == whole["metadata"]["annotations"]


def test_who_owns_a_workspace_does_not_say_what_it_is(scene: Scene) -> None:
    """Neither its readiness, nor its location, type and owner."""
    scene.type("made", initializer=True)
    cluster = scene.child(scene.helper, "w", "made")
    owner = scene.by("helper", cluster)
    changes: list[Object] = [{"phase": "Ready"}, {"initializers": []}, {"URL": "https://192.0.2.1"}]
    for change in changes:
        assert owner.send("PATCH", f"{CLUSTER}/status", {"status": change}, kind=MERGE).code == 422, change
    for key in (
        "kcp.io/path",
        "internal.tenancy.kcp.io/type",
        "authorization.kcp.io/required-groups",
        "experimental.tenancy.kcp.io/owner",
        "internal.kcp.io/migrating",
    ):
        annotated = {"metadata": {"annotations": {key: "root:x"}}}
        assert owner.send("PATCH", CLUSTER, annotated, kind=MERGE).code == 422, key
    master = {"username": "x", "groups": ["system:masters"]}
    changes = [{"owner": None}, {"initializers": []}, {"createdBy": master}]
    for spec in changes:
        assert owner.send("PATCH", CLUSTER, {"spec": spec}, kind=MERGE).code == 422, spec
    assert owner.send("PATCH", CLUSTER, {"metadata": {"finalizers": []}}, kind=MERGE).code == 422
    # Types of a client may lack the field that says who made it.
    whole = owner.get(CLUSTER).json
    creator = whole["spec"].pop("createdBy")
    assert owner.send("PUT", CLUSTER, whole).json["spec"]["createdBy"] == creator


def test_who_made_a_workspace_is_not_written_anew_before_it_is_placed(scene: Scene) -> None:
    """The scheduler takes the owner from the Workspace; an unscheduled Workspace leaves time to write one."""
    scene.type("made", initializer=True)
    nowhere = {"selector": {"matchLabels": {"shard": "none"}}}
    scene.child(scene.helper, "w", "made", "Scheduling", location=nowhere)
    path, forged = f"{TENANCY}/workspaces/w", json.dumps({"username": "x", "groups": ["system:masters"]})
    annotations = {"experimental.tenancy.kcp.io/owner": forged, "authorization.kcp.io/required-groups": "mine"}
    scene.helper.patch(path, {"metadata": {"annotations": annotations}})
    scene.helper.patch(path, {"spec": {"location": None}})
    cluster = scene.reach("w", "Initializing")
    found = scene.root.at(cluster).get(CLUSTER).json
    assert found["spec"]["createdBy"]["username"] == "helper"
    assert "system:masters" not in json.dumps(found)
    assert "authorization.kcp.io/required-groups" not in found["metadata"]["annotations"]


# --- identity headers ---

FORGED = (
    b"X-Remote-User: master\r\nX-Remote-Group: system:masters",
    b"x-rEMOTE-uSER: master",
    b"X_Remote_User: master",
    b"X-Remote_Group: system:masters",
    b"X%2DRemote-User: master",
    b"X-Remote-User: nobody\r\nX-Remote-User: master",
    b"X-Remote-Extra-Authorization.kcp.io%2Fwarrant: {}",
    b"Connection: x-remote-user\r\nX-Remote-User: master",
    b"X-Remote-User : master",
    b"X-Remote-User:\tmaster",
    b"X-Other: a\r\n X-Remote-User: master",
    b"X-Remote-Group: system:masters",
    b"X-Remote-Uid: 1",
)


def sent(shard: ShardProcess, request: bytes) -> bytes:
    """The first line of the answer to bytes on a new connection; empty if it was just closed."""
    parts = urlsplit(shard.url)
    address = parts.hostname or "", parts.port or 0
    with (
        socket.create_connection(address, timeout=60) as plain,
        shard.tls().wrap_socket(plain, server_hostname=parts.hostname) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall(request)
        return answer.readline()


def test_no_spelling_of_an_identity_header_is_taken_for_one(scene: Scene) -> None:
    shard, body = process_of(scene.root), b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
    paths = (
        b"/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews",
        b"/healthz",
        b"/version",
        b"/services/initializingworkspaces/root:universal/clusters/*/apis",
        b"/clusters/*/api/v1/secrets",
    )
    plain_codes: dict[tuple[bytes, bytes], list[bytes]] = {}
    for header in FORGED:
        for path in paths:
            for token in (b"", b"Authorization: Bearer nobody-token\r\n"):
                method = b"POST" if path.endswith(b"reviews") else b"GET"
                length = b"%d" % (len(body) if method == b"POST" else 0)
                head = method + b" " + path + b" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + token
                tail = b"\r\nConnection: close\r\nContent-Length: " + length + b"\r\n\r\n"
                tail += body if method == b"POST" else b""
                answer = sent(shard, head + header + tail)
                plain = plain_codes.setdefault((path, token), sent(shard, head + b"X-A: b" + tail).split()[1:2])
                assert answer.split()[1:2] in ([], [b"400"], plain), (header, path, answer)


def test_a_connection_remembers_nobody(scene: Scene) -> None:
    """Requests of several users over one connection, as a proxy sends them."""
    shared = scene.by("master")
    tokens = {"nobody": "nobody-token", "helper": "helper-token", "master": "master-token", "alice": "alice-token"}
    for _ in range(5):
        for name, token in tokens.items():
            shared.token = token
            answer = shared.send(
                "POST",
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            )
            found = answer.json["status"]["userInfo"]["username"] if answer.code == 201 else ""
            assert found == ("" if name == "nobody" else name)
        shared.token = ""
        assert shared.send("GET", CONFIGMAPS).code == 403


# --- repaired without an advisory ---


def test_inside_a_workspace_nobody_reads_the_numbers_of_the_shard(scene: Scene) -> None:
    allow(scene.here, "numbers", "alice", nonResourceURLs=["/metrics", "/metrics/*"], verbs=["get"])
    for api in (scene.helper, scene.alice):
        answer = api.send("GET", "/metrics")
        assert (answer.code, b"# TYPE" in answer.body) == (501, False)


NO_CLUSTERS = (
    "root:",
    ":root",
    "root::x",
    "..",
    ".",
    "%2e%2e",
    "root%2f..",
    "*x",
    "**",
    "root:*",
    "root%00",
    "a" * 4096,
    "ROOT",
    "%c3%b6",
    "%ff",
    "root%0a",
    "root ",
    "system:",
    "system:A",
    "-a",
    "a-",
    "_",
    "root:%2e",
)


def test_no_text_in_a_url_becomes_a_cluster_that_is_none(scene: Scene) -> None:
    """Masters have all rights: if there were a row to write, they would write it."""
    bodies = {CONFIGMAPS: configmap("x"), f"{RBAC}/clusterroles": {"metadata": {"name": "x"}, "rules": []}}
    for text in NO_CLUSTERS:
        for path, body in bodies.items():
            code = scene.by("master", "").send("POST", f"/clusters/{text.replace(' ', '%20')}{path}", body).code
            assert code in {400, 403, 404}, (text[:20], code)
    found = scene.by("master", "*").get("/api/v1/configmaps").json["items"]
    clusters = {item["metadata"]["annotations"]["kcp.io/cluster"] for item in found}
    assert all(name.replace("system:", "").replace("-", "").isalnum() for name in clusters), clusters


def lent(scene: Scene, extra: dict[str, str]) -> int:
    """What a master who lends itself out as nobody, with extras, gets of the workspace's ConfigMaps."""
    headers = {"Impersonate-User": "nobody", **{f"Impersonate-Extra-{key}": value for key, value in extra.items()}}
    return scene.master.send("GET", CONFIGMAPS, headers=headers).code


def warrant(name: str = "helper", depth: int = 1, **more: object) -> str:
    found: dict[str, object] = {"user": name, **more}
    for _ in range(depth - 1):
        found = {"user": "somebody", "extra": {"authorization.kcp.io/warrant": [json.dumps(found)]}}
    return json.dumps(found)


def test_scopes_take_away_wherever_they_stand(scene: Scene) -> None:
    bind(scene.here, "cluster-admin", user("nobody"))
    here, elsewhere = f"cluster:{scene.cluster}", "cluster:elsewhere"
    assert lent(scene, {SCOPES: here}) == 200
    assert lent(scene, {SCOPES: f"{elsewhere},{here}"}) == 200
    assert lent(scene, {SCOPES: elsewhere}) == 403
    bound = {"authentication.kcp.io/scopes": [here, elsewhere]}
    assert lent(scene, {SCOPES: elsewhere, WARRANT: warrant(extra=bound)}) == 403
    masters: Object = {"groups": ["system:masters"], "extra": {"authentication.kcp.io/scopes": [elsewhere]}}
    assert lent(scene, {SCOPES: elsewhere, WARRANT: warrant("x", **masters)}) == 403


def test_warrants_end_somewhere_and_name_nobody_of_another_workspace(scene: Scene) -> None:
    assert lent(scene, {WARRANT: warrant()}) == 200
    assert lent(scene, {WARRANT: warrant(depth=3)}) == 200
    assert lent(scene, {WARRANT: warrant(depth=9)}) == 403
    robot = "system:serviceaccount:default:default"
    bind(scene.here, "cluster-admin", {"kind": "ServiceAccount", "name": "default", "namespace": "default"})
    for home, code in ((scene.cluster, 200), ("elsewhere", 403)):
        extra = {"authentication.kcp.io/cluster-name": [home]}
        assert lent(scene, {WARRANT: warrant(robot, groups=["system:authenticated"], extra=extra)}) == code
    assert lent(scene, {WARRANT: warrant(robot)}) == 403
    assert lent(scene, {WARRANT: base64.b64encode(warrant().encode()).decode()}) == 403


# --- without the guards ---

_CHAIN = """
import atoll.machinery.apiserver.authorization.chain as chain
chain.STEPS = tuple((name, (lambda q: (chain.Outcome.NEXT, ""))) if name in {} else (name, step)
                    for name, step in chain.STEPS)
"""
_PLUGIN = "import atoll.shard.admission.{0} as m\nm.{1} = lambda *a: {2}\n"
_EFFECTIVE = "import atoll.machinery.apiserver.authorization.effective_users as effective\n"
GUARDS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "groups and names of power": (
        test_who_administers_a_workspace_borrows_no_power_over_it,
        """
import atoll.machinery.apiserver.authentication.impersonation as impersonation
impersonation._check_privileges = lambda want, requestor, cluster: None
""",
    ),
    "the scope of who is borrowed": (
        test_whom_one_becomes_here_is_nobody_in_another_workspace,
        """
import atoll.machinery.apiserver.authentication.impersonation as impersonation
plain = impersonation.Impersonator.act_as
def act_as(self, *arguments):
    user = plain(self, *arguments)
    return impersonation.User(user.name, user.groups, user.uid, {})
impersonation.Impersonator.act_as = act_as
""",
    ),
    "maximal permission": (
        test_what_a_provider_keeps_for_the_system_no_administrator_writes,
        _CHAIN.format({"04-maxpermissionpolicy"}),
    ),
    "statuses of the system": (
        test_what_a_provider_keeps_for_the_system_no_administrator_writes,
        _CHAIN.format({"03-systemcrd"}),
    ),
    "what views ask of a write": (
        test_through_a_view_an_initializer_takes_itself_away_and_does_no_more,
        """
import atoll.virtualworkspaces.lifecycle as lifecycle
lifecycle.LifecycleView._check = lambda self, new, old, name: None
""",
    ),
    "what admission asks of views": (
        test_through_a_view_an_initializer_takes_itself_away_and_does_no_more,
        """
import atoll.machinery.apiserver.admission.chain as chain
def of_views(self, review):
    if review.call.restrictions.check is not None:
        review.call.restrictions.check(review.obj, review.old)
chain.Admission.validate = of_views
""",
    ),
    "phase and URL": (
        test_who_owns_a_workspace_does_not_say_what_it_is,
        _PLUGIN.format("logicalclusters", "_forward", []),
    ),
    "initializers": (
        test_who_owns_a_workspace_does_not_say_what_it_is,
        _PLUGIN.format("logicalclusters", "_through_views", []),
    ),
    "annotations": (
        test_who_owns_a_workspace_does_not_say_what_it_is,
        _PLUGIN.format("system_metadata", "_changes", []),
    ),
    "the specification": (
        test_who_owns_a_workspace_does_not_say_what_it_is,
        _PLUGIN.format("logicalclusters", "_immutable_spec", []),
    ),
    "who made it": (
        test_who_made_a_workspace_is_not_written_anew_before_it_is_placed,
        _PLUGIN.format("system_metadata", "_restore", None),
    ),
    "identity headers": (
        test_no_spelling_of_an_identity_header_is_taken_for_one,
        """
import atoll.machinery.apiserver.authentication.authenticator as authenticator
plain = authenticator.Authenticator._sender
def _sender(self, request, certificate, *more):
    sent = self._headers.sent(request.headers)
    return self._headers.user(request.headers, sent) if sent else plain(self, request, certificate, *more)
authenticator.Authenticator._sender = _sender
""",
    ),
    "whose a request is": (
        test_a_connection_remembers_nobody,
        """
import atoll.machinery.apiserver.authentication.authenticator as authenticator
plain, known = authenticator.Authenticator.identify, {}
def identify(self, request, *more):
    return known.setdefault(request.peer.port, plain(self, request, *more))
authenticator.Authenticator.identify = identify
""",
    ),
    "the numbers of the shard": (
        test_inside_a_workspace_nobody_reads_the_numbers_of_the_shard,
        """
import atoll.machinery.apiserver.serving.documents as documents
plain = documents.Documents.serve
def serve(self, request, *more):
    if request.info.path == "/metrics":
        request.info = documents.msgspec.structs.replace(request.info, workspace="")
    return plain(self, request, *more)
documents.Documents.serve = serve
""",
    ),
    "names of clusters": (
        test_no_text_in_a_url_becomes_a_cluster_that_is_none,
        """
import atoll.machinery.apiserver.call.requestinfo as requestinfo
import atoll.machinery.apiserver.federation.pathindex as paths
requestinfo.is_workspace_path = paths.is_cluster_name = lambda text: True
""",
    ),
    "scopes": (
        test_scopes_take_away_wherever_they_stand,
        f"{_EFFECTIVE}effective._scope_clusters = lambda user: None\n",
    ),
    "the end of warrants": (
        test_warrants_end_somewhere_and_name_nobody_of_another_workspace,
        f"{_EFFECTIVE}effective.MAX_WARRANT_DEPTH = 64\n",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("guard", GUARDS)
def test_without_its_guard_a_trial_fails(shard: MutantShard, scene: Scene, guard: str) -> None:
    trial, code = GUARDS[guard]
    with shard.without(code), pytest.raises(AssertionError):
        trial(scene)


@pytest.mark.parametrize(
    "trial", dict.fromkeys(trial for trial, _ in GUARDS.values()), ids=lambda trial: trial.__name__
)
def test_with_all_guards_in_place_again_no_trial_fails(scene: Scene, trial: Callable[[Scene], None]) -> None:
    trial(scene)
