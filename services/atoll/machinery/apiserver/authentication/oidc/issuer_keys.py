"""The keys of one issuer: found by OpenID discovery, cached, and refreshed when a token names an unknown key.

`source` asks for the payload of a token. Authentication does not wait: if keys must be fetched first it raises
`AuthenticationPending`, and the pipeline authenticates again when they have arrived. Keys that are merely old are used
while they are refreshed. Invariant: however many tokens name unknown keys, an issuer is asked at most once every few
seconds, by one fetch at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.jwt import TokenError, decode_json
from atoll.machinery.apiserver.authentication.oidc import key_set
from atoll.machinery.apiserver.authentication.oidc.config import Issuer

log = structlog.get_logger()

#: Age at which keys are refreshed, and the shortest interval between two fetches.
MAX_AGE_S, MIN_INTERVAL_S = 3600.0, 5.0
FETCH_TIMEOUT_S = 10.0
_WELL_KNOWN = "/.well-known/openid-configuration"


class AuthenticationPending(Exception):
    """Authentication needs something that must be fetched first: await `complete`, then authenticate again."""

    def __init__(self, complete: Callable[[], Awaitable[None]]) -> None:
        super().__init__("keys of an issuer are being fetched")
        self.complete = complete


class NoKeys(TokenError):
    """No key of the token's issuer was ever fetched."""


class Fetch(Protocol):
    """GET a document over HTTPS. Raises ConnectionError with a text that may be logged."""

    async def __call__(self, url: str, ca_pem: bytes, timeout_s: float) -> bytes: ...


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


_discovery_decoder = msgspec.json.Decoder(_Discovery)


class IssuerKeys:
    """Keys of one issuer. One per event loop."""

    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._fetch, self._clock = issuer, fetch, clock
        self._keys: tuple[key_set.IssuerKey, ...] = ()
        self._fetched_at = self._tried_at = float("-inf")
        self._running: asyncio.Task[None] | None = None

    def current(self) -> tuple[key_set.IssuerKey, ...]:
        """The current keys: the same object until the issuer publishes others. Starts a refresh of old keys."""
        if self._keys and self._clock() - self._fetched_at > MAX_AGE_S and self._may_fetch():
            self._begin()
        return self._keys

    def payload(self, token: str) -> bytes:
        """The payload of a token of the issuer. Raises TokenError (NoKeys if there are none), AuthenticationPending."""
        header, keys = key_set.header_of(token), self.current()
        known = bool(keys) and (not header.kid or any(key.id == header.kid for key in keys))
        if not known and (self._running is not None or self._may_fetch()):
            raise AuthenticationPending(self._await_keys)
        if not keys:
            raise NoKeys("the issuer's keys could not be fetched")
        return key_set.verify(token, keys)

    def _may_fetch(self) -> bool:
        return self._running is None and self._clock() - self._tried_at >= MIN_INTERVAL_S

    async def _await_keys(self) -> None:
        await asyncio.shield(self._running or self._begin())

    def _begin(self) -> asyncio.Task[None]:
        self._running = asyncio.create_task(self._renew())
        return self._running

    async def _renew(self) -> None:
        try:
            found = await self._fetched()
            if found != self._keys:
                self._keys = found
            self._fetched_at = self._clock()
        except (ConnectionError, TokenError) as error:
            log.warning("fetching keys of issuer failed", issuer=self._issuer.url, reason=str(error))
        finally:
            # The interval counts from the end, so a fetch that hangs does not start the next one at once.
            self._running, self._tried_at = None, self._clock()

    async def _fetched(self) -> tuple[key_set.IssuerKey, ...]:
        authority = self._issuer.certificate_authority.encode()
        url = self._issuer.discovery_url or self._issuer.url.rstrip("/") + _WELL_KNOWN
        found = decode_json(_discovery_decoder, await self._fetch(url, authority, FETCH_TIMEOUT_S))
        if found.issuer != self._issuer.url:
            raise TokenError(f"discovery names another issuer: {found.issuer[:200]!r}")
        return key_set.public_keys(await self._fetch(found.jwks_uri, authority, FETCH_TIMEOUT_S))
