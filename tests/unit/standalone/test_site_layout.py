"""Parts of a site on one machine: names, ports, certificates, command lines."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import msgspec
import pytest
import yaml
from cryptography.x509 import DNSName, SubjectAlternativeName

from atoll.eventgateway.config import EventGatewayConfig
from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.process import config as settings
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.pki import issued_by, pem_to_der, read_pair
from atoll.machinery.process.private_files import PkiError
from atoll.machinery.stream.credential_file import InvalidCredentialFile, read_access
from atoll.machinery.stream.tenants.key_files import read_gateway_keys, read_subscription_keys
from atoll.shard.config import ShardConfig
from atoll.standalone.site import credentials, layout, processes, runner
from atoll.standalone.site.layout import Layout, Ports, Site, SiteError
from atoll.standalone.site.processes import StartConfig


def config(directory: Path, shards: int = 3, **more: object) -> StartConfig:
    given = {"root_directory": str(directory / "site"), "secure_port": 0, "shards": shards, **more}
    return msgspec.convert(given, StartConfig)


class Made:
    """A site as `atoll start --shards` prepares it, without its processes."""

    def __init__(self, given: StartConfig) -> None:
        self.config, self.here, self.ports = given, layout.of(given.root_directory), Ports("127.0.0.1")
        try:
            self.site = runner.plan(self.here, given, self.ports)
            self.users = runner.prepare(self.here, self.site, given.shard)
        finally:
            self.ports.close()
        self.arguments = {m.name: list(m.arguments) for m in processes.process_specs(self.here, self.site, given.shard)}

    def flag(self, member: str, name: str) -> str:
        found = [part.partition("=")[2] for part in self.arguments[member] if part.startswith(f"--{name}=")]
        return found[0] if found else ""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    gates = "WorkspaceMounts=false,WorkspaceAuthentication=false,CacheAPIs=true"
    return Made(config(tmp_path_factory.mktemp("made"), feature_gates=gates, workers=2, log_level="error"))


def test_the_first_shard_is_root_and_alone_joins_nobody(made: Made) -> None:
    assert list(made.arguments) == ["root", "shard-1", "shard-2", "front-proxy"]
    assert made.flag("root", "root-shard-kubeconfig-file") == ""
    for name in ("shard-1", "shard-2"):
        target = Kubeconfig.load(made.flag(name, "root-shard-kubeconfig-file")).target("shard-base")
        assert target.port == made.site.ports["root"]


def test_every_process_reads_its_own_command_line(made: Made) -> None:
    for name in ("root", "shard-1", "shard-2"):
        found, _ = settings.load(ShardConfig, made.arguments[name][1:], {}, "atoll shard")
        found.check_in_site()
        assert (found.shard_name, found.secure_port, found.in_site) == (name, made.site.ports[name], True)
        assert found.shard_external_url == f"https://127.0.0.1:{made.site.ports['front-proxy']}"
    proxy, _ = settings.load(FrontProxyConfig, made.arguments["front-proxy"][1:], {}, "atoll front-proxy")
    assert (proxy.secure_port, proxy.mapping_file) == (made.site.ports["front-proxy"], str(made.here.mapping))


def test_the_gateway_reads_its_own_command_line_and_the_files_in_it(made: Made) -> None:
    spec = processes.gateway_spec(made.here, made.site, made.config.shard)
    gateway, _ = settings.load(EventGatewayConfig, spec.arguments[1:], {}, "atoll event-gateway")
    gateway.check_complete()
    assert (gateway.secure_port, gateway.nats_url) == (
        made.site.ports["event-gateway"],
        f"nats://127.0.0.1:{made.site.ports['nats']}",
    )
    keys = read_gateway_keys(Path(gateway.keys_file))
    assert read_access(gateway.nats_url, gateway.nats_credentials_file).user == "event-gateway"
    for shard in made.site.shards:
        given = read_subscription_keys(made.here.shard(shard) / "event-subscriptions.json")
        assert (given.names, given.servers) == (keys.names, (gateway.nats_url,))


def test_settings_of_the_site_go_on_to_who_has_them(made: Made) -> None:
    assert {made.flag(name, "workers") for name in ("root", "shard-1", "shard-2")} == {"2"}
    assert made.flag("front-proxy", "workers") == ""
    assert {made.flag(name, "log-level") for name in made.arguments} == {"error"}


def test_the_proxy_gets_the_feature_gates_that_have_an_effect_in_it(tmp_path: Path, made: Made) -> None:
    """A shard gets all feature gates, and warns of those without an effect."""
    for name in ("root", "shard-1", "shard-2"):
        assert made.flag(name, "feature-gates") == made.config.feature_gates
    assert made.flag("front-proxy", "feature-gates") == "WorkspaceAuthentication=false"
    assert "--feature-gates" not in str(
        Made(config(tmp_path, 2, feature_gates="CacheAPIs=true")).arguments["front-proxy"]
    )


def test_each_shard_has_an_audit_log_of_its_own(tmp_path: Path) -> None:
    made = Made(config(tmp_path, 2, audit_log_path="/var/log/audit.json"))
    logs = [made.flag(name, "audit-log-path") for name in ("root", "shard-1", "front-proxy")]
    assert logs == ["/var/log/audit-root.json", "/var/log/audit-shard-1.json", ""]


def test_streams_are_for_this_machine_alone_whoever_may_come_to_the_shards(tmp_path: Path) -> None:
    made = Made(config(tmp_path, 2, bind_address="0.0.0.0"))
    options = runner.nats_options(made.here, made.site, made.config.shard, made.users)
    assert (options.host, options.tls) == ("127.0.0.1", None)
    assert {made.flag(name, "nats-url").rpartition(":")[0] for name in made.arguments} == {"nats://127.0.0.1"}


def test_outside_of_loopback_the_streams_speak_tls_and_every_credential_names_the_authority(tmp_path: Path) -> None:
    outside = {"events_bind_address": "0.0.0.0", "shard_external_url": "https://api.example.com"}
    made = Made(config(tmp_path, 2, **outside))
    options, pki = runner.nats_options(made.here, made.site, made.config.shard, made.users), made.here.pki
    port, authority = made.site.ports["nats"], pki / "serving-ca.crt"
    assert (options.host, options.port, options.tls and options.tls.ca_file) == ("0.0.0.0", port, authority)
    serving = read_pair(pki, "serving-nats")
    assert serving is not None
    assert issued_by(pem_to_der(serving.certificate), authority.read_bytes())
    names = serving.x509.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert "api.example.com" in names.get_values_for_type(DNSName)
    gateway = processes.gateway_spec(made.here, made.site, made.config.shard)
    urls = {made.flag(name, "nats-url") for name in made.arguments}
    assert urls == {f"tls://127.0.0.1:{port}"}
    assert f"--nats-url=tls://127.0.0.1:{port}" in gateway.arguments
    credentials_of = list(pki.glob("nats-*.json"))
    assert len(credentials_of) == len(["root", "shard-1", "front-proxy", "cache server", "operator", "gateway"])
    for path in credentials_of:
        access = read_access(f"tls://127.0.0.1:{port}", str(path))
        assert {access.ca_file, access.reader.ca_file if access.reader else str(authority)} == {str(authority)}
    for shard in made.site.shards:
        stream = json.loads((made.here.shard(shard) / "stream.json").read_bytes())
        assert (stream["connect"]["servers"], stream["ca_file"]) == ([f"tls://127.0.0.1:{port}"], str(authority))
        given = read_subscription_keys(made.here.shard(shard) / "event-subscriptions.json")
        assert (given.servers, given.ca) == ((f"tls://api.example.com:{port}",), authority.read_text())


def test_certificates_say_who_is_what(made: Made) -> None:
    pki = made.here.pki
    clients, proxies = ((pki / f"{name}.crt").read_bytes() for name in ("client-ca", "requestheader-ca"))
    groups = {
        "kcp-admin": "system:kcp:admin",
        "shard-admin": "system:masters",
        "shard-shard-1": "system:masters",
        "logical-cluster-admin": "system:kcp:logical-cluster-admin",
        "external-logical-cluster-admin": "system:kcp:external-logical-cluster-admin",
    }
    for user, group in groups.items():
        der = pem_to_der((pki / f"{user}.crt").read_bytes())
        found = client_identity(der)
        assert (found.common_name, found.organizations) == (user, (group,))
        assert issued_by(der, clients)
        assert not issued_by(der, proxies), "who may act for others is another matter"
    der = pem_to_der((pki / "proxy-front-proxy.crt").read_bytes())
    assert issued_by(der, proxies)
    assert not issued_by(der, clients), "a proxy is nobody by itself"


def test_the_proxy_is_given_no_key_that_signs_tokens(made: Made) -> None:
    key = Path(made.flag("front-proxy", "service-account-key-file")).read_text()
    assert "PUBLIC KEY" in key
    assert "PRIVATE" not in key
    signing = {made.flag(name, "service-account-signing-key-file") for name in ("root", "shard-1", "shard-2")}
    assert len(signing) == 1, "every shard signs what every other takes"


def test_the_key_of_accounts_is_not_made_again_beside_a_store(tmp_path: Path) -> None:
    first = Made(config(tmp_path, shards=2))
    key = first.here.key(credentials.ACCOUNT_KEY)
    kept = key.read_bytes()
    key.unlink()
    # No shard has served yet: no account has a token.
    assert Made(config(tmp_path, shards=2)).here.key(credentials.ACCOUNT_KEY).read_bytes() != kept
    store = first.here.shard("root") / "store"
    store.mkdir(parents=True)
    (store / "data.mdb").write_bytes(b"")
    key.unlink()
    with pytest.raises(PkiError, match=r"service-account\.key is missing: without it no token"):
        Made(config(tmp_path, shards=2))
    assert not key.exists()


def test_shards_bound_their_streams_by_the_disk_they_share(made: Made) -> None:
    assert {made.flag(name, "nats-directory") for name in ("root", "shard-1", "shard-2")} == {str(made.here.nats)}
    assert made.flag("front-proxy", "nats-directory") == ""


def test_nats_users_publish_under_their_own_names_alone(made: Made) -> None:
    shards = ["root", "shard-1", "shard-2"]
    pairs = [f"{role}-{shard}" for shard in shards for role in ("shard", "reader")]
    assert [user.name for user in made.users] == [*pairs, "proxy-0", "cache-0", "operator", "event-gateway"]
    assert len({user.password for user in made.users}) == 10
    for user in made.users:
        shard = user.name.removeprefix("shard-")
        own = [subject for subject in user.permissions.publish if subject.startswith("atoll.")]
        expected = [f"atoll.{kind}.{shard}.>" for kind in ("changes", "state")]
        assert sorted(own) == (expected if user.permissions.shards else [])
        if user.name != "event-gateway":
            streams, imports = user.permissions.shards, user.permissions.imports
            assert bool(streams) != bool(imports), "streams are alone with their publisher"


def test_the_file_of_a_shard_holds_who_publishes_and_who_reads(made: Made) -> None:
    passwords = {user.name: user.password for user in made.users}
    for user in ("shard-root", "shard-shard-1", "proxy-0", "cache-0"):
        access = read_access("nats://127.0.0.1:1", str(made.here.credential(user)))
        assert (access.user, access.password) == (user, passwords[user])
        reader = access.for_reading
        assert reader.user == user.replace("shard-", "reader-", 1)
        assert (reader.password, reader.at("root").api_prefix) == (passwords[reader.user], "$JS.root.API")


def test_keys_and_passwords_are_their_owners_alone(made: Made) -> None:
    for path in (made.here.root, *made.here.root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_another_start_finds_what_the_first_one_made(tmp_path: Path) -> None:
    first = Made(config(tmp_path))
    kept = {path: path.read_bytes() for path in first.here.pki.iterdir()}
    second = Made(config(tmp_path))
    assert (second.site, second.arguments) == (first.site, first.arguments)
    assert {path: path.read_bytes() for path in first.here.pki.iterdir()} == kept


def test_a_site_grows_and_does_not_shrink(tmp_path: Path) -> None:
    first = Made(config(tmp_path, 2))
    more = Made(config(tmp_path, 3))
    assert more.site.shards == ("root", "shard-1", "shard-2")
    assert more.site.ports.items() >= first.site.ports.items()
    with pytest.raises(SiteError, match="would leave workspaces behind"):
        Made(config(tmp_path, 2))


def test_a_directory_of_a_single_shard_is_not_taken(tmp_path: Path) -> None:
    store = tmp_path / "site" / "store"
    store.mkdir(parents=True)
    (store / "data.mdb").touch()
    with pytest.raises(SiteError, match="holds a single shard"):
        Made(config(tmp_path))


def test_a_list_of_shards_that_is_damaged_is_refused(tmp_path: Path) -> None:
    here = Layout(tmp_path)
    here.site_file.write_text("{}")
    with pytest.raises(SiteError, match="no list of shards"):
        layout.read(here)


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    here = Layout(tmp_path)
    with layout.locked(here), pytest.raises(SiteError, match="another process"), layout.locked(here):
        pass
    with layout.locked(here):
        pass


def test_a_held_port_is_listened_on_by_who_is_told_to_and_given_to_nobody_else() -> None:
    ports = Ports("127.0.0.1")
    port = ports.reserve(0)
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(("127.0.0.1", port))
        ours.listen()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port))
    ports.close()


def test_a_port_that_somebody_listens_on_is_left_to_him() -> None:
    ports = Ports("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        taken = theirs.getsockname()[1]
        assert ports.reserve(taken) != taken
        with pytest.raises(OSError, match=f"{taken} is taken"):
            ports.reserve(taken, "secure-port")
    ports.close()


def test_the_mapping_file_leads_workspaces_and_views_to_shards_and_all_else_to_the_root_shard(made: Made) -> None:
    found = {entry["path"]: entry.get("backend") for entry in yaml.safe_load(made.here.mapping.read_text())}
    root = f"https://127.0.0.1:{made.site.ports['root']}"
    assert found == {"/clusters/": None, "/services/": None, "/": root}


def test_a_file_that_holds_no_nats_credential_is_named_and_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "nats.json"
    for text in ("secret", json.dumps({"user": "a"}), json.dumps({"user": "a", "password": "secret", "more": 1})):
        file.write_text(text)
        with pytest.raises(InvalidCredentialFile) as refused:
            read_access("nats://127.0.0.1:1", str(file))
        assert str(file) in str(refused.value)
        assert "secret" not in str(refused.value)


def test_a_certificate_that_is_due_is_made_anew_for_the_same_user(made: Made) -> None:
    given = credentials.authorities(made.here)
    before = credentials.client_pair(made.here, given, "kcp-admin", "system:kcp:admin")
    assert credentials.client_pair(made.here, given, "kcp-admin", "system:kcp:admin") == before
    assert read_pair(made.here.pki, "kcp-admin") == before


def test_names_and_ports_are_kept(tmp_path: Path) -> None:
    here, site = Layout(tmp_path), Site(("root",), {"root": 1})
    layout.write(here, site)
    assert layout.read(here) == site
