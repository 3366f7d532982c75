"""When the certificates of a site end, by the files of each process.

`atoll certs list` prints it. Invariant: what is read is what the process was given, not what it was made from.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from atoll.machinery.process.certificate_expiry import certificates


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
            yield from (_of(name, path.name, found) for found in _in(path))
    for path in sorted(directory.glob("*.kubeconfig")):
        yield from (_of("admin", path.name, found) for found in _in(path))


def _in(path: Path) -> list[x509.Certificate]:
    return certificates(path) if path.suffix in {".crt", ".kubeconfig"} else []


def _of(process: str, file: str, found: x509.Certificate) -> Expiry:
    names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return Expiry(process, file, names[0] if names else "", found.not_valid_after_utc)
