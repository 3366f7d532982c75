"""`atoll doctor --kubeconfig`: each thing that a running server may do wrong is found, at one that does it."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from atoll.cli.atoll import doctor, doctor_metrics, doctor_server
from atoll.cli.atoll.doctor_server import Server, server_of
from atoll.cli.atoll.finding import Finding
from atoll.machinery.process import pki
from atoll.machinery.process.certificate_expiry import NAME as CERTIFICATE_END
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import server_context

ADMIN = "Bearer admin"
#: What a shard shows that writes its audit log and has all that it needs.
SOUND = "atoll_stream_connected 1.0\natoll_audit_events_waiting 0.0\natoll_store_full 0.0\n"


class Manners:
    """How the stand-in behaves: as a server should, but for what a test sets."""

    def __init__(self) -> None:
        self.open: tuple[str, ...] = ()
        self.believes: tuple[str, ...] = ()
        self.impersonates = True
        self.powerless_code, self.profiles_code = 403, 404
        self.ready, self.ready_code = "[+]ping ok\n", 200
        self.metrics, self.metrics_code = SOUND, 200
        self.ahead = timedelta()

    def code(self, path: str, headers: dict[str, str]) -> int:
        """The status that a request gets."""
        named = headers.get("impersonate-user")
        if headers.get("authorization") == ADMIN and not named:
            return {"/metrics": self.metrics_code, "/debug/pprof/": self.profiles_code}.get(path, self.ready_code)
        if named:
            return self.powerless_code
        trusted = any(each in self.believes for each in headers)
        return 200 if path in self.open or trusted else 401


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    manners: Manners

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response_only(code)
        self.send_header("date", format_datetime(datetime.now(UTC) + self.manners.ahead, usegmt=True))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        bodies = {"/metrics": self.manners.metrics, "/readyz?verbose": self.manners.ready}
        self._answer(self.manners.code(self.path, headers), bodies.get(self.path, "").encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        name = self.headers["impersonate-user"] if self.manners.impersonates else "admin"
        self._answer(201, json.dumps({"status": {"userInfo": {"username": name}}}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


class _HttpsServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses the certificate is no error here."""


@contextmanager
def serving(
    folder: Path, manners: Manners, context: ssl.SSLContext, authority: bytes, host: str = "127.0.0.1"
) -> Iterator[Server]:
    handler = type("_Mannered", (_Handler,), {"manners": manners})
    listening = _HttpsServer(("127.0.0.1", 0), handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    cluster = {
        "server": f"https://{host}:{listening.server_port}/clusters/root",
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    config = {
        "current-context": "base",
        "contexts": [{"name": "base", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "admin"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    try:
        yield server_of(str(file), "")
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


@pytest.fixture
def manners() -> Manners:
    return Manners()


@pytest.fixture
def server(tmp_path: Path, manners: Manners) -> Iterator[Server]:
    ca = pki.make_ca("serving")
    with serving(tmp_path, manners, server_context(pki.make_serving(ca, ["127.0.0.1"])), ca.certificate) as found:
        yield found


def levels(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings}


def test_a_server_as_it_should_be_has_no_finding(server: Server) -> None:
    found = [finding for check in doctor.SERVER for finding in check(server)]
    assert {finding.level for finding in found} == {"ok"}, list(map(str, found))
    assert {finding.name for finding in found} == {
        *("served-certificate", "tls", "anonymous", "forged-names", "unknown-tokens", "users-without-rights"),
        *("profiling", "ready", "server-clock", "certificates", "store", "stream"),
    }


@pytest.mark.parametrize("path", ["/metrics", "/clusters/*/api/v1/secrets", "/debug/pprof/", "/api"])
def test_a_path_that_answers_without_a_credential_is_named(server: Server, manners: Manners, path: str) -> None:
    manners.open = (path,)
    found = {each.name: each for each in doctor_server.strangers(server)}
    assert found["anonymous"] == Finding("fail", "anonymous", f"answered at {path} (200)")
    manners.open = ()
    assert str(next(iter(doctor_server.strangers(server)))) == "ok   anonymous: refused at each of 13 paths"


@pytest.mark.parametrize(("header", "name"), [("x-remote-user", "forged-names"), ("authorization", "unknown-tokens")])
def test_a_name_that_nobody_vouches_for_is_a_failure(server: Server, manners: Manners, header: str, name: str) -> None:
    manners.believes = (header,)
    assert {each for each, level in levels(doctor_server.strangers(server)).items() if level == "fail"} == {name}


def test_secrets_and_metrics_that_everybody_with_a_name_sees_are_a_failure(server: Server, manners: Manners) -> None:
    manners.powerless_code = 200
    assert levels(doctor_server.powerless(server)) == {"users-without-rights": "fail"}
    manners.impersonates = False
    (found,) = doctor_server.powerless(server)
    assert (found.level, "may not impersonate" in found.fact) == ("warn", True)


def test_profiles_and_failing_health_are_failures(server: Server, manners: Manners) -> None:
    manners.profiles_code, manners.ready, manners.ready_code = 200, "[+]ping ok\n[-]store failed: x\n", 500
    assert levels(doctor_server.profiling(server)) == {"profiling": "fail"}
    assert list(doctor_server.health(server)) == [Finding("fail", "ready", "failing: store")]
    manners.ready, manners.ready_code = "", 503
    assert list(doctor_server.health(server)) == [Finding("fail", "ready", "failing: HTTP 503")]


@pytest.mark.parametrize(("ahead_s", "level"), [(5, "warn"), (-5, "warn"), (60, "fail"), (-60, "fail")])
def test_a_clock_that_differs_is_found(server: Server, manners: Manners, ahead_s: int, level: str) -> None:
    manners.ahead = timedelta(seconds=ahead_s)
    assert levels(doctor_server.times(server)) == {"server-clock": level}


def careless_context(pair: Pair, least: ssl.TLSVersion, most: ssl.TLSVersion, ciphers: str) -> ssl.SSLContext:
    context = server_context(pair)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers(ciphers)
        context.minimum_version, context.maximum_version = least, most
    return context


@pytest.mark.parametrize(
    ("least", "most", "ciphers", "fact"),
    [
        (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_3, "ALL:@SECLEVEL=0", "TLS 1.1, ciphers without"),
        (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_3, "ALL:@SECLEVEL=0", "TLS 1.0, TLS 1.1, ciphers without"),
        (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3, "ECDHE+AES", "takes ciphers without forward secrecy or"),
    ],
)
def test_old_versions_and_weak_ciphers_are_a_failure(
    tmp_path: Path, least: ssl.TLSVersion, most: ssl.TLSVersion, ciphers: str, fact: str
) -> None:
    ca = pki.make_ca("serving")
    context = careless_context(pki.make_serving(ca, ["127.0.0.1"]), least, most, ciphers)
    with serving(tmp_path, Manners(), context, ca.certificate) as server:
        found = {each.name: each for each in doctor_server.transport(server)}
    assert (found["tls"].level, fact in found["tls"].fact) == ("fail", True), found["tls"]


def test_a_certificate_of_another_authority_or_for_another_name_is_a_failure(tmp_path: Path) -> None:
    ca = pki.make_ca("serving")
    context = server_context(pki.make_serving(ca, ["127.0.0.1"]))
    for authority, host in ((pki.make_ca("other").certificate, "127.0.0.1"), (ca.certificate, "localhost")):
        with serving(tmp_path, Manners(), context, authority, host) as server:
            (found,) = doctor_server.transport(server)
        assert (found.level, found.name) == ("fail", "served-certificate"), found


def test_a_certificate_that_ends_soon_is_named(tmp_path: Path) -> None:
    ca = pki.make_ca("serving")
    context = server_context(pki.make_peer(ca, ["127.0.0.1"], days=3))
    with serving(tmp_path, Manners(), context, ca.certificate) as server:
        assert levels(doctor_server.transport(server))["served-certificate"] == "warn"


def test_metrics_that_the_user_may_not_see_are_said_to_be_unchecked(server: Server, manners: Manners) -> None:
    manners.metrics_code = 403
    assert levels(doctor_metrics.measured(server)) == {"metrics": "warn"}


NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("line", "name", "level"),
    [
        ("atoll_store_full 1.0", "store", "fail"),
        ("atoll_store_room_bytes 10.0\natoll_store_disk_bytes 100.0", "store", "warn"),
        ("atoll_clock_refused_step_seconds -400.0", "clock-step", "fail"),
        ("atoll_audit_failed_writes_total 1.0", "audit-log", "fail"),
        ("atoll_audit_events_dropped_total 3.0", "audit-log", "warn"),
        ("atoll_stream_connected 0.0", "stream", "warn"),
        ("atoll_stream_lag_seconds 60.0", "stream", "warn"),
        ("atoll_stream_foreign_messages 1.0", "stream", "fail"),
        ('atoll_replication_lag_seconds{shard="eu-1"} 30.0', "replication", "warn"),
        ('atoll_replication_generations{shard="eu-1"} 5.0', "replication", "warn"),
        ('atoll_replication_refused_rows_total{shard="eu-1",reason="forged"} 1.0', "replication", "fail"),
        ("atoll_frontproxy_backends_down 1.0", "backends", "fail"),
        (f'{CERTIFICATE_END}{{setting="client-ca-file"}} {NOW_S - 5}', "certificates", "fail"),
        (f'{CERTIFICATE_END}{{setting="client-ca-file"}} {NOW_S + 86400}', "certificates", "warn"),
    ],
)
def test_what_a_server_measures_is_a_finding_where_it_is_bad_alone(line: str, name: str, level: str) -> None:
    found = [each for each in doctor_metrics.findings(f"{SOUND}{line}\n", NOW_S) if each.level != "ok"]
    assert [(each.name, each.level) for each in found] == [(name, level)], found
    good = _with_good_values(line)
    assert {each.level for each in doctor_metrics.findings(f"{SOUND}{good}\n", NOW_S)} == {"ok"}, good


def _with_good_values(text: str) -> str:
    """The same series as on a quiet server."""
    good = {"atoll_stream_connected": 1.0, "atoll_store_room_bytes": 90.0, "atoll_store_disk_bytes": 100.0}
    good[CERTIFICATE_END] = NOW_S + 90 * 86400
    names = [line.rpartition(" ")[0] for line in text.splitlines()]
    return "\n".join(f"{name} {good.get(name.partition('{')[0], 0.0)}" for name in names)


def test_rows_that_are_refused_for_other_reasons_than_forgery_are_no_finding() -> None:
    line = 'atoll_replication_refused_rows_total{shard="eu-1",reason="stranger"} 1.0'
    assert {each.level for each in doctor_metrics.findings(f"{SOUND}{line}\n", NOW_S)} == {"ok"}


def test_a_shard_without_an_audit_log_is_named_and_a_proxy_is_not() -> None:
    assert levels(doctor_metrics.findings("atoll_stream_connected 1.0\n", NOW_S))["audit-log"] == "warn"
    assert "audit-log" not in levels(doctor_metrics.findings("atoll_frontproxy_backends_down 0.0\n", NOW_S))


@pytest.fixture
def printed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], list[str]]:
    """Runs the command with the default settings beside the server; returns its lines."""
    monkeypatch.setattr(doctor, "versions", lambda config: ())
    here = ("--root-directory", str(tmp_path / "none"), "--secure-port", "0", "--allow-any-filesystem")

    def run() -> list[str]:
        assert doctor.run([*here, "--kubeconfig", str(server.kubeconfig.path)]) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize(
    ("metrics", "code", "expected"),
    [
        ("atoll_stream_connected 1.0\n", 200, ["warn audit-log"]),
        (f"{SOUND}atoll_audit_events_dropped_total 0.0\n", 200, ["ok   audit-log"]),
        ("atoll_frontproxy_backends_down 0.0\n", 200, ["warn audit"]),
        (SOUND, 403, ["warn audit"]),
    ],
    ids=["a shard without", "a shard with", "a proxy", "no metrics"],
)
def test_settings_without_an_audit_log_are_named_where_the_server_does_not_say_whether_it_writes_one(
    printed: Callable[[], list[str]], manners: Manners, metrics: str, code: int, expected: list[str]
) -> None:
    manners.metrics, manners.metrics_code = metrics, code
    subjects = [line.partition(":")[0] for line in printed()]
    assert [each for each in subjects if " audit" in each] == expected


def test_a_server_that_does_not_answer_is_a_finding_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "versions", lambda config: ())
    ca = pki.make_ca("serving")
    with serving(tmp_path, Manners(), server_context(pki.make_serving(ca, ["127.0.0.1"])), ca.certificate):
        file = str(tmp_path / "kubeconfig")
    flags = ["--root-directory", str(tmp_path / "none"), "--secure-port", "0", "--allow-any-filesystem"]
    assert doctor.run([*flags, "--kubeconfig", file]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fail transport: ") for line in lines)
    assert doctor.run([*flags, "--kubeconfig", file, "--context", "none"]) == 1
    assert "context 'none' is not in the kubeconfig" in capsys.readouterr().err
