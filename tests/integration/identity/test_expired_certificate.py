"""A client certificate ends while its user watches: as with kube-apiserver the watch goes on, requests are refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from atoll.machinery.process import pki
from atoll.machinery.process.private_files import Pair
from harness.clients.api import Api, configmap, eventually
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.long

MAPS = "/api/v1/namespaces/default/configmaps"
#: Long enough for a watch to begin on a busy machine.
LIFE_S = 40


def ending(ca: Pair, pair: Pair) -> Pair:
    """The certificate of a pair, signed anew to end in LIFE_S."""
    old, now = pair.x509, datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=old.issuer,
        subject_name=old.subject,
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(minutes=1),
        not_valid_after=now + timedelta(seconds=LIFE_S),
        extensions=list(old.extensions),
    )
    key = load_pem_private_key(ca.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Pair(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), pair.key)


def code(connection: http.client.HTTPSConnection) -> int:
    """The status of a GET on a kept connection, or on a new one; 0 if the handshake is refused."""
    try:
        connection.request("GET", f"/clusters/root{MAPS}")
        response = connection.getresponse()
        response.read()
    except (ssl.SSLError, ConnectionError, http.client.HTTPException):
        connection.close()
        return 0
    return response.status


def test_a_watch_outlives_its_certificate_and_no_request_does(tmp_path: Path) -> None:
    ca = pki.make_ca("clients")
    (tmp_path / "clients.pem").write_bytes(ca.certificate)
    with (
        ShardProcess(tmp_path, "--client-ca-file", str(tmp_path / "clients.pem")) as shard,
        contextlib.ExitStack() as stack,
    ):
        admin, context, parts = Api(shard, "root"), shard.new_tls(), urlsplit(shard.url)
        made = pki.make_client(ca, "alice", ["system:kcp:admin"])
        file, pair = tmp_path / "alice.pem", ending(ca, made)
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
        watching, kept, late = (
            stack.enter_context(
                contextlib.closing(
                    http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=120, context=context)
                )
            )
            for _ in range(3)
        )
        watching.request("GET", f"/clusters/root{MAPS}?watch=1&labelSelector=late")
        watch = watching.getresponse()
        assert watch.status == code(kept) == 200
        eventually(partial(lambda kept: code(kept) != 200, kept), "the certificate ended", LIFE_S + 60.0)
        assert code(kept) in {0, 401}
        assert code(late) in {0, 401}
        admin.post(MAPS, configmap("late", labels={"late": "1"}))
        event = json.loads(watch.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "late")
