"""Workspaces that mount another server: a second shard, and a plain HTTPS server."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from atoll.machinery.process.pki import make_ca, make_client, make_serving
from atoll.machinery.process.private_files import Pair
from harness.clients.api import Api, configmap, crd, define, eventually, workspace_under
from harness.clients.put_back import check_put_back
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SITES = "/apis/sites.example.com/v1/namespaces/default/sites"
USERS = (
    'alice-token,alice,u-alice,"team-a,system:masters"\nbob-token,bob,u-bob,"team-b"\n'
    'padded-token,"alice\u00a0",u-padded\nsplit-token,"alice\r\nX-Remote-Group: system:masters",u-split\n'
)


class Echo:
    """A plain HTTPS server that returns the request, and streams on `/stream`."""

    def __init__(self, authority: Pair, directory: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = make_serving(authority, ("127.0.0.1",))
        (directory / "echo.pem").write_bytes(pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(directory / "echo.pem")
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=authority.certificate.decode())
        self.going_on = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/base/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.going_on.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        echo = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                """Suppress the log."""

            def do_GET(self) -> None:
                if "/stream" in self.path:
                    self._stream()
                    return
                if "/upload" in self.path or "/stuck" in self.path:
                    self._upload()
                    return
                if self.headers.get("upgrade"):
                    self._switch()
                    return
                size = int(self.headers.get("content-length", 0))
                certificate = self.connection.getpeercert() or {}
                found = {
                    "method": self.command,
                    "path": self.path,
                    "body": self.rfile.read(size).decode(),
                    "headers": sorted((name.lower(), value) for name, value in self.headers.items()),
                    "certificate": [value for part in certificate.get("subject", ()) for _, value in part],
                }
                body = json.dumps(found).encode()
                location = unquote(self.path.partition("?to=")[2])
                self.send_response(418 if "/teapot" in self.path else 307 if location else 200)
                if location:
                    self.send_header("Location", location)
                for name, value in (("Content-Type", "application/json"), ("X-Own", "1"), ("Keep-Alive", "timeout=9")):
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"6\r\nfirst\n\r\n")
                self.wfile.flush()
                echo.going_on.wait(60)
                if "/cut" in self.path:
                    self.close_connection = True
                    return
                self.wfile.write(b"7\r\nsecond\n\r\n0\r\n\r\n")

            def _upload(self) -> None:
                """Answer with the size and the digest of the body; `/stuck` delays reading it."""
                if "/stuck" in self.path:
                    echo.going_on.wait(60)
                digest, size = hashlib.sha256(), 0
                for part in self._parts():
                    digest.update(part)
                    size += len(part)
                body = f"{size} {digest.hexdigest()}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _parts(self) -> Iterator[bytes]:
                left = int(self.headers.get("content-length", 0))
                while left:
                    part = self.rfile.read(min(left, 1 << 16))
                    if not part:
                        raise ConnectionError("the body ends early")
                    left -= len(part)
                    yield part
                if self.headers.get("transfer-encoding") == "chunked":
                    while size := int(self.rfile.readline(), 16):
                        yield self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()

            def _switch(self) -> None:
                """Switch to a protocol of four letters there and back."""
                self.send_response(101)
                self.send_header("Connection", "Upgrade")
                self.send_header("Upgrade", self.headers["upgrade"])
                self.end_headers()
                while word := self.rfile.read(4):
                    self.wfile.write(word.upper())
                self.close_connection = True

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        return Handler


class Scene:
    """The workspace of the mounts, and their targets."""

    def __init__(self, root: Api, echo: Echo) -> None:
        self.echo, self.root = echo, root
        self.home = root.at(workspace_under(root))
        definition = crd("sites", "sites.example.com")
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = True
        define(self.home, definition)

    def site(self, name: str, url: str, phase: object = "Ready", **metadata: Any) -> None:
        """A mountable object with a status, made or changed."""
        body = {"apiVersion": "sites.example.com/v1", "kind": "Site", "metadata": {"name": name, **metadata}}
        if self.home.send("GET", f"{SITES}/{name}").code == 404:
            self.home.post(SITES, body)
        self.home.patch(f"{SITES}/{name}/status", {"status": {"URL": url, "phase": phase}})

    def mount(self, name: str, site: str, phase: str = "Ready", kind: str = "Site") -> Api:
        reference = {"apiVersion": "sites.example.com/v1", "kind": kind, "name": site, "namespace": "default"}
        body = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name},
            "spec": {"mount": {"ref": reference}},
        }
        self.home.post(WORKSPACES, body)
        self.reach(name, phase)
        return self.home.at(f"{self.home.cluster}:{name}")

    def reach(self, name: str, phase: str) -> dict[str, Any]:
        def at_mount() -> bool:
            return bool(self.home.get(f"{WORKSPACES}/{name}").json.get("status", {}).get("phase") == phase)

        eventually(at_mount, f"{name} {phase}")
        return dict(self.home.get(f"{WORKSPACES}/{name}").json)


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_ca("mount test")


@pytest.fixture(scope="module")
def echo(authority: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echo]:
    server = Echo(authority, tmp_path_factory.mktemp("echo"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    """Another installation, with its own users."""
    directory = tmp_path_factory.mktemp("second")
    (directory / "tokens.csv").write_text("carol-token,carol,u-carol,system:kcp:admin\n")
    with ShardProcess(directory, "--token-auth-file", str(directory / "tokens.csv")) as shard:
        yield shard


@pytest.fixture(scope="module")
def flags(authority: Pair, second: ShardProcess, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("flags")
    (directory / "ca.pem").write_bytes(authority.certificate + second.authority())
    (directory / "tokens.csv").write_text(USERS)
    return [
        "--egress-allow-cidr",
        "127.0.0.0/8",
        "--mount-proxy-ca-file",
        str(directory / "ca.pem"),
        "--token-auth-file",
        str(directory / "tokens.csv"),
    ]


@pytest.fixture(scope="module", params=every(2, ["alone", "with workers"]))
def scene(
    request: pytest.FixtureRequest, flags: list[str], echo: Echo, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    workers = ("--workers", "2") if request.param == "with workers" else ()
    with ShardProcess(tmp_path_factory.mktemp("shard"), *flags, *workers) as shard:
        yield Scene(Api(shard, "root"), echo)


def test_a_mount_carries_url_and_health_of_what_it_mounts(scene: Scene) -> None:
    scene.site("a", scene.echo.url, "Connecting")
    scene.mount("a", "a", "Unavailable")
    assert scene.home.at(f"{scene.home.cluster}:a").get("/x", expect=503).body == b"Not available.\n"
    scene.site("a", scene.echo.url)
    ready = scene.reach("a", "Ready")
    assert (ready["spec"]["URL"], ready["metadata"]["labels"]["tenancy.kcp.io/phase"]) == (scene.echo.url, "Ready")
    assert "cluster" not in ready["spec"]
    condition = next(each for each in ready["status"]["conditions"] if each["type"] == "WorkspaceMountReady")
    assert condition["status"] == "True"
    scene.home.delete(f"{SITES}/a")
    gone = scene.reach("a", "Unavailable")
    assert [each["reason"] for each in gone["status"]["conditions"] if each["type"] == "WorkspaceMountReady"] == [
        "MountObjectNotFound"
    ]
    scene.home.delete(f"{WORKSPACES}/a")
    eventually(lambda: scene.home.send("GET", f"{WORKSPACES}/a").code == 404, "the mount is gone")


def test_any_object_that_a_workspace_names_is_mounted_and_followed(scene: Scene) -> None:
    scene.mount("early", "early", "Unavailable")
    scene.site("early", "")
    scene.site("early", scene.echo.url)
    scene.reach("early", "Ready")
    scene.site("early", scene.echo.url, "Connecting")
    scene.reach("early", "Unavailable")
    scene.site("early", scene.echo.url, {"not": "a phase"})
    scene.site("early", "https://elsewhere.example")
    assert scene.reach("early", "Ready")["spec"]["URL"] == "https://elsewhere.example"
    scene.mount("nothing", "early", "Unavailable", kind="Nothing")


@pytest.mark.long
def test_a_mount_follows_its_object_after_a_restart(flags: list[str], echo: Echo, tmp_path: Path) -> None:
    with ShardProcess(tmp_path, *flags) as shard:
        scene = Scene(Api(shard, "root"), echo)
        scene.site("kept", echo.url)
        scene.mount("kept", "kept")
        shard.restart()
        again = Api(shard, "root")
        scene.root, scene.home = again, again.at(scene.home.cluster)
        scene.site("kept", echo.url, "Connecting")
        scene.reach("kept", "Unavailable")


def test_a_request_goes_on_as_it_came_but_for_identity(scene: Scene) -> None:
    scene.site("b", scene.echo.url)
    at_mount = scene.mount("b", "b")
    at_mount.token = "whatever-the-other-side-takes"
    more = {
        "X-Remote-User": "root",
        "X-Remote_Group": "system:masters",
        "X-Forwarded-For": "1.2.3.4",
        "X-Kept": "yes",
        "Connection": "keep-alive, x-hop",
        "X-Hop": "1",
        "Impersonate-User": "somebody",
    }
    answer = at_mount.send("POST", "/api/v1/things?watch=1&x=%2F", b'{"a":1}', headers=more)
    found, headers = answer.json, dict(answer.json["headers"])
    assert (answer.code, answer.header("x-own"), answer.header("keep-alive")) == (200, "1", "")
    assert (found["method"], found["path"], found["body"]) == ("POST", "/base/api/v1/things?watch=1&x=%2F", '{"a":1}')
    assert (headers["authorization"], headers["x-kept"]) == ("Bearer whatever-the-other-side-takes", "yes")
    assert headers["impersonate-user"] == "somebody"
    assert not {name for name in headers if name.startswith(("x-remote", "x-forwarded", "x-hop"))}
    assert found["certificate"] == []
    assert at_mount.send("GET", "/teapot").code == 418
    assert at_mount.send("HEAD", "/api").body == b""


FOREIGN = ("https://elsewhere.example.com/", "//elsewhere.example.com/", "/clusters/root/api", "../api", "\\\\evil?x")


@pytest.mark.parametrize("location", FOREIGN, ids=range(len(FOREIGN)))
def test_nobody_is_sent_elsewhere_with_his_credentials(scene: Scene, location: str) -> None:
    name = f"away-{FOREIGN.index(location)}"
    scene.site(name, scene.echo.url)
    answer = scene.mount(name, name).send("GET", f"/openapi/v3/api?to={quote(location, safe='')}")
    assert (answer.code, answer.header("location")) == (503, "")
    assert "attempted to redirect" in answer.json["message"]


def test_a_document_of_another_hash_is_found_beside_the_one_that_was_asked_for(scene: Scene) -> None:
    scene.site("beside", scene.echo.url)
    answer = scene.mount("beside", "beside").send("GET", f"/openapi/v3/api?to={quote('v1?hash=AB', safe='')}")
    assert (answer.code, answer.header("location")) == (307, "v1?hash=AB")


def test_a_stream_arrives_as_it_is_sent_and_is_cut_where_it_is_cut(scene: Scene) -> None:
    scene.site("c", scene.echo.url)
    at_mount = scene.mount("c", "c")
    for path in ("/stream", "/stream/cut"):
        scene.echo.going_on.clear()
        connection = at_mount.open()
        connection.request("GET", at_mount.prefix + path, headers=at_mount.headers())
        response = connection.getresponse()
        assert response.readline() == b"first\n"
        scene.echo.going_on.set()
        if path == "/stream":
            assert response.read() == b"second\n"
        else:
            with pytest.raises((http.client.IncompleteRead, OSError)):
                response.read()
        connection.close()


PIECE, PIECES = bytes(range(256)) * 4096, 24
DIGEST = hashlib.sha256(PIECE * PIECES).hexdigest()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
def test_a_body_of_any_size_is_passed_on_as_it_arrives(scene: Scene, chunked: bool) -> None:
    name = "large-chunks" if chunked else "large"
    scene.site(name, scene.echo.url)
    at_mount = scene.mount(name, name)
    connection = at_mount.open()
    more = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(PIECE) * PIECES)}
    pieces = (PIECE for _ in range(PIECES))
    path = at_mount.prefix + "/upload"
    connection.request("PUT", path, pieces, headers={**at_mount.headers(), **more}, encode_chunked=chunked)
    response = connection.getresponse()
    assert (response.status, response.read().decode()) == (200, f"{len(PIECE) * PIECES} {DIGEST}")
    # The connection can be used again.
    connection.request("GET", at_mount.prefix + "/api", headers=at_mount.headers())
    assert connection.getresponse().status == 200
    connection.close()


def test_no_more_of_a_body_is_held_than_a_mount_takes(scene: Scene) -> None:
    scene.site("stuck", scene.echo.url)
    at_mount = scene.mount("stuck", "stuck")
    scene.echo.going_on.clear()
    connection = at_mount.open()
    connection.putrequest("PUT", at_mount.prefix + "/stuck")
    for name, value in {**at_mount.headers(), "Content-Length": str(1 << 30)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.sock is not None
    connection.sock.settimeout(1)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 1 << 30:
            connection.sock.sendall(PIECE)
            sent += len(PIECE)
    # The kernel's buffers of two connections hold a few MiB each.
    assert sent < 64 << 20
    connection.close()
    scene.echo.going_on.set()


def test_a_body_that_is_no_mounts_has_the_limit_of_objects(scene: Scene) -> None:
    connection = scene.home.open()
    path, headers = scene.home.prefix + CONFIGMAPS, scene.home.headers()
    connection.request("POST", path, b"x" * (4 << 20), headers={**headers, "Content-Type": "application/json"})
    assert connection.getresponse().status == 413
    connection.close()


def test_a_mount_may_switch_to_the_protocols_of_exec_and_to_no_other(scene: Scene) -> None:
    scene.site("exec", scene.echo.url)
    at_mount = scene.mount("exec", "exec")
    for protocol in ("SPDY/3.1", "websocket"):
        connection = at_mount.open()
        more = {"Connection": "Upgrade", "Upgrade": protocol}
        connection.request("POST", at_mount.prefix + "/exec", headers={**at_mount.headers(), **more})
        assert connection.sock is not None
        stream = connection.sock.makefile("rwb")
        head = b"".join(iter(stream.readline, b"\r\n"))
        assert head.startswith(b"HTTP/1.1 101 ")
        assert f"upgrade: {protocol}".lower().encode() in head.lower()
        for word in (b"ping", b"pong"):
            stream.write(word)
            stream.flush()
            assert stream.read(4) == word.upper()
        stream.close()
        connection.close()
    # The server would trust a client's identity headers within such a connection.
    answer = at_mount.send("GET", "/api", headers={"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"})
    assert answer.code == 200
    assert not {"upgrade", "http2-settings"} & dict(answer.json["headers"]).keys()


def test_another_shard_is_worked_in_through_a_mount(scene: Scene, second: ShardProcess) -> None:
    scene.site("d", f"{second.url}/clusters/root")
    at_mount = scene.mount("d", "d")
    at_mount.token = "carol-token"
    at_mount.post(CONFIGMAPS, configmap("over-there", {"k": "v"}))
    assert Api(second, "root").get(f"{CONFIGMAPS}/over-there").json["data"] == {"k": "v"}
    check_put_back(at_mount, f"{CONFIGMAPS}/over-there")
    revision = at_mount.get(CONFIGMAPS).json["metadata"]["resourceVersion"]
    with at_mount.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={revision}") as events:
        Api(second, "root").patch(f"{CONFIGMAPS}/over-there", {"data": {"k": "w"}})
        assert events.next().object["data"] == {"k": "w"}
    at_mount.delete(f"{CONFIGMAPS}/over-there")
    # A user of one installation has no rights in the other.
    at_mount.token = scene.root.token
    at_mount.get(CONFIGMAPS, expect=401)
    # Paths below a mount are not resolved by this shard.
    scene.home.at(f"{scene.home.cluster}:d:below").get(CONFIGMAPS, expect=403)


@pytest.mark.long
def test_an_address_that_must_not_be_called_is_not_called(
    second: ShardProcess, echo: Echo, tmp_path: Path, flags: list[str]
) -> None:
    with ShardProcess(tmp_path, *flags[2:]) as shard:
        scene = Scene(Api(shard, "root"), echo)
        urls = ("/clusters/root/api", "/clusters/*", "/services/x", "/clusters/root?x=y", "")
        own = ((f"own-{place}", f"{shard.url}{path}") for place, path in enumerate(urls))
        for name, url in (("loop", echo.url), ("plain", "http://192.0.2.1/"), *own):
            scene.site(name, url)
            status = scene.mount(name, name).get("/api", expect=503).json
            assert "the mounted workspace cannot be reached" in status["message"]


@pytest.mark.long
def test_without_the_gate_there_are_no_mounts(flags: list[str], echo: Echo, tmp_path: Path) -> None:
    with ShardProcess(tmp_path, *flags, "--feature-gates", "WorkspaceMounts=false") as shard:
        scene = Scene(Api(shard, "root"), echo)
        scene.site("e", echo.url)
        scene.mount("e", "e").get("/api", expect=403)


@pytest.mark.long
def test_with_a_certificate_we_say_for_whom_we_ask(
    flags: list[str], echo: Echo, authority: Pair, tmp_path: Path
) -> None:
    pair = make_client(authority, "atoll-proxy", ())
    (tmp_path / "proxy.crt").write_bytes(pair.certificate)
    (tmp_path / "proxy.key").write_bytes(pair.key)
    files = [
        "--mount-proxy-client-cert-file",
        str(tmp_path / "proxy.crt"),
        "--mount-proxy-client-key-file",
        str(tmp_path / "proxy.key"),
    ]
    with ShardProcess(tmp_path, *flags, *files) as shard:
        scene = Scene(Api(shard, "root"), echo)
        scene.site("f", echo.url)
        at_mount = scene.mount("f", "f")
        at_mount.token = "alice-token"
        found = at_mount.get("/api").json
        said = [pair for pair in found["headers"] if pair[0].startswith("x-remote")]
        assert found["certificate"] == ["atoll-proxy"]
        # A master of one installation has no rights in the other.
        assert said == [
            ["x-remote-group", "system:authenticated"],
            ["x-remote-group", "team-a"],
            ["x-remote-user", "alice"],
        ]
        assert not {"authorization", "cookie"} & {name for name, _ in found["headers"]}
        at_mount.token = ""
        at_mount.get("/api", expect=401)
        at_mount.token = "nobody-knows-it"
        at_mount.get("/api", expect=401)
        at_mount.token = "bob-token"
        found = at_mount.get("/api", headers={"X-Remote-User": "alice"}).json
        assert ["x-remote-user", "bob"] in found["headers"]
        assert "alice" not in json.dumps(found["headers"])
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        at_mount.token = scene.home.post(path, body).json["status"]["token"]
        user = dict(at_mount.get("/api").json["headers"])["x-remote-user"]
        assert user.startswith("system:kcp:serviceaccount:")
        assert user.endswith(":default:default")
        for token in ("padded-token", "split-token"):
            at_mount.token = token
            at_mount.get("/api", expect=401)


def test_what_is_not_ascii_goes_on_percent_encoded(scene: Scene) -> None:
    scene.site("g", f"{scene.echo.url}\u00fc/")
    at_mount = scene.mount("g", "g")
    assert at_mount.get("/api").json["path"] == "/base/%C3%BC/api"


def served_alike(scene: Scene, at_mount: Api, direct: Api, *tokens: str) -> None:
    """Both serve every request alike, except for values that differ with each request."""
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    who = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    for token in tokens:
        at_mount.token = direct.token = token
        for headers in (
            {},
            {"Impersonate-User": "bob"},
            {"X-Remote-User": "alice", "X-Remote-Group": "system:masters"},
        ):
            for method, path, body in (
                ("GET", f"{CONFIGMAPS}/here", None),
                ("GET", "/api/v1/namespaces/default", None),
                ("GET", "/version", None),
                ("GET", "/apis/nothing.example.com/v1/things", None),
                ("POST", CONFIGMAPS, configmap("here")),
                ("DELETE", f"{CONFIGMAPS}/absent", None),
                ("POST", review, who),
            ):
                answers = [each.send(method, path, body, headers=headers) for each in (at_mount, direct)]
                assert len({(answer.code, _lasting(answer.body)) for answer in answers}) == 1, (method, path, answers)


def _lasting(body: bytes) -> str:
    found = json.loads(body)
    if found.get("kind") == "SelfSubjectReview":
        found["metadata"].pop("creationTimestamp", None)
        found["metadata"].pop("uid", None)
    return json.dumps(found, sort_keys=True)


def test_a_mount_of_a_workspace_here_is_served_as_that_workspace(scene: Scene) -> None:
    path = workspace_under(scene.root)
    direct = scene.root.at(path)
    scene.site("here", f"{scene.root.shard.url}/clusters/{path}")
    at_mount = scene.mount("here", "here")
    made = at_mount.post(CONFIGMAPS, configmap("here", {"k": "v"})).json
    assert made == direct.get(f"{CONFIGMAPS}/here").json
    with at_mount.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as events:
        direct.patch(f"{CONFIGMAPS}/here", {"data": {"k": "w"}})
        assert events.next().object["data"] == {"k": "w"}
    large = configmap("large", {"k": "x" * 200_000})
    assert at_mount.post(CONFIGMAPS, large).json["data"] == large["data"]
    too_large = configmap("too-large", {"k": "x" * (4 << 20)})
    for each in (at_mount, direct):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert each.send("POST", CONFIGMAPS, too_large).code == 413
    account = "/api/v1/namespaces/default/serviceaccounts/default/token"
    spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    robot, stranger = (api.post(account, spec).json["status"]["token"] for api in (direct, scene.home))
    served_alike(
        scene, at_mount, direct, scene.root.token, "alice-token", "bob-token", "unheard-of", "", robot, stranger
    )


def test_mounts_that_lead_to_each_other_are_refused(scene: Scene) -> None:
    base = f"{scene.root.shard.url}/clusters/{scene.home.cluster}"
    for name, onward in (("self", "self"), ("one", "two"), ("two", "one")):
        scene.site(f"loop-{name}", f"{base}:loop-{onward}")
        scene.mount(f"loop-{name}", f"loop-{name}")
    for name in ("self", "one", "two"):
        at_mount = scene.home.at(f"{scene.home.cluster}:loop-{name}")
        for method, body in (("GET", None), ("POST", configmap("x", {"k": "x" * 200_000}))):
            answer = at_mount.send(method, CONFIGMAPS, body)
            assert (answer.code, answer.json["status"]) == (508, "Failure")
            assert "lead to each other" in answer.message
    path = workspace_under(scene.root)
    for place in range(6):
        onward = f"{scene.root.shard.url}/clusters/{path}" if not place else f"{base}:chain-{place - 1}"
        scene.site(f"chain-{place}", onward)
        code = scene.mount(f"chain-{place}", f"chain-{place}").send("GET", CONFIGMAPS).code
        assert code == (200 if place < 4 else 508), place
    # The last of several may be elsewhere, and may be of no use now.
    scene.site("far", scene.echo.url)
    scene.mount("far", "far")
    scene.site("to-far", f"{base}:far")
    near = scene.mount("to-far", "to-far")
    assert near.get("/api?x=y").json["path"] == "/base/api?x=y"
    scene.site("far", scene.echo.url, "Connecting")
    scene.reach("far", "Unavailable")
    assert near.get("/api", expect=503).body == b"Not available.\n"
    scene.site("to-nowhere", f"{base}:not-there")
    scene.mount("to-nowhere", "to-nowhere").get(CONFIGMAPS, expect=403)
