"""Client certificates: which of our CAs vouched for one, and whom it names.

The authenticator asks for each request of a connection that presented a certificate; the TLS layer verified
it against all client CAs together, and here it is told apart: the request-header CA makes proxies, the client
CA makes users, and neither makes the other. Answers are cached by the certificate's hash, bounded, and judged
again by the clock each time, because connections outlive certificates; and from the start when the CAs change.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import load_der_x509_certificate

from atoll.machinery.apiserver.authentication.assertion import usable
from atoll.machinery.apiserver.authentication.jwt import PublicKey
from atoll.machinery.apiserver.authentication.tokens import authenticated
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.process.pki import issued_by
from atoll.machinery.process.tls import client_identity

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
MAX_CERTIFICATES = 4096


class ClientCertificate(msgspec.Struct, frozen=True):
    """What a certificate makes its holder: a user, a proxy that may speak for users, or both (one CA for both
    purposes)."""

    user: User | None
    proxy: bool
    not_after_s: int
    #: Of a proxy: its name, the key that it signs assertions with (None if it cannot), the certificate's hash.
    name: str = ""
    key: PublicKey | None = None
    sha256: bytes = b""


class Certificates:
    """Reads client certificates of two trust domains, each a PEM of CAs, empty where there is none.

    `proxy_names` are the common names the request-header CA's certificates may have; empty allows any.
    """

    def __init__(
        self,
        client_ca_pem: bytes = b"",
        proxy_ca_pem: bytes = b"",
        proxy_names: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client_ca, self._proxy_ca = client_ca_pem, proxy_ca_pem
        self._proxy_names = frozenset(proxy_names)
        self._clock = clock
        self._known: LruCache[bytes, ClientCertificate] = LruCache(MAX_CERTIFICATES)

    def trust(self, client_ca_pem: bytes, proxy_ca_pem: bytes) -> None:
        """Go by other CAs from now on, also for connections that are open."""
        self._client_ca, self._proxy_ca = client_ca_pem, proxy_ca_pem
        self._known = LruCache(MAX_CERTIFICATES)

    def presented(self, der: bytes) -> ClientCertificate:
        """What a certificate is good for. Raises Unauthorized if for nothing, or no longer."""
        digest = hashlib.sha256(der).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._read(der, digest)
            self._known.put(digest, found)
        if (found.user is None and not found.proxy) or self._clock() > found.not_after_s:
            raise Unauthorized
        return found

    def _read(self, der: bytes, digest: bytes) -> ClientCertificate:
        try:
            identity = client_identity(der)
            client = bool(self._client_ca) and issued_by(der, self._client_ca)
            proxy = bool(self._proxy_ca) and issued_by(der, self._proxy_ca)
            key = usable(load_der_x509_certificate(der).public_key()) if proxy else None
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
