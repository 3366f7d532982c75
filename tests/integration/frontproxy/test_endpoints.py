"""Endpoints of the proxy itself, requests to mounts and other backends, and a start without shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.process import config as settings
from atoll.machinery.process import pki
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.data.front_proxy_rows import WORKSPACES
from harness.servers.in_process.front_proxy import (
    BEARER,
    PROXY_CA,
    SERVING_CA,
    bearer,
    claims,
    echoing,
    front,
    publish,
    server_tls,
)
from harness.servers.processes import atoll

ORG = "/clusters/root:org"
REVIEW = "/clusters/root/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def test_health_is_told_to_everybody_and_says_nothing_of_what_exists(tmp_path: Path) -> None:
    async with front(tmp_path, {}) as proxy:
        client = await proxy.connect()
        for path in ("/livez", "/readyz", "/livez/ping", "/readyz/store"):
            answer = await client.ask(path)
            assert (answer.status, answer.body) == (200, b"ok"), path
        assert b"[+]routes ok" in (await client.ask("/readyz?verbose")).body
        assert (await client.ask("/livez/none")).status == 404
        assert (await client.ask("/livez", method="POST")).status == 405
        for workspace in ("root:org", "root:none", "nothing", "user:alice"):
            for path in ("healthz", "livez", "readyz"):
                answer = await client.ask(f"/clusters/{workspace}/{path}")
                assert (answer.status, answer.body) == (200, b"ok")


async def test_a_proxy_that_knows_nothing_yet_says_so_and_asks_to_come_again(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {}, published=False) as proxy:
        client = await proxy.connect()
        assert (await client.ask("/readyz")).status == 500
        assert (await client.ask("/livez")).status == 200
        answer = await client.ask(f"{ORG}/api", headers=BEARER)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        await publish(proxy.rows, {ROOT: shard.url, "east": shard.url})
        assert (await client.ask("/readyz")).status == 200
        assert (await client.ask(f"{ORG}/api", headers=BEARER)).status == 200


@pytest.mark.parametrize(("allowed", "status"), [(True, 200), (False, 403)])
async def test_metrics_are_shown_to_whom_the_root_shard_says(tmp_path: Path, allowed: bool, status: int) -> None:
    asked: list[tuple[str, dict[str, list[str]], bytes]] = []

    def root(exchange: Exchange) -> None:
        request = exchange.request
        asked.append((request.target.decode(), dict(request.headers), request.body))
        exchange.reply(201, [], encode_json({"status": {"allowed": allowed}}))

    server = Server(root, Limits(), server_tls())
    url = f"https://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    try:
        async with front(tmp_path, {ROOT: url}) as proxy:
            client = await proxy.connect()
            answer = await client.ask("/metrics", headers=f"{BEARER}Cookie: x\r\n")
            assert answer.status == status
            assert (b"atoll_frontproxy_requests_total" in answer.body) == allowed
            [(target, headers, body)] = asked
            assert target == REVIEW
            assert json.loads(body)["spec"] == {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
            said = claims(headers["atoll-assertion"][0])
            assert (said["user"], said["cluster"]) == ("alice", "root")
            assert "cookie" not in headers
            assert (await client.ask("/metrics")).status == 401
            assert len(asked) == 1, "nobody is asked about nobody"
    finally:
        await server.drain(0)


async def test_metrics_are_shown_to_nobody_while_the_root_shard_is_away(tmp_path: Path) -> None:
    async with front(tmp_path, {}) as proxy:
        assert (await (await proxy.connect()).ask("/metrics", headers=BEARER)).status == 503


async def test_requests_are_counted_by_where_they_went(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url}) as proxy:
        client = await proxy.connect()
        for _ in range(3):
            await client.ask(f"{ORG}/api", headers=BEARER)
        await client.ask("/clusters/root:other/api", headers=BEARER)
        await client.ask("/livez")
        registry = proxy.proxy.registry
        for to, code, count in (("east", "200", 3), ("west", "503", 1), ("proxy", "200", 1)):
            labels = {"to": to, "code": code}
            assert registry.get_sample_value("atoll_frontproxy_requests_total", labels) == count
        assert registry.get_sample_value("atoll_frontproxy_requests_under_way") == 0
        assert registry.get_sample_value("atoll_frontproxy_backend_connections") == 1
        assert registry.get_sample_value("atoll_frontproxy_backends_down") == 1


async def test_a_mount_gets_the_callers_own_credential_and_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "mounts.crt").write_bytes(SERVING_CA.certificate)
    allowed: dict[str, Any] = {"mount_proxy_ca_file": str(tmp_path / "mounts.crt"), "egress_allow_cidr": "127.0.0.0/8"}
    async with echoing() as mounted, front(tmp_path, {}, **allowed) as proxy:
        spec = {"mount": {"ref": {"kind": "Site", "name": "s"}}, "URL": f"{mounted.url}/base"}
        workspace = {"spec": spec, "status": {"phase": "Ready"}}
        await proxy.rows.write(WORKSPACES, ROOT, "there", workspace)
        await proxy.rows.write(WORKSPACES, ROOT, "away", {**workspace, "status": {"phase": "Unavailable"}})
        client = await proxy.connect()
        forged = "X-Remote-User: admin\r\nx_remote_group: system:masters\r\nAtoll-Assertion: x\r\n"
        own = "Authorization: Bearer of-the-mount\r\n"
        answer = await client.ask("/clusters/root:there/api?x=y", method="POST", body=b"hello", headers=own + forged)
        told = json.loads(answer.body)
        assert (told["target"], told["body"]) == ("/base/api?x=y", "hello")
        assert told["headers"]["authorization"] == ["Bearer of-the-mount"]
        assert not [name for name in told["headers"] if "remote" in name or "assertion" in name]
        away = await client.ask("/clusters/root:away/api", headers=BEARER)
        assert (away.status, away.body) == (503, b"Not available.\n")


async def test_other_backends_are_told_in_the_headers_that_their_mapping_names(tmp_path: Path) -> None:
    async with echoing() as backend, echoing() as shard:
        pair = pki.make_client(PROXY_CA, "other-proxy", ())
        for name, data in (("ca", SERVING_CA.certificate), ("crt", pair.certificate), ("key", pair.key)):
            (tmp_path / name).write_bytes(data)
        (tmp_path / "mapping.yaml").write_text(
            f"- path: /services/vw/{{cluster}}/\n  backend: {backend.url}/at\n  backend_server_ca: {tmp_path}/ca\n"
            f"  proxy_client_cert: {tmp_path}/crt\n  proxy_client_key: {tmp_path}/key\n"
            "  user_header: X-User\n  group_header: X-Group\n  extra_header_prefix: X-More-\n"
            "- path: /clusters/\n"
        )
        mapping: dict[str, Any] = {"mapping_file": str(tmp_path / "mapping.yaml")}
        async with front(tmp_path, {"east": shard.url}, **mapping) as proxy:
            client = await proxy.connect()
            forged = "X-User: admin\r\nX-Group: system:masters\r\nX-Remote-User: admin\r\n"
            told = json.loads((await client.ask("/services/vw/root:org/x", headers=bearer("bob") + forged)).body)
            assert told["target"] == "/at/services/vw/1org/x"
            assert told["headers"]["x-user"] == ["bob"]
            assert "team-bob" in told["headers"]["x-group"]
            assert "system:masters" not in told["headers"]["x-group"]
            assert not {"x-remote-user", "authorization", "atoll-assertion"} & set(told["headers"])
            assert (await client.ask("/version", headers=BEARER)).status == 404
            assert json.loads((await client.ask(f"{ORG}/x", headers=BEARER)).body)["target"] == "/clusters/1org/x"


def test_what_cannot_work_is_refused_in_one_line(tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("- path: /\n  colour: red\n")
    flags = ("--root-directory", str(tmp_path / "fp"), "--allow-any-filesystem", "--mapping-file", str(mapping))
    refused = atoll("front-proxy", *flags)
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr == f"atoll: {mapping}: line 2: unknown field 'colour'\n"
    assert not (tmp_path / "fp").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "proxy-client-cert-file must not be empty"),
        (("--secure-port", "70000"), "secure-port 70000"),
        (("--tls-cert-file", "x"), "go together"),
        (("--bind-address", "here"), "is not an IP address"),
        (("--requestheader-group-headers", "a b"), "is no name"),
        (("--egress-allow-cidr", "x"), "egress-allow-cidr"),
        (("--root-directory", ""), "root-directory"),
        (("--log-level", "loud"), "log-level"),
    ],
)
def test_settings_that_cannot_work_are_refused(flags: tuple[str, ...], said: str) -> None:
    given = () if not flags else ("--mapping-file", "m")
    with pytest.raises(settings.ConfigError, match=said):
        settings.load(FrontProxyConfig, [*given, *flags], {}, "atoll front-proxy")
