"""The identity in a client certificate.

Authentication calls `client_identity` with what TLS verified (`process.tls`). Invariant: a certificate with several
uids names nobody.
"""

from __future__ import annotations

import hashlib

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from atoll.machinery.process.pki import UID_OID


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
