"""The gateway with its check of tokens and its metrics, for its own process and for that of a single shard.

Invariant: whoever is let in showed a token that a service account key of this installation signed for events alone.
"""

from __future__ import annotations

import structlog
from prometheus_client import CollectorRegistry, Counter

from atoll.machinery.apiserver.authentication.event_tokens import EventTokens
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.tenants.auth_callout import CalloutKeys
from atoll.machinery.stream.tenants.gateway import Counted, Gateway, TokenHolder
from atoll.machinery.stream.tenants.subscriber_permissions import identity

log = structlog.get_logger()


def build_gateway(
    access: Access, keys: CalloutKeys, tokens: EventTokens, registry: CollectorRegistry, most_connections: int
) -> Gateway:
    """A gateway at a server, where an identity has `most_connections`. Raises ValueError for keys that are none."""
    asked = Counter(
        "atoll_event_gateway_connects", "Clients of NATS that a server asked about.", ["result"], registry=registry
    )
    ended = Counter("atoll_event_gateway_kicks", "Connections of NATS that were ended.", registry=registry)

    def holder_of(token: str) -> TokenHolder | None:
        try:
            subject = tokens.subject(token)
        except Unauthorized:
            asked.labels("refused").inc()
            return None
        asked.labels("admitted").inc()
        return TokenHolder(identity(subject.user, subject.cluster), subject.expires_s)

    return Gateway(access, keys, holder_of, most_connections, Counted(ended.inc, asked.labels("crowded").inc))
