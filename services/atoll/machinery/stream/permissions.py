"""Permissions on NATS: an account for each credential, and the subjects that it imports, publishes and subscribes to.

`server.config` makes the configuration of a server of these; `atoll nats-config` prints it for an operator's own. NATS
does not check the reply subject of a request, and a stream stores whatever arrives on its subjects: whoever shares an
account with a stream can have an answer of JetStream written into it. Invariant: the streams of a shard are alone in an
account with its publisher. All others have accounts without streams, and import single subjects of the JetStream API as
services, whose replies stay in the account of the asker.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.stream.subjects import CHANGES, KINDS, STATE, all_subjects, stream_name

#: NATS wildcards match whole tokens, so a prefix of consumer names cannot be granted; a list of names can.
OPERATOR_CONSUMERS = ("operator", *(f"operator-{number}" for number in range(1, 16)))
OPERATOR = "operator"
#: Where the JetStream API of a shard's account is found: in that account, and in those that import it.
OWN_API, IMPORTED_API = "$JS.API", "$JS.{shard}.API"
#: The same for the streams of a region. The server maps `$JS.hub.API` of a leaf's account to that account's own API.
SOURCE_API = "atoll.hub.API"
#: Where a shard tells gateways whose connections to end; and the prefix at which it tells subscribers what became of
#: their subscriptions. Both leave its account only on servers that have tenants.
KICK_SUBJECT, CONTROL = "event-gateways.kick", "events.control"

_STREAM_VERBS = ("CREATE", "UPDATE", "INFO", "PURGE", "MSG.GET")
_CONSUMER_VERBS = ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT")


class ServiceImport(msgspec.Struct, frozen=True):
    """A subject of an account with streams that another account may send requests to, at `local`."""

    account: str
    subject: str
    local: str


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that one user may publish to and subscribe to.

    `shards` are those whose streams are in the user's account. `imports` are the subjects of other accounts that it may
    send requests to; `deliveries` are the accounts whose messages arrive at its `delivery_subject`.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    shards: tuple[str, ...] = ()
    imports: tuple[ServiceImport, ...] = ()
    deliveries: tuple[str, ...] = ()


class ServiceExport(msgspec.Struct, frozen=True):
    """A subject of a shard's account that others may import; `stream`: a request has many answers."""

    subject: str
    stream: bool = False


def shard_user(shard: str) -> str:
    """The NATS user that publishes for a shard; also its account."""
    return f"shard-{shard}"


def reader_user(shard: str) -> str:
    """The NATS user by which a shard reads the state of others."""
    return f"reader-{shard}"


def inbox_prefix(user: str) -> str:
    """The prefix of a user's inboxes, to which no other user may subscribe."""
    return f"_INBOX_{user.replace('-', '_', 1)}"


def follower_consumer(user: str) -> str:
    """The name of a user's consumer on each state stream that it reads."""
    return f"follow-{user}"


def delivery_subject(user: str) -> str:
    """The prefix of the subjects at which the streams of a region receive messages."""
    return f"atoll.deliver.{user}"


def shard_permissions(shard: str) -> Permissions:
    """Publish under the shard's own name, manage exactly its two streams, speak to gateways and to subscribers.

    It cannot delete the streams."""
    publish: list[str] = []
    for kind in KINDS:
        name = stream_name(kind, shard)
        publish.append(f"atoll.{kind}.{shard}.>")
        publish.extend(f"{OWN_API}.STREAM.{verb}.{name}" for verb in _STREAM_VERBS)
        publish.append(f"{OWN_API}.CONSUMER.LIST.{name}")
        publish.extend(f"{OWN_API}.CONSUMER.{verb}.{name}.>" for verb in _CONSUMER_VERBS)
        publish.append(f"$JS.ACK.{name}.>")
    publish.append(f"{OWN_API}.CONSUMER.PAUSE.{stream_name(CHANGES, shard)}.*")
    publish += [KICK_SUBJECT, f"{CONTROL}.*"]
    return Permissions(tuple(publish), (f"{inbox_prefix(shard_user(shard))}.>",), (shard,))


def region_permissions(shards: Sequence[str]) -> Permissions:
    """Everything in the account of a region, whose streams source the state of these shards: its administrator's."""
    return Permissions((">",), (">",), tuple(shards))


def reader_permissions(user: str, shards: Sequence[str], region: str = "", *, selects: bool = False) -> Permissions:
    """Read the state of these shards with consumers that carry the user's name, and publish nothing.

    `region` is the account that all the streams are in; without it, each is in the account of its shard. `selects`: the
    consumers may have several filters, as those of a shard have that follows single objects.
    """
    imports = [each for shard in shards for each in _reading(user, shard, region or shard_user(shard))]
    if selects:
        imports += [_selecting(user, shard, region or shard_user(shard)) for shard in shards]
    return _importing(user, imports)


def changes_permissions(user: str, shards: Sequence[str], root: str) -> Permissions:
    """Read the changes of these shards and the state of `root`, and publish nothing.

    The consumers carry the user's name. The server sees no filter of them, or any: all of these streams may be read.
    """
    imports = [*_reading(user, root, shard_user(root)), _selecting(user, root, shard_user(root))]
    name = follower_consumer(user)
    for shard in shards:
        stream = stream_name(CHANGES, shard)
        verbs = (
            f"STREAM.INFO.{stream}",
            f"CONSUMER.CREATE.{stream}.{name}",
            f"CONSUMER.CREATE.{stream}.{name}.>",
            f"CONSUMER.DELETE.{stream}.{name}",
            f"CONSUMER.MSG.NEXT.{stream}.{name}",
        )
        imports.extend(_import(shard, shard_user(shard), verb) for verb in verbs)
    return _importing(user, imports)


def operator_consumers(user: str) -> tuple[str, ...]:
    """The names that the consumers of an operator's user may have. Users' names have no `_`: none is shared."""
    return OPERATOR_CONSUMERS if user == OPERATOR else tuple(f"operator_{user}_{number}" for number in range(16))


def operator_permissions(shards: Sequence[str], user: str = OPERATOR) -> Permissions:
    """Create, read, acknowledge and delete the user's own consumers on both streams of these shards, and look at the
    streams."""
    imports: list[ServiceImport] = []
    for shard in shards:
        account = shard_user(shard)
        imports.append(_import(shard, account, "STREAM.NAMES"))
        for kind in KINDS:
            name = stream_name(kind, shard)
            imports.append(_import(shard, account, f"STREAM.INFO.{name}"))
            for consumer in operator_consumers(user):
                verbs = (*(f"{verb}.{name}.{consumer}" for verb in _CONSUMER_VERBS), f"CREATE.{name}.{consumer}.>")
                imports.extend(_import(shard, account, f"CONSUMER.{verb}") for verb in verbs)
                ack = f"$JS.ACK.{name}.{consumer}.>"
                imports.append(ServiceImport(account, ack, ack))
    return _importing(user, imports)


def source_permissions(user: str, shards: Sequence[str]) -> Permissions:
    """Permissions of a leaf node at the hub: source the state of these shards.

    The leaf's server creates consumers there, which deliver to the user's own `delivery_subject`.
    """
    imports: list[ServiceImport] = []
    for shard in shards:
        name = stream_name(STATE, shard)
        for verb in (f"CONSUMER.CREATE.{name}", f"CONSUMER.CREATE.{name}.>"):
            imports.append(ServiceImport(shard_user(shard), f"{OWN_API}.{verb}", f"{SOURCE_API}.{verb}"))
        flow = f"$JS.FC.{name}.>"
        imports.append(ServiceImport(shard_user(shard), flow, flow))
    publish = tuple(each.local for each in imports)
    subscribe = ("$JSC.R.*", "$JS.S.*", f"{delivery_subject(user)}.>")
    return Permissions(publish, subscribe, imports=tuple(imports), deliveries=tuple(map(shard_user, shards)))


def shard_exports(shard: str) -> list[ServiceExport]:
    """What the account of a shard exports. An export grants nothing: each account names its imports one by one."""
    exports = [ServiceExport(f"{OWN_API}.STREAM.NAMES")]
    for kind in KINDS:
        name = stream_name(kind, shard)
        exports.append(ServiceExport(f"{OWN_API}.STREAM.INFO.{name}"))
        exports.append(ServiceExport(f"{OWN_API}.CONSUMER.CREATE.{name}"))
        for verb in _CONSUMER_VERBS:
            exports.append(ServiceExport(f"{OWN_API}.CONSUMER.{verb}.{name}.>", stream=verb == "MSG.NEXT"))
        exports.extend(ServiceExport(f"$JS.{about}.{name}.>") for about in ("ACK", "FC"))
    return exports


def _reading(user: str, shard: str, account: str) -> list[ServiceImport]:
    """Inspect a state stream and read it through a consumer of the user's own name.

    The subject that creates a consumer ends in its only filter, and the server enforces that.
    """
    name, stream = follower_consumer(user), stream_name(STATE, shard)
    return [
        _import(shard, account, f"STREAM.INFO.{stream}"),
        _import(shard, account, f"CONSUMER.CREATE.{stream}.{name}.{all_subjects(STATE, shard)[0]}"),
        _import(shard, account, f"CONSUMER.DELETE.{stream}.{name}"),
        _import(shard, account, f"CONSUMER.MSG.NEXT.{stream}.{name}"),
    ]


def _selecting(user: str, shard: str, account: str) -> ServiceImport:
    """Create the user's consumer with several filters, which the subject does not name. They select from the state
    stream, all of which the user may read: the server refuses another stream, and another name."""
    return _import(shard, account, f"CONSUMER.CREATE.{stream_name(STATE, shard)}.{follower_consumer(user)}")


def _import(shard: str, account: str, verb: str) -> ServiceImport:
    return ServiceImport(account, f"{OWN_API}.{verb}", f"{IMPORTED_API.format(shard=shard)}.{verb}")


def _importing(user: str, imports: Sequence[ServiceImport]) -> Permissions:
    """The permissions of a user whose account has no streams: what it imports, and its inbox."""
    publish = tuple(each.local for each in imports)
    return Permissions(publish, (f"{inbox_prefix(user)}.>",), imports=tuple(imports))
