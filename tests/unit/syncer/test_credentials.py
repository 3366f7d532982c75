"""The credentials of a syncer: the clock of its machine may be wrong by a year, its token is renewed and read again."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.process import pki, tls
from atoll.machinery.wire.client import ClientError
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from atoll.syncer.credentials import SECRETS, ServerMoved, Tokens, is_due, target
from harness.servers.stand_ins.canned_api import CannedApi, serving
from unit.syncer.test_parts import token

API = "/clusters/root/apis/coordination.k8s.io/v1/namespaces/default/leases/syncer"


async def test_a_certificate_that_is_out_of_date_by_this_clock_is_taken_and_one_of_another_authority_is_not(
    tmp_path: Path,
) -> None:
    api, authority = CannedApi(), pki.make_ca("center")
    api.on(f"GET {API}", {"kind": "Lease"})
    context = tls.server_context(pki.make_serving(authority, ["127.0.0.1"], days=0), authority.certificate)
    server = Server(api, Limits(), context)
    api.port, api.ca = await server.start("127.0.0.1", 0), authority.certificate
    path = str(api.kubeconfig(tmp_path))
    async with Client(Kubeconfig.load(path).target()) as strict, Client(target(path, "")) as lenient:
        with pytest.raises((ClientError, ssl.SSLError)):
            await strict.request("GET", API.removeprefix("/clusters/root"))
        assert await lenient.request("GET", API.removeprefix("/clusters/root"))
    api.ca = pki.make_ca("another").certificate
    async with Client(target(str(api.kubeconfig(tmp_path)), "")) as stranger:
        with pytest.raises((ClientError, ssl.SSLError)):
            await stranger.request("GET", API.removeprefix("/clusters/root"))
    await server.drain(0)


async def test_a_token_near_its_end_is_renewed_stored_at_the_edge_and_used(tmp_path: Path) -> None:
    old = token(iat=1000, exp=2000, sub="system:serviceaccount:default:syncer")
    new = token(iat=10**10, exp=2 * 10**10)
    async with serving(CannedApi()) as center, serving(CannedApi()) as edge:
        center.on(f"GET {API}", {"kind": "Lease"})
        account = "/clusters/root/api/v1/namespaces/default/serviceaccounts/syncer/token"
        center.on(f"POST {account}", {"kind": "TokenRequest", "status": {"token": new}})
        secret = f"/clusters/root{SECRETS.path('syncers', 'syncer-1')}"
        edge.on(f"PATCH {secret}", {"kind": "Secret"})
        up, down = tmp_path / "up", tmp_path / "down"
        for folder in (up, down):
            folder.mkdir()
        (up / "token").write_text(old)
        sources = (str(center.kubeconfig(up, tokenFile="token")), ""), (str(edge.kubeconfig(down)), "")
        async with Client(target(*sources[0])) as first, Client(target(*sources[1])) as second:
            tokens = Tokens(first, second, "syncer-1", "syncers")
            await tokens.renew()
            (written,) = (each for each in edge.requests if each.method == "PATCH")
            assert base64.b64encode(new.encode()) in written.body
            (asked,) = (each for each in center.requests if each.method == "POST")
            assert b'"expirationSeconds":1000' in asked.body, "it lives as long as the one before"
            assert dict(first.target.headers)["authorization"] == f"Bearer {new}"
            await tokens.renew()
            assert len(edge.requests) == 1
            assert center.paths().count(f"GET {API}") == 1, "the center's time is counted on"
            # A file that still has the old one does not bring it back; one that changes is taken.
            task = asyncio.create_task(tokens.run({first: sources[0], second: sources[1]}))
            await asyncio.sleep(0)
            assert dict(first.target.headers)["authorization"] == f"Bearer {new}"
            task.cancel()
            tokens.reload(first, *sources[0])
            (up / "token").write_text("another")
            tokens.reload(first, *sources[0])
            assert dict(first.target.headers)["authorization"] == "Bearer another"
        assert not is_due("another", 1e12)


async def test_a_file_that_names_another_mailbox_ends_the_process_which_begins_anew_with_it(tmp_path: Path) -> None:
    async with serving(CannedApi()) as center:
        source = str(center.kubeconfig(tmp_path, "/services/mailbox/clusters/one")), ""
        async with Client(target(*source)) as client:
            tokens = Tokens(client, client, "", "")
            tokens.reload(client, *source)
            center.kubeconfig(tmp_path, "/services/mailbox/clusters/another", token="another")
            with pytest.raises(ServerMoved, match="clusters/another now"):
                async with asyncio.timeout(5.0):
                    await tokens.run({client: source})
            assert dict(client.target.headers)["authorization"] == "Bearer secret"
