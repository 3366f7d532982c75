"""Thirty subscribers of tenants while everything between the log and them fails, one part after the other.

They are in three processes, with the client `atoll.events.subscribe`, at two event gateways and a NATS server of their
own. The seed decides the order of the faults. After each of them every subscriber has exactly the log of its cluster,
or got a RESYNC and has reread the state since; where nothing was lost, nobody got one.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.process.pki import public_key_pem
from fault.faults.natsstore import delete_store, flip_bit
from fault.model.log import Stored, read, shard_store
from fault.recorder.history import History, Outcome
from fault.traffic.fleet import Fleet
from fault.traffic.streamlog import STREAM, matches, messages_of_log
from fault.traffic.subscriber import Round, rounds
from fault.traffic.tenants import Tenant
from fault.traffic.writers import Writer
from fault.validators.streams import subscriber_has_the_truth
from harness.environment import SERVER_PATH, TESTS
from harness.seeds import seed_of_run
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.event_gateway import EventGateway
from harness.servers.nats import eventually
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
CLUSTERS, EACH, WRITERS, PROCESSES = 3, 10, 4, 3
#: What was out when a subscriber was killed comes again after 30 seconds, later ones behind it; an audit takes as long.
ARRIVE_S = 180.0
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Killable:
    """Subscribers in a process of their own."""

    def __init__(self, file: Path, tenants: list[Tenant]) -> None:
        self._file = file
        file.write_bytes(msgspec.json.encode(tenants))
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        with self._file.with_suffix(".err").open("ab") as err:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "fault.traffic.tenants", str(self._file)),
                env={**os.environ, "PYTHONPATH": f"{SERVER_PATH}:{TESTS}"},
                stdout=err,
                stderr=err,
            )

    async def kill(self) -> None:
        assert self._process.returncode is None, self._file.with_suffix(".err").read_text()[-3000:]
        self._process.kill()
        await self._process.wait()


class Scene:
    """A shard with traffic at a NATS server with two gateways, and its thirty subscribers."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.dice, self.history = directory, random.Random(seed), History(seed)
        self.nats = ConfiguredNats(directory / "nats", "--shards", "root", "--event-gateways", "gateway-0,gateway-1")
        keys = directory / "nats" / "event-subscriptions.json"
        self.shard = ShardProcess(directory, *self.nats.flags("shard-root"), "--event-subscriptions-file", str(keys))
        self.fleet, self.tenants, self.processes = Fleet(self.shard), list[Tenant](), list[Killable]()
        self.backup = directory / "backup"
        #: How many rereads each subscriber has had where it was last judged.
        self.rereads: dict[str, int] = {}
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        self._stack.enter_context(self.nats)
        await self._stack.enter_async_context(self.shard)
        await self.fleet.open(CLUSTERS)
        self._stack.push_async_callback(self.fleet.close)
        public = self.directory / "sa.pub"
        public.write_bytes(public_key_pem((self.shard.root / "sa.key").read_bytes()))
        self.gateways = [self._gateway(f"gateway-{number}", public) for number in range(2)]
        for gateway in self.gateways:
            await asyncio.to_thread(self._stack.enter_context, gateway)
        for cluster in self.fleet.clusters:
            token = await self._token(cluster)
            self.tenants += [self._tenant(cluster, token, number) for number in range(EACH)]
        for number in range(PROCESSES):
            process = Killable(self.directory / f"process-{number}.json", self.tenants[number::PROCESSES])
            await process.start()
            self._stack.push_async_callback(process.kill)
            self.processes.append(process)
        writers = [
            Writer(number, self.fleet, self.history, random.Random(f"{self.history.seed} {number}"))
            for number in range(WRITERS)
        ]
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        self._stack.push_async_callback(_ended, tasks)

    async def close(self) -> None:
        await self._stack.aclose()

    def _gateway(self, name: str, public: Path) -> EventGateway:
        keys = ("--keys-file", str(self.directory / "nats" / "event-gateway-keys.json"))
        return EventGateway(
            self.directory / name, *self.nats.flags(name), *keys, "--service-account-key-file", str(public)
        )

    async def _token(self, cluster: str) -> str:
        """The token of an account that may follow the traffic of a cluster."""
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]
        named = {"metadata": {"name": "reader"}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        await self._post(cluster, ACCOUNTS, named)
        await self._post(cluster, f"{RBAC}/clusterroles", {**named, "rules": rules})
        await self._post(cluster, f"{RBAC}/clusterrolebindings", {**named, "roleRef": role, "subjects": [subject]})
        answer = await self._post(cluster, f"{ACCOUNTS}/reader/token", {"spec": {"expirationSeconds": 28800}})
        return str(answer["status"]["token"])

    async def _post(self, cluster: str, path: str, body: object) -> dict[str, dict[str, str]]:
        answer = await self.fleet.api.ask(
            "POST", f"/clusters/{cluster}{path}", msgspec.json.encode(body), "application/json"
        )
        assert answer.status == 201, answer.body
        found: dict[str, dict[str, str]] = msgspec.json.decode(answer.body)
        return found

    def _tenant(self, cluster: str, token: str, number: int) -> Tenant:
        name, authority = f"copy-{number}", str(self.shard.root / "serving-ca.crt")
        file = str(self.directory / f"{cluster}-{name}.jsonl")
        return Tenant(self.shard.url, authority, cluster, token, name, number % 2 == 0, file)

    async def more(self, count: int = 150) -> None:
        """Let so many writes be acknowledged."""
        goal = self.history.acked + count
        await eventually(lambda: self.history.acked >= goal)

    async def check(self, *, silent: bool, restored: bool = False) -> None:
        """Stop the traffic, wait until each subscriber is at the end of the log, and compare. `silent`: no RESYNC since
        the last time. `restored`: what came before is no part of the log."""
        self.fleet.pause()
        await eventually(lambda: not self.fleet.writing)
        stored = await asyncio.to_thread(read, shard_store(self.shard.root))
        for tenant in self.tenants:
            before, received = self.rereads.get(tenant.file, 0) + 1, await self._received(tenant, stored)
            logged = [tenant.seen(one) for one in messages_of_log(stored.logged)]
            subscriber_has_the_truth(
                received[before if restored else 0 :], tenant.filters, logged, stored.log, tenant.scope
            )
            gaps = [each.gap for each in received[before:]]
            assert not (silent and gaps), f"{tenant.name} had to reread: {gaps}"
            self.rereads[tenant.file] = len(received) - 1
        self.fleet.resume()

    async def _received(self, tenant: Tenant, stored: Stored) -> list[Round]:
        logged = messages_of_log(stored.logged)
        last = [one for one in logged if matches(tenant.filters, one.subject)][-1].revision

        def arrived() -> bool:
            found = rounds(Path(tenant.file))[-1]
            return max(found.revision, found.events[-1].revision if found.events else 0) >= last

        await eventually(arrived, ARRIVE_S)
        return rounds(Path(tenant.file))

    # --- faults

    async def subscribers_are_killed(self) -> None:
        process = self.dice.choice(self.processes)
        await process.kill()
        await self.more()
        await process.start()

    async def both_gateways_are_killed(self) -> None:
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.kill)
        await self.more()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.__enter__)

    async def one_gateway_is_gone(self) -> None:
        """New connections, here those of a process that starts again, are let in by the other one."""
        gateway, process = self.dice.choice(self.gateways), self.dice.choice(self.processes)
        await asyncio.to_thread(gateway.kill)
        await process.kill()
        await process.start()
        await self.more()
        await self.check(silent=True)
        await asyncio.to_thread(gateway.__enter__)

    async def nats_is_restarted(self) -> None:
        await asyncio.to_thread(self.nats.stop)
        await self.more()
        self.nats.start()

    async def the_store_of_nats_is_deleted(self) -> None:
        await asyncio.to_thread(self.nats.stop)
        delete_store(self.directory)
        self.nats.start()

    async def a_bit_of_the_store_is_flipped(self) -> None:
        await asyncio.to_thread(self.nats.stop)
        tags = [write.tag for write in self.history.writes if write.outcome is Outcome.ACKED and write.tag]
        flip_bit(self.directory, STREAM, f'"tag":"{tags[-60]}"'.encode())
        self.nats.start()

    async def the_shard_is_killed(self) -> None:
        await self.fleet.kill()
        await self.fleet.restart()

    async def an_older_copy_of_the_shard_is_restored(self) -> None:
        self.fleet.pause()
        await asyncio.to_thread(self.shard.stop)
        await self.fleet.api.http.close()
        root = str(self.shard.root)
        done = await asyncio.to_thread(
            atoll, "restore", "--root-directory", root, "--from", str(self.backup), "--in-place"
        )
        assert done.code == 0, done.stderr
        await self.fleet.restart()

    async def back_up(self) -> None:
        done = await asyncio.to_thread(
            atoll, "backup", "--root-directory", str(self.shard.root), "--to", str(self.backup)
        )
        assert done.code == 0, done.stderr


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def scene(directory: Path, seed: int) -> AsyncIterator[Scene]:
    found = Scene(directory, seed)
    try:
        await found.open()
        yield found
    finally:
        await found.close()


Fault = Callable[[Scene], Coroutine[None, None, None]]
#: What loses nothing, and what does.
SILENT: list[Fault] = [
    Scene.subscribers_are_killed,
    Scene.both_gateways_are_killed,
    Scene.one_gateway_is_gone,
    Scene.nats_is_restarted,
    Scene.the_shard_is_killed,
]
LOUD: list[Fault] = [Scene.the_store_of_nats_is_deleted, Scene.a_bit_of_the_store_is_flipped]


async def test_after_every_fault_thirty_subscribers_have_the_log_of_what_they_may_see(tmp_path: Path) -> None:
    async with scene(tmp_path, seed_of_run(51)) as one:
        await one.more()
        await one.check(silent=True)
        await one.back_up()
        faults = [*SILENT, *LOUD]
        one.dice.shuffle(faults)
        for fault in faults:
            print(fault.__name__, flush=True)
            await one.more()
            await fault(one)
            await one.more()
            await one.check(silent=fault in SILENT)
        await one.an_older_copy_of_the_shard_is_restored()
        await one.more()
        await one.check(silent=False, restored=True)
