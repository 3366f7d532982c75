"""The cluster of a request whose URL names none: kcp's rewrite by the service account token of the request.

The shard and the front proxy call it before authentication, for URLs with neither /clusters/ nor /services/ (client-go
in a pod has no other URL). Nothing is verified here: the result selects the cluster, and the token is verified there
like any other.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.wire.exchange import HttpRequest

#: Set by a proxy that has already selected the cluster.
SHARDED_REQUEST = "x-kubernetes-sharded-request"


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    cluster_name: str = ""


class _Claims(msgspec.Struct, frozen=True):
    bound: _Bound = msgspec.field(default=_Bound(), name="kubernetes.io")
    legacy: str = msgspec.field(default="", name="kubernetes.io/serviceaccount/clusterName")


_decoder = msgspec.json.Decoder(_Claims)


def bearer_token(request: HttpRequest) -> str | None:
    """The bearer token of a request; None without one.

    As in Kubernetes, the header is split at single spaces: the token is its second part. A header without it, or of
    another scheme, is no credential.
    """
    parts = request.header("authorization").strip().split(" ", 2)
    return (parts[1] or None) if len(parts) > 1 and parts[0].lower() == "bearer" else None


def token_cluster(request: HttpRequest) -> str:
    """The cluster that the request's token claims; "" without such a claim."""
    token = bearer_token(request)
    if token is None or SHARDED_REQUEST in request.headers:
        return ""
    try:
        claims = jwt.decode_json(_decoder, jwt.unverified_claims(token))
    except jwt.TokenError:
        return ""
    cluster = claims.bound.cluster_name or claims.legacy
    return cluster if is_cluster_name(cluster) else ""
