"""Authentication at the proxy: it forwards an assertion in place of a credential, or the credential alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from atoll.frontproxy import mapping, renewal
from atoll.frontproxy.authentication import USERS_BYTES, GroupFilter, ProxyAuthentication, RequestUser
from atoll.frontproxy.config import DROP_GROUPS, FrontProxyConfig
from atoll.frontproxy.credentials import build_authentication
from atoll.frontproxy.mapping import RemoteHeaderNames
from atoll.frontproxy.unknown_workspace import UnknownWorkspace
from atoll.machinery.apiserver.authentication import assertion, jwt
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys, read_public_keys
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.egress import Egress
from atoll.machinery.egress.addresses import policy
from atoll.machinery.meta.status import ApiError, Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER, User
from atoll.machinery.process import pki
from atoll.machinery.process.private_files import InvalidCredentials, Pair, PkiError, write_pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.storage.contract import Snapshot
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.data.stores import store_options

ISSUER = "https://kcp.default.svc"
TOKENS = 'alice-token,alice,u1,"devs,system:masters,system:kcp:admin,system:kcp:initializer:root:x"\n'


class Scene:
    """A proxy's identity, with authorities for users, for itself, and for proxies before it."""

    def __init__(self, directory: Path, view: Snapshot) -> None:
        self.directory, self.view = directory, view
        self.users, self.proxies, self.before = (pki.make_ca(name) for name in ("users", "proxies", "before"))
        self.pair = pki.make_client(self.proxies, "front-proxy")
        self.keys: KeySet = load_keys(pki.make_rsa_key())
        self.egress = Egress(policy(""))
        self.identity = self.made()

    def write(self, name: str, content: bytes | str) -> str:
        path = self.directory / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def made(self, pair: Pair | None = None, **changed: Any) -> ProxyAuthentication:
        settings = {
            "client_ca_file": (self.write("users.crt", self.users.certificate),),
            "requestheader_client_ca_file": self.write("before.crt", self.before.certificate),
            "token_auth_file": self.write("tokens.csv", TOKENS),
            "service_account_key_file": (self.write("sa.key", public_pem(self.keys)),),
            "mapping_file": "unused",
            **changed,
        }
        config = FrontProxyConfig(**settings)
        keys = read_public_keys(config.service_account_key_file)
        return build_authentication(config, pair or self.pair, lambda view: None, self.egress, keys)

    def ask(self, headers: dict[str, list[str]] | None = None, certificate: Pair | None = None) -> HttpRequest:
        der = pki.pem_to_der(certificate.certificate) if certificate is not None else None
        return HttpRequest("GET", b"/api", headers or {}, b"", Peer("192.0.2.7", 5, der))

    def who(self, headers: dict[str, list[str]] | None = None, certificate: Pair | None = None) -> RequestUser:
        return self.identity.identify(self.ask(headers, certificate), "1here", self.view)

    def sent_on(
        self, headers: dict[str, list[str]] | None = None, certificate: Pair | None = None
    ) -> tuple[list[tuple[str, str]], User | None]:
        """The request that is forwarded to a shard, without the assertion; and the assertion's claims."""
        request = self.ask(headers, certificate)
        caller = self.identity.identify(request, "1here", self.view)
        pairs = self.identity.headers(request, caller, "1here")
        said = [value for name, value in pairs if name == assertion.HEADER]
        rest = [pair for pair in pairs if pair[0] != assertion.HEADER]
        if not said:
            return rest, None
        key = assertion.assertion_key(self.pair.x509.public_key())
        assert key is not None
        return rest, assertion.AssertionVerifier().user(said, key, b"", "1here")

    def account_token(self, *, expires_in_s: int = 600, key: Any = None, issuer: str = ISSUER) -> str:
        now = int(time.time())
        claims = {
            "iss": issuer,
            "sub": "system:serviceaccount:default:bot",
            "aud": [ISSUER],
            "iat": now,
            "nbf": now,
            "exp": now + expires_in_s,
            "jti": "1",
            "kubernetes.io": {
                "clusterName": "1here",
                "namespace": "default",
                "serviceaccount": {"name": "bot", "uid": "u-bot"},
            },
        }
        return jwt.sign(msgspec.json.encode(claims), key or self.keys.signing, self.keys.signing_id)


def public_pem(keys: KeySet) -> bytes:
    return keys.signing.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def bearer(token: str) -> dict[str, list[str]]:
    return {"authorization": [f"Bearer {token}"]}


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    store = open_store(store_options(tmp_path / "store"))
    with store.snapshot() as view:
        made = Scene(tmp_path, view)
        yield made
    await made.egress.close()
    await store.close()


def test_a_certificate_becomes_an_assertion_with_uid_and_without_the_groups_of_power(scene: Scene) -> None:
    groups = ["devs", *(name.replace("*", "x") for name in DROP_GROUPS), "system:kcp:admin"]
    carol = pki.make_client(scene.users, "carol", groups, uid="u7")
    rest, user = scene.sent_on(bearer("whatever") | {"accept": ["*/*"]}, carol)
    assert user is not None
    assert (user.name, user.uid, user.groups) == ("carol", "u7", ("devs", "system:kcp:admin", "system:authenticated"))
    assert rest == [("accept", "*/*")], "the credential ends here"


def test_a_known_token_becomes_an_assertion(scene: Scene) -> None:
    rest, user = scene.sent_on(bearer("alice-token"))
    assert user == User("alice", ("devs", "system:kcp:admin", "system:authenticated"), "u1")
    assert rest == []


def test_who_shows_nothing_goes_on_as_nobody(scene: Scene) -> None:
    assert scene.who() == RequestUser(ANONYMOUS_USER, verified=False)
    assert scene.sent_on({"accept": ["a", "b"]}) == ([("accept", "a"), ("accept", "b")], None)


@pytest.mark.parametrize(
    "value",
    [["Bearer unknown"], ["Bearer a.b.c"], ["Basic YTpi"], ["Bearer "], ["Bearer alice-token", "Bearer alice-token"]],
)
def test_a_credential_that_is_nobodys_here_goes_on_as_it_came(scene: Scene, value: list[str]) -> None:
    """The shard rejects it, or identifies its user."""
    rest, user = scene.sent_on({"authorization": value})
    assert user is None
    assert rest == [("authorization", text) for text in value]


def test_a_service_accounts_token_goes_on_and_is_refused_if_it_is_over_or_not_ours(scene: Scene) -> None:
    token = scene.account_token()
    assert scene.who(bearer(token)) == scene.who(bearer(token))
    assert scene.who(bearer(token)).user.name == "system:serviceaccount:default:bot"
    assert scene.sent_on(bearer(token)) == ([("authorization", f"Bearer {token}")], None)
    other = load_keys(pki.make_rsa_key()).signing
    for bad in (scene.account_token(expires_in_s=-1), scene.account_token(key=other), token[:-6] + "AAAAAA"):
        with pytest.raises(Unauthorized):
            scene.who(bearer(bad))
    assert scene.sent_on(bearer(scene.account_token(issuer="https://another.example")))[1] is None


def test_without_its_keys_the_proxy_refuses_no_service_account(scene: Scene) -> None:
    scene.identity = scene.made(service_account_key_file=())
    token = scene.account_token(expires_in_s=-1)
    assert scene.sent_on(bearer(token)) == ([("authorization", f"Bearer {token}")], None)


def test_certificates_of_others_are_refused(scene: Scene) -> None:
    for pair in (pki.make_client(pki.make_ca("users"), "carol"), pki.make_client(scene.proxies, "front-proxy")):
        with pytest.raises(Unauthorized):
            scene.who({}, pair)


SPELLINGS = (
    "x-remote-user",
    "x-remote-group",
    "x-remote-uid",
    "x-remote-extra-authorization.kcp.io%2fwarrant",
    "x_remote_user",
    "x%2dremote-user",
    "x%252dremote-user",
    "x.remote.user",
    "atoll-assertion",
    "atoll_assertion",
    "atoll%2dassertion",
    "atoll-assertion-more",
    "x-real-user",
    "x_real_user",
    "forwarded",
    "x-forwarded-for",
    "x_forwarded_for",
)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("registered", [False, True], ids=["unknown", "registered"])
def test_no_identity_header_goes_on_whoever_sends_it(scene: Scene, name: str, registered: bool) -> None:
    scene.identity = scene.made(requestheader_username_headers="X-Remote-User,X-Real-User")
    headers = {name: ["system:masters", "again"], "accept": ["a"]}
    if registered:
        headers |= bearer("alice-token")
    rest, user = scene.sent_on(headers)
    assert rest == [("accept", "a")]
    assert (user.name if user is not None else "") == ("alice" if registered else "")
    remote = scene.identity.remote_headers(scene.ask(headers), scene.who(headers), RemoteHeaderNames("X-Own-User"))
    assert {key.lower() for key, _ in remote} <= {"accept", "x-own-user", "x-remote-group"}
    assert ("X-Own-User", "alice") in remote or not registered


def test_what_connection_lists_ends_here_and_what_is_ours_does_not(scene: Scene) -> None:
    listed = {"connection": ["close, Atoll-Assertion, x-other, upgrade"], "x-other": ["1"], "upgrade": ["websocket"]}
    rest, user = scene.sent_on({**listed, **bearer("alice-token"), "impersonate-user": ["bob"]})
    assert rest == [("impersonate-user", "bob")]
    assert user is not None


def test_a_proxy_before_this_one_is_believed_and_its_groups_are_dropped_all_the_same(scene: Scene) -> None:
    said = {
        "x-remote-user": ["dave"],
        "x-remote-group": ["devs", "system:masters"],
        "x-remote-extra-authorization.kcp.io%2fwarrant": ['{"user":"x","groups":["system:masters"]}'],
        "x-remote-extra-authentication.kcp.io%2fscopes": ["cluster:a"],
    }
    rest, user = scene.sent_on(said, pki.make_client(scene.before, "balancer"))
    assert rest == []
    assert user == User("dave", ("devs", "system:authenticated"), "", {"authentication.kcp.io/scopes": ("cluster:a",)})
    assert scene.sent_on(said, pki.make_client(scene.users, "balancer"))[1] != user
    assert scene.sent_on(said)[1] is None


def test_to_what_is_no_shard_of_ours_it_is_said_in_headers_without_the_uid(scene: Scene) -> None:
    names = RemoteHeaderNames("X-Remote-User", "X-Remote-Group", "X-Remote-Extra-")
    request = scene.ask(bearer("alice-token"))
    found = scene.identity.remote_headers(request, scene.who(request.headers), names)  # type: ignore[arg-type]
    assert found == [
        ("X-Remote-User", "alice"),
        *(("X-Remote-Group", g) for g in ("devs", "system:kcp:admin", "system:authenticated")),
    ]
    for odd in (" padded", "line\nbreak", "tab\t"):
        with pytest.raises(Unauthorized):
            scene.identity.remote_headers(request, RequestUser(User("x", (odd,)), verified=True), names)


@pytest.mark.parametrize(
    ("drop", "pass_on", "groups", "left"),
    [
        ((), (), ("a", "b"), ("a", "b")),
        (("a",), (), ("a", "ab", "b"), ("ab", "b")),
        ((), ("a",), ("a", "b"), ("a",)),
        (("a*",), (), ("a", "ab", "b"), ("b",)),
        (("ab",), ("a*",), ("a", "ab", "abc"), ("a", "abc")),
        (("*",), ("a",), ("a",), ()),
        (("a*c",), (), ("abc", "a*c"), ("abc",)),
    ],
)
def test_groups_are_dropped_by_name_or_beginning_and_dropping_wins(
    drop: Sequence[str], pass_on: Sequence[str], groups: Sequence[str], left: Sequence[str]
) -> None:
    assert GroupFilter(tuple(drop), tuple(pass_on))(groups) == left


def test_an_identity_too_large_for_a_header_is_told(scene: Scene) -> None:
    large = RequestUser(User("x", tuple(f"group-{number}" * 10 for number in range(1000))), verified=True)
    with pytest.raises(ApiError) as refused:
        scene.identity.headers(scene.ask(), large, "")
    assert refused.value.code == 431


def test_a_certificate_of_its_own_that_users_could_have_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidCredentials, match="authority of users"):
        scene.made(pki.make_client(scene.users, "front-proxy"))
    with pytest.raises(InvalidCredentials, match="cannot be used"):
        scene.made(Pair(scene.pair.certificate, b"no key"))
    for changed in (
        {"client_ca_file": (scene.write("bad", "x"),)},
        {"token_auth_file": scene.write("bad.csv", "a,b\n")},
        {"service_account_key_file": (scene.write("bad.key", "x"),)},
    ):
        with pytest.raises(InvalidCredentials):
            scene.made(**changed)


class TestUnknownWorkspace:
    def error(self, scene: Scene, target: str, headers: dict[str, list[str]] | None = None) -> ApiError:
        request = scene.ask(headers)
        caller = scene.identity.identify(request, "", scene.view)
        return UnknownWorkspace().error(request, parse("GET", target.encode()), caller, scene.view)

    def test_it_speaks_of_the_question_and_of_who_asks(self, scene: Scene) -> None:
        found = self.error(scene, "/clusters/root:none/api/v1/secrets", bearer("alice-token"))
        assert (found.code, found.message) == (
            403,
            'secrets is forbidden: User "alice" cannot list resource "secrets" in API group "" at the cluster '
            "scope: workspace access not permitted",
        )
        found = self.error(scene, "/clusters/*/api")
        assert found.message == (
            'forbidden: User "system:anonymous" cannot get path "/api": workspace access not permitted'
        )

    def test_a_credential_that_nobody_knows_is_none_anywhere(self, scene: Scene) -> None:
        assert self.error(scene, "/clusters/none/api", bearer("unknown")).code == 401
        assert self.error(scene, "/clusters/none/api", bearer(scene.account_token())).code == 403

    def test_nobody_borrows_a_name_there(self, scene: Scene) -> None:
        for code, more in (
            (403, {"impersonate-user": ["bob"]}),
            (400, {"impersonate-uid": ["1"]}),
            (403, {"impersonate-group": ["system:masters"], "impersonate-user": ["bob"]}),
        ):
            assert self.error(scene, "/clusters/none/api", bearer("alice-token") | more).code == code


async def test_keys_of_a_configured_issuer_that_cannot_be_had_leave_its_tokens_to_the_shard(scene: Scene) -> None:
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [
            {
                "issuer": {"url": "https://127.0.0.1:1", "audiences": ["atoll"]},
                "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
            }
        ],
    }
    file = scene.write("authentication.json", msgspec.json.encode(configuration))
    scene.identity = scene.made(authentication_config=file)
    claims = {"iss": "https://127.0.0.1:1", "aud": "atoll", "sub": "x", "exp": int(time.time()) + 600}
    token = jwt.sign(msgspec.json.encode(claims), scene.keys.signing, "k")
    with pytest.raises(AuthenticationPending) as unsettled:
        scene.who(bearer(token))
    async with asyncio.timeout(60):
        await unsettled.value.complete()
    assert scene.who(bearer(token)) == RequestUser()


def test_cached_users_are_weighed_in_bytes(scene: Scene) -> None:
    for number in range(1000):
        user = User(f"user-{number}", extra={"claim": ("x" * 100_000,)})
        assert scene.identity._verified_user(user) == scene.identity._verified_user(user)
    assert 0 < len(scene.identity._users) * 2 * 100_000 < USERS_BYTES


@pytest.mark.parametrize("verified", [True, False])
def test_a_client_sends_no_header_in_which_a_backend_is_given_the_user(scene: Scene, verified: bool) -> None:
    names = RemoteHeaderNames("X-Own-User", "X-Own-Group", "X-Own-Extra-")
    sent = {"x-own-user": ["root"], "x-own-group": ["system:masters"], "x-own-extra-scopes": ["a"], "x-other": ["b"]}
    found = scene.identity.remote_headers(scene.ask(sent), RequestUser(User("x"), verified=verified), names)
    assert found == [("x-other", "b"), *([("X-Own-User", "x")] if verified else [])]


def test_a_mount_is_sent_the_callers_credential_and_no_header_that_names_a_user(scene: Scene) -> None:
    scene.identity = scene.made(requestheader_username_headers="X-Real-User")
    named = ("x-real-user", "x-remote-user", "x-remote-extra-a", "x-forwarded-for", "x-kcp-a", assertion.HEADER.lower())
    found = scene.identity.stripped(scene.ask({**bearer("alice-token"), **{name: ["root"] for name in named}}))
    assert [name for name, _ in found] == ["authorization"]


def test_a_certificate_is_renewed_for_the_key_that_signs_assertions_and_for_no_other(tmp_path: Path) -> None:
    ca = pki.make_ca("proxies")
    pair = pki.make_client(ca, "proxy")
    write_pair(tmp_path, "proxy", pair)
    (tmp_path / "ca.crt").write_bytes(ca.certificate)
    certificate, key, authority = (str(tmp_path / name) for name in ("proxy.crt", "proxy.key", "ca.crt"))
    config = FrontProxyConfig(root_ca_file=authority, proxy_client_cert_file=certificate, proxy_client_key_file=key)
    context = client_context(ca.certificate, pair)
    files = renewal.shard_files(config, mapping.DEFAULT, context, pair.key)
    assert files.files == (authority, certificate, key)
    write_pair(tmp_path, "proxy", pki.make_client(ca, "proxy", key_pem=pair.key))
    files.make()
    write_pair(tmp_path, "proxy", pki.make_client(ca, "proxy"))
    with pytest.raises(PkiError, match="restart the process"):
        files.make()
