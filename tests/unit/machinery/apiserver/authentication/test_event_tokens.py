"""Tokens for events: which a gateway takes, and that the API takes none of them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec
import pytest

from atoll.machinery.apiserver.authentication import event_tokens, jwt
from atoll.machinery.apiserver.authentication.event_tokens import EventSubject, EventTokens
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys
from atoll.machinery.apiserver.authentication.service_accounts import (
    DEFAULT_ISSUER,
    ServiceAccountIssuers,
    ServiceAccountTokens,
)
from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer
from atoll.machinery.apiserver.authentication.tokens import token_digest
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.process.pki import make_rsa_key, public_key_pem
from harness.models.rbac_snapshot import FakeStore

NOW = 1_800_000_000
ACCOUNT = Account("2web", "ns", "builder", "uid-1")
ACCOUNT_NAME = "system:serviceaccount:ns:builder"


@pytest.fixture(scope="module")
def pem() -> bytes:
    return make_rsa_key()


@pytest.fixture(scope="module")
def keys(pem: bytes) -> KeySet:
    return load_keys(pem)


@pytest.fixture(scope="module")
def other_keys() -> KeySet:
    return load_keys(make_rsa_key())


def tokens(keys: KeySet, now_s: float = NOW) -> EventTokens:
    return EventTokens(keys.verifying, (DEFAULT_ISSUER,), lambda: now_s)


def of_account(keys: KeySet, *audiences: str) -> str:
    return TokenIssuer(keys, ServiceAccountIssuers(), clock=lambda: NOW).issue(ACCOUNT, audiences, 3600).text


def signed(keys: KeySet, **changes: object) -> str:
    """A token of a user, with claims changed or, for None, left out."""
    claims: Object = {"iss": "atoll-events", "sub": "ann", "aud": ["events"], "iat": NOW, "exp": NOW + 60, "jti": "x"}
    kept = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    return jwt.sign(msgspec.json.encode(kept), keys.signing, keys.signing_id)


def test_an_issued_token_says_whose_it_is_for_fifteen_minutes(keys: KeySet) -> None:
    issued = event_tokens.issue(keys, "ann", "", NOW)
    assert issued.expires_s == NOW + 900
    assert tokens(keys, NOW + 899).subject(issued.text) == EventSubject("ann", "", NOW + 900)
    with pytest.raises(Unauthorized):
        tokens(keys, NOW + 900).subject(issued.text)
    of_one_cluster = event_tokens.issue(keys, ACCOUNT_NAME, "2web", NOW).text
    assert tokens(keys).subject(of_one_cluster) == EventSubject(ACCOUNT_NAME, "2web", NOW + 900)


def test_a_token_that_a_service_account_requested_for_events_alone_is_taken(keys: KeySet) -> None:
    assert tokens(keys).subject(of_account(keys, "events")) == EventSubject(ACCOUNT_NAME, "2web", NOW + 3600)


@pytest.mark.parametrize("audiences", [(DEFAULT_ISSUER,), ("events", DEFAULT_ISSUER), ("event",), ()], ids=str)
def test_a_service_accounts_token_for_anything_else_is_refused(keys: KeySet, audiences: tuple[str, ...]) -> None:
    with pytest.raises(Unauthorized):
        tokens(keys).subject(of_account(keys, *audiences))


def test_the_token_in_a_secret_is_refused(keys: KeySet) -> None:
    legacy = TokenIssuer(keys, ServiceAccountIssuers()).legacy(ACCOUNT, "secret")
    with pytest.raises(Unauthorized):
        tokens(keys).subject(legacy)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere"},
        {"iss": DEFAULT_ISSUER},
        {"aud": ["events", "other"]},
        {"aud": [DEFAULT_ISSUER]},
        {"aud": []},
        {"aud": "events"},
        {"aud": None},
        {"sub": ""},
        {"sub": None},
        {"exp": NOW},
        {"exp": None},
        {"iat": NOW + 60},
        {"jti": None},
        {"kubernetes.io": {}},
    ],
    ids=str,
)
def test_claims_that_are_not_exactly_those_of_a_valid_event_token_are_refused(
    keys: KeySet, changes: dict[str, object]
) -> None:
    assert tokens(keys).subject(signed(keys)).user == "ann"
    with pytest.raises(Unauthorized):
        tokens(keys).subject(signed(keys, **changes))


def test_a_forged_token_is_refused(keys: KeySet, other_keys: KeySet, pem: bytes) -> None:
    genuine = signed(keys)
    head, claims, signature = genuine.split(".")
    none = jwt.encode_base64(msgspec.json.encode({"alg": "none", "kid": keys.signing_id}))
    shared = jwt.encode_base64(msgspec.json.encode({"alg": "HS256", "kid": keys.signing_id}))
    mac = hmac.digest(public_key_pem(pem), f"{shared}.{claims}".encode(), hashlib.sha256)
    changed = base64.urlsafe_b64encode(jwt.decode_base64(claims).replace(b"ann", b"bob")).rstrip(b"=").decode()
    forged = [
        signed(other_keys),
        jwt.sign(jwt.decode_base64(claims), other_keys.signing, keys.signing_id),
        f"{head}.{changed}.{signature}",
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{shared}.{claims}.{jwt.encode_base64(mac)}",
        f"{head}.{claims}",
        f"{genuine}.x",
        "",
        "x",
    ]
    for token in forged:
        with pytest.raises(Unauthorized):
            tokens(keys).subject(token)


def test_the_api_takes_no_token_of_events(keys: KeySet) -> None:
    api = ServiceAccountTokens(keys, ServiceAccountIssuers(), lambda: NOW)
    snapshot = FakeStore()
    issued = event_tokens.issue(keys, "ann", "", NOW).text
    assert api.user_of(issued, token_digest(issued), (DEFAULT_ISSUER,), snapshot) is None
    requested = of_account(keys, "events")
    with pytest.raises(Unauthorized):
        api.user_of(requested, token_digest(requested), (DEFAULT_ISSUER,), snapshot)
