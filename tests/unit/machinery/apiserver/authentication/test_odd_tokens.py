"""Odd tokens: for any header and payload, verification returns a payload or raises TokenError, and nothing else."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.jwt import TokenError, encode_base64
from atoll.machinery.apiserver.authentication.oidc import key_set
from atoll.machinery.apiserver.authentication.oidc.key_set import IssuerKey
from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.authentication.service_account_claims import read, unverified_issuer
from atoll.machinery.apiserver.authentication.service_accounts import subject_of
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.wire.exchange import HttpRequest, Peer

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OWN, FOREIGN = {"a": KEY.public_key()}, (IssuerKey("a", "", KEY.public_key()),)
DEEP = b"[" * 3000 + b"]" * 3000


def token(header: bytes, payload: bytes = b"{}") -> str:
    signed = f"{encode_base64(header)}.{encode_base64(payload)}"
    return f"{signed}.{encode_base64(KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def header(**more: object) -> bytes:
    return json.dumps({"alg": "RS256", "kid": "a", **more}).encode()


GOOD = token(header())
#: Headers that neither kind of token may have.
HEADERS = {
    "an unknown critical extension": header(crit=["x"], x=1),
    "a known critical extension": header(crit=["b64"], b64=True),
    "a critical parameter of the standard": header(crit=["kid"]),
    "a number for crit": header(crit=7),
    "a text for crit": header(crit="kid"),
    "an unencoded payload": header(crit=["b64"], b64=False),
    "a number for kid": header(kid=1),
    "null for kid": header(kid=None),
    "no algorithm": b'{"kid":"a"}',
    "a list for the algorithm": header(alg=["RS256"]),
    "no signature": header(alg="none"),
    "a shared secret": header(alg="HS256"),
    "the algorithm of another kind of key": header(alg="ES256"),
    "another padding": header(alg="PS256"),
    "another hash": header(alg="RS384"),
    "UTF-16": '{"alg":"RS256","kid":"a"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + header(),
    "a byte that is not UTF-8": b'{"alg":"RS256","kid":"\xff"}',
    "half of a surrogate pair": b'{"alg":"RS256","kid":"\\ud800"}',
    "a number that is not JSON": b'{"alg":"RS256","kid":"a","x":NaN}',
    "an array": b'["alg"]',
    "a string": b'"alg"',
    "a number": b"1",
    "nothing": b"",
    "deep nesting": b'{"alg":"RS256","kid":"a","x":' + DEEP + b"}",
    "deep nesting alone": DEEP,
}
#: Spellings of a token that was signed.
SPELLINGS = {
    "padding": GOOD + "==",
    "four parts": GOOD + ".x",
    "a line end": GOOD + "\n",
    "a space": " " + GOOD,
    "a letter that is not ASCII": "ä" + GOOD,
    "more than the limit": token(header(), b"x" * jwt.MAX_TOKEN_SIZE),
}
#: Parameters that service account tokens do not have, and that other issuers' tokens may have without effect.
IGNORED = {
    "an embedded key": header(jwk={"kty": "RSA"}),
    "a URL of keys": header(jku="https://example.com"),
    "a URL of a certificate": header(x5u="https://example.com"),
    "compression": header(zip="DEF"),
}


def test_the_odd_tokens_differ_from_a_good_one_by_their_oddity_alone() -> None:
    assert jwt.verify(GOOD, OWN) == key_set.verify(GOOD, FOREIGN) == b"{}"


@pytest.mark.parametrize(
    "odd", [token(each) for each in HEADERS.values()] + list(SPELLINGS.values()), ids=[*HEADERS, *SPELLINGS]
)
def test_an_odd_token_is_refused_though_the_right_key_signed_it(odd: str) -> None:
    with pytest.raises(TokenError):
        jwt.verify(odd, OWN)
    with pytest.raises(TokenError):
        key_set.verify(odd, FOREIGN)


@pytest.mark.parametrize("odd", IGNORED.values(), ids=IGNORED)
def test_keys_and_urls_in_a_header_are_refused_in_our_tokens_and_without_effect_in_others(odd: bytes) -> None:
    with pytest.raises(TokenError):
        jwt.verify(token(odd), OWN)
    assert key_set.verify(token(odd), FOREIGN) == b"{}"
    with pytest.raises(TokenError):
        key_set.verify(token(odd), ())


@pytest.mark.parametrize(
    "payload",
    [b'{"x":' + DEEP + b"}", DEEP, b'{"iss":"\xff"}', b"\xff", b"1", b"[]", b'{"iss":1}', b'{"iss":NaN}'],
    ids=[
        "deep nesting",
        "deep nesting alone",
        "not UTF-8",
        "a byte",
        "a number",
        "a list",
        "an issuer of no text",
        "NaN",
    ],
)
def test_a_payload_of_any_kind_names_no_issuer_no_cluster_and_no_account(payload: bytes) -> None:
    odd = token(header(), payload)
    assert unverified_issuer(odd) == ""
    assert subject_of(odd, OWN, ["https://kcp.default.svc"]) is None
    request = HttpRequest("GET", b"/api", {"authorization": [f"Bearer {odd}"]}, b"", Peer("::1", 1))
    assert token_cluster(request) == ""
    with pytest.raises(TokenError):
        read(payload)


def test_a_payload_that_names_our_issuer_and_is_odd_otherwise_is_unauthorized() -> None:
    for payload in (b'{"iss":"us","sub":"\xff"}', b'{"iss":"us","kubernetes.io":{"clusterName":"\xff"}}'):
        with pytest.raises(Unauthorized):
            subject_of(token(header(), payload), OWN, ["us"])


@pytest.mark.parametrize("document", [DEEP, b'{"keys":[{"kty":"\xff"}]}', b'{"keys":[],"x":' + DEEP + b"}", b"1", b""])
def test_an_odd_document_of_keys_is_no_key_set(document: bytes) -> None:
    with pytest.raises(TokenError):
        key_set.public_keys(document)
