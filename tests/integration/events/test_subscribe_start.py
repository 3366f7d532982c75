"""Subscribers of a tenant at a real `atoll start` that listens outside of loopback: the guide's programs, TLS alone,
and a right that goes and comes back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import nats
import pytest
import pytest_asyncio

from atoll.cli.kubectl import atoll
from atoll.events import Event, Gone, Revoked, subscribe
from atoll.events.subscriber import Subscriber
from harness.clients.api import Api, configmap, workspace_under
from harness.environment import TESTS
from harness.servers.processes import own_address
from harness.servers.shard_process import ShardProcess
from harness.servers.tenant_server import RawClient
from integration.events.test_readme_examples import keep_writing, line_with, program

pytestmark = pytest.mark.asyncio(loop_scope="module")
GUIDE = TESTS.parent / "docs" / "events.md"
PLAIN = TESTS.parent / "docs" / "examples" / "events" / "subscriber.py"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
BINDING = {
    "metadata": {"name": "follower"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "follower"},
    "subjects": [{"kind": "ServiceAccount", "name": "follower", "namespace": "default"}],
}


class Tenant:
    """A ServiceAccount of a workspace that may follow its ConfigMaps, as in the guide."""

    def __init__(self, shard: ShardProcess) -> None:
        admin = Api(shard, "root")
        self.shard, self.cluster = shard, workspace_under(admin, type_="universal")
        self.api = admin.at(self.cluster)
        self.api.post(ACCOUNTS, {"metadata": {"name": "follower"}})
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
        self.api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "follower"}, "rules": [rule]})
        self.give()
        self.token = str(self.api.post(f"{ACCOUNTS}/follower/token", {"spec": {}}).json["status"]["token"])
        self.ca_file = str(shard.root / "serving-ca.crt")

    def give(self) -> None:
        self.api.post(f"{RBAC}/clusterrolebindings", BINDING)

    def take(self) -> None:
        self.api.delete(f"{RBAC}/clusterrolebindings/follower")

    def write(self, name: str) -> None:
        self.api.post(CONFIGMAPS, configmap(name, {"a": "1"}))

    def subscriber(self, name: str) -> Subscriber:
        return subscribe(
            self.shard.url,
            cluster=self.cluster,
            resources=["configmaps"],
            name=name,
            token=self.token,
            ca_file=self.ca_file,
            full=True,
        )

    @property
    def kubeconfig(self) -> str:
        cluster = {"server": f"{self.shard.url}/clusters/{self.cluster}", "certificate-authority": self.ca_file}
        document = {
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "follower", "user": {"token": self.token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "follower"}}],
            "current-context": "here",
        }
        return json.dumps(document)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the guide's programs."""
        place = {"SERVER": self.shard.url, "WORKSPACE": self.cluster, "TOKEN": self.token, "CA_FILE": self.ca_file}
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **place}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shard(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ShardProcess]:
    flags = ("--events-bind-address", own_address())
    async with ShardProcess(tmp_path_factory.mktemp("start"), *flags) as shard:
        yield shard


@pytest_asyncio.fixture(loop_scope="module")
async def tenant(shard: ShardProcess) -> Tenant:
    return await asyncio.to_thread(Tenant, shard)


async def until_named(events: Subscriber, name: str) -> Event:
    async with asyncio.timeout(60):
        async for event in events:
            if event.key is not None and event.key.name == name:
                return event
    raise AssertionError("the events ended")


async def test_a_right_that_goes_ends_the_events_and_they_go_on_once_it_is_back(tenant: Tenant) -> None:
    with pytest.raises(Revoked, match="configmaps"):
        async with tenant.subscriber("rights") as events:
            await asyncio.to_thread(tenant.write, "first")
            first = await until_named(events, "first")
            await asyncio.to_thread(tenant.take)
            await until_named(events, "never")
    assert (first.object or {})["data"] == {"a": "1"}
    await asyncio.to_thread(tenant.write, "meanwhile")
    await asyncio.to_thread(tenant.give)
    async with asyncio.timeout(60), await entered(tenant, "rights") as events:
        assert (await until_named(events, "meanwhile")).operation == "ADDED"


async def entered(tenant: Tenant, name: str) -> Subscriber:
    """A subscriber that may enter; the right may be a moment away still."""
    while True:
        subscriber = tenant.subscriber(name)
        try:
            async with subscriber:
                return tenant.subscriber(name)
        except Revoked:
            await asyncio.sleep(0.1)


async def test_outside_of_loopback_the_server_takes_tls_alone(tenant: Tenant) -> None:
    events = f"/services/events/clusters/{tenant.cluster}"
    with closing(Api(tenant.shard, "", token=tenant.token)) as account:
        wish = {"name": "plain", "resources": ["configmaps"]}
        found = (await asyncio.to_thread(account.post, f"{events}/subscriptions", wish)).json
        token = (await asyncio.to_thread(account.post, f"{events}/token", {})).json["token"]
    (address,) = found["servers"]
    assert (urlsplit(address).scheme, "BEGIN CERTIFICATE" in found["ca"]) == ("tls", True)
    trusting = ssl.create_default_context(cadata=found["ca"])
    connection = await nats.connect(address, token=token, tls=trusting, allow_reconnect=False)
    await connection.close()
    with pytest.raises(ConnectionError):
        await RawClient.open(address.replace("tls", "nats"), auth_token=token)
    with pytest.raises(ssl.SSLCertVerificationError):
        await nats.connect(address, token=token, tls=ssl.create_default_context(), allow_reconnect=False)


async def test_events_of_a_deleted_workspace_are_gone(tenant: Tenant) -> None:
    admin = Api(tenant.shard, "root")
    with pytest.raises((Gone, Revoked)):
        async with tenant.subscriber("deleted") as events:
            await asyncio.to_thread(admin.delete, f"{WORKSPACES}/{tenant.cluster.rpartition(':')[2]}")
            await until_named(events, "never")


@pytest.mark.long
@pytest.mark.parametrize("which", ["subscribe", pytest.param("plain", marks=pytest.mark.long)])
async def test_a_program_of_the_guide_prints_each_change(which: str, tenant: Tenant, tmp_path: Path) -> None:
    source = program("<!-- example: subscribe -->", GUIDE) if which == "subscribe" else PLAIN.read_text()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", source, cwd=tmp_path, env=tenant.environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    writing = asyncio.create_task(keep_writing(tenant.api))
    try:
        async with asyncio.timeout(60):
            lines = await line_with(process.stdout, "seen-")
    finally:
        writing.cancel()
        process.kill()
        await process.communicate()
    assert lines[-1].startswith("ADDED ")


async def test_kubectl_shows_a_tenant_what_it_may_see_and_nothing_else(
    tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(tenant.write, "north")
    await asyncio.to_thread(tenant.api.patch, f"{CONFIGMAPS}/north", {"data": {"a": "2"}})
    config = tmp_path / "config"
    config.write_text(tenant.kubeconfig)

    async def printed(*words: str) -> list[list[str]]:
        code = await asyncio.to_thread(atoll.dispatch, ["events", *words, "--kubeconfig", str(config)])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return [line.split(maxsplit=5)[1:] for line in out.splitlines()]

    rows = [row for row in await printed("--since", "10m") if row[2] == "default/north"]
    assert [row[:2] for row in rows] == [["ADDED", "ConfigMap"], ["MODIFIED", "ConfigMap"]]
    assert rows[1][4] == 'data.a: "1" -> "2"'
    assert await asyncio.to_thread(atoll.dispatch, ["events", "secrets", "--kubeconfig", str(config)]) == 1
    assert "secrets" in capsys.readouterr().err


async def test_kubectl_shows_the_admin_what_changed_in_the_workspaces_below(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(tenant.write, "below")
    words = ("configmaps", "--recursive", "--workspace", "root", "--kubeconfig", str(tenant.shard.kubeconfig))
    code = await asyncio.to_thread(atoll.dispatch, ["events", *words])
    out, err = capsys.readouterr()
    (line,) = [each for each in out.splitlines() if "default/below" in each]
    assert (code, err, tenant.cluster in line, "ADDED" in line) == (0, "", True, True)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_follows_as_the_guide_prints_it(tenant: Tenant) -> None:
    await asyncio.to_thread(tenant.write, "north")
    command = GUIDE.read_text().partition("## With curl\n\n```sh\n")[2].partition("```")[0]
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec {command}", env=tenant.environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            lines = await line_with(process.stdout, "/north")
    finally:
        process.kill()
        await process.communicate()
    event = json.loads(lines[-1])
    assert (event["atolloperation"], "data" in event) == ("ADDED", False)
