"""`atoll health`: the exit code for containers' health checks."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from atoll.cli.atoll import health
from atoll.machinery.process.pki import make_ca, make_serving
from atoll.machinery.process.private_files import write_pair


@contextmanager
def listening(line: bytes, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server that sends one line to its first client; its port."""

    def serve() -> None:
        connection, _ = listener.accept()
        # A client that does not trust the server ends the handshake.
        with connection, suppress(OSError):
            stream = context.wrap_socket(connection, server_side=True) if context is not None else connection
            with stream:
                if context is not None:
                    stream.recv(1024)
                stream.sendall(line)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20.0)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(30.0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A serving pair `serving`, its authority `ca.crt`, and another one, `other.crt`."""
    directory = tmp_path_factory.mktemp("pki")
    ca = make_ca("serving")
    write_pair(directory, "serving", make_serving(ca, ["127.0.0.1"]))
    (directory / "ca.crt").write_bytes(ca.certificate)
    (directory / "other.crt").write_bytes(make_ca("other").certificate)
    return directory


@pytest.fixture
def context(files: Path) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(files / "serving.crt", files / "serving.key")
    return found


@pytest.mark.parametrize(
    ("line", "authority", "code"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "ca.crt", 0),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", "ca.crt", 1),
        (b"hello\r\n", "ca.crt", 1),
        (b"", "ca.crt", 1),
        (b"HTTP/1.1 200 OK\r\n\r\n", "other.crt", 1),
    ],
)
def test_a_process_is_healthy_if_it_answers_200_with_its_certificate(
    files: Path, context: ssl.SSLContext, line: bytes, authority: str, code: int
) -> None:
    with listening(line, context) as port:
        asked = [f"https://127.0.0.1:{port}/readyz", f"--ca-file={files / authority}"]
        assert health.run(asked) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'INFO {"version": "2.15.1", "jetstream": true} \r\n', 0),
        (b'INFO {"version": "2.15.1"} \r\n', 1),
        (b"INFO nothing\r\n", 1),
        (b"220 mail\r\n", 1),
        (b"", 1),
    ],
)
def test_a_nats_server_is_healthy_if_it_has_jetstream(line: bytes, code: int) -> None:
    with listening(line) as port:
        assert health.run([f"tls://127.0.0.1:{port}"]) == code


def test_nobody_there_is_unhealthy(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert health.run([f"https://127.0.0.1:{bound.getsockname()[1]}/readyz"]) == 1
    assert "refused" in capsys.readouterr().err


def test_it_imports_little_as_every_container_runs_it_all_the_time() -> None:
    program = "import sys; sys.path[:] = eval(sys.argv[1]); import atoll.cli.atoll.main as m; m.loaded('health'); "
    program += "print(*sorted({'asyncio', 'msgspec', 'structlog', 'email', 'importlib.metadata'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program, repr(sys.path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
