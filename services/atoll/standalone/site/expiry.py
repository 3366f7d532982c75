"""When the certificates of a site end, by the files of each process.

`atoll certs list` prints it. Invariant: what is read is what the process was given, not what it was made from.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

_CLIENT = "client-certificate-data"


class Expiry(msgspec.Struct, frozen=True):
    """One certificate: the directory and the file it is in, whom it names, and its end."""

    process: str
    file: str
    subject: str
    ends: datetime.datetime

    @property
    def days(self) -> int:
        """Whole days until the end; negative afterwards."""
        return (self.ends - datetime.datetime.now(datetime.UTC)).days


def expiries(directory: Path, names: list[str]) -> Iterator[Expiry]:
    """The certificates in the directories of these processes, then the administrator's. Raises ValueError, OSError."""
    for name in names:
        for path in sorted((directory / name).iterdir()):
            yield from (_of(name, path.name, found) for found in _certificates(path))
    for path in sorted(directory.glob("*.kubeconfig")):
        yield from (_of("admin", path.name, found) for found in _certificates(path))


def _of(process: str, file: str, found: x509.Certificate) -> Expiry:
    names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return Expiry(process, file, names[0] if names else "", found.not_valid_after_utc)


def _certificates(path: Path) -> list[x509.Certificate]:
    if path.suffix == ".crt":
        return x509.load_pem_x509_certificates(path.read_bytes())
    if path.suffix != ".kubeconfig":
        return []
    users = (yaml.safe_load(path.read_text()) or {}).get("users") or ()
    found = (str((entry.get("user") or {}).get(_CLIENT, "")) for entry in users)
    return [x509.load_pem_x509_certificate(base64.b64decode(text)) for text in found if text]
