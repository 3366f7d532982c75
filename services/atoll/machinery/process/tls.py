"""TLS contexts of servers and clients.

Processes build their contexts here from PEM; `wire` uses the context and puts the DER of a verified client certificate
into the request's peer. Invariant: a certificate that reaches a request was verified against one of the context's CAs,
also on a resumed connection.
"""

from __future__ import annotations

import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Self

from atoll.machinery.process.private_files import Pair

#: What every server and client of Atoll speaks.
ALPN_PROTOCOLS = ["http/1.1"]
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context(serving: Pair, client_ca_pem: bytes = b"") -> ssl.SSLContext:
    """A server context: TLS 1.2 or later, ALPN http/1.1, one session ticket per handshake.

    With `client_ca_pem` (any number of CA certificates) clients may present a certificate of one of these CAs, and are
    refused with one of another CA. Without it no certificate is requested. Raises ssl.SSLError for unusable PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    # One ticket instead of two: each costs a sixth of a handshake with a client certificate. The ticket
    # carries the verified certificate, so a resumed connection has the identity of the first.
    context.num_tickets = 1
    _load_pair(context, serving)
    if client_ca_pem:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca_pem.decode("ascii"))
    return context


class ClientContext(ssl.SSLContext):
    """A client's context that can be replaced by another one while connections of it are open.

    `renewals` counts that. What keeps connections keeps none of before, so that a certificate whose authority is not
    trusted any more is presented in no later request.
    """

    renewals = 0
    _current: ssl.SSLContext | None = None

    @classmethod
    def around(cls, context: ssl.SSLContext) -> Self:
        """One that makes connections by a context of another kind."""
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made._current = context
        return made

    def replace(self, other: ssl.SSLContext) -> None:
        """Make new connections by another context."""
        self._current, self.renewals = other, self.renewals + 1

    @property
    def current(self) -> ssl.SSLContext:
        """The context by which it makes connections."""
        return self if self._current is None else self._current

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """One connection; event loops call it."""
        make = super().wrap_bio if self._current is None else self._current.wrap_bio
        return make(*arguments, **named)


class OfferingContext(ssl.SSLContext):
    """Makes connections by another context, now and after it is replaced, that offer the server one more protocol."""

    _base: ClientContext
    _protocols: list[str]

    @classmethod
    def over(cls, base: ClientContext, protocol: str) -> Self:
        """One that offers `protocol` before those of `base`."""
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made._base, made._protocols = base, [protocol, *ALPN_PROTOCOLS]
        return made

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """One connection, which copies what its context offers at this moment."""
        context = self._base.current
        context.set_alpn_protocols(self._protocols)
        try:
            return context.wrap_bio(*arguments, **named)
        finally:
            context.set_alpn_protocols(ALPN_PROTOCOLS)


def client_context(ca_pem: bytes, client: Pair | None = None) -> ClientContext:
    """A client context that trusts exactly `ca_pem`, verifies names, and presents `client` on request.

    Raises ssl.SSLError for unusable PEM.
    """
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    if client is not None:
        _load_pair(context, client)
    return context


def public_context(client: Pair | None = None) -> ClientContext:
    """A client context that trusts the CAs of the system, verifies names, and presents `client` on request."""
    if client is None:
        return _public()
    context = _trusting_the_system()
    _load_pair(context, client)
    return context


@cache
def _public() -> ClientContext:
    """The one that presents nothing, which is the same for all: reading the system's CAs takes tens of milliseconds."""
    return _trusting_the_system()


def _trusting_the_system() -> ClientContext:
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.load_default_certs()
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(ALPN_PROTOCOLS)


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Load a pair through a private temporary file: `ssl` reads keys from files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(path)
