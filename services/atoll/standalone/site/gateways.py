"""The event gateways of a NATS server: their users, the keys that they share, and what shards need of those.

`atoll nats-config --event-gateways`, `atoll start` and `atoll start --shards` call it. Keys and passwords of an earlier
call stay. Invariant: the keys that answer for a server are in one file, which shards are not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.machinery.stream.credential_file import PLAIN, Reach
from atoll.machinery.stream.server.config import NatsUser, TenantOptions, TlsFiles
from atoll.machinery.stream.tenants.key_files import (
    GATEWAY_KEYS_FILE,
    SUBSCRIPTIONS_FILE,
    SubscriptionKeys,
    load_or_make_gateway_keys,
    write_subscription_keys,
)
from atoll.machinery.stream.tenants.subscriber_permissions import GATEWAYS, gateway_permissions
from atoll.standalone.site.credentials import reading_user


def gateway_users(directory: Path, names: Sequence[str], reach: Reach = PLAIN) -> list[NatsUser]:
    """The users of gateways, each with a credential file. Raises OSError."""
    users = [reading_user(directory, gateway_permissions(name), name, {}, reach) for name in names]
    return [msgspec.structs.replace(user, account=GATEWAYS) for user in users]


def tenant_options(directory: Path, shards: Sequence[str], regions: Sequence[str] = ()) -> TenantOptions:
    """What a server that these regions join is configured with for subscribers of these shards.

    Raises InvalidCredentialFile, OSError.
    """
    return TenantOptions(tuple(shards), load_or_make_gateway_keys(directory / GATEWAY_KEYS_FILE), tuple(regions))


def write_for_shards(directory: Path, tenants: TenantOptions, urls: Sequence[str], tls: TlsFiles | None) -> Path:
    """Write the file that shards are given; return it. At `urls` subscribers find the servers. Raises OSError."""
    path = directory / SUBSCRIPTIONS_FILE
    authority = tls.ca_file.read_text() if tls is not None else ""
    write_subscription_keys(path, SubscriptionKeys(tenants.keys.names, tuple(urls), authority))
    return path
