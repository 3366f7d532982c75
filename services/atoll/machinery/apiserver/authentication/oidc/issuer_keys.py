"""The keys of one issuer: found by discovery, kept, asked for again when a token names one that is not among them.

`source` asks for the payload of a token. Authentication itself does not wait: where keys have to be fetched first it
raises `AuthenticationPending`, and the pipeline asks again once they are there; keys that are only old go on counting.
Invariant: however many tokens name unknown keys, an issuer is asked at most once every few seconds, and one fetch is
under way at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.jwt import TokenError
from atoll.machinery.apiserver.authentication.oidc import key_set
from atoll.machinery.apiserver.authentication.oidc.config import Issuer

log = structlog.get_logger()

#: How old keys may grow before they are fetched anew, and how soon after a fetch the next one may begin.
MAX_AGE_S, MIN_INTERVAL_S = 3600.0, 5.0
FETCH_TIMEOUT_S = 10.0
_WELL_KNOWN = "/.well-known/openid-configuration"


class AuthenticationPending(Exception):
    """Who asks cannot be told before something was fetched: await `complete`, then ask again."""

    def __init__(self, complete: Callable[[], Awaitable[None]]) -> None:
        super().__init__("keys of an issuer are being fetched")
        self.complete = complete


class NoKeys(TokenError):
    """The token cannot be judged: of its issuer no key was ever had."""


class Fetch(Protocol):
    """GET a document over HTTPS. Raises ConnectionError with a text that may be logged."""

    async def __call__(self, url: str, ca_pem: bytes, timeout_s: float) -> bytes: ...


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


_discovery_decoder = msgspec.json.Decoder(_Discovery)


class IssuerKeys:
    """Keys of one issuer. Belongs to one event loop."""

    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._fetch, self._clock = issuer, fetch, clock
        self._keys: tuple[key_set.PublicKey, ...] = ()
        self._fetched_at = self._tried_at = float("-inf")
        self._running: asyncio.Task[None] | None = None

    def current(self) -> tuple[key_set.PublicKey, ...]:
        """The keys that count: the same value until the issuer publishes others. Fetches old ones anew meanwhile."""
        if self._keys and self._clock() - self._fetched_at > MAX_AGE_S and self._may_fetch():
            self._begin()
        return self._keys

    def payload(self, token: str) -> bytes:
        """The payload of a token that the issuer signed. Raises TokenError (NoKeys), AuthenticationPending."""
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
        except (ConnectionError, TokenError, msgspec.DecodeError) as error:
            log.warning("issuer has no keys", issuer=self._issuer.url, reason=str(error))
        finally:
            # Counted from the end: a fetch that hung must not be the reason for the next one.
            self._running, self._tried_at = None, self._clock()

    async def _fetched(self) -> tuple[key_set.PublicKey, ...]:
        authority = self._issuer.certificate_authority.encode()
        url = self._issuer.discovery_url or self._issuer.url.rstrip("/") + _WELL_KNOWN
        found = _discovery_decoder.decode(await self._fetch(url, authority, FETCH_TIMEOUT_S))
        if found.issuer != self._issuer.url:
            raise TokenError(f"discovery names another issuer: {found.issuer[:200]!r}")
        return key_set.public_keys(await self._fetch(found.jwks_uri, authority, FETCH_TIMEOUT_S))
