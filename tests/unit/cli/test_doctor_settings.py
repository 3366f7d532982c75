"""`atoll doctor --config`: what a shard's settings leave open is named, and what would let somebody in is a failure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from atoll.cli.atoll import doctor, doctor_settings
from atoll.machinery.process import pki
from atoll.shard.config import ShardConfig


def levels(check: object, **settings: object) -> dict[str, str]:
    found = check(ShardConfig(**settings))  # type: ignore[arg-type, operator]
    return {finding.name: finding.level for finding in found}


def written(path: Path, *texts: bytes) -> str:
    path.write_bytes(b"\n".join(texts))
    return str(path)


def certificate(*, bits: int = 2048, days: float = 90) -> bytes:
    key, name = rsa.generate_private_key(65537, bits), x509.Name([])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1).not_valid_before(now - timedelta(days=9))
    return builder.not_valid_after(now + timedelta(days=days)).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_what_a_hardened_installation_sets_is_fine(tmp_path: Path) -> None:
    proxies, clients = (written(tmp_path / name, pki.make_ca(name).certificate) for name in ("proxies", "clients"))
    assert levels(doctor_settings.users, client_ca_file=(clients,), requestheader_client_ca_file=proxies) == {
        "proxy-authority": "ok"
    }
    assert levels(doctor_settings.audit, audit_log_path="-") == {"audit": "ok"}
    assert levels(doctor_settings.outbound, egress_allow_cidr="10.0.0.0/8,fd00::/8") == {"egress": "ok"}
    assert levels(doctor_settings.stream, nats_url="tls://nats-0.example:4222,nats://127.0.0.1:4222") == {"nats": "ok"}


def test_an_authority_of_users_that_signs_proxies_lets_each_user_speak_for_all(tmp_path: Path) -> None:
    shared, other = pki.make_ca("both").certificate, pki.make_ca("other").certificate
    settings = {
        "client_ca_file": (written(tmp_path / "clients", other, shared),),
        "requestheader_client_ca_file": written(tmp_path / "proxies", shared),
    }
    assert levels(doctor_settings.users, **settings) == {"proxy-authority": "fail"}
    named = {**settings, "requestheader_allowed_names": "front-proxy"}
    assert levels(doctor_settings.users, **named) == {"proxy-authority": "warn"}


def test_a_token_file_and_a_missing_audit_log_are_named() -> None:
    assert levels(doctor_settings.users, token_auth_file="tokens.csv") == {"token-file": "warn"}
    assert levels(doctor_settings.audit) == {"audit": "warn"}


@pytest.mark.parametrize("allowed", ["127.0.0.1/32", "0.0.0.0/0", "169.254.169.254/32", "::/0", "10.0.0.0/8,::1"])
def test_networks_with_services_of_the_machine_or_its_cloud_are_named(allowed: str) -> None:
    assert levels(doctor_settings.outbound, egress_allow_cidr=allowed) == {"egress": "warn"}


@pytest.mark.parametrize(
    ("made", "level"), [({}, "ok"), ({"days": 13}, "warn"), ({"days": -1}, "fail"), ({"bits": 1024}, "fail")]
)
def test_a_serving_certificate_that_is_weak_or_ends_soon_is_named(
    tmp_path: Path, made: dict[str, int], level: str
) -> None:
    file = written(tmp_path / "serving.crt", certificate(**made))
    pair = {"tls_cert_file": file, "tls_private_key_file": "serving.key"}
    assert levels(doctor_settings.serving, **pair) == {"serving-certificate": level}
    written(tmp_path / "serving.crt", b"nothing")
    assert levels(doctor_settings.serving, **pair) == {"serving-certificate": "fail"}


def test_a_stream_that_leaves_the_machine_without_tls_is_a_failure_that_quotes_no_password() -> None:
    (finding,) = doctor_settings.stream(ShardConfig(nats_url="nats://user:secret@nats.example:4222"))
    assert (finding.level, "secret" in finding.fact) == ("fail", False)
    assert "nats.example" in finding.fact


def test_settings_of_a_file_are_checked_and_flags_come_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "versions", lambda config: ())
    root, file = tmp_path / "atoll", tmp_path / "settings.yaml"
    file.write_text(
        f"root-directory: {tmp_path / 'unused'}\nsecure-port: 0\nallow-any-filesystem: true\n"
        "nats-url: nats://nats.example:4222\naudit-log-path: '-'\n"
    )
    assert doctor.run(["--config", str(file), "--root-directory", str(root)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("fail")] == [
        "fail nats: changes go to nats.example without TLS: its URL begins with tls://"
    ]
    assert f"ok   permissions: {root} does not exist yet" in lines
    assert "ok   audit: events go to -" in lines
    file.write_text("nonsense: 1\n")
    assert doctor.run(["--config", str(file)]) == 1
    assert "nonsense" in capsys.readouterr().err
