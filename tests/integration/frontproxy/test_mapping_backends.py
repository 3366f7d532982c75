"""Backends of mappings that are no shards: they get the user of a verified token only."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.wellknown import CLUSTER, TYPE
from atoll.machinery.process import pki
from harness.clients.raw_http import Raw
from harness.data.front_proxy_rows import WORKSPACES
from harness.servers.in_process.front_proxy import SERVING_CA, Front, Line, Shard, echoing, front, scripted
from harness.servers.stand_ins.oidc_issuer import Issuer

OWN = "https://kcp.default.svc"
TYPES = ResourceType("tenancy.kcp.io", "workspacetypes", WORKSPACES.identity)
CONFIGURATIONS = ResourceType("tenancy.kcp.io", "workspaceauthenticationconfigurations", WORKSPACES.identity)
MAPPED = "/services/vw/root:org/x"


class Scene:
    """A proxy, and the backend of its mapping."""

    def __init__(self, proxy: Front, backend: Shard, issuer: Issuer, keys: KeySet) -> None:
        self.proxy, self.backend, self.issuer, self.keys = proxy, backend, issuer, keys

    async def ask(self, token: str, target: str = MAPPED, more: str = "") -> Raw:
        client = await self.proxy.connect()
        return await client.ask(target, headers=(f"Authorization: Bearer {token}\r\n" if token else "") + more)

    async def backend_headers(self, token: str, target: str = MAPPED, more: str = "") -> Object:
        """The headers that the backend got."""
        answer = await self.ask(token, target, more)
        assert answer.status == 200, answer
        found: Object = json.loads(answer.body)["headers"]
        return found

    async def is_passed_on(self, token: str, target: str = MAPPED) -> bool:
        """Whether the backend got the token itself, and no identity header."""
        found = await self.backend_headers(token, target, "X-Remote-User: admin\r\n")
        return found["authorization"] == [f"Bearer {token}"] and not [name for name in found if "remote" in name]

    def account_token(self, cluster: str = "1org", **claims: Any) -> str:
        now = int(time.time())
        own = {"clusterName": cluster, "namespace": "default", "serviceaccount": {"name": "bot", "uid": "u-bot"}}
        times = {"iat": now, "nbf": now, "exp": now + 600}
        found = {"iss": OWN, "sub": "system:serviceaccount:default:bot", "aud": [OWN], "jti": "1", "kubernetes.io": own}
        return jwt.sign(encode_json({**found, **times, **claims}), self.keys.signing, self.keys.signing_id)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """The issuer of the type of root:org."""
    with Issuer() as running:
        yield running


@pytest.fixture
def answers() -> dict[str, bytes]:
    """The next answer of shard east, and the head of its last request."""
    return {"status": b"200 OK", "head": b""}


@pytest.fixture
async def scene(tmp_path: Path, issuer: Issuer, answers: dict[str, bytes]) -> AsyncIterator[Scene]:
    async def shard(line: Line) -> None:
        while True:
            answers["head"] = await line.head()
            await line.say(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % answers["status"])

    keys = load_keys(pki.make_rsa_key())
    public = keys.signing.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "accounts.pub").write_bytes(public)
    (tmp_path / "ca").write_bytes(SERVING_CA.certificate)
    async with contextlib.AsyncExitStack() as stack:
        backend = await stack.enter_async_context(echoing())
        east = await stack.enter_async_context(scripted(shard))
        (tmp_path / "mapping.yaml").write_text(
            f"- path: /services/vw/{{cluster}}/\n  backend: {backend.url}\n  backend_server_ca: {tmp_path}/ca\n"
            "- path: /clusters/\n"
        )
        files: dict[str, Any] = {
            "mapping_file": str(tmp_path / "mapping.yaml"),
            "service_account_key_file": (str(tmp_path / "accounts.pub"),),
            "egress_allow_cidr": "127.0.0.0/8",
        }
        proxy = await stack.enter_async_context(front(tmp_path, {ROOT: east.url, "east": east.url}, **files))
        claims = {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": ""}}
        found = {"url": issuer.url, "audiences": ["tenant"], "certificateAuthority": issuer.ca_pem}
        configuration = {"spec": {"jwt": [{"issuer": found, "claimMappings": claims}]}}
        await proxy.rows.write(CONFIGURATIONS, ROOT, "own", configuration)
        kind = {"metadata": {"annotations": {CLUSTER: ROOT}}}
        spec = {"authenticationConfigurations": [{"name": "own"}]}
        await proxy.rows.write(TYPES, ROOT, "with-issuer", {**kind, "spec": spec})
        await proxy.rows.cluster("1org", "east", {TYPE: "root:with-issuer"})
        yield Scene(proxy, backend, issuer, keys)


async def test_the_user_of_a_workspaces_issuer_is_named_within_the_workspace(scene: Scene) -> None:
    token = scene.issuer.token(sub="dora", aud=["tenant", OWN], groups=["devs", "system:masters"])
    found = await scene.backend_headers(token, more="X-Remote-Group: system:masters\r\n")
    assert found["x-remote-user"] == ["oidc:dora"]
    assert found["x-remote-group"] == ["devs", "system:authenticated"]
    assert found["x-remote-extra-authentication.kcp.io%2fscopes"] == ["cluster:1org"]
    assert found["x-remote-extra-authentication.kcp.io%2fcluster-name"] == ["1org"]
    assert "authorization" not in found


async def test_a_token_that_its_issuer_does_not_confirm_names_nobody(scene: Scene) -> None:
    good = scene.issuer.token(sub="dora", aud=["tenant", OWN])
    over = scene.issuer.token(sub="dora", aud=["tenant", OWN], exp=1)
    for wrong in (f"{good[:-8]}AAAAAAAA", over):
        assert (await scene.ask(wrong)).status == 401
    # In another workspace the issuer is not trusted.
    assert await scene.is_passed_on(good, "/services/vw/root:other/x")
    assert await scene.is_passed_on("nobody-knows-it")
    assert not [name for name in await scene.backend_headers("") if "remote" in name or name == "authorization"]


async def test_a_token_whose_issuer_is_down_is_passed_on_and_names_nobody(scene: Scene) -> None:
    scene.issuer.down = True
    try:
        token = scene.issuer.token(sub="dora", aud=["tenant", OWN])
        assert await scene.is_passed_on(token)
    finally:
        scene.issuer.down = False


async def test_a_service_account_is_named_once_its_shard_confirms_the_token(
    scene: Scene, answers: dict[str, bytes]
) -> None:
    token = scene.account_token()
    found = await scene.backend_headers(token)
    assert found["x-remote-user"] == ["system:serviceaccount:default:bot"]
    assert found["x-remote-extra-authentication.kcp.io%2fcluster-name"] == ["1org"]
    assert "authorization" not in found
    assert answers["head"].startswith(b"GET /clusters/1org/api ")
    assert f"Authorization: Bearer {token}".encode().lower() in answers["head"].lower()
    assert b"atoll-assertion" not in answers["head"].lower()


@pytest.mark.parametrize(
    ("status", "code"),
    # Only a shard's own 401 is one: on it, clients forget their token.
    [(b"401 Unauthorized", 401), (b"429 Too Many Requests", 503), (b"503 Service Unavailable", 503)],
)
async def test_a_service_account_that_its_shard_does_not_confirm_is_refused(
    scene: Scene, answers: dict[str, bytes], status: bytes, code: int
) -> None:
    answers["status"] = status
    answer = await scene.ask(scene.account_token())
    assert (answer.status, answer.headers.get("retry-after")) == (code, "1" if code == 503 else None)
    assert not scene.backend.seen


async def test_an_account_of_another_workspace_and_a_token_that_is_over_name_nobody(
    scene: Scene, answers: dict[str, bytes]
) -> None:
    assert await scene.is_passed_on(scene.account_token("2other"))
    assert (await scene.ask(scene.account_token(exp=1))).status == 401
    assert not answers["head"]
