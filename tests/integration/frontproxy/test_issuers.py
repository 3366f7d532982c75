"""Tokens of OpenID Connect issuers at the proxy: the operator's become assertions, workspaces' own are forwarded.

The proxy refuses invalid tokens that it can verify; the shard authenticates all others.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.wellknown import CLUSTER, TYPE
from harness.clients.raw_http import Raw, RawClient
from harness.data.front_proxy_rows import WORKSPACES
from harness.servers.in_process.front_proxy import Front, Line, Scripted, claims, front, scripted
from harness.servers.stand_ins.oidc_issuer import Issuer

OWN = "https://kcp.default.svc"
TYPES = ResourceType("tenancy.kcp.io", "workspacetypes", WORKSPACES.identity)
CONFIGURATIONS = ResourceType("tenancy.kcp.io", "workspaceauthenticationconfigurations", WORKSPACES.identity)
ORG, OTHER = "/clusters/root:org/api", "/clusters/root:other/api"


async def identity_reply(line: Line) -> None:
    """Answer each request with its own head."""
    while True:
        head = await line.head()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))


def trusted(issuer: Issuer, audience: str) -> dict[str, Any]:
    return {
        "issuer": {"url": issuer.url, "audiences": [audience], "certificateAuthority": issuer.ca_pem},
        "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": ""}},
    }


@pytest.fixture(scope="module")
def issuers() -> Iterator[tuple[Issuer, Issuer]]:
    """The operator's issuer, and that of root:org's type."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(Issuer()), stack.enter_context(Issuer())


@pytest.fixture
async def shard() -> AsyncIterator[Scripted]:
    async with scripted(identity_reply) as running:
        yield running


@pytest.fixture
async def proxy(tmp_path: Path, shard: Scripted, issuers: tuple[Issuer, Issuer]) -> AsyncIterator[Front]:
    operators, own = issuers
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    (tmp_path / "oidc.json").write_text(json.dumps({**kind, "jwt": [trusted(operators, "atoll")]}))
    files: dict[str, Any] = {"authentication_config": str(tmp_path / "oidc.json"), "egress_allow_cidr": "127.0.0.0/8"}
    async with front(tmp_path, {ROOT: shard.url, "east": shard.url, "west": shard.url}, **files) as running:
        rows = running.rows
        await rows.write(CONFIGURATIONS, ROOT, "own", {"spec": {"jwt": [trusted(own, "tenant")]}})
        annotated = {"metadata": {"annotations": {CLUSTER: ROOT}}}
        await rows.write(
            TYPES, ROOT, "with-issuer", {**annotated, "spec": {"authenticationConfigurations": [{"name": "own"}]}}
        )
        await rows.cluster("1org", "east", {TYPE: "root:with-issuer"})
        yield running


async def ask(proxy: Front, target: str, token: str) -> Raw:
    client: RawClient = await proxy.connect()
    return await client.ask(target, headers=f"Authorization: Bearer {token}\r\n")


def went_on(answer: Raw, token: str) -> bool:
    """The shard got the token itself, and no assertion of the proxy."""
    text = answer.body.decode()
    return answer.status == 200 and f"authorization: Bearer {token}\r\n" in text and "atoll-assertion" not in text


async def test_a_token_of_the_operators_issuer_becomes_an_assertion(
    proxy: Front, issuers: tuple[Issuer, Issuer]
) -> None:
    token = issuers[0].token(sub="alice", aud=["atoll", OWN], groups=["devs", "system:masters"])
    answer = await ask(proxy, ORG, token)
    assert answer.status == 200, answer
    text = answer.body.decode()
    said = claims(re.findall(r"^atoll-assertion: (\S+)\r$", text, re.MULTILINE)[0])
    assert (said["user"], said["groups"]) == ("oidc:alice", ["devs", "system:authenticated"])
    assert "authorization" not in text


async def test_the_first_scrape_of_metrics_waits_for_the_issuers_keys(
    proxy: Front, issuers: tuple[Issuer, Issuer]
) -> None:
    """The review at the root shard is not answered with 201: the scraper is identified, and refused as that user."""
    token = issuers[0].token(sub="alice", aud=["atoll", OWN])
    answer = await ask(proxy, "/metrics", token)
    assert (answer.status, json.loads(answer.body)["message"]) == (403, 'User "oidc:alice" cannot get path "/metrics"')


@pytest.mark.parametrize("wrong", [{"aud": "another"}, {"exp": 1}, {"nbf": 4102444800}])
async def test_a_token_of_the_operators_issuer_that_is_wrong_is_refused(
    proxy: Front, issuers: tuple[Issuer, Issuer], wrong: dict[str, Any]
) -> None:
    token = issuers[0].token(**{"sub": "alice", "aud": ["atoll", OWN], **wrong})
    assert (await ask(proxy, ORG, token)).status == 401


async def test_a_token_for_a_workspace_that_trusts_the_operators_issuer_goes_on_to_the_workspace_and_its_events(
    proxy: Front, issuers: tuple[Issuer, Issuer]
) -> None:
    await proxy.rows.write(CONFIGURATIONS, ROOT, "own", {"spec": {"jwt": [trusted(issuers[0], "tenant")]}})
    token = issuers[0].token(sub="dora", aud=["tenant", OWN])
    # The keys of the operator's issuer are fetched with the first request that names it.
    for target in (ORG, "/services/events/clusters/root:org/subscriptions"):
        assert went_on(await ask(proxy, target, token), token)
    for target in (OTHER, "/services/events/clusters/root:other/subscriptions", "/services/view/clusters/root:org"):
        assert (await ask(proxy, target, token)).status == 401


async def test_a_token_of_a_workspaces_issuer_goes_on_and_is_refused_once_it_is_seen_to_be_wrong(
    proxy: Front, issuers: tuple[Issuer, Issuer]
) -> None:
    own = issuers[1]
    good = own.token(sub="dora", aud=["tenant", OWN])
    assert went_on(await ask(proxy, ORG, good), good)
    forged = f"{good[:-8]}AAAAAAAA"
    over = own.token(sub="dora", aud=["tenant", OWN], exp=1)
    for wrong in (forged, over):
        # Until its keys are fetched, the proxy forwards tokens to the shard and does not wait.
        client = await proxy.connect()
        while (answer := await client.ask(ORG, headers=f"Authorization: Bearer {wrong}\r\n")).status == 200:
            assert went_on(answer, wrong)
        assert answer.status == 401
    assert went_on(await ask(proxy, ORG, good), good)


async def test_elsewhere_and_where_its_issuer_is_not_known_it_is_the_shards_to_judge(
    proxy: Front, issuers: tuple[Issuer, Issuer]
) -> None:
    over = issuers[1].token(sub="dora", aud=["tenant", OWN], exp=1)
    for target in (OTHER, "/clusters/root:org:none/api"):
        assert went_on(await ask(proxy, target, over), over)


async def test_an_issuer_that_is_down_takes_no_user_of_a_workspace_away(
    proxy: Front, issuers: tuple[Issuer, Issuer]
) -> None:
    own = issuers[1]
    own.down = True
    try:
        for number in range(3):
            token = own.token(sub=f"u{number}", aud=["tenant", OWN])
            assert went_on(await ask(proxy, ORG, token), token)
    finally:
        own.down = False
