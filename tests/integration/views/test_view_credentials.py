"""A process of views reads its certificates, a revocation list and its kubeconfig again while it runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from atoll.machinery.process import revocation
from atoll.machinery.process.pki import make_client, make_serving
from atoll.machinery.process.private_files import Pair, write_private
from harness.clients.api import eventually
from harness.clients.exports import cluster_of
from harness.servers.virtual_workspaces import OfThirdParty
from integration.views.test_third_party import ALL, roster, team

pytestmark = pytest.mark.long

TIMEOUT_S = 60.0


def test_what_is_renewed_is_used_and_what_is_revoked_is_refused(third: OfThirdParty, tmp_path: Path) -> None:
    view, files = third.view, third.certificates
    consumer = third.consumer()
    team(consumer, "east", "ann")
    roster(consumer, "east")
    shards, views = (
        Pair(files.files[f"{name}.crt"].read_bytes(), files.files[f"{name}.key"].read_bytes())
        for name in ("shards", "views")
    )
    other = make_client(shards, "other")
    files._write(tmp_path, "other", other)
    revoked = tmp_path / "revoked.crl"
    revoked.write_bytes(revocation.added(b"", shards))
    view.stop()
    view.command.append(f"--client-crl-file={revoked}")
    try:
        view.start()
        path = f"/clusters/{cluster_of(consumer)}{ALL}"

        def code(certificate: str) -> int:
            return view.get(path, "admin", certificate, **{"X-Remote-Group": "system:masters"})[0]

        eventually(lambda: code("shard") == code("other") == 200, "both certificates are good", TIMEOUT_S)
        revoked.write_bytes(revocation.added(revoked.read_bytes(), shards, [other.x509]))
        eventually(lambda: code("other") == 401, "the revoked one is refused", TIMEOUT_S)
        assert code("shard") == 200

        renewed = make_serving(views, ("127.0.0.1", "localhost"))
        for name, data in (("serving.key", renewed.key), ("serving.crt", renewed.certificate)):
            write_private(files.files[name], data)
        parts = urlsplit(view.url)
        place = parts.hostname or "", parts.port or 0

        def serial() -> int:
            return Pair(ssl.get_server_certificate(place).encode(), b"").x509.serial_number

        eventually(lambda: serial() == renewed.x509.serial_number, "the new certificate is served", TIMEOUT_S)

        document = view.kubeconfig(third.provider)
        document["users"][0]["user"]["as"] = "somebody"
        said = "client certificate reloaded"
        before = view.log().count(said)
        write_private(view.directory / "kubeconfig", yaml.safe_dump(document).encode())
        eventually(lambda: view.log().count(said) > before, "the kubeconfig is read again", TIMEOUT_S)
    finally:
        view.stop()
        view.command.pop()
        write_private(view.directory / "kubeconfig", yaml.safe_dump(view.kubeconfig(third.provider)).encode())
        view.start()
