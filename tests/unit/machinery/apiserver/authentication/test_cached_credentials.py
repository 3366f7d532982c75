"""Cached credentials: each is accepted, then a circumstance changes, then it is refused although it is cached."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from atoll.machinery.apiserver.authentication.admin_tokens import FILE_NAMES, SHARD_ADMIN, load_admin_tokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.oidc import config, source
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending, Fetch
from atoll.machinery.apiserver.authentication.oidc.source import ConfiguredIssuers, IssuerTokens, WorkspaceIssuers
from atoll.machinery.apiserver.authentication.service_account_keys import load_keys
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers, ServiceAccountTokens
from atoll.machinery.apiserver.authentication.token_issuer import Account, IssuedToken, TokenIssuer
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, token_digest
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import MASTERS, User
from atoll.machinery.process import revocation
from atoll.machinery.process.pki import make_ca, make_client, make_rsa_key, pem_to_der
from atoll.machinery.process.private_files import Pair
from atoll.machinery.storage.contract import Record
from harness.models.rbac_snapshot import FakeStore
from harness.servers.stand_ins.oidc_issuer import Issuer

OURS = "https://kcp.default.svc"
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
#: The DER of this algorithm's identifier.
SHA256_WITH_ECDSA = bytes.fromhex("300a06082a8648ce3d040302")
WEB = "2web"


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def client_ca() -> Pair:
    return make_ca("clients")


@pytest.fixture(scope="module")
def proxy_ca() -> Pair:
    return make_ca("proxies")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    made.put(WEB, {"kind": "ServiceAccount", "metadata": {"name": "builder", "namespace": "ns", "uid": "uid-1"}})
    return made


def with_other_signature(der: bytes) -> bytes:
    """The same certificate with the other one of the two signatures (r, s) and (r, n-s) that a P-256 key can make."""
    certificate = x509.load_der_x509_certificate(der)
    r, s = decode_dss_signature(certificate.signature)
    signature = encode_dss_signature(r, P256_ORDER - s)
    body = certificate.tbs_certificate_bytes + SHA256_WITH_ECDSA + b"\x03" + bytes([len(signature) + 1, 0]) + signature
    return b"\x30\x82" + len(body).to_bytes(2, "big") + body


class TestOpenIDConnect:
    """Tokens of an issuer whose documents are read without a network."""

    @pytest.fixture
    def fetch(self, issuer: Issuer) -> Fetch:
        async def fetch(url: str, ca_pem: bytes, timeout_s: float) -> bytes:
            return json.dumps(issuer._documents()[url.removeprefix(issuer.url.removesuffix("/realm"))]).encode()

        return fetch

    def spec(self, issuer: Issuer) -> dict[str, object]:
        mappings = {"username": {"claim": "sub", "prefix": ""}}
        return {"issuer": {"url": issuer.url, "audiences": ["me"]}, "claimMappings": mappings}

    async def accepted(self, call: Callable[[], object]) -> None:
        """The credential is accepted twice: after its keys were fetched, and from the cache."""
        with pytest.raises(AuthenticationPending) as pending:
            call()
        await pending.value.complete()
        for _ in range(2):
            assert call()

    async def test_a_cached_token_is_refused_once_it_has_expired(
        self, issuer: Issuer, fetch: Fetch, clock: Clock
    ) -> None:
        (authenticator,) = config.from_object({"spec": {"jwt": [self.spec(issuer)]}})
        tokens = IssuerTokens(authenticator, fetch, LruCache(4), clock)
        token = issuer.token(sub="a", aud="me", nbf=int(clock.now), exp=int(clock.now) + 60)
        await self.accepted(lambda: tokens.verify(token, b"1"))
        clock.now += 59
        assert tokens.verify(token, b"1")
        clock.now += 1
        with pytest.raises(Unauthorized):
            tokens.verify(token, b"1")

    async def test_a_cached_token_is_refused_while_it_is_not_yet_valid(
        self, issuer: Issuer, fetch: Fetch, clock: Clock
    ) -> None:
        (authenticator,) = config.from_object({"spec": {"jwt": [self.spec(issuer)]}})
        tokens = IssuerTokens(authenticator, fetch, LruCache(4), clock)
        token = issuer.token(sub="a", aud="me", nbf=int(clock.now), exp=int(clock.now) + 60)
        await self.accepted(lambda: tokens.verify(token, b"1"))
        clock.now -= source.CLOCK_SKEW_S + 1
        with pytest.raises(Unauthorized):
            tokens.verify(token, b"1")

    async def test_a_cached_token_is_none_of_the_servers_for_another_audience(
        self, issuer: Issuer, fetch: Fetch, store: FakeStore, tmp_path: Path
    ) -> None:
        kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
        (tmp_path / "config").write_text(json.dumps({**kind, "jwt": [self.spec(issuer)]}))
        tokens = ConfiguredIssuers(tmp_path / "config", (OURS,), fetch)
        token = issuer.token(sub="a", aud="me")
        await self.accepted(lambda: tokens.user_of(token, b"1", (OURS,), store))
        assert tokens.user_of(token, b"1", ("vault",), store) is None

    async def test_a_cached_token_of_a_workspaces_issuer_is_refused_for_another_audience_and_configuration(
        self, issuer: Issuer, fetch: Fetch, store: FakeStore
    ) -> None:
        key = ObjectKey(ResourceType("tenancy.kcp.io", "workspaceauthenticationconfigurations"), WEB, "", "own")
        spec = self.spec(issuer)
        records = [Record(key, 1, encode_json({"spec": {"jwt": [spec]}}))]
        tokens = WorkspaceIssuers(lambda view, cluster: records, fetch)
        token = issuer.token(sub="a", aud=["me", OURS])
        await self.accepted(lambda: tokens.user_of(token, b"1", (OURS,), store, WEB))
        with pytest.raises(Unauthorized):
            tokens.user_of(token, b"1", ("vault",), store, WEB)
        changed = {**spec, "issuer": {"url": issuer.url, "audiences": ["other"]}}
        records[:] = [Record(key, 2, encode_json({"spec": {"jwt": [changed]}}))]
        with pytest.raises(AuthenticationPending) as pending:
            tokens.user_of(token, b"1", (OURS,), store, WEB)
        await pending.value.complete()
        with pytest.raises(Unauthorized):
            tokens.user_of(token, b"1", (OURS,), store, WEB)
        records.clear()
        assert tokens.user_of(token, b"1", (OURS,), store, WEB) is None


class TestServiceAccounts:
    @pytest.fixture
    def tokens(self, clock: Clock) -> tuple[ServiceAccountTokens, IssuedToken]:
        keys, account = load_keys(make_rsa_key()), Account(WEB, "ns", "builder", "uid-1")
        issued = TokenIssuer(keys, ServiceAccountIssuers(), clock=clock).issue(account, (OURS, "vault"), 600)
        return ServiceAccountTokens(keys, ServiceAccountIssuers(), clock), issued

    def user(
        self, tokens: tuple[ServiceAccountTokens, IssuedToken], store: FakeStore, audience: str = OURS
    ) -> User | None:
        known, issued = tokens
        return known.user_of(issued.text, token_digest(issued.text), (audience,), store)

    def test_a_cached_token_is_refused_for_another_audience(
        self, tokens: tuple[ServiceAccountTokens, IssuedToken], store: FakeStore
    ) -> None:
        assert self.user(tokens, store) and self.user(tokens, store, "vault")
        with pytest.raises(Unauthorized):
            self.user(tokens, store, "elsewhere")
        assert self.user(tokens, store)

    def test_a_cached_token_is_refused_once_it_has_expired(
        self, tokens: tuple[ServiceAccountTokens, IssuedToken], store: FakeStore, clock: Clock
    ) -> None:
        assert self.user(tokens, store) and self.user(tokens, store)
        clock.now = tokens[1].expires_s
        with pytest.raises(Unauthorized):
            self.user(tokens, store)

    def test_a_cached_token_is_refused_while_its_account_is_being_deleted(
        self, tokens: tuple[ServiceAccountTokens, IssuedToken], store: FakeStore
    ) -> None:
        assert self.user(tokens, store) and self.user(tokens, store)
        metadata = {"name": "builder", "namespace": "ns", "uid": "uid-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        store.put(WEB, {"kind": "ServiceAccount", "metadata": metadata})
        with pytest.raises(Unauthorized):
            self.user(tokens, store)


class TestAdministrators:
    def test_a_token_is_none_of_the_servers_for_another_audience(self, tmp_path: Path, store: FakeStore) -> None:
        admin = load_admin_tokens(tmp_path)
        table, digest = StaticTokens(admin.users, (OURS,)), token_digest(admin.shard_admin)
        user = table.user_of(admin.shard_admin, digest, (OURS,), store)
        assert user is not None and (user.name, MASTERS in user.groups) == (SHARD_ADMIN.name, True)
        assert table.user_of(admin.shard_admin, digest, ("vault",), store) is None

    def test_a_restart_revokes_the_users_token_and_those_without_their_stored_hash(
        self, tmp_path: Path, store: FakeStore
    ) -> None:
        before = load_admin_tokens(tmp_path, with_user=True)
        kept = {"shard-admin": before.shard_admin, "kcp-admin": before.kcp_admin, "user": before.user}

        def accepted(token: str) -> bool:
            after = load_admin_tokens(tmp_path, kept, with_user=True)
            return StaticTokens(after.users, (OURS,)).user_of(token, token_digest(token), (OURS,), store) is not None

        assert accepted(before.shard_admin) and accepted(before.kcp_admin)
        assert not accepted(before.user)
        for file in FILE_NAMES.values():
            (tmp_path / file).unlink()
        assert not accepted(before.shard_admin) and not accepted(before.kcp_admin)


class TestCertificates:
    def der(self, ca: Pair) -> bytes:
        return pem_to_der(make_client(ca, "alice").certificate)

    def test_a_cached_certificate_is_refused_once_it_has_expired(self, client_ca: Pair, clock: Clock) -> None:
        der, certificates = self.der(client_ca), Certificates(client_ca.certificate, clock=clock)
        for _ in range(2):
            verified = certificates.verify(der)
        assert verified.user is not None and verified.user.name == "alice"
        clock.now = verified.not_after_s + 1
        with pytest.raises(Unauthorized):
            certificates.verify(der)

    def test_a_cached_certificate_is_refused_once_its_ca_is_removed(self, client_ca: Pair, clock: Clock) -> None:
        der, certificates = self.der(client_ca), Certificates(client_ca.certificate, clock=clock)
        assert certificates.verify(der).user is not None and certificates.verify(der).user is not None
        certificates.trust(make_ca("others").certificate, b"")
        with pytest.raises(Unauthorized):
            certificates.verify(der)

    def test_a_cached_certificate_is_refused_once_it_is_revoked_however_its_signature_is_written(
        self, client_ca: Pair
    ) -> None:
        der, certificates = self.der(client_ca), Certificates(client_ca.certificate, client_ca.certificate)
        other, rewritten = self.der(client_ca), with_other_signature(der)
        assert rewritten != der
        for each in (der, other, rewritten):
            assert certificates.verify(each).user is not None, "it verifies"
        lists = revocation.added(b"", client_ca, [x509.load_der_x509_certificate(der)])
        certificates.trust(client_ca.certificate, client_ca.certificate, revocation.read(lists))
        for each in (der, rewritten):
            with pytest.raises(Unauthorized):
                certificates.verify(each)
        assert certificates.verify(other).user is not None

    def test_a_cached_certificate_of_a_proxy_is_refused_once_it_has_expired_or_its_ca_is_removed(
        self, client_ca: Pair, proxy_ca: Pair, clock: Clock
    ) -> None:
        der = self.der(proxy_ca)
        certificates = Certificates(client_ca.certificate, proxy_ca.certificate, clock=clock)
        assert certificates.verify(der).proxy and certificates.verify(der).user is None
        now, clock.now = clock.now, certificates.verify(der).not_after_s + 1
        with pytest.raises(Unauthorized):
            certificates.verify(der)
        clock.now = now
        assert certificates.verify(der).proxy
        certificates.trust(client_ca.certificate, b"")
        with pytest.raises(Unauthorized):
            certificates.verify(der)
