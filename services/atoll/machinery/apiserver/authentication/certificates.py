"""Client certificates: which of the configured CAs issued one, and which user or proxy it names.

The authenticator calls it for each request of a connection with a client certificate. TLS verified the certificate
against all CAs together; here the request-header CA makes proxies, the client CA makes users, and neither makes the
other. Invariant: results are cached by the certificate, bounded in bytes, but the expiry is checked on every request,
because connections outlive certificates; a change of the CAs or of the revocation lists empties the cache.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import load_der_x509_certificate

from atoll.machinery.apiserver.authentication.assertion import assertion_key
from atoll.machinery.apiserver.authentication.jwt import PublicKey
from atoll.machinery.apiserver.authentication.tokens import authenticated
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.pki import issued_by
from atoll.machinery.process.revocation import Revoked
from atoll.machinery.wire.exchange import Peer

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
#: Bytes of certificates with a cached result, and of the rest of an entry.
CACHE_BYTES, _ENTRY_BYTES = 16 << 20, 2048


class ClientCertificate(msgspec.Struct, frozen=True):
    """A verified certificate: of a user, of a proxy that forwards identities, or of both (one CA for both)."""

    user: User | None
    proxy: bool
    not_after_s: int
    #: Of a proxy: its common name, its key (None if it cannot sign assertions), and the certificate's hash.
    name: str = ""
    key: PublicKey | None = None
    sha256: bytes = b""


class Certificates:
    """Verifies client certificates of two trust domains, each a PEM of CAs, empty for none.

    `proxy_names` are the common names allowed for certificates of the request-header CA; empty allows any. `revoked`
    certificates name nobody.
    """

    def __init__(
        self,
        client_ca_pem: bytes = b"",
        proxy_ca_pem: bytes = b"",
        proxy_names: Collection[str] = (),
        clock: Callable[[], float] = time.time,
        revoked: Revoked = frozenset(),
    ) -> None:
        self._client_ca, self._proxy_ca = client_ca_pem, proxy_ca_pem
        self._proxy_names = frozenset(proxy_names)
        self._clock, self._revoked = clock, revoked
        self._verified = self._cache()

    def trust(self, client_ca_pem: bytes, proxy_ca_pem: bytes, revoked: Revoked = frozenset()) -> None:
        """Replace the CAs and what is revoked, also for open connections."""
        self._client_ca, self._proxy_ca, self._revoked = client_ca_pem, proxy_ca_pem, revoked
        self._verified = self._cache()

    def is_revoked(self, der: bytes) -> bool:
        """Whether a certificate is revoked, which was verified before."""
        certificate = load_der_x509_certificate(der)
        return (certificate.issuer, certificate.serial_number) in self._revoked

    def verify(self, der: bytes) -> ClientCertificate:
        """The user or proxy that a certificate names. Raises Unauthorized for neither, and if it has expired or is
        revoked."""
        found = self._verified.get(der)
        if found is None:
            found = len(der), self._read(der, hashlib.sha256(der).digest())
            self._verified.put(der, found)
        certificate = found[1]
        if (certificate.user is None and not certificate.proxy) or self._clock() > certificate.not_after_s:
            raise Unauthorized
        return certificate

    def is_proxy(self, peer: Peer) -> bool:
        """Whether a client's certificate is that of a proxy, whose word about users is believed."""
        try:
            return peer.certificate is not None and self.verify(peer.certificate).proxy
        except Unauthorized:
            return False

    @staticmethod
    def _cache() -> LruCache[bytes, tuple[int, ClientCertificate]]:
        # By the certificate's own bytes: a connection keeps one object, whose hash Python keeps.
        return LruCache(CACHE_BYTES, lambda entry: _ENTRY_BYTES + entry[0])

    def _read(self, der: bytes, digest: bytes) -> ClientCertificate:
        try:
            identity = client_identity(der)
            valid = not self.is_revoked(der)
            client = valid and bool(self._client_ca) and issued_by(der, self._client_ca)
            proxy = valid and bool(self._proxy_ca) and issued_by(der, self._proxy_ca)
            key = assertion_key(load_der_x509_certificate(der).public_key()) if proxy else None
        except (ValueError, UnsupportedAlgorithm) as error:
            raise Unauthorized from error
        user = None
        if client and identity.common_name:
            extra = {CREDENTIAL_ID: (f"X509SHA256={identity.sha256}",)}
            user = authenticated(User(identity.common_name, identity.organizations, identity.uid, extra))
        if self._proxy_names and identity.common_name not in self._proxy_names:
            proxy = False
        if not proxy:
            return ClientCertificate(user, False, identity.not_after_s)
        return ClientCertificate(user, True, identity.not_after_s, identity.common_name, key, digest)
