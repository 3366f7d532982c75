"""Every subject that a tenant may try on NATS, and which of them are its own, said without the product's code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PREFIXES = ("$JS.API", "events.API", "$JS.root.API", "$JS.events.API", "$JS.hub.API")
STREAMS = ("atoll-changes-root", "atoll-state-root", "atoll-changes-east", "other", "*")
CONSUMER_VERBS = (
    "CREATE",
    "DURABLE.CREATE",
    "DELETE",
    "INFO",
    "MSG.NEXT",
    "PAUSE",
    "RESET",
    "UNPIN",
    "LEADER.STEPDOWN",
    "LIST",
    "NAMES",
)
STREAM_VERBS = (
    "CREATE",
    "UPDATE",
    "INFO",
    "DELETE",
    "PURGE",
    "MSG.GET",
    "MSG.DELETE",
    "SNAPSHOT",
    "RESTORE",
    "LEADER.STEPDOWN",
    "PEER.REMOVE",
)
GENERAL = (
    "INFO",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.TEMPLATE.NAMES",
    "ACCOUNT.PURGE.events",
    "META.LEADER.STEPDOWN",
)
SYSTEM = (
    "$SYS.REQ.USER.AUTH",
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS.REQ.SERVER.X.KICK",
    "$SYS.REQ.ACCOUNT.events.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.SUBSZ",
    "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.ACCOUNT.events.CONNECT",
    "$SYS.ACCOUNT.events.DISCONNECT",
    "$SYS.SERVER.X.CLIENT.AUTH.ERR",
    "$SYS._INBOX.x.y",
    "event-gateways.kick",
    "events.control.x",
)
#: Identity, group and resource as a subject has them: of the victim's own subscription, sealed, exported, all.
RESOURCES = ("core.core.configmaps", "core.core.secrets", "5e1f.example=2Ecom.lights", "*.*.*")
#: Texts that mean something to NATS, as a tenant may have them in the names of its own things.
ODD_NAMES = (".", "*", ">", ".*>", "a.b", "=2E", "-")


class Own:
    """The names of one tenant, and what they admit to."""

    def __init__(self, consumers: Sequence[str], inbox: str) -> None:
        self.consumers, self.inbox = consumers, inbox

    def may_publish(self, subject: str) -> bool:
        tokens = subject.split(".")
        if tokens[:5] == ["events", "API", "CONSUMER", "MSG", "NEXT"]:
            return len(tokens) == 7 and tokens[6] in self.consumers
        if tokens[:4] == ["events", "API", "CONSUMER", "INFO"]:
            return len(tokens) == 6 and tokens[5] in self.consumers
        return tokens[:2] == ["$JS", "ACK"] and len(tokens) > 4 and tokens[3] in self.consumers

    def may_subscribe(self, subject: str) -> bool:
        return subject.startswith(f"{self.inbox}.")


def subjects(own: Own, victims: Sequence[Own], clusters: Sequence[str]) -> list[str]:
    """All subjects, each once: of the API, of acknowledgements, streams, inboxes, advisories and the system."""
    names = (own.consumers[0], own.consumers[-1], f"{own.consumers[0]}x", own.consumers[0][:-2])
    theirs = [name for victim in victims for name in (victim.consumers[0], victim.consumers[-1])]
    others = (*theirs, "operator", "follow-edge-0", "atoll-audit-changes", "*", ">")
    found = [*_api(names + others), *_acknowledgements(names + others), *SYSTEM, *_inboxes(own, victims), *_wild()]
    for cluster in clusters:
        for kind in ("changes", "state"):
            found += [f"atoll.{kind}.root.{resource}.{cluster}" for resource in RESOURCES]
    found += [f"atoll.changes.{shard}.-" for shard in ("root", "east", "other")]
    return list(dict.fromkeys(found))


def _api(names: Sequence[str]) -> Iterator[str]:
    for prefix in PREFIXES:
        yield from (f"{prefix}.{verb}" for verb in GENERAL)
        for stream in STREAMS:
            yield from (f"{prefix}.STREAM.{verb}.{stream}" for verb in STREAM_VERBS)
            yield from (f"{prefix}.DIRECT.GET.{stream}{end}" for end in ("", ".atoll.changes.root.-"))
            for name in names:
                yield from (f"{prefix}.CONSUMER.{verb}.{stream}.{name}" for verb in CONSUMER_VERBS)
                yield f"{prefix}.CONSUMER.CREATE.{stream}.{name}.atoll.changes.root.>"


def _acknowledgements(names: Sequence[str]) -> Iterator[str]:
    for stream in STREAMS:
        for name in names:
            yield f"$JS.ACK.{stream}.{name}.1.1.1.1.0"
            yield f"$JS.ACK._.hash.{stream}.{name}.1.1.1.1.0"
            yield f"$JS.FC.{stream}.{name}.x"
            yield f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{stream}.{name}"
            yield f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream}.{name}"


def _inboxes(own: Own, victims: Sequence[Own]) -> Iterator[str]:
    for inbox in (
        own.inbox,
        *(victim.inbox for victim in victims),
        "_INBOX",
        "_INBOX_shard_root",
        "_INBOX_gateway_0",
        "_R_",
        "_GR_",
    ):
        yield inbox
        yield from (f"{inbox}.{rest}" for rest in ("x", "x.1", "*", ">"))


def _wild() -> Iterator[str]:
    yield from (
        ">",
        "*",
        "*.>",
        "*.*",
        "*.x",
        "atoll",
        "atoll.>",
        "atoll.*.root.>",
        "events",
        "events.>",
        "events.API.>",
    )
    yield from (
        "$JS",
        "$JS.>",
        "$JS.*.>",
        "$JS.ACK.>",
        "$JS.EVENT.>",
        "$SYS",
        "$SYS.>",
        "$NRG.>",
        "$JSC.R.x",
        "$KV.x.y",
    )
    yield from (f"events.API.CONSUMER.{verb}.*.>" for verb in CONSUMER_VERBS)
    yield from (f"atoll.deliver.{name}.x" for name in ("events", "gateway-0"))
