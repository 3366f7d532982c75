"""The authenticator: the order of credentials, and that an invalid one never becomes anonymous."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.admin_tokens import FILE_NAMES, load_admin_tokens, rotate_admin_tokens
from atoll.machinery.apiserver.authentication.assertion import AssertionSigner, AssertionVerifier, signing_key
from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authentication.request_headers import HeaderNames, RequestHeaders
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, parse_token_file, token_digest
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.process.pki import make_ca, make_client, pem_to_der
from atoll.machinery.process.private_files import Pair
from atoll.machinery.wire.exchange import HeaderSet, HttpRequest, Peer
from harness.models.rbac_snapshot import FakeStore, bootstrap, workspace

AUDIENCE = "https://kcp.default.svc"
WEB = "2web"
TOKENS = 's3cret-alice,alice,1,"devs,ops"\n\ns3cret-bob,bob,2\ns3cret-init,init,3,system:kcp:initializer:a:b\n'


@pytest.fixture(scope="module")
def client_ca() -> Pair:
    return make_ca("clients")


@pytest.fixture(scope="module")
def proxy_ca() -> Pair:
    return make_ca("proxies")


@pytest.fixture(scope="module")
def proxy(proxy_ca: Pair) -> bytes:
    return pem_to_der(make_client(proxy_ca, "front-proxy").certificate)


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    bootstrap(made)
    workspace(made, WEB, owner="alice")
    return made


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(certificates: Certificates, names: HeaderNames | None = None, anonymous: bool = True) -> Authenticator:
    table = StaticTokens(parse_token_file(TOKENS), (AUDIENCE,))
    bearers = BearerTokens((table,), (AUDIENCE,))
    return Authenticator(bearers, certificates, Impersonator(Authorizer()), RequestHeaders(names), anonymous=anonymous)


@pytest.fixture
def authenticator(client_ca: Pair, proxy_ca: Pair) -> Authenticator:
    return make(Certificates(client_ca.certificate, proxy_ca.certificate, ["front-proxy"]))


def request(certificate: bytes | None = None, **headers: str | list[str]) -> HttpRequest:
    found = {name.replace("__", "-"): [value] if isinstance(value, str) else value for name, value in headers.items()}
    return HttpRequest("GET", b"/api", found, b"", Peer("127.0.0.1", 1, certificate))


def bearer(token: str) -> HttpRequest:
    return request(authorization=f"Bearer {token}")


def test_without_a_credential_one_is_anonymous(authenticator: Authenticator, store: FakeStore) -> None:
    assert authenticator.authenticate(request(), WEB, store) == ANONYMOUS_USER


def test_anonymous_can_be_turned_off(client_ca: Pair, store: FakeStore) -> None:
    with pytest.raises(Unauthorized, match="Unauthorized"):
        make(Certificates(), anonymous=False).authenticate(request(), WEB, store)


def test_tokens_of_the_file_name_user_uid_and_groups(authenticator: Authenticator, store: FakeStore) -> None:
    found = authenticator.authenticate(bearer("s3cret-alice"), WEB, store)
    assert found == User("alice", ("devs", "ops", "system:authenticated"), "1")
    assert authenticator.authenticate(bearer("s3cret-bob"), WEB, store).groups == ("system:authenticated",)
    lower = request(authorization="bearer s3cret-bob")
    assert authenticator.authenticate(lower, WEB, store).name == "bob"


def test_no_credential_carries_a_lifecycle_group(
    authenticator: Authenticator, store: FakeStore, client_ca: Pair, proxy: bytes
) -> None:
    group = "system:kcp:initializer:root:universal"
    der = pem_to_der(make_client(client_ca, "x", [group, "devs"]).certificate)
    header = {"x-remote-user": ["x"], "x-remote-group": [group, "devs"]}
    spoken = HttpRequest("GET", b"/", header, b"", Peer("::1", 1, proxy))
    for sent in (bearer("s3cret-init"), request(der), spoken):
        found = authenticator.authenticate(sent, WEB, store)
        assert found.groups in (("system:authenticated",), ("devs", "system:authenticated"))


@pytest.mark.parametrize(
    "value",
    [
        "Bearer wrong",
        "Bearer a b",
        "Bearer s3cret-alice,",
        "Bearer s3cret-ALICE",
        "Bearer " + "x" * 100_000,
        "Bearer a.b.c",
    ],
)
def test_a_bad_authorization_header_is_refused_not_anonymous(
    authenticator: Authenticator, store: FakeStore, value: str
) -> None:
    with pytest.raises(Unauthorized):
        authenticator.authenticate(request(authorization=value), WEB, store)


@pytest.mark.parametrize(
    "value", ["Bearer ", "Bearer", "bearer", "Bearer  s3cret-alice", "Basic YTpi", "", "s3cret-alice"]
)
def test_an_authorization_header_without_a_bearer_token_is_no_credential(
    authenticator: Authenticator, store: FakeStore, value: str
) -> None:
    found = authenticator.authenticate(request(authorization=value), WEB, store)
    assert (found.name, found.groups) == ("system:anonymous", ("system:unauthenticated",))


def test_without_anonymous_users_an_empty_bearer_token_is_refused(store: FakeStore) -> None:
    certificates, tokens = Certificates(b"", b"", []), BearerTokens((), ())
    closed = Authenticator(tokens, certificates, Impersonator(Authorizer()), anonymous=False)
    with pytest.raises(Unauthorized):
        closed.authenticate(request(authorization="Bearer "), WEB, store)


def test_two_authorization_headers_are_refused(authenticator: Authenticator, store: FakeStore) -> None:
    with pytest.raises(Unauthorized):
        authenticator.authenticate(request(authorization=["Bearer s3cret-alice", "Bearer s3cret-bob"]), WEB, store)


def test_the_token_file_names_the_line_but_never_the_token() -> None:
    with pytest.raises(ValueError, match="record 2") as failure:
        parse_token_file("a,b,c\nhush-hush,x\n")
    assert "hush" not in str(failure.value)
    with pytest.raises(ValueError, match="record 1"):
        parse_token_file(",user,1\n")


class TestClientCertificates:
    def test_name_user_groups_and_uid(self, authenticator: Authenticator, store: FakeStore, client_ca: Pair) -> None:
        der = pem_to_der(make_client(client_ca, "carol", ["devs", "system:masters"], uid="u7").certificate)
        for _ in range(2):
            found = authenticator.authenticate(request(der), WEB, store)
            assert (found.name, found.uid) == ("carol", "u7")
            assert found.groups == ("devs", "system:masters", "system:authenticated")
            (identifier,) = found.extra["authentication.kubernetes.io/credential-id"]
            assert identifier.startswith("X509SHA256=")

    def test_of_another_ca_are_refused(self, authenticator: Authenticator, store: FakeStore) -> None:
        der = pem_to_der(make_client(make_ca("clients"), "carol").certificate)
        with pytest.raises(Unauthorized):
            authenticator.authenticate(request(der), WEB, store)

    def test_that_are_garbage_are_refused(self, authenticator: Authenticator, store: FakeStore) -> None:
        with pytest.raises(Unauthorized):
            authenticator.authenticate(request(b"\x30\x03abc"), WEB, store)

    def test_end_with_the_certificate_even_on_a_connection_that_goes_on(
        self, store: FakeStore, client_ca: Pair
    ) -> None:
        clock = Clock()
        authenticator = make(Certificates(client_ca.certificate, clock=clock))
        der = pem_to_der(make_client(client_ca, "carol").certificate)
        assert authenticator.authenticate(request(der), WEB, store).name == "carol"
        clock.now = 10**11
        with pytest.raises(Unauthorized):
            authenticator.authenticate(request(der), WEB, store)

    def test_of_a_proxy_are_no_user(self, authenticator: Authenticator, store: FakeStore, proxy: bytes) -> None:
        assert authenticator.authenticate(request(proxy), WEB, store) == ANONYMOUS_USER
        passed_on = request(proxy, authorization="Bearer s3cret-bob")
        assert authenticator.authenticate(passed_on, WEB, store).name == "bob"


# --- identity headers ------------------------------------------------------------------------------------

SPELLINGS = [
    "x-remote-user",
    "x_remote_user",
    "x-remote_user",
    "x%2dremote-user",
    "x%2Dremote%2duser",
    "X-REMOTE-USER",
    "x-remote-group",
    "x_remote_group",
    "x-remote_group",
    "x%5fremote_group",
    "x-remote-uid",
    "x_remote_uid",
    "x-remote-extra-authorization.kcp.io%2fwarrant",
    "x_remote_extra_scopes",
    "x-remote_extra-a",
    "x-remote-anything",
    "x-remote-",
    "x-remote-extra-",
    "x-remote-extra-authentication.kcp.io/scopes",
    "x%2d%72emote-group",
]


class TestIdentityHeaders:
    @pytest.fixture
    def carol(self, client_ca: Pair) -> bytes:
        return pem_to_der(make_client(client_ca, "carol").certificate)

    @pytest.fixture
    def wrong_name(self, proxy_ca: Pair) -> bytes:
        return pem_to_der(make_client(proxy_ca, "not-the-front-proxy").certificate)

    def test_from_the_proxy_are_the_user(self, authenticator: Authenticator, store: FakeStore, proxy: bytes) -> None:
        headers = {
            "x-remote-user": ["dave"],
            "x-remote-group": ["devs", "ops"],
            "x-remote-uid": ["u9"],
            "x-remote-extra-authentication.kcp.io%2fscopes": ["cluster:a", "cluster:b"],
            "x-remote-extra-foo_bar": ["1"],
        }
        found = authenticator.authenticate(HttpRequest("GET", b"/", headers, b"", Peer("", 1, proxy)), WEB, store)
        assert (found.name, found.uid) == ("dave", "u9")
        assert found.groups == ("devs", "ops", "system:authenticated")
        assert found.extra == {"authentication.kcp.io/scopes": ("cluster:a", "cluster:b"), "foo_bar": ("1",)}

    @pytest.mark.parametrize("name", SPELLINGS)
    def test_from_anybody_else_say_nothing(
        self, authenticator: Authenticator, store: FakeStore, carol: bytes, wrong_name: bytes, name: str
    ) -> None:
        def user(certificate: bytes | None, headers: dict[str, list[str]]) -> User | None:
            """The user; None if the request is rejected."""
            sent = HttpRequest("GET", b"/api", headers, b"", Peer("", 1, certificate))
            try:
                return authenticator.authenticate(sent, WEB, store)
            except Unauthorized:
                return None

        for certificate, authorization in itertools.product((None, carol, wrong_name), ([], ["Bearer s3cret-alice"])):
            own: dict[str, list[str]] = {"authorization": authorization} if authorization else {}
            forged = {name: ["system:masters"], "x-real": ["1"], **own}
            assert user(certificate, forged) == user(certificate, own)
            assert user(certificate, {assertion.HEADER: ["a.b.c"], **own}) is None

    @pytest.mark.parametrize("name", [name for name in SPELLINGS if "_" in name or "%2d" in name.lower()])
    def test_that_only_look_like_it_refuse_even_the_proxys_request(
        self, authenticator: Authenticator, store: FakeStore, proxy: bytes, name: str
    ) -> None:
        headers = {"x-remote-user": ["dave"], name: ["system:masters"]}
        sent = HttpRequest("GET", b"/api", headers, b"", Peer("", 1, proxy))
        with pytest.raises(Unauthorized):
            authenticator.authenticate(sent, WEB, store)

    def test_from_a_client_that_only_has_the_proxys_name_say_nothing(
        self, authenticator: Authenticator, store: FakeStore, client_ca: Pair
    ) -> None:
        der = pem_to_der(make_client(client_ca, "front-proxy").certificate)
        sent = HttpRequest("GET", b"/api", {"x-remote-user": ["root"]}, b"", Peer("", 1, der))
        assert authenticator.authenticate(sent, WEB, store).name == "front-proxy"

    @pytest.mark.parametrize(
        "headers",
        [
            {"x-remote-group": ["system:masters"]},
            {"x-remote-user": [""], "x-remote-group": ["devs"]},
            {"x-remote-user": ["dave", "root"]},
            {"x-remote-user": ["dave"], "x-remote-uid": ["1", "2"]},
            {"x-remote-user": ["dave"], "connection": ["close, X-Remote-User"]},
            {"x-remote-user": ["dave"], "x-remote-group": ["a"], "connection": ["x-remote-group"]},
            {"x-remote-user": ["dave"], "x-remote-nonsense": ["a"]},
        ],
    )
    def test_that_are_incomplete_or_ambiguous_refuse_the_proxys_request(
        self, authenticator: Authenticator, store: FakeStore, proxy: bytes, headers: dict[str, list[str]]
    ) -> None:
        with pytest.raises(Unauthorized):
            authenticator.authenticate(HttpRequest("GET", b"/", headers, b"", Peer("", 1, proxy)), WEB, store)

    @pytest.mark.parametrize("name", ["x-real-user", "x_real_user", "x-remote-user"])
    def test_with_other_configured_names_neither_old_nor_new_say_anything_of_others(
        self, store: FakeStore, proxy: bytes, proxy_ca: Pair, name: str
    ) -> None:
        names = HeaderNames(("x-real-user",), ("x-real-group",), ("x-real-uid",), ("x-real-extra-",))
        authenticator = make(Certificates(b"", proxy_ca.certificate), names)
        plain = HttpRequest("GET", b"/", {name: ["root"]}, b"", Peer("", 1))
        assert authenticator.authenticate(plain, WEB, store) == ANONYMOUS_USER
        sent = HttpRequest("GET", b"/", {"x-real-user": ["dave"]}, b"", Peer("", 1, proxy))
        assert authenticator.authenticate(sent, WEB, store).name == "dave"

    def test_one_ca_for_both_makes_proxies_of_who_sends_headers(self, store: FakeStore, client_ca: Pair) -> None:
        both = make(Certificates(client_ca.certificate, client_ca.certificate, ["front-proxy"]))
        der = pem_to_der(make_client(client_ca, "front-proxy").certificate)
        assert both.authenticate(request(der), WEB, store).name == "front-proxy"
        sent = HttpRequest("GET", b"/", {"x-remote-user": ["dave"]}, b"", Peer("", 1, der))
        assert both.authenticate(sent, WEB, store).name == "dave"


class TestAssertions:
    """Assertions that a connection sends again with every request."""

    @pytest.fixture
    def clock(self) -> Clock:
        clock = Clock()
        clock.now = time.time()
        return clock

    @pytest.fixture
    def certificates(self, client_ca: Pair, proxy_ca: Pair) -> Certificates:
        return Certificates(client_ca.certificate, proxy_ca.certificate, ["front-proxy"])

    @pytest.fixture
    def shard(self, certificates: Certificates, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Authenticator:
        found = make(certificates)
        monkeypatch.setattr(found, "_assertions", AssertionVerifier(clock))
        return found

    def sent(self, proxy_ca: Pair, clock: Clock) -> HttpRequest:
        """A request of a connection whose headers the next requests have too."""
        pair = make_client(proxy_ca, "front-proxy")
        said = AssertionSigner(signing_key(pair.key), clock).assertion(User("dave"), WEB)
        shared = HeaderSet({assertion.HEADER: [said]})
        peer = Peer("127.0.0.1", 1, pem_to_der(pair.certificate))
        return HttpRequest("GET", b"/api", shared.headers, b"", peer, header_set=shared)

    def test_are_verified_once_for_headers_that_are_sent_again(
        self, shard: Authenticator, store: FakeStore, proxy_ca: Pair, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        again = self.sent(proxy_ca, clock)
        first = shard.authenticate(again, WEB, store)
        monkeypatch.setattr(AssertionVerifier, "verified", None)
        assert shard.authenticate(again, WEB, store) is first
        assert first.name == "dave"

    def test_are_for_one_cluster_on_every_request(
        self, shard: Authenticator, store: FakeStore, proxy_ca: Pair, clock: Clock
    ) -> None:
        again = self.sent(proxy_ca, clock)
        for cluster, valid in ((WEB, True), ("other", False), ("", False), (WEB, True)):
            with contextlib.nullcontext() if valid else pytest.raises(Unauthorized):
                assert shard.authenticate(again, cluster, store).name == "dave"

    def test_expire_for_headers_that_are_sent_again(
        self, shard: Authenticator, store: FakeStore, proxy_ca: Pair, clock: Clock
    ) -> None:
        again = self.sent(proxy_ca, clock)
        assert shard.authenticate(again, WEB, store).name == "dave"
        clock.now += assertion.LIFE_S + assertion.SKEW_S + 1
        with pytest.raises(Unauthorized):
            shard.authenticate(again, WEB, store)

    def test_end_with_the_trust_in_their_proxy(
        self,
        shard: Authenticator,
        certificates: Certificates,
        store: FakeStore,
        proxy_ca: Pair,
        client_ca: Pair,
        clock: Clock,
    ) -> None:
        again = self.sent(proxy_ca, clock)
        assert shard.authenticate(again, WEB, store).name == "dave"
        certificates.trust(client_ca.certificate, client_ca.certificate)
        with pytest.raises(Unauthorized):
            shard.authenticate(again, WEB, store)

    def test_say_nothing_on_the_connection_of_another(
        self, shard: Authenticator, store: FakeStore, proxy_ca: Pair, proxy: bytes, clock: Clock
    ) -> None:
        again = self.sent(proxy_ca, clock)
        assert shard.authenticate(again, WEB, store).name == "dave"
        with pytest.raises(Unauthorized):
            shard.authenticate(replace(again, peer=Peer("127.0.0.1", 1, proxy)), WEB, store)


class TestAdminTokens:
    def test_make_the_three_administrators(self, tmp_path: Path) -> None:
        tokens = load_admin_tokens(tmp_path, with_user=True)
        users = tokens.users
        assert users[token_digest(tokens.shard_admin)].groups == ("system:masters",)
        assert users[token_digest(tokens.kcp_admin)].groups == ("system:kcp:admin",)
        assert users[token_digest(tokens.user)].groups == ()
        assert len({tokens.shard_admin, tokens.kcp_admin, tokens.user}) == 3

    def test_keep_only_hashes_privately(self, tmp_path: Path) -> None:
        tokens = load_admin_tokens(tmp_path, with_user=True)
        kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert kept == {
            ".admin-token-store": token_digest(tokens.shard_admin),
            ".kcp-admin-token-store": token_digest(tokens.kcp_admin),
        }
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
        assert tokens.shard_admin not in repr(tokens)

    def test_survive_a_restart(self, tmp_path: Path) -> None:
        first = load_admin_tokens(tmp_path)
        kept = {"shard-admin": first.shard_admin, "kcp-admin": first.kcp_admin, "somebody": "else"}
        assert load_admin_tokens(tmp_path, kept) == first
        assert rotate_admin_tokens(tmp_path / "none") == {}
        rotated = rotate_admin_tokens(tmp_path)
        assert set(rotated.values()).isdisjoint(kept.values())
        assert load_admin_tokens(tmp_path, rotated).shard_admin == rotated["shard-admin"]
        second = load_admin_tokens(tmp_path, kept)
        assert {second.shard_admin, second.kcp_admin}.isdisjoint({*kept.values(), *rotated.values()})

    @pytest.mark.parametrize("user", FILE_NAMES)
    @pytest.mark.parametrize("kept", ["", "forged"])
    def test_replace_a_token_that_is_not_the_stored_one(self, tmp_path: Path, user: str, kept: str) -> None:
        load_admin_tokens(tmp_path)
        second = {"shard-admin": (tokens := load_admin_tokens(tmp_path, {user: kept})).shard_admin}
        second["kcp-admin"] = tokens.kcp_admin
        assert second[user] != kept
        assert (tmp_path / FILE_NAMES[user]).read_bytes() == token_digest(second[user])

    def test_no_users_token_is_another_users(self, tmp_path: Path) -> None:
        first = load_admin_tokens(tmp_path)
        second = load_admin_tokens(tmp_path, {"shard-admin": first.kcp_admin, "kcp-admin": first.shard_admin})
        assert second.shard_admin != first.kcp_admin and second.kcp_admin != first.shard_admin


def test_a_proxy_is_a_client_with_a_certificate_of_the_proxies_authority(client_ca: Pair, proxy_ca: Pair) -> None:
    certificates = Certificates(client_ca.certificate, proxy_ca.certificate, ("front-proxy",))
    found = {
        "a proxy": make_client(proxy_ca, "front-proxy"),
        "another name": make_client(proxy_ca, "mine"),
        "a user": make_client(client_ca, "front-proxy", ("system:masters",)),
        "another authority": make_client(make_ca("proxies"), "front-proxy"),
        "an old one": make_client(proxy_ca, "front-proxy", days=0),
    }
    peers = {name: Peer("::1", 1, pem_to_der(pair.certificate)) for name, pair in found.items()}
    assert [name for name, peer in peers.items() if certificates.is_proxy(peer)] == ["a proxy"]
    assert not certificates.is_proxy(Peer("::1", 1))
