"""Heads of requests to shards: the request line, and headers that are kept for the next request of the connection.

`handler` calls it for each request to a shard. Most clients send the same headers again and again, to one workspace:
then all but the request line is the same too. Invariant: what is kept is sent only for the same headers, user, cluster
and authority, while the assertion in it is fresh, never for a request with a body or an upgrade; each has a size limit.
"""

from __future__ import annotations

import msgspec

from atoll.frontproxy.authentication import ProxyAuthentication, RequestUser
from atoll.machinery.apiserver.authentication.assertion import HEADER, SignedAssertion
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.parser import WHOLE
from atoll.machinery.wire.proxy import framing
from atoll.machinery.wire.proxy.streaming import StreamingExchange

#: The proxy's name in `Via`.
PSEUDONYM = "atoll-front-proxy"
#: Larger headers, of users with many groups, are written for each request: many connections keep these.
MAX_KEPT_BYTES = 4096


class SharedFields(msgspec.Struct, frozen=True):
    """The headers of a request to a shard, and what they derive from besides the client's headers."""

    #: None for a user that the shard authenticates.
    user: RequestUser | None
    cluster: str
    authority: str
    assertion: SignedAssertion | None
    text: bytes


class ShardHeads:
    """Writes heads of requests to shards."""

    def __init__(self, authentication: ProxyAuthentication) -> None:
        self._authentication, self._assertions = authentication, authentication.assertions

    def head(
        self, exchange: StreamingExchange, target: str, authority: str, requester: RequestUser, cluster: str
    ) -> bytes:
        """The head of the request to a shard. Raises ApiError for too large an identity."""
        request = exchange.request
        line = framing.request_line(request.method, target, old=exchange.old)
        shared = request.header_set
        if shared is None or exchange.body is not WHOLE or exchange.old:
            return line + self._fields(exchange, authority, requester, cluster).text
        kept: SharedFields | None = shared.fields
        user = requester if requester.verified else None
        if (
            kept is None
            or kept.user is not user
            or kept.cluster != cluster
            or kept.authority != authority
            or (kept.assertion is not None and not self._assertions.is_fresh(kept.assertion))
        ):
            kept = self._fields(exchange, authority, requester, cluster)
            # Without a header that is about the body.
            if exchange.body is WHOLE and len(kept.text) <= MAX_KEPT_BYTES:
                shared.fields = kept
        return line + kept.text

    def _fields(
        self, exchange: StreamingExchange, authority: str, requester: RequestUser, cluster: str
    ) -> SharedFields:
        request, signed = exchange.request, None
        headers = self._authentication.forwarded(request, requester)
        if requester.verified:
            signed = self._authentication.signed(requester.user, cluster)
            headers = [*headers, (HEADER, signed.text)]
        text = fields(exchange, authority, headers)
        return SharedFields(requester if requester.verified else None, cluster, authority, signed, text)


def fields(exchange: StreamingExchange, authority: str, headers: Headers) -> bytes:
    """Headers of a request to a backend: the end-to-end ones, the proxy's own, and those of framing."""
    request, body = exchange.request, exchange.open_body()
    version = "1.0" if exchange.old else "1.1"
    own = [*headers, ("x-forwarded-for", request.peer.address), ("via", f"{version} {PSEUDONYM}")]
    return framing.request_fields(request, authority, own, body, old=exchange.old)
