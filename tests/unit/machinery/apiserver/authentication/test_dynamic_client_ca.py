"""CAs and revocation lists of client certificates that are read again when their files change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAFiles, ReloadTarget, reload_on_change
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.process import file_watch, revocation
from atoll.machinery.process.pki import make_ca, make_client, make_serving, pem_to_der
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.waits import until

CA = make_ca("clients")
ALICE, BOB = make_client(CA, "alice"), make_client(CA, "bob")


class Server:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.contexts: list[ssl.SSLContext] = []
        self.refused: list[Callable[[HttpRequest], bool]] = []

    def use(self, ssl_context: ssl.SSLContext) -> None:
        self.contexts.append(ssl_context)

    def cut_requests(self, refused: Callable[[HttpRequest], bool]) -> None:
        self.refused.append(refused)


def request(certificate: bytes | None) -> HttpRequest:
    return HttpRequest("GET", b"/", {}, b"", Peer("::1", 1, certificate))


async def test_requests_in_progress_end_with_a_revoked_certificate_and_with_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "CHECK_EVERY_S", 0.01)
    clients, revoked = tmp_path / "clients.crt", tmp_path / "client.crl"
    clients.write_bytes(CA.certificate)
    empty = revocation.added(b"", CA)
    revoked.write_bytes(empty)
    files = ClientCAFiles((str(clients),), revoked=str(revoked))
    current, server = files.read(), Server()
    certificates = Certificates(current.clients, revoked=current.revoked)
    target = ReloadTarget(make_serving(CA, ["localhost"]), certificates, server)
    task = asyncio.create_task(reload_on_change(files, current, target))
    alice, bob = (pem_to_der(pair.certificate) for pair in (ALICE, BOB))

    async def cut() -> bool:
        return bool(server.refused)

    try:
        assert certificates.verify(alice).user is not None
        revoked.write_bytes(revocation.added(empty, CA, [ALICE.x509]))
        await until(cut, "the revocation")
        (refused,) = server.refused
        assert [refused(request(each)) for each in (alice, bob, None)] == [True, False, False]
        with pytest.raises(Unauthorized):
            certificates.verify(alice)
        with capture_logs() as logs:
            revoked.write_text("nothing")

            async def said() -> bool:
                return any("no PEM revocation list" in str(each.get("reason")) for each in logs)

            await until(said, "the unusable list")
        with pytest.raises(Unauthorized):
            certificates.verify(alice)
        assert certificates.verify(bob).user is not None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_process_does_not_start_without_its_revocation_list(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ClientCAFiles(revoked=str(tmp_path / "client.crl")).read()
