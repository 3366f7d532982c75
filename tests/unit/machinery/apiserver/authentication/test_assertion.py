"""Assertions: valid from one proxy, for one cluster and 30 seconds; everything else is refused."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from atoll.machinery.apiserver.authentication import assertion, jwt
from atoll.machinery.apiserver.authentication.assertion import (
    HEADER,
    LIFE_S,
    MAX_SIZE,
    SKEW_S,
    AssertionClaims,
    AssertionSigner,
    AssertionTooLarge,
    AssertionVerifier,
    assertion_key,
    sign,
    signing_key,
    verify,
)
from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authentication.jwt import TokenError
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.process.pki import make_ca, make_client, pem_to_der
from atoll.machinery.process.private_files import Pair
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.models.rbac_snapshot import FakeStore, bootstrap, workspace

WEB, OTHER = "2web", "2other"
DAVE = User("dave", ("devs", "system:authenticated"), "u9", {"example.com/team": ("red", "blue")})
KEY = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def claims(**changed: object) -> AssertionClaims:
    whole = AssertionClaims("dave", ("devs",), "u9", {"a": ("b",)}, WEB, 1000, 1000 + LIFE_S)
    return msgspec.structs.replace(whole, **changed)


@pytest.mark.parametrize("key", [KEY, RSA], ids=["ES256", "RS256"])
def test_what_was_made_is_read(key: jwt.PrivateKey) -> None:
    assert verify(sign(claims(), key), key.public_key()) == claims()


def test_another_key_reads_nothing() -> None:
    made = sign(claims(), KEY)
    for key in (ec.generate_private_key(ec.SECP256R1()), RSA):
        with pytest.raises(TokenError):
            verify(made, key.public_key())


def signed(header: object, payload: bytes) -> str:
    text = f"{jwt.encode_base64(msgspec.json.encode(header))}.{jwt.encode_base64(payload)}"
    return f"{text}.{jwt.encode_base64(jwt.signature(text.encode(), KEY))}"


GOOD = msgspec.json.encode(claims())
ES256 = {"alg": "ES256", "typ": "atoll-assertion"}


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": "atoll-assertion"},
        {"alg": "HS256", "typ": "atoll-assertion"},
        {"alg": "ES256"},
        {"alg": "RS256", "typ": "atoll-assertion"},
        {"typ": "atoll-assertion", "alg": "ES256"},
        {**ES256, "kid": "x"},
        {"alg": "ES256", "typ": "JWT"},
        {**ES256, "jwk": {}},
        {**ES256, "crit": ["x"]},
        [],
        "",
    ],
)
def test_the_header_is_nobodys_to_choose(header: object) -> None:
    assert verify(signed(ES256, GOOD), KEY.public_key()) == claims()
    with pytest.raises(TokenError):
        verify(signed(header, GOOD), KEY.public_key())


@pytest.mark.parametrize(
    "payload",
    [
        GOOD + b" ",
        GOOD.replace(b'"dave"', b'"d\\u0061ve"'),
        GOOD[:-1] + b',"admin":true}',
        b"[]",
        b"{}",
        b"",
        b"\xff",
        GOOD[:-1] + b',"user":"dave"}',
        GOOD.replace(b'"user":"dave"', b'"user":"","user":"dave"'),
        GOOD.replace(b'"dave"', b'""'),
        GOOD.replace(b'"devs"', b"1"),
        GOOD.replace(b":1000,", b':"1000",'),
        GOOD.replace(b'"cluster":"2web",', b""),
    ],
)
def test_claims_have_one_spelling(payload: bytes) -> None:
    assert payload != GOOD
    with pytest.raises(TokenError):
        verify(signed(ES256, payload), KEY.public_key())


def test_a_signature_of_the_key_for_another_purpose_is_none() -> None:
    """The same key signs TLS handshakes and may sign tokens; neither is an assertion."""
    token = jwt.sign(GOOD, KEY, "key")
    with pytest.raises(TokenError):
        verify(token, KEY.public_key())


def test_what_is_too_long_is_neither_made_nor_read() -> None:
    with pytest.raises(AssertionTooLarge):
        sign(claims(groups=("x" * MAX_SIZE,)), KEY)
    for text in ("a" * (MAX_SIZE + 1), "ä.ä.ä", "", ".", "..", "a.b", sign(claims(), KEY) + ".x"):
        with pytest.raises(TokenError):
            verify(text, KEY.public_key())


class TestReading:
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def reader(self, clock: Clock) -> AssertionVerifier:
        return AssertionVerifier(clock)

    def read(self, reader: AssertionVerifier, text: str, cluster: str = WEB) -> User:
        return reader.user([text], KEY.public_key(), b"digest", cluster)

    def test_the_user_is_the_one_asserted(self, reader: AssertionVerifier, clock: Clock) -> None:
        made = AssertionSigner(KEY, clock).assertion(DAVE, WEB)
        assert self.read(reader, made) == DAVE
        assert self.read(reader, made) is self.read(reader, made), "the second time without its signature"

    def test_it_counts_in_its_cluster_alone_whether_it_was_read_before_or_not(
        self, reader: AssertionVerifier, clock: Clock
    ) -> None:
        made = AssertionSigner(KEY, clock).assertion(DAVE, WEB)
        for cluster in (OTHER, "", "?"):
            with pytest.raises(TokenError, match="cluster"):
                self.read(reader, made, cluster)
        self.read(reader, made)
        with pytest.raises(TokenError, match="cluster"):
            self.read(reader, made, OTHER)

    @pytest.mark.parametrize("moment", [-SKEW_S - 1, LIFE_S + SKEW_S, LIFE_S + SKEW_S + 1, 10**9, -(10**9)])
    def test_it_counts_in_its_time_alone_whether_it_was_read_before_or_not(
        self, reader: AssertionVerifier, clock: Clock, moment: int
    ) -> None:
        made = AssertionSigner(KEY, clock).assertion(DAVE, WEB)
        begin = clock.now
        for _ in range(2):
            clock.now = begin + moment
            with pytest.raises(TokenError, match="clocks"):
                self.read(reader, made)
            clock.now = begin
            self.read(reader, made)

    def test_clocks_may_differ_a_little(self, reader: AssertionVerifier, clock: Clock) -> None:
        made, begin = AssertionSigner(KEY, clock).assertion(DAVE, WEB), clock.now
        for apart in (-SKEW_S, 0, LIFE_S, LIFE_S + SKEW_S - 1):
            clock.now = begin + apart
            assert self.read(reader, made) == DAVE

    @pytest.mark.parametrize("exp", [1000 + LIFE_S + 1, 1000, 999, 10**12])
    def test_nobody_makes_one_that_lives_longer(self, reader: AssertionVerifier, clock: Clock, exp: int) -> None:
        clock.now = 1000.0
        with pytest.raises(TokenError, match="too long"):
            self.read(reader, sign(claims(exp=exp), KEY))

    def test_one_read_for_one_certificate_is_read_anew_for_another(
        self, reader: AssertionVerifier, clock: Clock
    ) -> None:
        made = AssertionSigner(KEY, clock).assertion(DAVE, WEB)
        self.read(reader, made)
        with pytest.raises(TokenError):
            reader.user([made], ec.generate_private_key(ec.SECP256R1()).public_key(), b"another", WEB)

    @pytest.mark.parametrize("count", [0, 2])
    def test_there_is_exactly_one(self, reader: AssertionVerifier, clock: Clock, count: int) -> None:
        made = AssertionSigner(KEY, clock).assertion(DAVE, WEB)
        with pytest.raises(TokenError):
            reader.user([made] * count, KEY.public_key(), b"digest", WEB)

    def test_what_is_kept_is_bounded(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(assertion, "CACHE_BYTES", 20_000)
        small, maker = AssertionVerifier(clock), AssertionSigner(KEY, clock)
        for number in range(100):
            small.user([maker.assertion(User(f"u{number}"), WEB)], KEY.public_key(), b"", WEB)
        assert len(small._verified) <= 20
        assert len(maker._signed) <= 30


class TestMaking:
    def test_one_is_used_for_half_its_life_and_never_after(self) -> None:
        clock = Clock()
        maker = AssertionSigner(KEY, clock)
        first = maker.assertion(DAVE, WEB)
        clock.now += LIFE_S / 2 - 0.1
        assert maker.assertion(DAVE, WEB) == first
        clock.now += 0.2
        assert maker.assertion(DAVE, WEB) != first

    def test_a_clock_that_was_set_is_seen_at_once(self) -> None:
        for step in (-300, 300):
            clock = Clock()
            maker = AssertionSigner(KEY, clock)
            maker.assertion(DAVE, WEB)
            clock.now += step
            AssertionVerifier(clock).user([maker.assertion(DAVE, WEB)], KEY.public_key(), b"", WEB)

    def test_each_identity_and_each_cluster_has_its_own(self) -> None:
        maker = AssertionSigner(KEY, Clock())
        users = [
            DAVE,
            User("dave2", DAVE.groups, DAVE.uid, DAVE.extra),
            User("dave", (), DAVE.uid, DAVE.extra),
            User("dave", DAVE.groups, "", DAVE.extra),
            User("dave", DAVE.groups, DAVE.uid),
            User("dave", DAVE.groups, DAVE.uid, {"example.com/team": ("red",)}),
        ]
        made = {maker.assertion(user, cluster) for user in users for cluster in (WEB, OTHER, "")}
        assert len(made) == 3 * len(users)


def test_keys_that_cannot_sign_are_refused() -> None:
    form = (Encoding.PEM, PrivateFormat.PKCS8)
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(public_exponent=3, key_size=1024)):
        assert assertion_key(key.public_key()) is None
        with pytest.raises(ValueError, match="neither"):
            signing_key(key.private_bytes(*form, NoEncryption()))
    with pytest.raises(ValueError, match="passphrase"):
        signing_key(KEY.private_bytes(*form, BestAvailableEncryption(b"x")))
    assert signing_key(KEY.private_bytes(*form, NoEncryption())).private_numbers() == KEY.private_numbers()


@pytest.fixture(scope="module")
def proxies() -> Pair:
    return make_ca("proxies")


@pytest.fixture(scope="module")
def clients() -> Pair:
    return make_ca("clients")


@pytest.fixture(scope="module")
def proxy(proxies: Pair) -> Pair:
    return make_client(proxies, "front-proxy")


class TestAuthenticator:
    """Which senders of assertions are trusted."""

    @pytest.fixture
    def authenticator(self, proxies: Pair, clients: Pair) -> Authenticator:
        certificates = Certificates(clients.certificate, proxies.certificate, ["front-proxy", "second"])
        return Authenticator(BearerTokens((), ()), certificates, Impersonator(Authorizer()))

    @pytest.fixture
    def store(self) -> FakeStore:
        made = FakeStore()
        bootstrap(made)
        workspace(made, WEB, owner="dave")
        return made

    def ask(self, pair: Pair | None, headers: dict[str, list[str]]) -> HttpRequest:
        der = pem_to_der(pair.certificate) if pair is not None else None
        return HttpRequest("GET", b"/api", headers, b"", Peer("192.0.2.1", 1, der))

    def test_a_proxy_speaks_for_whom_it_signed_and_is_named(
        self, authenticator: Authenticator, store: FakeStore, proxy: Pair
    ) -> None:
        made = AssertionSigner(signing_key(proxy.key)).assertion(DAVE, WEB)
        found = authenticator.identify(self.ask(proxy, {HEADER: [made]}), WEB, store)
        assert (found.user, found.through) == (DAVE, "front-proxy")

    def test_groups_of_the_lifecycle_are_not_among_what_it_can_say(
        self, authenticator: Authenticator, store: FakeStore, proxy: Pair
    ) -> None:
        user = User("dave", ("system:kcp:initializer:root:x", "devs"))
        made = AssertionSigner(signing_key(proxy.key)).assertion(user, WEB)
        found = authenticator.authenticate(self.ask(proxy, {HEADER: [made]}), WEB, store)
        assert found.groups == ("devs", "system:authenticated")

    def test_nobody_else_is_believed(
        self, authenticator: Authenticator, store: FakeStore, proxy: Pair, proxies: Pair, clients: Pair
    ) -> None:
        made = AssertionSigner(signing_key(proxy.key)).assertion(DAVE, WEB)
        others = (
            None,
            make_client(clients, "front-proxy"),
            make_client(proxies, "stranger"),
            make_client(proxies, "second"),
            make_client(make_ca("proxies"), "front-proxy"),
        )
        for pair in others:
            for headers in ({}, {"authorization": ["Bearer x"]}):
                with pytest.raises(Unauthorized):
                    authenticator.authenticate(self.ask(pair, {HEADER: [made], **headers}), WEB, store)

    @pytest.mark.parametrize(
        "more",
        [
            {"x-remote-user": ["dave"]},
            {"x_remote_group": ["a"]},
            {"connection": ["close, Atoll-Assertion"]},
            {"atoll_assertion": ["a"]},
            {"atoll-assertion-2": ["a"]},
            {"atoll%2dassertion": ["a"]},
            {"atoll%252dassertion": ["a"]},
            {"atoll.assertion": ["a"]},
        ],
    )
    def test_it_stands_alone(
        self, authenticator: Authenticator, store: FakeStore, proxy: Pair, more: dict[str, list[str]]
    ) -> None:
        made = AssertionSigner(signing_key(proxy.key)).assertion(DAVE, WEB)
        with pytest.raises(Unauthorized):
            authenticator.authenticate(self.ask(proxy, {HEADER: [made], **more}), WEB, store)
        with pytest.raises(Unauthorized):
            authenticator.authenticate(self.ask(proxy, {HEADER: [made, made]}), WEB, store)

    def test_who_impersonates_is_who_was_asserted(
        self, authenticator: Authenticator, store: FakeStore, proxy: Pair
    ) -> None:
        made = AssertionSigner(signing_key(proxy.key)).assertion(User("dave", ("system:authenticated",)), WEB)
        found = authenticator.identify(self.ask(proxy, {HEADER: [made], "impersonate-user": ["eve"]}), WEB, store)
        assert found.impersonator is not None
        assert (found.user.name, found.impersonator.name, found.through) == ("eve", "dave", "front-proxy")

    def test_an_authority_that_is_trusted_no_more_makes_no_proxy(
        self, proxies: Pair, store: FakeStore, proxy: Pair
    ) -> None:
        certificates = Certificates(b"", proxies.certificate)
        authenticator = Authenticator(BearerTokens((), ()), certificates, Impersonator(Authorizer()))
        sent = self.ask(proxy, {HEADER: [AssertionSigner(signing_key(proxy.key)).assertion(DAVE, WEB)]})
        assert authenticator.authenticate(sent, WEB, store) == DAVE
        certificates.trust(b"", make_ca("proxies").certificate)
        with pytest.raises(Unauthorized):
            authenticator.authenticate(sent, WEB, store)


def test_the_digest_of_a_certificate_is_of_all_of_it() -> None:
    ca = make_ca("proxies")
    der = pem_to_der(make_client(ca, "p").certificate)
    assert Certificates(b"", ca.certificate).verify(der).sha256 == hashlib.sha256(der).digest()
