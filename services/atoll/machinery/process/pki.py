"""Keys and certificates: a CA, the certificates it signs, and their files.

Processes call it at their first start, and tests; the pairs go to `process.tls` for contexts and into kubeconfigs.
Invariant: certificates are X.509 v3 (rustls refuses v1) with P-256 keys, which sign a handshake ten times as fast as
RSA.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from atoll.machinery.process.private_files import Pair, PkiError, write_pair, write_private

#: The subject attribute that carries a user's uid in Kubernetes client certificates.
UID_OID = ObjectIdentifier("1.3.6.1.4.1.57683.2")

_CA_DAYS = 3650
_LEAF_DAYS = 365
#: A certificate that is valid for less than this is renewed at start.
_RENEW_DAYS = 30
#: Certificates are valid from a little before now, for peers whose clock is behind.
_SKEW = datetime.timedelta(minutes=5)
_RSA_BITS = 2048


def make_ca(common_name: str) -> Pair:
    """Make a self-signed CA, valid for ten years, that may sign leaf certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, key.public_key(), _CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def make_serving(
    ca: Pair,
    names: Sequence[str],
    *,
    days: int = _LEAF_DAYS,
    usages: Sequence[ObjectIdentifier] = (ExtendedKeyUsageOID.SERVER_AUTH,),
) -> Pair:
    """Make a serving certificate for DNS names and IP addresses. Raises ValueError if `names` is empty."""
    if not names:
        raise ValueError("a serving certificate needs a name")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    return _leaf(ca, subject, usages, alternatives, days)


def make_peer(ca: Pair, names: Sequence[str], *, days: int = _LEAF_DAYS) -> Pair:
    """Make a serving certificate with which its server connects to others of its kind, too."""
    return make_serving(ca, names, days=days, usages=(ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH))


def make_client(
    ca: Pair,
    common_name: str,
    organizations: Sequence[str] = (),
    *,
    uid: str = "",
    days: int = _LEAF_DAYS,
    key_pem: bytes = b"",
) -> Pair:
    """Make a client certificate: Kubernetes reads the user from the common name, groups from organizations.

    It is for the P-256 key in `key_pem`, or for a new one. Raises PkiError for another kind of key.
    """
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    if uid:
        attributes.append(x509.NameAttribute(UID_OID, uid))
    return _leaf(ca, x509.Name(attributes), (ExtendedKeyUsageOID.CLIENT_AUTH,), None, days, key_pem)


def make_rsa_key() -> bytes:
    """Make a PEM RSA key for service account tokens (RS256, which every verifier supports).

    It has 2048 bits: 4096 take seconds to generate, and a shard must serve within one second.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    return _key_pem(key, serialization.PrivateFormat.TraditionalOpenSSL)


def public_key_pem(key: bytes) -> bytes:
    """The public half of a PEM private key, as PEM."""
    public = serialization.load_pem_private_key(key, None).public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def pem_to_der(certificate: bytes) -> bytes:
    """The DER of the first certificate of a PEM text. Raises ValueError if there is none."""
    return x509.load_pem_x509_certificate(certificate).public_bytes(serialization.Encoding.DER)


def check_cas(pem: bytes) -> None:
    """Raise ValueError unless the text is one or more certificates that all can be parsed."""
    pem.decode("ascii")
    x509.load_pem_x509_certificates(pem)


def issued_by(certificate_der: bytes, ca_pem: bytes) -> bool:
    """Return whether one of the CA certificates in `ca_pem` signed a certificate.

    A server trusts several client CAs in one context; this distinguishes them (identity headers are trusted only from
    certificates of the request-header CA). The validity period is not checked.
    """
    certificate = x509.load_der_x509_certificate(certificate_der)
    return any(_signed(certificate, ca) for ca in x509.load_pem_x509_certificates(ca_pem))


# On disk: <name>.crt and <name>.key in one directory.


def load_or_make_ca(directory: Path, name: str, common_name: str) -> Pair:
    """The CA in `directory`, made on first use.

    Raises PkiError if its files do not match: a CA is never replaced, because clients trust it.
    """
    kept = read_pair(directory, name)
    if kept is None:
        kept = make_ca(common_name)
        write_pair(directory, name, kept)
    return kept


def load_or_make_serving(
    directory: Path,
    name: str,
    ca: Pair,
    names: Sequence[str],
    make: Callable[[Pair, Sequence[str]], Pair] = make_serving,
) -> Pair:
    """The serving certificate in `directory`; by `make` if absent, of another CA, without one of `names`, or valid for
    less than 30 days.
    """
    kept = read_pair(directory, name)
    if kept is None or not _usable(kept, ca) or not set(names) <= set(_alternatives(kept.x509)):
        kept = make(ca, names)
        write_pair(directory, name, kept)
    return kept


def load_or_make_client(
    directory: Path,
    name: str,
    ca: Pair,
    common_name: str,
    organizations: Sequence[str] = (),
    *,
    keeps_key: bool = False,
) -> Pair:
    """The client certificate in `directory`; renewed if absent, of another CA, user or groups, or valid for less than
    30 days; `keeps_key`: for the key that is there.
    """
    kept = read_pair(directory, name)
    if kept is None or not _usable(kept, ca) or not _names_user(kept.x509, common_name, organizations):
        key = directory / f"{name}.key"
        key_pem = key.read_bytes() if keeps_key and key.exists() else b""
        kept = make_client(ca, common_name, organizations, key_pem=key_pem)
        write_pair(directory, name, kept)
    return kept


def load_or_make_rsa_key(path: Path) -> bytes:
    """The PEM RSA key at `path`, made on first use."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        key = make_rsa_key()
        write_private(path, key)
        return key


def read_pair(directory: Path, name: str) -> Pair | None:
    """The pair on disk; None if it is incomplete: a crash may leave a key whose certificate was never used.

    Raises PkiError for a certificate without its key, or with another key.
    """
    try:
        certificate = (directory / f"{name}.crt").read_bytes()
    except FileNotFoundError:
        return None
    try:
        pair = Pair(certificate, (directory / f"{name}.key").read_bytes())
        matches = _matches(pair)
    except FileNotFoundError as error:
        raise PkiError(f"{name}.crt has no {name}.key beside it in {directory}") from error
    except (ValueError, TypeError) as error:
        # The library's text may quote the key. It raises TypeError for an encrypted key.
        raise PkiError(
            f"{name}.crt and {name}.key in {directory} cannot be read as a PEM certificate and its key"
        ) from error
    if not matches:
        raise PkiError(f"{name}.crt and {name}.key in {directory} do not belong together")
    return pair


def _matches(pair: Pair) -> bool:
    return serialization.load_pem_private_key(pair.key, None).public_key() == pair.x509.public_key()


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _leaf(
    ca: Pair,
    subject: x509.Name,
    usages: Sequence[ObjectIdentifier],
    names: x509.SubjectAlternativeName | None,
    days: int,
    key_pem: bytes = b"",
) -> Pair:
    key = serialization.load_pem_private_key(key_pem, None) if key_pem else ec.generate_private_key(ec.SECP256R1())
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError("the key of a certificate is not of an elliptic curve")
    issuer = ca.x509
    issuer_key = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise PkiError("the CA's key is neither RSA nor elliptic curve")
    builder = (
        _builder(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(_authority(issuer), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _authority(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key, serialization.PrivateFormat.PKCS8))


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _alternatives(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _names_user(certificate: x509.Certificate, common_name: str, organizations: Sequence[str]) -> bool:
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return names == [common_name] and groups == list(organizations)


def _usable(pair: Pair, ca: Pair) -> bool:
    left = pair.x509.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left > datetime.timedelta(days=_RENEW_DAYS) and _signed(pair.x509, ca.x509)


def _signed(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
