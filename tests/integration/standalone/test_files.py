"""Files of a start in the root directory, and their use at the next start."""

from __future__ import annotations

import base64
import json
import socket
import stat
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from atoll.cli.atoll.main import run
from harness.clients.api import Api, configmap, eventually, workspace_under
from harness.clients.kubectl import Kubectl
from harness.servers.processes import found_below, mode
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEFAULT = "/api/v1/namespaces/default"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"


def kubeconfig(shard: ShardProcess) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(shard.kubeconfig.read_text())
    return found


def is_refused(api: Api) -> bool:
    return bool(api.get(DEFAULT, expect=0).code == 401)


def by_name(config: dict[str, Any], part: str) -> dict[str, Any]:
    return {entry["name"]: entry[part] for entry in config[f"{part}s"]}


def test_everything_in_the_root_directory_is_its_owners_alone(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--audit-log-path", str(tmp_path / "atoll" / "audit.log")) as shard:
        eventually((shard.root / "stream.json").exists, "stream.json")
        wanted = {
            "admin.kubeconfig",
            ".admin-token-store",
            ".kcp-admin-token-store",
            "apiserver.crt",
            "apiserver.key",
            "sa.key",
            "serving-ca.crt",
            "serving-ca.key",
            "sealing-keys.json",
            "stream.json",
            "store",
            "nats",
            "audit.log",
        }
        assert wanted <= {path.name for path in shard.root.iterdir()}
        assert mode(shard.root) == 0o700
        folders = {shard.root, shard.root / "store"}
        found = {path: state.st_mode for path, state in found_below(shard.root).items() if path.parent in folders}
        files = {path.name: oct(stat.S_IMODE(mode)) for path, mode in found.items() if stat.S_ISREG(mode)}
        assert {name: mode for name, mode in files.items() if mode != "0o600"} == {}
        assert (mode(shard.root / "store"), mode(shard.root / "nats")) == (0o700, 0o700)


@pytest.mark.long
def test_a_directory_that_was_there_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "atoll").mkdir(mode=0o755)
    with ShardProcess(tmp_path) as shard:
        assert mode(shard.root) == 0o700


def test_the_kubeconfig_has_the_contexts_and_users_of_kcp(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        config = kubeconfig(shard)
        servers = {name: cluster["server"] for name, cluster in by_name(config, "cluster").items()}
        assert servers == {
            "root": f"{shard.url}/clusters/root",
            "base": shard.url,
            "system:admin": f"{shard.url}/clusters/system:admin",
        }
        contexts = {name: (found["user"], found["cluster"]) for name, found in by_name(config, "context").items()}
        assert contexts == {
            "root": ("kcp-admin", "root"),
            "base": ("kcp-admin", "base"),
            "system:admin": ("shard-admin", "system:admin"),
            "shard-base": ("shard-admin", "base"),
        }
        assert (config["current-context"], set(by_name(config, "user"))) == ("root", {"kcp-admin", "shard-admin"})
        kubectl = Kubectl(tmp_path, shard.kubeconfig)
        who = kubectl.ok("auth", "whoami", "-o", "jsonpath={.status.userInfo}")
        assert (json.loads(who)["username"], "system:kcp:admin" in json.loads(who)["groups"]) == ("kcp-admin", True)
        who = kubectl.ok("--context", "system:admin", "auth", "whoami", "-o", "jsonpath={.status.userInfo}")
        assert (json.loads(who)["username"], "system:masters" in json.loads(who)["groups"]) == ("shard-admin", True)


def test_a_second_start_goes_on_where_the_first_was(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        kubectl = Kubectl(tmp_path, shard.kubeconfig)
        kubectl.ok("create", "workspace", "acme", "--enter")
        kubectl.ok("create", "configmap", "kept", "--from-literal=a=b")
        tokens = [shard.token(user) for user in ("shard-admin", "kcp-admin")]
        url, uid = shard.url, kubectl.ok("get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}")
        assert shard.stop() == 0
        assert kubeconfig(shard)["current-context"] == "workspace.kcp.io/current"
        shard.start()
        assert (shard.url, [shard.token(user) for user in ("shard-admin", "kcp-admin")]) == (url, tokens)
        assert kubectl.ok("get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}") == uid
        # Copies of the file stay valid until the tokens are rotated.
        Api(shard, "root", token=tokens[1]).get(DEFAULT)
        assert run(["rotate-admin-tokens", "--root-directory", str(shard.root)]) == 0
        assert {shard.token(user) for user in ("shard-admin", "kcp-admin")}.isdisjoint(tokens)
        Api(shard, "root").get(DEFAULT)
        for token in tokens:
            old = Api(shard, "root", token=token)
            eventually(partial(is_refused, old), "the earlier token is refused", 40)
        assert kubectl.ok("get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}") == uid


@pytest.mark.long
def test_the_kubeconfig_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "config"
    shard = ShardProcess(tmp_path, "--kubeconfig-path", str(path))
    shard.kubeconfig = path
    with shard:
        assert str(path) in shard.stdout_path.read_text()
        assert not (shard.root / "admin.kubeconfig").exists()
        token = shard.token("kcp-admin")
        assert shard.stop() == 0
        shard.start()
        assert shard.token("kcp-admin") == token
        Api(shard, "root").get(DEFAULT)


@pytest.mark.long
def test_a_person_stays_in_their_workspace_when_the_port_had_to_change(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        kubectl = Kubectl(tmp_path, shard.kubeconfig)
        kubectl.ok("create", "workspace", "acme", "--enter")
        kubectl.ok("create", "configmap", "kept")
        shard.stop()
        old = urlsplit(shard.url)
        with socket.create_server((old.hostname or "", old.port or 0)):
            shard.start()
            assert shard.url != f"https://{old.netloc}"
            assert kubectl.ok("get", "configmaps", "kept", "-o", "name") == "configmap/kept\n"
            assert kubectl.ok("ws", ".").startswith('Current workspace is "root:acme"')


@pytest.mark.long
def test_without_admin_users_there_is_no_kubeconfig_and_nobody_is_anybody(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('given,boss,u-1,"system:masters"\n')
    shard = ShardProcess(tmp_path, "--batteries-included=-admin", "--token-auth-file", str(tokens))
    shard.spawn()
    try:
        eventually(lambda: "atoll serves" in shard.stdout_path.read_text(), "the announcement", timeout_s=60)
        assert not shard.kubeconfig.exists()
        assert not (shard.root / ".admin-token-store").exists()
        assert "KUBECONFIG" not in shard.stdout_path.read_text()
    finally:
        assert shard.stop() == 0


@pytest.mark.long
def test_batteries_add_a_user_and_an_account_for_metrics_and_leave_types_out(tmp_path: Path) -> None:
    shard = ShardProcess(tmp_path, "--batteries-included", "admin,user,metrics-viewer")
    with shard:
        users = by_name(kubeconfig(shard), "user")
        assert set(users) == {"kcp-admin", "shard-admin", "user"}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        plain = Api(shard, "root", token=users["user"]["token"])
        found = plain.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review).json["status"]["userInfo"]
        assert (found["username"], found["groups"]) == ("user", ["system:authenticated"])
        plain.get(CONFIGMAPS, expect=403)
        admin = Api(shard, "root")
        types = {each["metadata"]["name"] for each in admin.get(TYPES).json["items"]}
        assert types == {"root", "universal", "home", "kubernetes"}
        assert admin.get(f"{TYPES}/root").json["spec"]["defaultChildWorkspaceType"]["name"] == "universal"
        workspace_under(admin)
        token = eventually(lambda: admin.get(f"{DEFAULT}/secrets/metrics").json.get("data", {}).get("token"), "a token")
        Api(shard, "", token=base64.b64decode(token).decode()).get("/metrics")
        plain.at("").get("/metrics", expect=403)


@pytest.mark.long
def test_serving_every_address_is_reached_by_name_and_by_number(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--bind-address", "0.0.0.0") as shard:
        assert shard.url.startswith("https://127.0.0.1:")
        Kubectl(tmp_path, shard.kubeconfig).ok("get", "--raw", "/readyz")
        port = urlsplit(shard.url).port
        for name in ("localhost", socket.gethostname()):
            with socket.create_connection(("127.0.0.1", port or 0), timeout=60) as raw:
                shard.tls().wrap_socket(raw, server_hostname=name).close()


@pytest.mark.long
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="a machine without IPv6")
def test_an_ipv6_address_stands_in_brackets(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--bind-address", "::1") as shard:
        assert shard.url.startswith("https://[::1]:")
        assert Api(shard, "root").post(CONFIGMAPS, configmap("a")).json["metadata"]["name"] == "a"
