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
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from atoll.machinery.egress.addresses import Policy
from atoll.machinery.egress.breakers import PATIENT, Breakers, Breaking
from atoll.machinery.egress.call_slots import CallSlots, SlotBounds, TooManyCalls
from atoll.machinery.egress.destinations import Destination, Destinations, authority
from atoll.machinery.egress.errors import EgressError, of_client
from atoll.machinery.egress.resolver import Resolver, Unresolved
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.process import tls
from atoll.machinery.wire.client import ClientError, ClientLimits, ClientResponse, ConnectionLost, HttpClient, Origin

log = structlog.get_logger()

#: One tenant holds a quarter of all slots at most; a webhook of 10 ms takes 1,000 calls a second in ten of them.
BOUNDS = SlotBounds(total=256, per_host=64, per_tenant=64, per_lane=32, waiting=192)
MAX_RESPONSE = 8 << 20
#: Bytes of trusted certificates, and of what is kept of peers with theirs.
MAX_TRUSTED_BYTES = MAX_PEER_BYTES = 16 << 20
#: What a context takes, with nothing in it and for each byte of its certificates.
_TRUST_BYTES, _BYTES_PER_BYTE = 32 << 10, 8
CONNECT_TIMEOUT_S = 10.0
_HEADERS = (("Content-Type", "application/json"), ("Accept", "application/json"), ("User-Agent", "atoll"))
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
    #: A function makes a large one when the call has its slot, so that waiting calls take no memory.
    body: bytes | Callable[[], Sequence[bytes]] = b""
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
        self._destinations = Destinations()
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
        self._by_purpose: dict[str, tuple[Histogram, Counter]] = {}
        self._times = Histogram(
            "atoll_egress_duration_seconds", "Time such calls took.", ("purpose",), buckets=_BUCKETS, registry=registry
        )

    async def send(self, call: Outbound) -> Answer:
        """Make the call, with a JSON body if it has one; return the answer, whose status is 2xx. Raises EgressError."""
        began = time.monotonic()
        host = ""
        try:
            destination = self._destinations.of(call.url)
            host = destination.host
            answer = await self._guarded(call, destination)
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
            self._children(call.purpose)[0].observe(time.monotonic() - began)
        self._children(call.purpose)[1].inc()
        return answer

    def _children(self, purpose: str) -> tuple[Histogram, Counter]:
        """The times and the successful calls of a purpose."""
        found = self._by_purpose.get(purpose)
        if found is None:
            found = self._by_purpose[purpose] = self._times.labels(purpose), self._calls.labels(purpose, "ok")
        return found

    async def resolve(self, url: str) -> tuple[Destination, tuple[str, ...]]:
        """The destination of a URL and its addresses, all of which may be called. Raises EgressError."""
        found = self._destinations.of(url)
        return found, await self._addresses(found, trusted=False)

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

    async def _guarded(self, call: Outbound, destination: Destination) -> Answer:
        trusted = hashlib.sha256(call.ca_pem).digest()
        now = asyncio.get_running_loop().time
        began_s, waited_s = now(), call.timeout_s
        # One circuit for each way of calling a peer: a tenant's mistakes affect its own calls alone.
        with self._breakers.guard((destination.digest, trusted, call.timeout_s), call.breaking):
            try:
                async with asyncio.timeout(call.timeout_s), self._slots.slot(destination.peer, call.tenant):
                    waited_s = now() - began_s
                    return await self._call(call, destination, trusted)
            except TimeoutError:
                # A peer is late only if it had most of the time; waiting for a slot says nothing about it.
                is_late = waited_s < call.timeout_s / 2
                raise EgressError("timeout" if is_late else "busy", "context deadline exceeded") from None
            except TooManyCalls:
                raise EgressError("busy", "too many calls to this host wait already") from None

    async def _call(self, call: Outbound, destination: Destination, trusted: bytes) -> Answer:
        trust = self._trust(call.ca_pem, trusted)
        failure: EgressError | None = None
        for address in await self._addresses(destination, trusted=call.trusted):
            try:
                return await self._send(self._client(address, destination, trust), call, destination)
            except EgressError as error:
                if error.result != "unreachable":
                    raise
                failure = error
        assert failure is not None, "a host has at least one address"
        raise failure

    async def _addresses(self, destination: Destination, *, trusted: bool) -> tuple[str, ...]:
        """All addresses of a host. Raises EgressError if one is not allowed, unless the operator named the host."""
        host, port = destination.host, destination.port
        try:
            addresses = await self._resolver.resolve(host, port)
        except Unresolved as error:
            raise EgressError("unresolved", f"dial tcp: {error}") from error
        for address in addresses:
            if not trusted and (reason := self._rules.refusal(address, port)):
                raise EgressError("refused", f"{host} must not be called: {address} {reason}")
        return addresses

    def _trust(self, ca_pem: bytes, digest: bytes) -> _Trust:
        found = self._trusts.get(digest)
        if found is None:
            try:
                context = tls.client_context(ca_pem) if ca_pem else tls.public_context()
            except (ssl.SSLError, ValueError) as error:
                raise EgressError("untrusted", "caBundle holds no usable certificate") from error
            found = _Trust(context, digest, _TRUST_BYTES + _BYTES_PER_BYTE * len(ca_pem))
            self._trusts.put(digest, found)
        return found

    def _client(self, address: str, destination: Destination, trust: _Trust) -> HttpClient:
        host, port = destination.host, destination.port
        key = (address, port, host, trust.digest)
        found = self._peers.get(key)
        if found is None:
            origin = Origin(host=address, port=port, tls=trust.context, server_name=host, name=authority(host, port))
            found = _Peer(HttpClient(origin, _LIMITS), trust)
            self._peers.put(key, found)
        return found.client

    async def _send(self, client: HttpClient, call: Outbound, destination: Destination) -> Answer:
        target = destination.target + (f"?{call.query}" if call.query else "")
        try:
            response = await self._request(client, call, target)
        except ClientError as error:
            raise of_client(error, f"{client.origin.host}:{client.origin.port}") from error
        if not 200 <= response.status < 300:
            text = f"the server responded with status {response.status}"
            raise EgressError("status", text, response.status, response.body)
        return Answer(response.status, response.headers, response.body)

    async def _request(self, client: HttpClient, call: Outbound, target: str) -> ClientResponse:
        body = call.body() if callable(call.body) else call.body
        try:
            return await client.request(call.method, target, _HEADERS, body, timeout_s=call.timeout_s)
        except ConnectionLost as error:
            # The peer closed a pooled connection during the write.
            if error.begun or not call.repeatable:
                raise
            return await client.request(call.method, target, _HEADERS, body, timeout_s=call.timeout_s)
