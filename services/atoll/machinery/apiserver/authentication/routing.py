"""Which cluster a request without one means: kcp's rewrite by the service account token it carries.

The shard and the front proxy ask before authentication, for requests that name neither /clusters/ nor
/services/ (client-go in a pod knows no other URL). Nothing is verified here: the answer only says where to
look, the token is verified there like any other.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.wire.exchange import HttpRequest

#: Set by a proxy that already decided where the request goes.
SHARDED_REQUEST = "x-kubernetes-sharded-request"


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    cluster_name: str = ""


class _Claims(msgspec.Struct, frozen=True):
    bound: _Bound = msgspec.field(default=_Bound(), name="kubernetes.io")
    legacy: str = msgspec.field(default="", name="kubernetes.io/serviceaccount/clusterName")


_decoder = msgspec.json.Decoder(_Claims)


def bearer_token(request: HttpRequest) -> str | None:
    """The bearer token of a request, None where the Authorization header is absent or of another scheme."""
    scheme, _, token = request.header("authorization").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def token_cluster(request: HttpRequest) -> str:
    """The cluster that the request's token claims to be of; "" where there is no such claim."""
    token = bearer_token(request)
    if not token or SHARDED_REQUEST in request.headers:
        return ""
    try:
        claimed = _decoder.decode(jwt.unverified_claims(token))
    except (jwt.TokenError, msgspec.DecodeError):
        return ""
    cluster = claimed.bound.cluster_name or claimed.legacy
    return cluster if is_cluster_name(cluster) else ""
