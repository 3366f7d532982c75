"""Revocation lists (CRLs) of client certificates: read them, and add certificates to one.

`authentication.certificates` refuses what a list names; `atoll certs revoke` writes one. A certificate is named by its
issuer and its serial number, which its signature covers: a hash of the whole would miss a copy with another encoding of
the same signature. Who signed a list is not looked at, as its file is trusted like that of the authorities beside it.
Invariant: a certificate that was added stays in the list.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from atoll.machinery.process.private_files import Pair, PkiError

#: Issuers and serial numbers of certificates.
Revoked: TypeAlias = frozenset[tuple[x509.Name, int]]

_PEM = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


def read(pem: bytes) -> Revoked:
    """What the lists in a PEM text name; nothing of "". Raises ValueError for a text without a list."""
    lists = _lists(pem)
    if pem and not lists:
        raise ValueError("the text holds no revocation list")
    return frozenset((each.issuer, entry.serial_number) for each in lists for entry in each)


def added(pem: bytes, ca: Pair, certificates: Iterable[x509.Certificate] = ()) -> bytes:
    """The PEM text with certificates of a CA more in that CA's list, which is made if absent; the same text if it has
    them. Lists of other issuers stay. Raises ValueError for an unusable list, PkiError for an unusable key."""
    issuer, lists = ca.x509.subject, _lists(pem)
    earlier = [each for each in lists if each.issuer == issuer]
    serials = {entry.serial_number for each in earlier for entry in each}
    wanted = serials | {certificate.serial_number for certificate in certificates}
    if earlier and wanted == serials:
        return pem
    others = [each for each in lists if each.issuer != issuer]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (*others, _signed(ca, wanted)))


def _lists(pem: bytes) -> list[x509.CertificateRevocationList]:
    return [x509.load_pem_x509_crl(match[0]) for match in _PEM.finditer(pem)]


def _signed(ca: Pair, serials: Iterable[int]) -> x509.CertificateRevocationList:
    key, now = serialization.load_pem_private_key(ca.key, None), datetime.datetime.now(datetime.UTC)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise PkiError("the CA's key is neither RSA nor elliptic curve")
    builder = x509.CertificateRevocationListBuilder(
        ca.x509.subject,
        last_update=now,
        next_update=ca.x509.not_valid_after_utc,
        revoked_certificates=[
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            for serial in sorted(serials)
        ],
    )
    return builder.sign(key, hashes.SHA256())
