"""TLS contexts of servers and clients, and the identity in a client certificate.

Processes build their contexts here from PEM; `wire` uses the context and puts the DER of a verified client certificate
into the request's peer; authentication calls `client_identity` with it. Invariant: a certificate that reaches a request
was verified against one of the context's CAs, also on a resumed connection.
"""

from __future__ import annotations

import hashlib
import ssl
import tempfile
from functools import cache
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from atoll.machinery.process.pki import UID_OID, Pair

_ALPN = ["http/1.1"]
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class ClientIdentity(msgspec.Struct, frozen=True):
    """The identity in a client certificate. `common_name` is empty if the certificate has none.

    A caller that caches this must check `not_after_s` (Unix seconds): connections and resumed sessions outlive
    certificates.
    """

    common_name: str
    organizations: tuple[str, ...]
    uid: str
    sha256: str
    not_after_s: int


def server_context(serving: Pair, client_ca_pem: bytes = b"") -> ssl.SSLContext:
    """A server context: TLS 1.2 or later, ALPN http/1.1, one session ticket per handshake.

    With `client_ca_pem` (any number of CA certificates) clients may present a certificate of one of these CAs, and are
    refused with one of another CA. Without it no certificate is requested. Raises ssl.SSLError for unusable PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    # One ticket instead of two: each costs a sixth of a handshake with a client certificate. The ticket
    # carries the verified certificate, so a resumed connection has the identity of the first.
    context.num_tickets = 1
    _load_pair(context, serving)
    if client_ca_pem:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca_pem.decode("ascii"))
    return context


def client_context(ca_pem: bytes, client: Pair | None = None) -> ssl.SSLContext:
    """A client context that trusts exactly `ca_pem`, verifies names, and presents `client` on request.

    Raises ssl.SSLError for unusable PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    if client is not None:
        _load_pair(context, client)
    return context


def public_context(client: Pair | None = None) -> ssl.SSLContext:
    """A client context that trusts the CAs of the system, verifies names, and presents `client` on request."""
    if client is None:
        return _public()
    context = _trusting_the_system()
    _load_pair(context, client)
    return context


@cache
def _public() -> ssl.SSLContext:
    """The one that presents nothing, which is the same for all: reading the system's CAs takes tens of milliseconds."""
    return _trusting_the_system()


def _trusting_the_system() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.load_default_certs()
    return context


def client_identity(certificate_der: bytes) -> ClientIdentity:
    """Read a client certificate as Kubernetes does: user from the common name, groups from the organizations, uid from
    its own attribute.

    Costs about 50 µs, so cache the result. Raises ValueError for malformed DER, and for several uids.
    """
    certificate = x509.load_der_x509_certificate(certificate_der)
    subject = certificate.subject
    names = [str(a.value) for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    uids = [str(a.value) for a in subject.get_attributes_for_oid(UID_OID)]
    if len(uids) > 1:
        raise ValueError("client certificate carries several uids")
    return ClientIdentity(
        common_name=names[-1] if names else "",
        organizations=tuple(str(a.value) for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)),
        uid=uids[0] if uids else "",
        sha256=hashlib.sha256(certificate_der).hexdigest(),
        not_after_s=int(certificate.not_valid_after_utc.timestamp()),
    )


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_ALPN)


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Load a pair through a private temporary file: `ssl` reads keys from files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(path)
