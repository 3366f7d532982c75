"""What a call that was refused or failed says, in the words of Go's client, which users of webhooks search for."""

from __future__ import annotations

import os
import ssl

from atoll.machinery.process import open_files
from atoll.machinery.wire.client import BadResponse, ClientError, ConnectionLost, Unreachable

#: Codes of OpenSSL for an issuer that nobody vouches for.
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_NOT_YET_VALID, _EXPIRED = 9, 10
#: Bytes of an error's body, as client-go quotes it.
MAX_QUOTED = 2048


class EgressError(Exception):
    """A call that was refused or failed. `result` is a label for metrics:

    refused, busy, open (the circuit), unresolved, unreachable, untrusted, timeout, broken, status. `status` is that of
    the response, 0 without one, and `body` the beginning of what it said.
    """

    def __init__(self, result: str, text: str, status: int = 0, body: bytes = b"") -> None:
        super().__init__(text)
        self.result, self.status, self.body = result, status, body[:MAX_QUOTED]


def of_client(error: ClientError, address: str) -> EgressError:
    """The error of a call to an address (host:port) that got no usable response."""
    cause = error.__cause__
    if isinstance(error, BadResponse):
        return EgressError("broken", str(error))
    if isinstance(error, ConnectionLost):
        return EgressError("broken", "unexpected EOF" if error.begun else "EOF")
    if isinstance(cause, ssl.SSLError):
        return EgressError("untrusted", f"tls: failed to verify certificate: {_tls_text(cause)}")
    if isinstance(error, Unreachable) and isinstance(cause, OSError) and cause.errno:
        # A want of files here says nothing about the peer.
        result = "busy" if open_files.is_shortage(cause) else "unreachable"
        return EgressError(result, f"dial tcp {address}: connect: {os.strerror(cause.errno).lower()}")
    if isinstance(cause, TimeoutError):
        return EgressError("unreachable", f"dial tcp {address}: i/o timeout")
    return EgressError("unreachable", str(error))


def _tls_text(error: ssl.SSLError) -> str:
    code = getattr(error, "verify_code", 0)
    if code in _UNKNOWN_AUTHORITY:
        return "x509: certificate signed by unknown authority"
    if code in {_NOT_YET_VALID, _EXPIRED}:
        return "x509: certificate has expired or is not yet valid"
    return str(error)
