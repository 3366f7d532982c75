"""`atoll certs`: the certificates and credentials of a site on several machines."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import msgspec
import pytest
import yaml
from cryptography import x509

from atoll.cacheserver.config import CacheServerConfig
from atoll.cli.atoll import main
from atoll.edge.config import EdgeControllersConfig
from atoll.eventgateway.config import EventGatewayConfig
from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.process import config as settings
from atoll.machinery.process import revocation
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.config import ProcessConfig
from atoll.machinery.process.pki import issued_by, make_client, pem_to_der
from atoll.machinery.process.private_files import load_pair
from atoll.machinery.stream.credential_file import NatsCredential, read_access
from atoll.machinery.stream.tenants.key_files import SUBSCRIPTIONS_FILE, read_subscription_keys
from atoll.shard import service_account_keys
from atoll.shard.config import ShardConfig

PROCESSES: dict[str, tuple[str, type[ProcessConfig] | None]] = {
    "root": ("shard/root=root.example:6444", ShardConfig),
    "eu-1": ("shard/eu-1=eu-1.example", ShardConfig),
    "proxy-0": ("front-proxy/proxy-0=p0.example,10.0.0.1", FrontProxyConfig),
    "cache-0": ("cache-server/cache-0=c0.example", CacheServerConfig),
    "gw-0": ("event-gateway/gw-0=g0.example", EventGatewayConfig),
    "edge-0": ("edge-controllers/edge-0=e0.example", EdgeControllersConfig),
    "nats-0": ("nats-server/nats-0=n0.example", None),
}
URL = "https://atoll.example"


def certs(command: str, directory: Path, *more: str) -> int:
    return main.run(["certs", command, "--directory", str(directory), *more])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs") / "site"
    assert certs("init", directory, "--external-url", URL, *(text for text, _ in PROCESSES.values())) == 0
    return directory


@pytest.fixture
def site(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    directory = Path(shutil.copytree(made, tmp_path / "site"))
    for path in (*directory.glob("*/settings.yaml"), *directory.glob("*/server.conf")):
        path.write_text(path.read_text().replace(str(made), str(directory)))
    return directory


def content(directory: Path, *names: str) -> dict[str, str]:
    """The hashes of all files, but for the named process's."""
    files = (path for path in directory.rglob("*") if path.is_file())
    found = {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {file: text for file, text in found.items() if file.partition("/")[0] not in names}


def loaded(directory: Path, name: str, *more: str) -> ProcessConfig:
    kind = PROCESSES[name][1]
    assert kind is not None
    return settings.load(kind, ["--config", str(directory / name / "settings.yaml"), *more], {}, "atoll")[0]


@pytest.mark.parametrize("name", [name for name, (_, kind) in PROCESSES.items() if kind is not None])
def test_every_process_starts_with_its_settings_and_files(made: Path, name: str) -> None:
    found = loaded(made, name)
    found.check_complete()
    given = yaml.safe_load((made / name / "settings.yaml").read_text())
    files = {value for key, value in given.items() if key.endswith(("_file", "kubeconfig"))}
    assert len(files) > 3
    for file in files:
        assert Path(file).parent == made / name
        assert Path(file).stat().st_mode & 0o777 == 0o600
    assert read_access(given["nats_url"], given["nats_credentials_file"]).servers == ["tls://n0.example:4222"]


def test_a_shard_is_told_its_urls_and_where_the_root_shard_is(made: Path) -> None:
    root, other = loaded(made, "root"), loaded(made, "eu-1")
    assert isinstance(root, ShardConfig)
    assert isinstance(other, ShardConfig)
    assert (root.shard_base_url, root.secure_port) == ("https://root.example:6444", 6444)
    assert (other.shard_base_url, other.shard_external_url) == ("https://eu-1.example:6443", URL)
    assert not root.joins
    target = Kubeconfig.load(other.root_shard_kubeconfig_file).target("shard-base")
    assert (target.host, target.port) == ("root.example", 6444)
    assert (root.in_site, other.in_site, other.batteries) == (True, True, frozenset({"workspace-types"}))


def test_serving_certificates_name_all_hosts_and_front_proxies_the_url_of_the_site(made: Path) -> None:
    names = {}
    for name in PROCESSES:
        pair = load_pair(made / name / "serving.crt", made / name / "serving.key")
        found = pair.x509.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names[name] = [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]
        assert {"localhost", "127.0.0.1"} <= set(names[name])
    assert {"p0.example", "10.0.0.1", "atoll.example"} <= set(names["proxy-0"])
    assert "eu-1.example" in names["eu-1"]
    assert "atoll.example" not in names["eu-1"]


def test_a_process_is_given_its_own_keys_and_no_authority(made: Path) -> None:
    authorities = {(made / "pki" / f"{name}-ca.key").read_bytes() for name in ("client", "requestheader", "serving")}
    keys: dict[bytes, set[str]] = {}
    for name in PROCESSES:
        for path in (made / name).iterdir():
            assert not any(key in path.read_bytes() for key in authorities)
            if path.suffix == ".key":
                keys.setdefault(path.read_bytes(), set()).add(name)
    shared = [names for names in keys.values() if len(names) > 1]
    assert shared == [{"root", "eu-1"}], "shards sign tokens with one key"
    assert b"PRIVATE" not in (made / "proxy-0" / "service-account.pub").read_bytes()


def test_certificates_say_who_is_what(made: Path) -> None:
    clients, proxies = ((made / "pki" / f"{name}-ca.crt").read_bytes() for name in ("client", "requestheader"))
    der = pem_to_der((made / "cache-0" / "client.crt").read_bytes())
    assert issued_by(der, clients)
    assert client_identity(der).organizations == ("system:masters",)
    for name in ("root", "eu-1", "proxy-0"):
        der = pem_to_der((made / name / "proxy.crt").read_bytes())
        assert issued_by(der, proxies)
        assert not issued_by(der, clients), "a proxy is nobody by itself"


def test_another_run_changes_nothing(site: Path) -> None:
    before = content(site)
    assert certs("init", site, "--external-url", URL, *(text for text, _ in PROCESSES.values())) == 0
    assert certs("renew", site) == 0
    assert content(site) == before


def test_what_was_cut_off_is_made_by_the_next_run(site: Path) -> None:
    before = content(site, "pki", "nats", "proxy-0")
    (site / "pki" / "serving-proxy-0.crt").unlink()
    shutil.rmtree(site / "proxy-0")
    assert certs("renew", site) == 0
    assert content(site, "pki", "nats", "proxy-0") == before
    load_pair(site / "proxy-0" / "serving.crt", site / "proxy-0" / "serving.key")


def test_a_shard_more_gives_the_others_its_key_of_events_and_changes_nothing_else(site: Path) -> None:
    before = content(site)
    assert certs("add", site, "shard/us-1=us-1.example") == 0
    changed = {file for file, text in content(site).items() if before.get(file, text) != text}
    users = {"root", "eu-1", "proxy-0", "cache-0", "edge-0"}
    files = {f"nats/nats-{'shard-' if name in ('root', 'eu-1') else ''}{name}.json" for name in users}
    assert changed == {"certs.json", "nats-0/server.conf", *files, *(f"{name}/nats.json" for name in users)}
    assert (site / "us-1" / "root-shard.kubeconfig").exists()


def test_files_may_be_for_another_directory_on_the_machines(tmp_path: Path) -> None:
    more = ("--external-url", URL, "--installed-at", "/etc/atoll/{name}", "shard/root=r.example")
    assert certs("init", tmp_path, *more) == 0
    found = loaded(tmp_path, "root", "--nats-url", "nats://elsewhere:4222")
    assert isinstance(found, ShardConfig)
    assert found.tls_cert_file == "/etc/atoll/root/serving.crt"
    assert found.nats_credentials_file == "/etc/atoll/root/nats.json"


def test_only_the_named_process_is_renewed(site: Path) -> None:
    before = content(site, "eu-1", "pki")
    old = content(site / "eu-1")
    assert certs("renew", site, "eu-1") == 0
    assert content(site, "eu-1", "pki") == before
    changed = {file for file, text in content(site / "eu-1").items() if old[file] != text}
    assert changed == {"serving.crt", "serving.key", "proxy.crt", "root-shard.kubeconfig"}, "the key of proxy.crt stays"


def test_an_authority_is_replaced_while_both_are_trusted(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = (site / "pki" / "client-ca.crt").read_bytes()
    identity = pem_to_der((site / "cache-0" / "client.crt").read_bytes())
    assert certs("renew", site, "client-ca") == 0
    assert "certs renew client-ca" in capsys.readouterr().out
    assert pem_to_der((site / "cache-0" / "client.crt").read_bytes()) == identity, "it signs nothing yet"
    trusted = (site / "root" / "client-ca.crt").read_bytes()
    assert trusted.startswith(old)
    assert certs("renew", site, "client-ca") == 0
    assert "certs revoke client-ca" in capsys.readouterr().out
    now = pem_to_der((site / "cache-0" / "client.crt").read_bytes())
    assert not issued_by(now, old)
    for trusting in (trusted, (site / "root" / "client-ca.crt").read_bytes()):
        assert issued_by(now, trusting), "also who has not got the new files yet takes it"
        assert issued_by(identity, trusting)
    assert certs("revoke", site, "client-ca") == 0
    trusted = (site / "root" / "client-ca.crt").read_bytes()
    assert issued_by(now, trusted)
    assert not issued_by(identity, trusted)


def test_the_key_of_accounts_is_replaced_while_both_are_accepted(site: Path) -> None:
    def accepted(name: str) -> set[str]:
        found = loaded(site, name)
        assert isinstance(found, ShardConfig)
        return set(service_account_keys.keys(found).verifying)

    def signing() -> str:
        found = loaded(site, "root")
        assert isinstance(found, ShardConfig)
        return service_account_keys.keys(found).signing_id

    first = signing()
    assert certs("renew", site, "service-account") == 0
    assert signing() == first
    both = accepted("eu-1")
    assert len(both) == 2
    assert certs("renew", site, "service-account") == 0
    assert {first, signing()} == both == accepted("root")
    assert certs("revoke", site, "service-account") == 0
    assert accepted("eu-1") == {signing()} == both - {first}


def test_a_process_that_is_revoked_has_no_files_and_no_user_any_more(site: Path) -> None:
    assert certs("revoke", site, "proxy-0") == 0
    assert [file for file in content(site) if "proxy-0" in file] == []
    assert certs("revoke", site, "proxy-0") == 1


def test_passwords_are_those_of_the_server_that_is_configured_beside(site: Path) -> None:
    before = read_access("nats://x", str(site / "root" / "nats.json"))
    flags = {
        "shards": "root,eu-1",
        "readers": "proxy-0,cache-0",
        "edge": "edge-0",
        "event-gateways": "gw-0",
        "nats-url": "tls://n0.example:4222",
        "tls-cert-file": str(site / "nats-0" / "serving.crt"),
        "tls-private-key-file": str(site / "nats-0" / "serving.key"),
        "tls-ca-file": str(site / "nats-0" / "serving-ca.crt"),
    }
    given = [f"--{name}={value}" for name, value in flags.items()]
    assert main.run(["nats-config", "--directory", str(site / "nats"), *given]) == 0
    assert before.password in (site / "nats" / "server.conf").read_text()
    kept = content(site)
    assert certs("renew", site) == 0
    assert content(site) == kept
    assert read_access("nats://x", str(site / "root" / "nats.json")) == before


def test_the_list_names_every_certificate_and_its_end(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certs("list", made) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["PROCESS", "FILE", "SUBJECT", "ENDS", "DAYS"]
    rows = [line.split("   ") for line in lines[1:]]
    assert {line.split()[0] for line in lines[1:]} == {*PROCESSES, "admin"}
    assert any(line.startswith("eu-1") and "root-shard.kubeconfig" in line and "shard-eu-1" in line for line in lines)
    assert all(int(row[-1]) > 300 for row in rows)
    assert "PRIVATE" not in "".join(lines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("eu-1", "is no process"),
        ("pod/eu-1=x", "is no kind of process"),
        ("shard/EU=x", "is no name"),
        ("shard/pki=x", "cannot be the name"),
        ("shard/eu-2=a b/c", "is no host"),
        ("shard/eu-2=x:port", "is no host"),
        ("shard/eu-2=a b", "is no host"),
        ("shard/proxy-0=x", "is the name of a front-proxy"),
        ("front-proxy/shard-eu-1=x", "is the name of a user of NATS"),
    ],
)
def test_a_process_that_cannot_be_is_refused_and_nothing_changes(
    made: Path, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(made)
    assert certs("add", made, text) == 1
    assert reason in capsys.readouterr().err
    assert content(made) == before


def test_a_directory_of_a_running_site_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.json").write_text("{}")
    assert certs("init", tmp_path, "--external-url", URL, "shard/root=r") == 1
    assert "running site" in capsys.readouterr().err
    assert certs("list", tmp_path / "none") == 1
    assert "certs init" in capsys.readouterr().err


def test_three_nats_servers_form_a_cluster_by_the_paths_of_their_machines(tmp_path: Path) -> None:
    servers = [f"nats-server/nats-{number}=n{number}.example" for number in range(3)]
    there = ("--external-url", URL, "--installed-at", "/etc/atoll/{name}")
    assert certs("init", tmp_path, *there, "shard/root=root.example", "event-gateway/gw-0=g0.example", *servers) == 0
    found = json.loads((tmp_path / "nats-1" / "server.conf").read_text())
    assert found["tls"]["cert_file"] == found["cluster"]["tls"]["cert_file"] == "/etc/atoll/nats-1/serving.crt"
    assert found["cluster"]["tls"]["ca_file"] == "/etc/atoll/nats-1/serving-ca.crt"
    assert [url.rpartition("@")[2] for url in found["cluster"]["routes"]] == ["n0.example:6222", "n2.example:6222"]
    assert {"shard-root", "reader-root", "event-gateways", "events"} <= set(found["accounts"])
    usages = load_pair(tmp_path / "nats-1" / "serving.crt", tmp_path / "nats-1" / "serving.key").x509
    assert len(usages.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == 2
    given = yaml.safe_load((tmp_path / "root" / "settings.yaml").read_text())
    access = read_access(given["nats_url"], str(tmp_path / "root" / "nats.json"))
    assert sorted(access.servers) == [f"tls://n{n}.example:4222" for n in range(3)]
    before = content(tmp_path)
    assert certs("init", tmp_path, *there) == 0
    assert content(tmp_path) == before


def test_subscribers_outside_are_sent_to_an_address_of_their_own(site: Path) -> None:
    def servers() -> list[str]:
        return list(read_subscription_keys(site / "root" / SUBSCRIPTIONS_FILE).servers)

    assert servers() == ["tls://n0.example:4222"]
    assert certs("init", site, "--external-url", URL, "--events-url", "tls://events.example:4222") == 0
    assert servers() == ["tls://events.example:4222"]
    pair = load_pair(site / "nats-0" / "serving.crt", site / "nats-0" / "serving.key")
    names = pair.x509.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"n0.example", "events.example"} <= set(names.get_values_for_type(x509.DNSName))
    for wrong in ("https://events.example:1", "tls://events.example", "tls://a b:1", "events.example:4222"):
        assert certs("init", site, "--external-url", URL, "--events-url", wrong) == 1
    assert servers() == ["tls://events.example:4222"]


def test_one_nats_server_has_no_routes(made: Path) -> None:
    found = json.loads((made / "nats-0" / "server.conf").read_text())
    assert "cluster" not in found
    assert found["jetstream"]["store_dir"] == str(made / "nats-0" / "store")


def test_users_of_nats_get_new_passwords_which_the_server_has_and_keep_their_keys(site: Path) -> None:
    def found() -> dict[str, NatsCredential]:
        paths = sorted((site / "nats").glob("nats-*.json"))
        return {path.stem: msgspec.json.decode(path.read_bytes(), type=NatsCredential) for path in paths}

    before, access = found(), read_access("nats://x", str(site / "root" / "nats.json"))
    assert certs("renew", site, "nats") == 0
    after, config = found(), (site / "nats-0" / "server.conf").read_text()
    assert before.keys() == after.keys()
    for name, credential in after.items():
        earlier = before[name]
        assert credential.signing_keys == earlier.signing_keys and credential.event_keys == earlier.event_keys
        assert (credential.password == earlier.password) == (name == "nats-route"), name
        assert (credential.password in config) == (name != "nats-route"), name
    assert access.source is not None and access.reader is not None and access.reader.source is not None
    renewed, reader = access.source.renewed(access), access.reader.source.renewed(access.reader)
    assert renewed.password == after["nats-shard-root"].password != access.password
    assert reader.password == getattr(after["nats-shard-root"].reader, "password", "") != access.reader.password
    (site / "root" / "nats.json").write_text("{")
    assert access.source.renewed(access) == access, "a file that cannot be read changes nothing"


def revoked(directory: Path, name: str) -> set[int]:
    return {serial for _, serial in revocation.read((directory / name / "client.crl").read_bytes())}


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def test_a_revoked_certificate_is_in_the_list_of_every_process_that_verifies_clients(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verifying = ("root", "eu-1", "proxy-0", "cache-0")
    assert [revoked(site, name) for name in verifying] == [set()] * 4
    admin, other = site / "pki" / "kcp-admin.crt", site / "pki" / "shard-admin.crt"
    alice, first = site / "alice.crt", {serial(admin), serial(other)}
    alice.write_bytes(
        make_client(load_pair(site / "pki" / "client-ca.crt", site / "pki" / "client-ca.key"), "alice").certificate
    )
    gone = {serial(alice)}
    for _ in range(2):
        assert certs("revoke", site, str(alice)) == 0
        assert [revoked(site, name) for name in verifying] == [gone] * 4
    assert certs("revoke", site, "admin") == 0
    assert {serial(admin), serial(other)}.isdisjoint(first)
    gone |= first | {serial(site / "eu-1" / "proxy.crt"), serial(site / "pki" / "shard-eu-1.crt")}
    assert certs("revoke", site, "eu-1") == 0
    assert [revoked(site, name) for name in ("root", "proxy-0", "cache-0")] == [gone] * 3
    before = content(site)
    for wrong in (site / "proxy-0" / "serving.crt", site / "none.crt", site / "certs.json"):
        assert certs("revoke", site, str(wrong)) == 1
        assert content(site) == before
    assert "no client certificate of this site" in capsys.readouterr().err


def test_a_revocation_that_was_cut_off_is_completed_by_the_next_call(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    first = serial(site / "pki" / "kcp-admin.crt")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("atoll.standalone.site.certificates.write", killed)
        certs("revoke", site, "admin")
    assert certs("revoke", site, "admin") == 0
    assert first in revoked(site, "proxy-0")
    assert serial(site / "pki" / "kcp-admin.crt") not in revoked(site, "proxy-0")
