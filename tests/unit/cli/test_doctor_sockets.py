"""`atoll doctor`: sockets that no table lists, and NATS servers that let everybody in."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll.cli.atoll import doctor_sockets
from atoll.cli.atoll.finding import Finding
from atoll.machinery.process import pki
from atoll.machinery.process.tls import server_context
from atoll.machinery.stream.credential_file import NatsCredential, write_credential
from atoll.shard.config import ShardConfig

#: A process with the file of a store open, and these sockets.
HOLDER = """
import socket, sys
store, *names = sys.argv[1:]
file, held = open(store), []
for name in names:
    kind, _, place = name.partition(" ")
    if kind == "unix":
        each = socket.socket(socket.AF_UNIX)
        each.bind(place)
    else:
        family = socket.AF_INET6 if ":" in place else socket.AF_INET
        each = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        each.bind((place, 0))
    if kind != "udp":
        each.listen()
    held.append(each)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(root: Path, *names: str) -> Iterator[ShardConfig]:
    """A process like a shard of a root directory, with these sockets."""
    store = root / "store" / "data.mdb"
    store.parent.mkdir(exist_ok=True)
    store.touch()
    command = [sys.executable, "-S", "-c", HOLDER, str(store), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield ShardConfig(root_directory=str(root))
        process.kill()


def levels(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings}


def test_a_shard_that_listens_as_documented_is_fine_and_one_that_does_not_run_is_no_finding(tmp_path: Path) -> None:
    with holder(tmp_path, "tcp 127.0.0.1", f"unix {tmp_path}/submit", f"unix {tmp_path}/m12") as config:
        (found,) = doctor_sockets.listeners(config)
    assert (found.level, found.fact.startswith("the shard listens on tcp 127.0.0.1:")) == ("ok", True), found
    assert list(doctor_sockets.listeners(config)) == []


@pytest.mark.parametrize("other", ["tcp 127.0.0.1", "tcp ::1", "udp 127.0.0.1", "unix {}/debug", "unix {}/up/submit"])
def test_a_socket_that_is_not_documented_is_a_failure(tmp_path: Path, other: str) -> None:
    (tmp_path / "up").mkdir()
    name = other.format(tmp_path)
    with holder(tmp_path, "tcp 127.0.0.1", name) as config:
        (found,) = doctor_sockets.listeners(config)
    kind, place = name.split()
    shown = f"{kind} [::1]:" if place == "::1" else name
    assert (found.level, shown in found.fact) == ("fail", True), found


@contextmanager
def nats(*, lets_in: bool, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of something that greets as a NATS server does, and takes anybody or nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)

        def serve() -> None:
            stream, _ = listening.accept()
            with stream:
                stream.sendall(b"INFO " + json.dumps({"tls_required": tls is not None}).encode() + b"\r\n")
                inner = tls.wrap_socket(stream, server_side=True) if tls is not None else stream
                with inner, inner.makefile("rb") as lines:
                    assert lines.readline().startswith(b"CONNECT {")
                    inner.sendall(b"PONG\r\n" if lets_in else b"-ERR 'Authorization Violation'\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("lets_in", "level"), [(True, "fail"), (False, "ok")])
def test_a_nats_server_that_lets_everybody_in_is_a_failure_that_quotes_no_password(lets_in: bool, level: str) -> None:
    with nats(lets_in=lets_in) as address:
        found = list(doctor_sockets.nats(ShardConfig(nats_url=f"nats://user:secret@{address}")))
    assert levels(found) == {"nats-anonymous": level}
    assert not any("secret" in str(each) for each in found)


def test_one_on_another_machine_takes_tls_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_sockets, "is_loopback", lambda host: False)
    with nats(lets_in=False) as address:
        found = levels(doctor_sockets.nats(ShardConfig(nats_url=f"tls://{address}")))
    assert found == {"nats-tls": "fail", "nats-anonymous": "ok"}
    ca = pki.make_ca("serving")
    (tmp_path / "ca.crt").write_bytes(ca.certificate)
    file = tmp_path / "nats.json"
    write_credential(file, NatsCredential("user", "secret", ca_file="ca.crt"))
    context = server_context(pki.make_serving(ca, ["127.0.0.1"]))
    for lets_in, level in ((False, "ok"), (True, "fail")):
        with nats(lets_in=lets_in, tls=context) as address:
            config = ShardConfig(nats_url=f"tls://{address}", nats_credentials_file=str(file))
            assert levels(doctor_sockets.nats(config)) == {"nats-anonymous": level}


def test_the_server_of_a_start_is_named_by_its_file(tmp_path: Path) -> None:
    config = ShardConfig(root_directory=str(tmp_path))
    assert list(doctor_sockets.nats(config)) == []
    with nats(lets_in=True) as address:
        document = {"connect": {"servers": [f"nats://{address}"], "user": "operator"}, "shard": "root"}
        (tmp_path / "stream.json").write_text(json.dumps(document))
        assert levels(doctor_sockets.nats(config)) == {"nats-anonymous": "fail"}
    assert levels(doctor_sockets.nats(config)) == {"nats-server-reached": "warn"}
    (tmp_path / "stream.json").write_text("{}")
    assert levels(doctor_sockets.nats(config)) == {"nats-credential": "fail"}
