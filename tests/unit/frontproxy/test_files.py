"""The client certificate of a proxy at shards: one certificate, by flags or by the mapping of /clusters/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.process import load_files
from atoll.machinery.process import pki
from atoll.machinery.process.private_files import InvalidCredentials

CA, OTHER_CA = pki.make_ca("shards"), pki.make_ca("others")
OWN, OTHER = pki.make_client(CA, "front-proxy", ()), pki.make_client(CA, "somebody", ())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, pair in (("own", OWN), ("other", OTHER)):
        (tmp_path / f"{name}.crt").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    (tmp_path / "other-ca.crt").write_bytes(OTHER_CA.certificate)
    return tmp_path


def config(files: Path, *, server_cert: str = "", flags: str = "", mapped: str = "other-ca") -> FrontProxyConfig:
    """A configuration with a mapping of /clusters/ that names a certificate, and flags that name one."""
    lines = ["- path: /clusters/"]
    if server_cert:
        lines += [f"  backend_server_ca: {files}/{mapped}.crt", f"  proxy_client_cert: {files}/{server_cert}.crt"]
        lines.append(f"  proxy_client_key: {files}/{server_cert}.key")
    (files / "mapping.yaml").write_text("\n".join(lines) + "\n")
    named: dict[str, Any] = (
        {
            "proxy_client_cert_file": f"{files}/{flags}.crt",
            "proxy_client_key_file": f"{files}/{flags}.key",
            "root_ca_file": f"{files}/ca.crt",
        }
        if flags
        else {}
    )
    directory, mapping = str(files / "proxy"), str(files / "mapping.yaml")
    return FrontProxyConfig(root_directory=directory, mapping_file=mapping, **named)


def test_flags_or_the_mapping_say_what_shards_are_shown(files: Path) -> None:
    by_flags = load_files(config(files, flags="own"))
    assert (by_flags.client, by_flags.shards_ca) == (OWN, CA.certificate)
    by_mapping = load_files(config(files, server_cert="own"))
    assert (by_mapping.client, by_mapping.shards_ca) == (OWN, OTHER_CA.certificate)
    both = load_files(config(files, server_cert="own", flags="own"))
    assert (both.client, both.shards_ca) == (OWN, OTHER_CA.certificate)


def test_a_certificate_that_shards_would_not_believe_assertions_from_is_refused(files: Path) -> None:
    with pytest.raises(InvalidCredentials, match="different certificates"):
        load_files(config(files, server_cert="other", flags="own"))


def test_without_any_certificate_there_is_no_proxy(files: Path) -> None:
    with pytest.raises(InvalidCredentials, match="how shards are spoken to"):
        load_files(config(files))


def test_a_serving_certificate_is_made_once_and_kept(files: Path) -> None:
    first, second = load_files(config(files, flags="own")), load_files(config(files, flags="own"))
    assert first.serving == second.serving
    assert (files / "proxy").stat().st_mode & 0o777 == 0o700
