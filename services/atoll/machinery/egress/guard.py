"""Calls to URLs that tenants configured, under all rules for such calls.

Steps of a call: the URL is https; its circuit is not open; there is a free slot; its name is resolved and every address
of it allowed; the connection goes to a checked address, never to the name; the peer's certificate names the host and is
issued by the given bundle or the system's roots; one response of bounded size is read, redirects are not followed. All
of it happens within the caller's deadline. Each call that fails leaves one log line and a count.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from atoll.machinery.egress.addresses import Policy
from atoll.machinery.egress.breakers import PATIENT, Breakers, Breaking
from atoll.machinery.egress.call_slots import CallSlots, SlotBounds, TooManyCalls
from atoll.machinery.egress.errors import EgressError, of_client
from atoll.machinery.egress.resolver import Resolver, Unresolved
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.process import tls
from atoll.machinery.wire.client import ClientError, ClientLimits, ClientResponse, ConnectionLost, HttpClient, Origin
from atoll.machinery.wire.exchange import Headers

log = structlog.get_logger()

#: One tenant holds a quarter of all slots at most; a webhook of 10 ms takes 1,000 calls a second in ten of them.
BOUNDS = SlotBounds(total=256, per_host=64, per_tenant=64, per_lane=32, waiting=192)
MAX_RESPONSE = 8 << 20
#: Bytes of trusted certificates, and of what is kept of peers with theirs.
MAX_TRUSTED_BYTES = MAX_PEER_BYTES = 16 << 20
#: What a context takes, with nothing in it and for each byte of its certificates.
_TRUST_BYTES, _BYTES_PER_BYTE = 32 << 10, 8
CONNECT_TIMEOUT_S = 10.0
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LIMITS = ClientLimits(
    connections=BOUNDS.per_host,
    streams=0,
    connect_timeout_s=CONNECT_TIMEOUT_S,
    idle_timeout_s=30.0,
    body_bytes=MAX_RESPONSE,
)


class Outbound(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `purpose` is a word for metrics; an empty `ca_pem` means the machine's own roots."""

    purpose: str
    url: str
    body: bytes = b""
    ca_pem: bytes = b""
    timeout_s: float = 10.0
    #: Added to the URL, e.g. `timeout=10s`.
    query: str = ""
    #: May be sent again when a pooled connection ended without a response.
    repeatable: bool = False
    method: str = "POST"
    #: The operator named the URL: its addresses are not checked.
    trusted: bool = False
    #: On whose behalf it is made, e.g. a logical cluster: bounds on concurrent calls are by tenant and host.
    tenant: str = ""
    breaking: Breaking = PATIENT

    @property
    def label(self) -> str:
        """The call as Go's client names it in errors."""
        return f'{self.method.capitalize()} "{self.url}{"?" + self.query if self.query else ""}"'


class Answer(msgspec.Struct, frozen=True):
    """The peer's response. Any status but 2xx is an EgressError instead."""

    status: int
    headers: Mapping[str, list[str]]
    body: bytes


class _Trust(msgspec.Struct, frozen=True):
    """The certificates that a peer is trusted by; `digest` is that of their PEM."""

    context: ssl.SSLContext
    digest: bytes
    size_bytes: int


class _Peer(msgspec.Struct, frozen=True):
    """What is kept of one peer; its client holds the context of the trust."""

    client: HttpClient
    trust: _Trust


class _Peers(LruCache[tuple[str, int, str, bytes], _Peer]):
    """Peers by address, port, host and trust."""

    def drop(self, key: tuple[str, int, str, bytes]) -> None:
        """Remove a peer; calls under way finish."""
        peer = self.get(key)
        super().drop(key)
        if peer is not None:
            peer.client.retire()


class Egress:
    """The guard of one process. Close it when done."""

    def __init__(
        self, rules: Policy, registry: CollectorRegistry | None = None, resolver: Resolver | None = None
    ) -> None:
        self._rules, self._resolver = rules, resolver or Resolver()
        self._breakers = Breakers()
        self._slots = CallSlots(BOUNDS)
        self._closers: list[Callable[[], None]] = []
        self._trusts: LruCache[bytes, _Trust] = LruCache(MAX_TRUSTED_BYTES, lambda trust: trust.size_bytes)
        self._peers = _Peers(MAX_PEER_BYTES, lambda peer: peer.trust.size_bytes)
        registry = registry or CollectorRegistry()
        self._calls = Counter(
            "atoll_egress_requests_total",
            "Calls to addresses that tenants name.",
            ("purpose", "result"),
            registry=registry,
        )
        self._times = Histogram(
            "atoll_egress_duration_seconds", "Time such calls took.", ("purpose",), buckets=_BUCKETS, registry=registry
        )

    async def send(self, call: Outbound) -> Answer:
        """Make the call, with a JSON body if it has one; return the answer, whose status is 2xx. Raises EgressError."""
        began = time.monotonic()
        host = ""
        try:
            parts = _https(call.url)
            host = parts.hostname or ""
            answer = await self._guarded(call, parts)
        except EgressError as error:
            self._calls.labels(call.purpose, error.result).inc()
            # Calls that an open circuit refuses repeat the failure that opened it.
            write = log.debug if error.result == "open" else log.warning
            write(
                "egress failed",
                purpose=call.purpose,
                host=host,
                result=error.result,
                reason=str(error),
                duration_s=round(time.monotonic() - began, 3),
            )
            raise EgressError(error.result, f"{call.label}: {error}", error.status, error.body) from error
        finally:
            self._times.labels(call.purpose).observe(time.monotonic() - began)
        self._calls.labels(call.purpose, "ok").inc()
        return answer

    async def resolve(self, url: str) -> tuple[SplitResult, tuple[str, ...]]:
        """The parts of a URL and its addresses, all of which may be called. Raises EgressError."""
        parts = _https(url)
        return parts, await self._addresses(parts.hostname or "", parts.port or 443, trusted=False)

    def at_close(self, close: Callable[[], None]) -> None:
        """Have `close` called by `Egress.close`."""
        self._closers.append(close)

    async def close(self) -> None:
        """Close every kept connection."""
        while self._closers:
            self._closers.pop()()
        peers = self._peers.values()
        self._peers.clear()
        for peer in peers:
            await peer.client.close()

    async def _guarded(self, call: Outbound, parts: SplitResult) -> Answer:
        # One circuit for each way of calling a peer: a tenant's mistakes affect its own calls alone.
        key = (hashlib.sha256(call.url.encode()).digest(), hashlib.sha256(call.ca_pem).digest(), call.timeout_s)
        begun = False
        async with self._breakers.guard(key, call.breaking):
            try:
                host = f"{(parts.hostname or '').rstrip('.')}:{parts.port or 443}"
                async with asyncio.timeout(call.timeout_s), self._slots.slot(host, call.tenant):
                    begun = True
                    return await self._call(call, parts)
            except TimeoutError:
                # Waiting for a slot says nothing about the peer.
                raise EgressError("timeout" if begun else "busy", "context deadline exceeded") from None
            except TooManyCalls:
                raise EgressError("busy", "too many calls to this host wait already") from None

    async def _call(self, call: Outbound, parts: SplitResult) -> Answer:
        host, port = parts.hostname or "", parts.port or 443
        trust = self._trust(call.ca_pem)
        failure: EgressError | None = None
        for address in await self._addresses(host, port, trusted=call.trusted):
            try:
                return await self._send(self._client(address, port, host, trust), call, parts)
            except EgressError as error:
                if error.result != "unreachable":
                    raise
                failure = error
        assert failure is not None, "a host has at least one address"
        raise failure

    async def _addresses(self, host: str, port: int, *, trusted: bool) -> tuple[str, ...]:
        """All addresses of a host. Raises EgressError if one is not allowed, unless the operator named the host."""
        try:
            addresses = await self._resolver.resolve(host, port)
        except Unresolved as error:
            raise EgressError("unresolved", f"dial tcp: {error}") from error
        for address in addresses:
            if not trusted and (reason := self._rules.refusal(address, port)):
                raise EgressError("refused", f"{host} must not be called: {address} {reason}")
        return addresses

    def _trust(self, ca_pem: bytes) -> _Trust:
        digest = hashlib.sha256(ca_pem).digest()
        found = self._trusts.get(digest)
        if found is None:
            try:
                context = tls.client_context(ca_pem) if ca_pem else tls.public_context()
            except (ssl.SSLError, ValueError) as error:
                raise EgressError("untrusted", "caBundle holds no usable certificate") from error
            found = _Trust(context, digest, _TRUST_BYTES + _BYTES_PER_BYTE * len(ca_pem))
            self._trusts.put(digest, found)
        return found

    def _client(self, address: str, port: int, host: str, trust: _Trust) -> HttpClient:
        key = (address, port, host, trust.digest)
        found = self._peers.get(key)
        if found is None:
            origin = Origin(host=address, port=port, tls=trust.context, server_name=host, name=authority(host, port))
            found = _Peer(HttpClient(origin, _LIMITS), trust)
            self._peers.put(key, found)
        return found.client

    async def _send(self, client: HttpClient, call: Outbound, parts: SplitResult) -> Answer:
        target = (parts.path or "/") + (f"?{call.query}" if call.query else "")
        headers = [("Content-Type", "application/json"), ("Accept", "application/json"), ("User-Agent", "atoll")]
        try:
            response = await self._request(client, call, target, headers)
        except ClientError as error:
            raise of_client(error, f"{client.origin.host}:{client.origin.port}") from error
        if not 200 <= response.status < 300:
            text = f"the server responded with status {response.status}"
            raise EgressError("status", text, response.status, response.body)
        return Answer(response.status, response.headers, response.body)

    async def _request(self, client: HttpClient, call: Outbound, target: str, headers: Headers) -> ClientResponse:
        try:
            return await client.request(call.method, target, headers, call.body, timeout_s=call.timeout_s)
        except ConnectionLost as error:
            # The peer closed a pooled connection during the write.
            if error.begun or not call.repeatable:
                raise
            return await client.request(call.method, target, headers, call.body, timeout_s=call.timeout_s)


def _https(url: str) -> SplitResult:
    """The parts of a URL that may be called. Raises EgressError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EgressError("refused", f"not a URL: {error}") from error
    if parts.scheme != "https" or not parts.hostname or port == 0:
        raise EgressError("refused", "only https URLs with a host are called")
    if parts.username is not None or parts.password is not None:
        raise EgressError("refused", "user information is not permitted in the URL")
    if any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise EgressError("refused", "the URL has spaces or control characters")
    return parts


def authority(host: str, port: int) -> str:
    """The value of a Host header."""
    label = f"[{host}]" if ":" in host else host
    return label if port == 443 else f"{label}:{port}"
