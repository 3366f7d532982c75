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
    IMPORTED_API,
    OWN_API,
    Permissions,
    ServiceImport,
    inbox_prefix,
    shard_user,
)
from atoll.machinery.stream.subjects import CHANGES, stream_name

#: The account of all tenants, and that of the gateways, which answer for it and make its consumers.
TENANTS, GATEWAYS = "events", "event-gateways"
#: Where tenants find the JetStream API. At `$JS.API` an account without streams answers by itself.
TENANTS_API = "events.API"
#: Consumers that an identity may have. A permission matches whole tokens, so each has a name of its own.
SLOTS = 32
_PULL_VERBS = ("CONSUMER.MSG.NEXT", "CONSUMER.INFO")
#: Where a server asks who a client is.
CALLOUT_SUBJECT = "$SYS.REQ.USER.AUTH"
#: Where it waits for the answer: an inbox of the server in the account of the gateways.
CALLOUT_ANSWERS = "$SYS._INBOX.>"
#: How long a server waits for it before it turns the client away.
CALLOUT_TIMEOUT_S = 4.0
_GATEWAY_VERBS = ("CREATE", "INFO", "DELETE")


class SubscriberNames(msgspec.Struct, frozen=True):
    """The names of one identity: those of its consumers, and the prefix of its inboxes."""

    consumers: tuple[str, ...]
    inbox: str


def subscriber_names(key: bytes, identity: str) -> SubscriberNames:
    """The names of an identity: the same for each gateway that has the key, and for nobody else to be guessed."""
    own = _secret_token(key, "consumers", identity)
    consumers = tuple(f"{own}-{number}" for number in range(SLOTS))
    return SubscriberNames(consumers, f"_INBOX_{_secret_token(key, 'inbox', identity)}")


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


def gateway_permissions(user: str, shards: Sequence[str]) -> Permissions:
    """Answer servers that ask who a client is; make, look at and delete consumers on the changes of these shards.

    A gateway chooses what a consumer filters, and may name those of others: it decides what tenants see anyway.
    """
    imports: list[ServiceImport] = []
    for shard in shards:
        stream, account, api = stream_name(CHANGES, shard), shard_user(shard), IMPORTED_API.format(shard=shard)
        imports.append(ServiceImport(account, f"{OWN_API}.STREAM.INFO.{stream}", f"{api}.STREAM.INFO.{stream}"))
        for verb in _GATEWAY_VERBS:
            subject = f"CONSUMER.{verb}.{stream}"
            imports.append(ServiceImport(account, f"{OWN_API}.{subject}.*", f"{api}.{subject}.$1"))
    publish = (*(each.local.replace("$1", "*") for each in imports), CALLOUT_ANSWERS)
    return Permissions(publish, (f"{inbox_prefix(user)}.>", CALLOUT_SUBJECT), imports=tuple(imports))


def _secret_token(key: bytes, purpose: str, identity: str) -> str:
    """160 bits that follow from the key, in base32."""
    digest = hmac.digest(key, f"atoll.events.{purpose}\n{identity}".encode(), hashlib.sha256)[:20]
    return base64.b32encode(digest).decode().lower()
