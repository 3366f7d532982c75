"""TLS contexts for servers and clients, and who a client certificate names.

Processes build their contexts here from PEM files or text; `wire` is given the context and puts the DER of
a verified client certificate into each request's peer; authentication asks `client_identity` about it.
Invariant: a certificate that reaches a request was verified against one of the CAs of the context, also
after resumption.
"""

from __future__ import annotations

import hashlib
import ssl
import tempfile
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from atoll.machinery.process.pki import UID_OID, Pair

_ALPN = ["http/1.1"]
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class ClientIdentity(msgspec.Struct, frozen=True):
    """Whom a client certificate names. `common_name` is empty if it names nobody.

    `not_after_s` (Unix seconds) has to be looked at by whoever keeps this: connections and resumed sessions
    outlive certificates.
    """

    common_name: str
    organizations: tuple[str, ...]
    uid: str
    sha256: str
    not_after_s: int


def server_context(serving: Pair, client_ca_pem: bytes = b"") -> ssl.SSLContext:
    """A server context: TLS 1.2 and up, ALPN http/1.1, one session ticket a handshake.

    With `client_ca_pem` (any number of CA certificates) clients may present a certificate of one of them
    and are refused with another's; without, none is asked for. Raises ssl.SSLError for unusable PEM.
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
    """A client context that trusts exactly `ca_pem`, checks names, and presents `client` if asked.
    Raises ssl.SSLError for unusable PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    if client is not None:
        _load_pair(context, client)
    return context


def public_context(client: Pair | None = None) -> ssl.SSLContext:
    """A client context that trusts the roots this machine trusts, checks names, and presents `client` if asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.load_default_certs()
    if client is not None:
        _load_pair(context, client)
    return context


def client_identity(certificate_der: bytes) -> ClientIdentity:
    """Read a client certificate as Kubernetes does: user from the common name, groups from the
    organizations, uid from its own attribute. Costs about 50 µs; keep the answer with the connection.
    Raises ValueError if the DER is none, or carries several uids."""
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
    """`ssl` takes a key only from a file; this one is private and gone at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(path)
