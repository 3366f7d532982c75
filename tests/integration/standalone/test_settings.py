"""Settings of `atoll start` by flag, environment variable and file, and invalid settings."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.machinery.process.pki import make_ca, make_client
from atoll.machinery.process.private_files import write_pair
from harness.clients.api import Api, configmap, eventually
from harness.clients.kubectl import Kubectl
from harness.oracles.audit_log import audit_events
from harness.servers.processes import atoll, mode
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
GATES = (
    "WorkspaceMounts=true,CacheAPIs=false,EnableDeprecatedAPIExportVirtualWorkspacesUrls=true,"
    "WorkspaceAuthentication=true,LogicalClusterMigration=false"
)


def printed(*flags: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    result = atoll("start", *flags, "--print-config", environment=environment)
    assert result.code == 0, result.stderr
    found: dict[str, Any] = yaml.safe_load(result.stdout)
    return found


def whoami(shard: ShardProcess, token: str) -> dict[str, Any]:
    answer = Api(shard, "root", token=token).post(REVIEWS, REVIEW)
    found: dict[str, Any] = answer.json["status"]["userInfo"]
    return found


def test_the_printed_configuration_is_one_that_can_be_read_back(tmp_path: Path) -> None:
    first = printed("--secure-port", "7443", "--workers", "3", "--feature-gates", GATES, "--batteries-included=-admin")
    assert (first["secure-port"], first["workers"], first["batteries-included"]) == (7443, 3, ["-admin"])
    (tmp_path / "atoll.yaml").write_text(yaml.safe_dump(first))
    assert printed("--config", str(tmp_path / "atoll.yaml")) == first
    assert list(tmp_path.iterdir()) == [tmp_path / "atoll.yaml"], "printing starts nothing"


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    (tmp_path / "atoll.yaml").write_text("secure-port: 1\nworkers: 1\nlog-level: debug\n")
    environment = {"ATOLL_SECURE_PORT": "2", "ATOLL_WORKERS": "2"}
    found = printed("--config", str(tmp_path / "atoll.yaml"), "--secure-port", "3", environment=environment)
    assert [found[key] for key in ("secure-port", "workers", "log-level", "shard-name")] == [3, 2, "debug", "root"]


@pytest.mark.long
def test_workers_are_a_number_or_auto(tmp_path: Path) -> None:
    (tmp_path / "atoll.yaml").write_text("workers: auto\n")
    file = ("--config", str(tmp_path / "atoll.yaml"))
    assert [printed(*flags)["workers"] for flags in ((), file, (*file, "--workers=2"))] == [0, "auto", 2]


@pytest.mark.long
def test_a_setting_of_several_parts_is_a_repeated_flag_or_a_list_or_has_commas(tmp_path: Path) -> None:
    (tmp_path / "atoll.yaml").write_text("service-account-key-file: [a, b]\napi-audiences: x, y\n")
    file, issuers = str(tmp_path / "atoll.yaml"), {"ATOLL_SERVICE_ACCOUNT_ISSUER": "one,two"}
    first = printed("--config", file, environment=issuers)
    assert (first["service-account-key-file"], first["api-audiences"]) == (["a", "b"], ["x", "y"])
    assert first["service-account-issuer"] == ["one", "two"]
    flags = ("--service-account-key-file", "c", "--service-account-key-file", "d", "--api-audiences", "z,z2")
    second = printed("--config", file, *flags)
    assert (second["service-account-key-file"], second["api-audiences"]) == (["c", "d"], ["z", "z2"])
    assert second["service-account-issuer"] == []


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    every(
        4,
        [
            (("--secure-prot", "1"), {}, "--secure-prot"),
            (("--feature-gates", "Wings=true"), {}, "unrecognized feature gate: Wings"),
            (("--feature-gates", "CacheAPIs=maybe"), {}, "invalid value of CacheAPIs=maybe"),
            (("--secure-port", "http"), {}, "secure_port"),
            (("--secure-port", "70000"), {}, "secure-port 70000 is not between 0 and 65535"),
            (
                ("--batteries-included", "admin,wings"),
                {},
                "there is no battery 'wings', only workspace-types, admin, user",
            ),
            (("--batteries-included", "admin,+user"), {}, "give all names with + or -, or none"),
            (("--batteries-included", "user"), {}, "user needs admin"),
            (("--workers", "-1"), {}, "workers -1 is not between"),
            (("--workers", "65"), {}, "workers 65 is not between"),
            (("--workers", "some"), {}, "workers"),
            (("--bind-address", "here"), {}, "bind-address 'here' is not an IP address"),
            (("--shard-name", "Root.1"), {}, "shard-name 'Root.1' is not a DNS label"),
            (("--log-level", "loud"), {}, "log-level 'loud' is none of"),
            (("--root-directory", ""), {}, "root-directory must not be empty"),
            ((), {"ATOLL_SECURE_PROT": "1"}, "ATOLL_SECURE_PROT"),
            (("--config", "/nowhere/atoll.yaml"), {}, "/nowhere/atoll.yaml cannot be read"),
        ],
    ),
)
def test_what_is_not_known_or_makes_no_sense_is_refused(
    tmp_path: Path, flags: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    result = atoll("start", "--root-directory", str(tmp_path / "atoll"), *flags, environment=environment)
    assert (result.code in {1, 2}, said in result.stderr) == (True, True), result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "atoll.yaml").write_text("secure-prot: 1\n")
    result = atoll("start", "--config", str(tmp_path / "atoll.yaml"))
    assert (result.code, "unknown setting: key 'secure-prot'" in result.stderr) == (1, True)


@pytest.mark.long
@pytest.mark.parametrize("setting", ["--token-auth-file", "--client-ca-file"])
def test_a_credentials_file_that_is_none_is_refused_without_quoting_it(tmp_path: Path, setting: str) -> None:
    (tmp_path / "given").write_text("hush-this-is-secret\n")
    for path in (tmp_path / "given", tmp_path / "absent"):
        result = atoll(
            "start",
            "--root-directory",
            str(tmp_path / "atoll"),
            "--allow-any-filesystem",
            "--secure-port",
            "0",
            setting,
            str(path),
        )
        assert (result.code, str(path) in result.stderr) == (1, True), result.stderr
        assert not any(word in result.stderr for word in ("hush", "Traceback"))


@pytest.mark.long
def test_the_token_file_says_who_comes_in_with_which_groups(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('a-token,alice,u-1,"team-a, team-b"\n\nb-token,bob,u-2\n')
    with ShardProcess(tmp_path, "--token-auth-file", str(tokens), "--feature-gates", GATES) as shard:
        Kubectl(tmp_path, shard.kubeconfig).ok(
            "create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=alice", "--user=bob"
        )
        alice, bob = whoami(shard, "a-token"), whoami(shard, "b-token")
        assert (alice["username"], alice["uid"]) == ("alice", "u-1")
        assert set(alice["groups"]) == {"team-a", "team-b", "system:authenticated"}
        assert (bob["username"], bob["groups"]) == ("bob", ["system:authenticated"])
        Api(shard, "root", token="c-token").get(CONFIGMAPS, expect=401)


@pytest.mark.long
def test_a_client_certificate_says_who_comes_in_with_which_groups(tmp_path: Path) -> None:
    ours, theirs = make_ca("ours"), make_ca("theirs")
    (tmp_path / "ca.pem").write_bytes(ours.certificate)
    write_pair(tmp_path, "carol", make_client(ours, "carol", ["crew", "system:kcp:admin"]))
    write_pair(tmp_path, "mallory", make_client(theirs, "carol", ["system:masters"]))
    with ShardProcess(tmp_path, "--client-ca-file", str(tmp_path / "ca.pem")) as shard:
        review = json.dumps(REVIEW).encode()

        def ask(name: str) -> dict[str, Any]:
            api = Api(shard, "root", user="")
            connection = api.open()
            context = shard.new_tls()
            context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
            connection._context = context  # type: ignore[attr-defined]
            try:
                connection.request("POST", f"/clusters/root{REVIEWS}", review, {"Content-Type": "application/json"})
                found: dict[str, Any] = json.loads(connection.getresponse().read())
                return found
            finally:
                connection.close()

        found = ask("carol")["status"]["userInfo"]
        assert found["username"] == "carol"
        assert set(found["groups"]) == {"crew", "system:kcp:admin", "system:authenticated"}
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask("mallory")
        assert Api(shard, "root").get(CONFIGMAPS).code == 200, "tokens go on beside certificates"


@pytest.mark.long
def test_the_audit_log_says_who_did_what_where(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with ShardProcess(tmp_path, "--audit-log-path", str(audit)) as shard:
        Api(shard, "root").post(CONFIGMAPS, configmap("seen", {"body": "not-for-the-log"}))

        def written() -> dict[str, Any] | None:
            made = (
                event for event in audit_events(audit) if event.get("objectRef", {}).get("resource") == "configmaps"
            )
            return next((event for event in made if event["stage"] == "ResponseComplete"), None)

        event = eventually(written, "the event")
        assert (event["kind"], event["level"], event["verb"]) == ("Event", "Metadata", "create")
        assert (event["user"]["username"], event["responseStatus"]["code"]) == ("kcp-admin", 201)
        assert event["annotations"]["kcp.io/cluster"] == "root"
        assert (mode(audit), "not-for-the-log" in audit.read_text()) == (0o600, False)
        size = audit.stat().st_size
        shard.restart()
        Api(shard, "root").get(CONFIGMAPS)
        eventually(lambda: audit.stat().st_size > size, "the log is gone on with")
