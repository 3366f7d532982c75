"""PKCS#10 certificate requests: whether one is well formed and signed by the key that it names.

The validation of CertificateSigningRequests calls it. With `tls` it is the only place that parses certificate formats,
so the packages above handle texts alone. Invariant: nothing is stored.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

_BEGIN = b"-----BEGIN CERTIFICATE REQUEST-----"


def certificate_request_problem(pem: bytes) -> str:
    """The problem of a request in PEM; empty for a valid one."""
    if _BEGIN not in pem:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_pem_x509_csr(pem)
        is_signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "the certificate request cannot be parsed"
    return "" if is_signed else "the signature of the certificate request is not valid"


def certificates_problem(pem: bytes) -> str:
    """The problem of a certificate chain in PEM; empty for a valid one."""
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError:
        return "must contain at least one CERTIFICATE PEM block, and nothing else"
    return ""


def requested_organizations(pem: bytes) -> list[str]:
    """The organizations of a request's subject, which become groups. Raises ValueError if it cannot be read."""
    subject = x509.load_pem_x509_csr(pem).subject
    return [str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
