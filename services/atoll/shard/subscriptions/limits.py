"""The bounds of tenants' subscriptions, as a shard's settings have them."""

from __future__ import annotations

import msgspec

from atoll.machinery.stream.tenants.subscription_consumer import SubscriptionLimits
from atoll.shard.config import ShardConfig

#: How long a subscription is kept that nobody reads.
UNUSED_S = 24 * 3600
#: How long a credential counts after it was shown, if it does not end before.
CREDENTIAL_S = 3600
#: How often every subscription is checked again, and looked at on NATS.
CHECK_S, LOOK_S = 60.0, 5.0
#: How often marks of subscribers are stored.
STORE_S = 30.0
#: By how much the clocks of two shards may differ: parts on other shards begin earlier by that.
SKEW_S = 5.0
#: Answers of a process that follow other shards, and parts that it sends to those.
MAX_ON_ALL_SHARDS, MAX_PARTS = 48, 512
MAX_BODY_BYTES = 64 * 1024


class Limits(msgspec.Struct, frozen=True):
    """Subscriptions of an identity and of a workspace, what bounds each subscription's consumer, and how many events a
    second an identity is delivered."""

    per_identity: int = 32
    per_workspace: int = 256
    consumer: SubscriptionLimits = SubscriptionLimits(unused_s=UNUSED_S)
    rate: int = 2000


def limits_of(config: ShardConfig) -> Limits:
    """The bounds that a shard's settings say."""
    consumer = SubscriptionLimits(
        batch=config.event_pull_max_messages,
        batch_bytes=config.event_pull_max_bytes,
        ack_pending=config.event_max_ack_pending,
        unused_s=UNUSED_S,
    )
    return Limits(
        config.event_subscriptions_per_identity, config.event_subscriptions_per_workspace, consumer, config.event_rate
    )
