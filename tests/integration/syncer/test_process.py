"""`atoll syncer` as it runs at the edge: its health, its memory, its end."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import SYNCED_BY
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from harness.clients.api import configmap
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.launch import Process, launch
from harness.servers.shard_process import ShardProcess
from harness.waits import until

CONFIGMAPS = Resource("", "v1", "configmaps")
READY_S = 60.0


class Running:
    """A process of its own, and where it serves."""

    def __init__(self, process: Process, url: str) -> None:
        self.process, self.url = process, url

    async def get(self, path: str) -> str:
        """The body of a good answer, empty otherwise."""

        def ask() -> str:
            try:
                with urllib.request.urlopen(self.url + path, timeout=60) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        return await asyncio.to_thread(ask)

    def resident_bytes(self) -> int:
        """Its private memory: what it shares with the process that it was forked from does not count."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return 1024 * sum(int(each) for each in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE))


@asynccontextmanager
async def syncer(
    directory: Path, view: MailboxView, cluster: tuple[Target, str], shard: ShardProcess, *flags: str
) -> AsyncIterator[Running]:
    """Run it as its manifest does, but for the kubeconfig of the edge."""
    up, down = directory / "up", directory / "down"
    context: Object = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    server = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{view.port}"}}
    user: Object = {"name": "u", "user": {"tokenFile": "token"}}
    whole = {"current-context": "c", "contexts": [context], "clusters": [server], "users": [user]}
    up.write_text(yaml.safe_dump(whole))
    (directory / "token").write_text("secret")
    found = yaml.safe_load(shard.kubeconfig.read_text())
    for each in found["clusters"]:
        each["cluster"]["server"] = f"{each['cluster']['server'].partition('/clusters/')[0]}/clusters/{cluster[1]}"
    down.write_text(yaml.safe_dump(found))
    out = directory / "out"
    out.write_bytes(b"")
    command = [sys.executable, "-m", "atoll.cli", "syncer", "--from-kubeconfig", str(up), "--to-kubeconfig", str(down)]
    named = ["--sync-target-name", "n", "--sync-target-uid", "process", "--state-file", str(directory / "state")]
    # Its own environment: it is executed, as at the edge.
    process = launch(
        [*command, *named, *flags], out, directory / "err", environment={"NAMESPACE": "default"}, directory=directory
    )
    try:

        async def announced() -> str:
            assert process.poll() is None, (directory / "err").read_text()[-3000:]
            return "".join(re.findall(r"serves (http://\S+)", out.read_text()))

        url = await until(announced, "it serves", READY_S)
        yield Running(process, url)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 30)


@pytest.mark.long
async def test_it_is_ready_without_a_center_too_and_says_what_it_lacks(
    tmp_path: Path, view: MailboxView, edge: Client, cluster: tuple[Target, str], shard: ShardProcess
) -> None:
    view.place(configmap("p", {"a": "1"}, namespace="default"))
    async with syncer(tmp_path, view, cluster, shard) as running:

        async def made() -> bool:
            try:
                return bool((await edge.get(CONFIGMAPS, "p", "default"))["metadata"]["labels"][SYNCED_BY] == "process")
            except NotFound:
                return False

        await until(made, "the object is there", READY_S)

        async def written() -> list[Object]:
            text = (tmp_path / "err").read_text()
            lines = [json.loads(each) for each in text[: text.rfind("\n") + 1].splitlines()]
            return [each for each in lines if each.get("operation") == "apply"]

        applied = await until(written, "the reconcile is logged", READY_S)
        assert [(each["event"], each["controller"], each["level"]) for each in applied] == [
            ("reconcile", "downsync", "info")
        ]
        assert "name='p'" in applied[0]["key"] and applied[0]["duration_ms"] > 0
        assert await running.get("/livez") == "ok"
        assert "[+]center ok" in await running.get("/readyz")
        assert "syncer_applies_total 1.0" in await running.get("/metrics")
        view.cut()

        async def lacks_center() -> bool:
            return "[-]center" in await running.get("/readyz")

        await until(lacks_center, "it is ready, and says that the center is not there")
        view.join()
        running.process.send_signal(15)
        assert await asyncio.to_thread(running.process.wait, 30) == 0
    # It let go of its Lease.
    leases = [obj for name, obj in view.others.items() if "/leases/" in name]
    assert [each["spec"]["holderIdentity"] for each in leases] == [""]


@pytest.mark.long
async def test_a_thousand_objects_take_60_mb_and_a_restart_two_seconds_and_no_write(
    tmp_path: Path, view: MailboxView, edge: Client, cluster: tuple[Target, str], shard: ShardProcess
) -> None:
    names = [f"o{number}" for number in range(1000)]
    view.place(*(configmap(name, {"a": name * 200}, namespace="thousand") for name in names))
    fast = ("--qps", "1000", "--burst", "1000")
    async with syncer(tmp_path, view, cluster, shard, *fast) as running:

        async def is_complete() -> bool:
            return "syncer_applies_total 1001.0" in await running.get("/metrics")

        await until(is_complete, "all are there", 110.0)
        assert running.resident_bytes() < 60_000_000
        running.process.send_signal(15)
        await asyncio.to_thread(running.process.wait, 30)
    async with syncer(tmp_path, view, cluster, shard, *fast) as running:
        begun = asyncio.get_running_loop().time()

        async def looked() -> bool:
            found = await running.get("/metrics")
            return "syncer_queue_depth 0.0" in found and f"syncer_mailbox_revision {float(view.revision)}" in found

        await until(looked, "it has looked at everything", READY_S)
        print("seconds", asyncio.get_running_loop().time() - begun)
        assert "syncer_applies_total 0.0" in await running.get("/metrics")
        assert running.resident_bytes() < 60_000_000
