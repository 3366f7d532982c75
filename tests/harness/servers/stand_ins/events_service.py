"""The service `events` of a workspace with prepared answers, and the streams of its shard on a real nats-server.

What a subscriber hears over HTTP is canned; what it reads on NATS is the product's own: accounts, permissions,
consumers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from atoll.events import subscribe
from atoll.events.subscriber import Subscriber
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.ed25519 import SecretKey
from atoll.machinery.stream.events import Event
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.signatures import sign
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.subscriber_permissions import TENANTS_API, control_address
from atoll.machinery.stream.tenants.subscription_consumer import consumer_config, subscription_filters
from harness.data.event_keys import KEY, PUBLIC
from harness.data.stored_headers import encode_headers
from harness.models.shard_log import CONFIGMAPS, Entry, ShardLog
from harness.servers.stand_ins.canned_api import CannedApi, serving
from harness.servers.tenant_server import TenantServer
from harness.waits import until

WORKSPACE, CLUSTER, NAME = "root:harbour", "2x9k", "copy"
SERVICE = f"/services/events/clusters/{WORKSPACE}"
ACK_WAIT_S = 2


class EventsService:
    """One subscription of the user alice to the ConfigMaps of a workspace. `full`: with their objects."""

    def __init__(self, nats: TenantServer, api: CannedApi, authority: Path, *, full: bool) -> None:
        self.nats, self.api, self._authority, self._full = nats, api, authority, full
        self.log = ShardLog()
        self.created = "2026-11-27T00:00:00Z"
        self.shards = ["root"]
        self._sequences, self._key = Counter[str](), SecretKey(KEY.secret)
        self.tell()
        kind = {
            "resource": "configmaps",
            "scope": "Namespaced",
            "responseKind": {"kind": "ConfigMap"},
            "verbs": ["list", "watch"],
        }
        core = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [kind]}]}
        api.on(f"GET /clusters/{CLUSTER}/api", {"items": [core]})
        api.on(f"GET /clusters/{CLUSTER}/apis", {"items": []})

    def tell(self, state: str = "Active", reason: str = "") -> None:
        """Have the API say this of the subscription."""
        names = self.nats.names("alice")
        begin = {"created": self.created, "lineage": self.log.identity.lineage, "sequence": 1}
        answer: Object = {
            "name": NAME,
            "cluster": CLUSTER,
            "state": state,
            "reason": reason,
            "resources": [{"group": "", "resource": "configmaps", "identity": "core", "full": self._full}],
            "refused": [],
            "consumer": names.consumers[0],
            "streams": [
                {"shard": each, "stream": stream_name(CHANGES, each), "filters": [], "begin": begin}
                for each in self.shards
            ],
            "apiPrefix": TENANTS_API,
            "inboxPrefix": names.inbox,
            "control": f"{names.inbox}.control",
            "servers": [self.nats.address],
            "ca": "",
            "eventKeys": {"root": list(PUBLIC)},
            "ackWait": f"{ACK_WAIT_S}s",
            "maxAckPending": 1000,
            "lag": {"events": 0, "seconds": 0},
        }
        self.api.on(f"POST {SERVICE}/subscriptions", answer)
        self.api.on(f"GET {SERVICE}/subscriptions/{NAME}", answer)
        end = times.format_time(int(time.time() + 900))
        self.api.on(f"POST {SERVICE}/token", {"token": "user:alice", "expirationTimestamp": end})

    async def make_consumer(self, shard: str = "root") -> None:
        """Make the subscription's consumer, as its shard does."""
        name, filters = self.nats.names("alice").consumers[0], subscription_filters(shard, [CONFIGMAPS], CLUSTER)
        config = consumer_config(name, filters, self.nats.limits, {"deliver_policy": "all"}, full=self._full)
        stream = stream_name(CHANGES, shard)
        body = {"stream_name": stream, "config": {**config, "ack_wait": ACK_WAIT_S * 10**9}}
        await self.nats.owners[shard].api(f"CONSUMER.CREATE.{stream}.{name}", body)

    async def consumer(self, shard: str = "root") -> Object:
        """How far the subscription's consumer is."""
        return await self.nats.consumer(shard, self.nats.names("alice").consumers[0])

    async def join(self, shard: str) -> None:
        """Have the subscription have a part on another shard too, as its subscriber hears at its control subject."""
        await self.make_consumer(shard)
        self.shards.append(shard)
        self.tell()
        await self.nats.owners["root"].publish(control_address(self.nats.names("alice").inbox), b"another stream")

    async def began_again(self) -> bool:
        """Whether the subscription was asked for more than once."""
        return self.api.paths().count(f"POST {SERVICE}/subscriptions") > 1

    async def acknowledged(self) -> None:
        """Return when all events were sent and acknowledged."""

        async def look() -> bool:
            infos = [await self.consumer(shard) for shard in self.shards]
            return all(each["num_ack_pending"] == each["num_pending"] == 0 for each in infos)

        await until(look, "all events are acknowledged")

    def hold(self, *names: str) -> None:
        """Have the API list these objects at the log's last revision."""
        held = {entry.key.name: entry for entry in self.log.objects.values()}
        items: list[Object] = [msgspec.json.decode(held[name].value) for name in names]
        for item, name in zip(items, names, strict=True):
            item["metadata"] |= {"resourceVersion": str(held[name].revision), "namespace": "default"}
        revision = str(self.log.entries[-1].revision)
        listed: Object = {"metadata": {"resourceVersion": revision}, "items": items}
        self.api.on(f"GET /clusters/{CLUSTER}/api/v1/configmaps", listed)

    def put(self, name: str, **members: Any) -> Entry:
        """Write an object into the log."""
        return self.log.put(ObjectKey(CONFIGMAPS, CLUSTER, "default", name), **members)

    async def publish(self, *entries: Entry) -> None:
        """Publish changes as the shard does."""
        for entry in entries:
            await self.send(from_entry(CHANGES, self.log.identity, entry))

    async def send(self, event: Event, *, signed: bool = True) -> None:
        """Publish an event, signed for the next place in its shard's stream."""
        self._sequences[event.shard] += 1
        if signed:
            event = msgspec.structs.replace(event, signature=sign(self._key, [event], self._sequences[event.shard])[0])
        owner = self.nats.owners[event.shard]
        await owner.publish(event.subject, event.payload, headers=encode_headers(event))
        await owner.api(f"STREAM.INFO.{stream_name(CHANGES, event.shard)}")

    def subscriber(self, **options: Any) -> Subscriber:
        """A subscriber at this service."""
        return subscribe(
            f"https://127.0.0.1:{self.api.port}",
            cluster=WORKSPACE,
            resources=["configmaps"],
            name=NAME,
            token="secret",
            ca_file=str(self._authority),
            full=self._full,
            **options,
        )


@asynccontextmanager
async def events_service(directory: Path, *, full: bool = True) -> AsyncIterator[EventsService]:
    """Run it, with a consumer that begins at the oldest event."""
    async with TenantServer(directory / "nats") as nats, serving(CannedApi()) as api:
        await nats.answer()
        authority = directory / "ca.crt"
        authority.write_bytes(api.ca)
        service = EventsService(nats, api, authority, full=full)
        await service.make_consumer()
        yield service
