"""Certificates, their files, and the TLS contexts made from them."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from atoll.machinery.process import pki, tls
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.private_files import Pair, PkiError, load_pair, write_pair, write_private


@pytest.fixture(scope="module")
def ca() -> Pair:
    return pki.make_ca("ca")


def test_leaves_are_v3_p256_and_signed_by_their_ca(ca: Pair) -> None:
    for leaf in (pki.make_serving(ca, ["a"]), pki.make_client(ca, "a")):
        assert leaf.x509.version is x509.Version.v3
        key = leaf.x509.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert pki.issued_by(pki.pem_to_der(leaf.certificate), ca.certificate)


def test_a_leaf_cannot_be_a_ca_and_a_ca_signs_no_other(ca: Pair) -> None:
    leaf = pki.make_client(ca, "a").x509.extensions.get_extension_for_class(x509.BasicConstraints).value
    root = ca.x509.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (leaf.ca, root.ca, root.path_length) == (False, True, 0)


def test_a_serving_certificate_names_hosts_and_addresses(ca: Pair) -> None:
    names = pki.make_serving(ca, ["localhost", "*.example.test", "127.0.0.1", "::1"]).x509
    alternatives = names.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == ["localhost", "*.example.test"]
    assert [str(a) for a in alternatives.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    with pytest.raises(ValueError, match="needs a name"):
        pki.make_serving(ca, [])


def test_only_the_ca_that_signed_has_issued(ca: Pair) -> None:
    leaf = pki.pem_to_der(pki.make_client(ca, "a").certificate)
    namesake = pki.make_ca("ca")
    assert not pki.issued_by(leaf, namesake.certificate)
    assert pki.issued_by(leaf, namesake.certificate + ca.certificate)


def test_a_text_without_a_certificate_has_no_der() -> None:
    with pytest.raises(ValueError, match=r".+"):
        pki.pem_to_der(b"rubbish")


def test_a_client_certificate_names_user_groups_and_uid(ca: Pair) -> None:
    der = pki.pem_to_der(pki.make_client(ca, "alice", ["b", "system:a"], uid="u-1").certificate)
    identity = client_identity(der)
    assert (identity.common_name, identity.organizations, identity.uid) == ("alice", ("b", "system:a"), "u-1")
    assert len(identity.sha256) == 64
    assert identity.not_after_s == int(x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp())


def test_a_certificate_without_a_uid_or_groups_has_none(ca: Pair) -> None:
    identity = client_identity(pki.pem_to_der(pki.make_client(ca, "alice").certificate))
    assert (identity.organizations, identity.uid) == ((), "")


def test_bytes_that_are_no_certificate_are_an_error() -> None:
    with pytest.raises(ValueError, match=r".+"):
        client_identity(b"rubbish")


def test_a_ca_is_made_once_and_kept(tmp_path: Path) -> None:
    first = pki.load_or_make_ca(tmp_path / "pki", "ca", "ca")
    assert pki.load_or_make_ca(tmp_path / "pki", "ca", "ca") == first


def test_files_and_their_directory_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    pki.load_or_make_ca(folder, "ca", "ca")
    pki.load_or_make_rsa_key(folder / "sa.key")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {(f.name, stat.S_IMODE(f.stat().st_mode)) for f in folder.iterdir()} == {
        ("ca.crt", 0o600),
        ("ca.key", 0o600),
        ("sa.key", 0o600),
    }


def test_a_key_without_its_certificate_is_a_crash_and_made_anew(tmp_path: Path) -> None:
    first = pki.load_or_make_ca(tmp_path, "ca", "ca")
    (tmp_path / "ca.crt").unlink()
    assert pki.load_or_make_ca(tmp_path, "ca", "ca") != first


def test_a_certificate_without_its_key_or_with_anothers_is_refused(tmp_path: Path) -> None:
    pki.load_or_make_ca(tmp_path, "ca", "ca")
    pki.load_or_make_ca(tmp_path, "other", "ca")
    (tmp_path / "ca.key").write_bytes((tmp_path / "other.key").read_bytes())
    with pytest.raises(PkiError, match="do not belong together"):
        pki.load_or_make_ca(tmp_path, "ca", "ca")
    (tmp_path / "ca.key").write_bytes(b"rubbish")
    with pytest.raises(PkiError, match="cannot be read"):
        pki.load_or_make_ca(tmp_path, "ca", "ca")
    (tmp_path / "ca.key").unlink()
    with pytest.raises(PkiError, match=r"no ca\.key"):
        pki.load_or_make_ca(tmp_path, "ca", "ca")


def test_a_serving_certificate_is_kept_while_it_fits(tmp_path: Path, ca: Pair) -> None:
    first = pki.load_or_make_serving(tmp_path, "s", ca, ["a", "127.0.0.1"])
    assert pki.load_or_make_serving(tmp_path, "s", ca, ["127.0.0.1"]) == first
    more = pki.load_or_make_serving(tmp_path, "s", ca, ["a", "b"])
    assert more != first
    assert pki.load_or_make_serving(tmp_path, "s", pki.make_ca("ca"), ["a", "b"]) != more


def test_a_certificate_about_to_end_is_made_anew(tmp_path: Path, ca: Pair) -> None:
    short = pki.make_serving(ca, ["a"], days=29)
    write_pair(tmp_path, "s", short)
    assert pki.load_or_make_serving(tmp_path, "s", ca, ["a"]) != short


def test_a_client_certificate_is_kept_while_it_names_the_same_user(tmp_path: Path, ca: Pair) -> None:
    first = pki.load_or_make_client(tmp_path, "c", ca, "alice", ["g"])
    assert pki.load_or_make_client(tmp_path, "c", ca, "alice", ["g"]) == first
    assert pki.load_or_make_client(tmp_path, "c", ca, "alice", ["g", "h"]) != first


def test_an_rsa_key_is_made_once_and_has_a_public_half(tmp_path: Path) -> None:
    key = pki.load_or_make_rsa_key(tmp_path / "sa.key")
    assert pki.load_or_make_rsa_key(tmp_path / "sa.key") == key
    assert key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    public = serialization.load_pem_public_key(pki.public_key_pem(key))
    assert isinstance(public, rsa.RSAPublicKey)
    assert public.key_size == 2048


def test_a_file_is_replaced_whole_and_leaves_no_scratch(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_private(path, b"one")
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert [f.name for f in tmp_path.iterdir()] == ["f"]


def test_server_contexts_ask_for_a_certificate_only_with_a_client_ca(ca: Pair) -> None:
    serving = pki.make_serving(ca, ["a"])
    assert tls.server_context(serving).verify_mode is ssl.CERT_NONE
    context = tls.server_context(serving, ca.certificate)
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.num_tickets == 1
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_client_contexts_check_names_and_trust_only_what_they_are_given(ca: Pair) -> None:
    context = tls.client_context(ca.certificate)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("certificate", "key", "reason"),
    [
        ("one.crt", "two.key", "do not belong together"),
        ("one.crt", "rsa.key", "do not belong together"),
        ("one.crt", "sealed.key", "cannot be read as a PEM certificate and its key"),
        ("one.key", "one.key", "cannot be read as a PEM certificate and its key"),
    ],
)
def test_a_pair_of_two_files_is_read_only_if_it_can_be_used(
    tmp_path: Path, certificate: str, key: str, reason: str
) -> None:
    for name in ("one", "two"):
        write_pair(tmp_path, name, pki.make_serving(pki.make_ca("ca"), [name]))
    write_private(tmp_path / "rsa.key", pki.make_rsa_key())
    secret = serialization.load_pem_private_key((tmp_path / "one.key").read_bytes(), None)
    sealing = serialization.BestAvailableEncryption(b"words")
    sealed = secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealing)
    write_private(tmp_path / "sealed.key", sealed)
    assert load_pair(tmp_path / "one.crt", tmp_path / "one.key").certificate == (tmp_path / "one.crt").read_bytes()
    with pytest.raises(PkiError, match=reason):
        load_pair(tmp_path / certificate, tmp_path / key)
