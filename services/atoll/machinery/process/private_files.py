"""Files with secrets: durable writes, and pairs of a certificate and its key.

Whatever keeps a credential writes with it; `pki` makes the pairs. Invariants: a key file is 0600 from its creation; a
file is complete or absent; nothing here loads `cryptography`, which takes a process 9 MB.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cryptography import x509

_MISMATCHES = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}


class InvalidCredentials(Exception):
    """A file with tokens, keys or CAs is unusable. The text names the file and quotes nothing of it."""


class PkiError(Exception):
    """Files on disk that do not match each other, or cannot be read."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate (with its chain, if any) and its private key, both PEM."""

    certificate: bytes
    key: bytes

    @property
    def x509(self) -> x509.Certificate:
        """The first certificate, parsed."""
        from cryptography.x509 import load_pem_x509_certificate

        return load_pem_x509_certificate(self.certificate)


def load_pair(certificate: Path, key: Path) -> Pair:
    """The pair in two files of the operator. Raises PkiError, OSError."""
    pair = Pair(certificate.read_bytes(), key.read_bytes())
    try:
        # Without a password an encrypted key would be asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason in _MISMATCHES:
            raise PkiError(f"{certificate} and {key} do not belong together") from error
        raise PkiError(f"{certificate} and {key} cannot be read as a PEM certificate and its key") from error
    return pair


def write_pair(directory: Path, name: str, pair: Pair) -> None:
    """Write `<name>.key` and `<name>.crt`, both 0600, into `directory` (created 0700 if absent).

    The old certificate is removed before the new key is written, so a crash leaves no pair rather than a mismatch.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / f"{name}.crt").unlink(missing_ok=True)
    write_private(directory / f"{name}.key", pair.key)
    write_private(directory / f"{name}.crt", pair.certificate)


def write_private(path: Path, data: bytes) -> None:
    """Write a 0600 file durably and atomically: after a crash it is complete or unchanged."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
