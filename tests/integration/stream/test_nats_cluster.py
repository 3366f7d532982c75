"""`atoll nats-config --servers`: three servers that are one, the credentials of each process, and who opens routes."""

from __future__ import annotations

import asyncio
import base64
import shutil
import signal
import stat
import time
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg

from atoll.cli.atoll import main
from atoll.events.stream_file import read_stream_file
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.pki import make_ca, make_peer
from atoll.machinery.process.private_files import write_pair
from atoll.machinery.stream.connection import Access, Connection, Unavailable
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.permissions import KICK_SUBJECT
from atoll.machinery.stream.server.process import find_binary
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.gateway import Counted, Gateway, TokenHolder
from atoll.machinery.stream.tenants.key_files import read_gateway_keys, read_subscription_keys
from atoll.machinery.stream.tenants.subscriber_permissions import TENANTS_API, subscriber_names
from harness.servers.launch import launch
from harness.servers.nats_cluster import SERVERS, NatsCluster
from harness.waits import until

EVERYBODY = ("--readers=proxy-0", "--edge=edge-0", "--subscribers=ops", "--event-gateways=gateway-0")
STREAM = stream_name(CHANGES, "root")


def configured(directory: Path, *flags: str) -> int:
    return main.run(["nats-config", f"--directory={directory}", "--shards=root", *flags])


def test_each_server_has_a_file_of_its_own_and_every_credential_names_all_servers(tmp_path: Path) -> None:
    assert configured(tmp_path, "--servers=a=127.0.0.1:1:11,b=127.0.0.1:2:12,c=127.0.0.1:3:13", *EVERYBODY) == 0
    urls = [f"nats://127.0.0.1:{port}" for port in (1, 2, 3)]
    for user in ("shard-root", "proxy-0", "edge-0", "gateway-0"):
        access = read_access(urls[1], str(tmp_path / f"nats-{user}.json"))
        assert sorted(access.servers) == sorted(access.for_reading.servers) == urls
        assert read_access("nats://elsewhere", str(tmp_path / f"nats-{user}.json")).servers == ["nats://elsewhere"]
        assert read_access("nats://x, nats://y", str(tmp_path / f"nats-{user}.json")).servers == [
            "nats://x",
            "nats://y",
        ]
    assert read_stream_file(tmp_path / "stream-ops.root.json").access.servers == urls
    assert list(read_subscription_keys(tmp_path / "event-subscriptions.json").servers) == urls
    found = {name: msgspec.json.decode((tmp_path / name / "server.conf").read_bytes()) for name in "abc"}
    assert {name: each.pop("server_name") for name, each in found.items()} == {name: name for name in "abc"}
    routes = {name: each["cluster"].pop("routes") for name, each in found.items()}
    assert [url.rpartition("@")[2] for url in routes["b"]] == ["127.0.0.1:11", "127.0.0.1:13"]
    assert found["a"]["accounts"] == found["b"]["accounts"] == found["c"]["accounts"]
    assert configured(tmp_path, "--servers=a=127.0.0.1:1:11,b=127.0.0.1:2:12,c=127.0.0.1:3:13", *EVERYBODY) == 0
    again = msgspec.json.decode((tmp_path / "b/server.conf").read_bytes())
    assert (again["cluster"]["routes"], again["accounts"]) == (routes["b"], found["b"]["accounts"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--servers=127.0.0.1,127.0.0.2",), "three or five have a majority"),
        (("--servers=a=127.0.0.1,a=127.0.0.2,c=127.0.0.3",), "two servers of one name"),
        (("--servers=a=127.0.0.1,b=127.0.0.1,c=127.0.0.3",), "two servers of one url"),
        (("--servers=a=127.0.0.1:x,b=127.0.0.2,c=127.0.0.3",), "is not [NAME=]HOST"),
        (("--servers=a,b,c",), "needs tls-cert-file"),
        (("--servers=127.0.0.1,127.0.0.2,127.0.0.3", "--bind-address=0.0.0.0"), "needs tls-cert-file"),
        (("--servers=127.0.0.1,127.0.0.2,127.0.0.3", "--readers=system"), "'system' is the name of another user"),
    ],
)
def test_what_makes_no_cluster_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert configured(tmp_path / "x", *flags) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


async def connects(access: Access) -> bool:
    try:
        await (await Connection.open(access, "test")).close()
    except Unavailable:
        return False
    return True


@pytest.mark.long
async def test_a_shard_more_is_a_reload_of_the_servers_and_connections_stay(tmp_path: Path) -> None:
    async with NatsCluster(tmp_path, *EVERYBODY) as nats:
        await until(lambda: connects(nats.access), "a server takes the shard")
        held = await nats.connect()
        nats.configure("eu-1")
        nats.reload()
        for url in nats.urls:
            access = msgspec.structs.replace(nats.access_of("shard-eu-1"), servers=[url])
            await until(lambda access=access: connects(access), f"{url} takes the new shard")  # type: ignore[misc]
        await held.client.flush(20)
        assert not held.closed.is_set()
        await held.close()


@pytest.mark.long
async def test_tenants_are_let_in_at_every_server_pull_there_and_are_put_out_of_all(tmp_path: Path) -> None:
    async with NatsCluster(tmp_path, *EVERYBODY) as nats:
        keys = read_gateway_keys(nats.directory / "event-gateway-keys.json")
        ended: list[int] = []
        holder = TokenHolder(":ann", int(time.time()) + 3600)
        counted = Counted(ended.append, lambda: None)
        gateway = Gateway(
            nats.access_of("gateway-0"), keys, lambda token: holder if token == "ann" else None, 64, counted
        )
        serving = asyncio.create_task(gateway.run())
        try:
            shard, names = await nats.connect(), subscriber_names(base64.b64decode(keys.names), ":ann")
            await until(lambda: _made(shard), "the stream is made")
            consumer = {"name": names.consumers[0], "ack_policy": "explicit", "durable_name": names.consumers[0]}
            body = {"stream_name": STREAM, "config": consumer}
            await shard.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.{names.consumers[0]}", body)
            tenants = []
            for number, url in enumerate(nats.urls):
                access = Access([url], token="ann", inbox_prefix=names.inbox, ca_file=nats.access.ca_file)
                await until(lambda access=access: connects(access), f"{url} lets the tenant in")  # type: ignore[misc]
                assert not await connects(msgspec.structs.replace(access, token="somebody"))
                tenant = await Connection.open(access, "tenant")
                await shard.publish(f"atoll.changes.root.core.core.configmaps.c{number}", b"{}")
                reading = await tenant.client.jetstream(prefix=TENANTS_API).pull_subscribe_bind(
                    names.consumers[0], stream=STREAM
                )
                (message,) = await reading.fetch(1, timeout=60)
                await message.ack_sync(timeout=60)
                assert message.subject.endswith(f".c{number}")
                tenants.append(tenant)
            await shard.publish(KICK_SUBJECT, b'{"identity":":ann"}')
            for tenant in tenants:
                await asyncio.wait_for(tenant.closed.wait(), 60)
                await tenant.close()
            await shard.close()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def _made(shard: Connection) -> bool:
    try:
        await shard.api(f"STREAM.CREATE.{STREAM}", {**definition(CHANGES, "root"), "num_replicas": 3})
    except Exception:
        return False
    return True


@pytest.mark.long
async def test_a_route_needs_the_password_and_a_certificate(tmp_path: Path) -> None:
    async with NatsCluster(tmp_path) as nats:
        await nats.connect()
        await until(lambda: _servers(nats, 3), "all servers are one")
        password = msgspec.json.decode((nats.directory / "nats-route.json").read_bytes())["password"]
        wrong = _intruder(nats, "password")
        wrong.write_text(wrong.read_text().replace(password, "guessed"))
        bare = _intruder(nats, "stranger")
        write_pair(bare.parent, "server", make_peer(make_ca("another"), ["127.0.0.1"]))
        for config, refusal in ((wrong, "authentication error"), (bare, "handshake error")):
            before = [nats.said(name).lower().count(refusal.lower()) for name in SERVERS]
            out = config.parent / "out"
            process = launch([str(find_binary()), "-c", str(config)], out, out, directory=config.parent)
            try:

                async def refused() -> bool:
                    now = [nats.said(name).lower().count(refusal.lower()) for name in SERVERS]  # noqa: B023
                    return any(after > earlier for after, earlier in zip(now, before, strict=True))  # noqa: B023

                await until(refused, f"a server says {refusal}")
                assert {each["server"]["name"] for each in await _answers(nats, 4)} == set(SERVERS)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def _intruder(nats: NatsCluster, name: str) -> Path:
    """The configuration of a server that knows everything of the first one."""
    home, port = nats.directory / name, nats.free_port()
    document = msgspec.json.decode((nats.directory / SERVERS[0] / "server.conf").read_bytes())
    urls = [f"127.0.0.1:{route}" for _, route in nats.ports]
    document |= {"server_name": name, "port": port}
    document["jetstream"]["store_dir"] = str(home / "store")
    user, _, _ = document["cluster"]["routes"][0].rpartition("@")
    document["cluster"] |= {"listen": f"127.0.0.1:{nats.free_port()}", "routes": [f"{user}@{url}" for url in urls]}
    text = msgspec.json.encode(document).decode().replace(str(nats.directory / SERVERS[0]), str(home))
    shutil.copytree(nats.directory / SERVERS[0], home, ignore=shutil.ignore_patterns("store", "out"))
    (home / "server.conf").write_text(text)
    return home / "server.conf"


async def _servers(nats: NatsCluster, count: int) -> bool:
    return len(await _answers(nats, count)) == count


async def _answers(nats: NatsCluster, count: int) -> list[Object]:
    """What servers answer to the system's user: as many as there are, at most `count`."""
    access = read_access(nats.urls[0], str(nats.directory / "nats-system.json"))
    try:
        connection = await Connection.open(access, "test")
    except Unavailable:
        return []
    found: list[Object] = []
    full = asyncio.Event()

    async def take(message: Msg) -> None:
        found.append(msgspec.json.decode(message.data))
        if len(found) == count:
            full.set()

    inbox = connection.inbox()
    await connection.subscribe(inbox, take)
    await connection.publish("$SYS.REQ.SERVER.PING", b"", inbox)
    try:
        async with asyncio.timeout(2):
            await full.wait()
    except TimeoutError:
        pass
    finally:
        await connection.close()
    return found
