"""What a tenant may name on NATS: its consumers and its inboxes, under names that only it knows.

All tenants share the account `events`, which has no streams and imports of each shard's changes how to pull from, look
at and acknowledge a consumer. Nothing creates one from there. The server writes the answer to a pull at any reply
subject of the asker's account, another's inbox included, and permissions do not cover a reply. Invariant: the names of
an identity's consumers and inboxes are made with a secret key, so that nobody who was not told can write them down.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from atoll.machinery.stream.permissions import (
    CONTROL,
    KICK_SUBJECT,
    OWN_API,
    Permissions,
    ServiceImport,
    inbox_prefix,
    shard_user,
)
from atoll.machinery.stream.subjects import CHANGES, stream_name

#: The account of all tenants, and that of the gateways, which answer for it.
TENANTS, GATEWAYS = "events", "event-gateways"
#: Where tenants find the JetStream API. At `$JS.API` an account without streams answers by itself.
TENANTS_API = "events.API"
#: Consumers that an identity may have. A permission matches whole tokens, so each has a name of its own.
SLOTS = 32
#: Connections of an identity at a server, by default: one a subscription, and as many that are about to end.
MOST_CONNECTIONS = 2 * SLOTS
_PULL_VERBS = ("CONSUMER.MSG.NEXT", "CONSUMER.INFO")
#: Where a server asks who a client is.
CALLOUT_SUBJECT = "$SYS.REQ.USER.AUTH"
#: Where it waits for the answer: an inbox of the server in the account of the gateways.
CALLOUT_ANSWERS = "$SYS._INBOX.>"
#: How long a server waits for it before it turns the client away.
CALLOUT_TIMEOUT_S = 4.0
#: Where each server tells the connections of the tenants, and where one of them ends a connection.
CONNECTIONS_SUBJECT, END_CONNECTION_SUBJECT = f"$SYS.REQ.ACCOUNT.{TENANTS}.CONNZ", "$SYS.REQ.SERVER.{server}.KICK"


class SubscriberNames(msgspec.Struct, frozen=True):
    """The names of one identity: those of its consumers, the prefix of its inboxes, and that of its connections, which
    servers tell to gateways."""

    consumers: tuple[str, ...]
    inbox: str
    connection: str


def identity(user: str, cluster: str = "") -> str:
    """The text of a user, of one cluster alone or of all: no two users have the same, as no cluster has a colon."""
    return f"{cluster}:{user}"


def subscriber_names(key: bytes, identity: str) -> SubscriberNames:
    """The names of an identity: the same for each gateway that has the key, and for nobody else to be guessed."""
    own = _secret_token(key, "consumers", identity)
    consumers = tuple(f"{own}-{number}" for number in range(SLOTS))
    inbox, connection = (_secret_token(key, purpose, identity) for purpose in ("inbox", "connection"))
    return SubscriberNames(consumers, f"_INBOX_{inbox}", connection)


def subscriber_permissions(names: SubscriberNames) -> Permissions:
    """Pull from, look at and acknowledge the consumers of these names on any shard; hear the answers."""
    publish = [f"{TENANTS_API}.{verb}.*.{each}" for verb in _PULL_VERBS for each in names.consumers]
    publish += [f"$JS.ACK.*.{each}.>" for each in names.consumers]
    return Permissions(tuple(publish), (f"{names.inbox}.>",))


def tenant_imports(shards: Sequence[str]) -> list[ServiceImport]:
    """What the account of the tenants imports. It grants nothing: the permissions of each tenant do."""
    imports: list[ServiceImport] = []
    for shard in shards:
        stream, account = stream_name(CHANGES, shard), shard_user(shard)
        imports += [
            ServiceImport(account, f"{OWN_API}.{verb}.{stream}.*", f"{TENANTS_API}.{verb}.{stream}.$1")
            for verb in _PULL_VERBS
        ]
        ack = f"$JS.ACK.{stream}.>"
        imports.append(ServiceImport(account, ack, ack))
    return imports


def control_address(inbox: str) -> str:
    """Where a shard publishes what a subscriber hears at `<inbox>.control`."""
    return f"{CONTROL}.{inbox}"


def gateway_permissions(user: str) -> Permissions:
    """Answer servers that ask who a client is; hear whose connections to end, find and end them. Reach no stream."""
    publish = (CALLOUT_ANSWERS, CONNECTIONS_SUBJECT, END_CONNECTION_SUBJECT.format(server="*"))
    return Permissions(publish, (f"{inbox_prefix(user)}.>", CALLOUT_SUBJECT, KICK_SUBJECT))


def _secret_token(key: bytes, purpose: str, identity: str) -> str:
    """160 bits that follow from the key, in base32."""
    digest = hmac.digest(key, f"atoll.events.{purpose}\n{identity}".encode(), hashlib.sha256)[:20]
    return base64.b32encode(digest).decode().lower()
