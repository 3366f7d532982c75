"""Keys of issuers: refresh, limits of their cost, and the bound of the token cache."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from atoll.machinery.apiserver.authentication.jwt import TokenError, encode_base64
from atoll.machinery.apiserver.authentication.oidc import config, issuer_keys, key_set, source
from atoll.machinery.apiserver.authentication.oidc.config import InvalidConfig, JWTAuthenticator
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending, IssuerKeys
from atoll.machinery.apiserver.authentication.oidc.mapping import Mapper
from atoll.machinery.apiserver.authentication.oidc.source import IssuerTokens
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Unauthorized
from harness.servers.stand_ins.oidc_issuer import Issuer


class Site:
    """An issuer whose documents are fetched without a network, with a clock of the test."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer, self.now, self.fetched, self.takes_s = issuer, 1000.0, 0, 0.0
        self.down = False
        found = {
            "issuer": {"url": issuer.url, "audiences": ["me"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }
        (self.authenticator,) = config.from_object({"spec": {"jwt": [found]}})
        self.cache: source.TokenCache = LruCache(4)

    async def fetch(self, url: str, ca_pem: bytes, timeout_s: float) -> bytes:
        self.fetched += 1
        self.now += self.takes_s
        if self.down:
            raise ConnectionError("down")
        return json.dumps(self.issuer._documents()[url.removeprefix(self.issuer.url.removesuffix("/realm"))]).encode()

    def keys(self) -> IssuerKeys:
        return IssuerKeys(self.authenticator.issuer, self.fetch, lambda: self.now)

    def tokens(self) -> IssuerTokens:
        found = IssuerTokens(self.authenticator, self.fetch, self.cache)
        found._keys = self.keys()
        return found


@pytest.fixture
def site() -> Iterator[Site]:
    with Issuer() as issuer:
        yield Site(issuer)


async def resolved(found: IssuerKeys, token: str) -> bytes:
    for _ in range(2):
        try:
            return found.payload(token)
        except AuthenticationPending as error:
            await error.complete()
    return found.payload(token)


async def test_keys_that_are_only_old_go_on_counting_while_others_are_fetched(site: Site) -> None:
    found, token = site.keys(), site.issuer.token(sub="a", aud="me")
    await resolved(found, token)
    site.now += issuer_keys.MAX_AGE_S + 1
    site.down, site.takes_s, before = True, 20.0, site.fetched
    for _ in range(3):
        # The issuer hangs longer than the interval: no request waits for it, and it gets one request.
        assert found.payload(token)
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert found.payload(token)
    assert site.fetched == before + 1


async def test_a_fetch_that_hung_is_not_begun_again_at_once(site: Site) -> None:
    found, token = site.keys(), site.issuer.token(sub="a", aud="me")
    site.down, site.takes_s = True, 20.0
    with pytest.raises(AuthenticationPending) as raised:
        found.payload(token)
    await raised.value.complete()
    with pytest.raises(TokenError):
        found.payload(token)
    assert site.fetched == 1


async def test_a_token_does_not_outlive_the_key_that_signed_it(site: Site) -> None:
    site.issuer.curve("second")
    found = site.tokens()
    by_first = site.issuer.token(sub="a", aud="me")
    with pytest.raises(AuthenticationPending) as raised:
        found.verify(by_first, b"1")
    await raised.value.complete()
    assert found.verify(by_first, b"1").user.name == "a"
    del site.issuer.keys["first"]
    site.now += issuer_keys.MAX_AGE_S + 1
    found.verify(by_first, b"1")
    with pytest.raises((Unauthorized, AuthenticationPending)):
        for _ in range(1000):
            await asyncio.sleep(0)
            found.verify(by_first, b"1")


async def test_tokens_of_all_issuers_are_remembered_in_one_bounded_place(site: Site) -> None:
    first, second = site.tokens(), site.tokens()
    for each in (first, second):
        with pytest.raises(AuthenticationPending) as raised:
            each.verify(site.issuer.token(sub="a", aud="me"), b"0")
        await raised.value.complete()
    for number in range(6):
        token = site.issuer.token(sub=f"u{number}", aud="me")
        for each in (first, second):
            assert each.verify(token, b"%d" % number).user.name == f"u{number}"
    assert len(site.cache) == 4


@pytest.mark.parametrize(
    ("bits", "exponent", "usable"),
    [(2048, 65537, 1), (2047, 65537, 0), (8192, 65537, 1), (8193, 65537, 0), (2048, (1 << 33) + 1, 0)],
)
def test_a_key_costs_no_more_than_a_key_does(bits: int, exponent: int, usable: int) -> None:
    def number(value: int) -> str:
        return encode_base64(value.to_bytes((value.bit_length() + 7) // 8))

    jwk = {"kty": "RSA", "n": number((1 << (bits - 1)) | 1), "e": number(exponent)}
    assert len(key_set.public_keys(json.dumps({"keys": [jwk]}).encode())) == usable


def test_a_document_of_keys_is_bounded() -> None:
    with pytest.raises(TokenError, match="bytes"):
        key_set.public_keys(b'{"keys":[]}' + b" " * key_set.MAX_DOCUMENT_BYTES)


def trusted(**more: Any) -> dict[str, Any]:
    issuer = {"url": "https://x.example.com", "audiences": ["me"]}
    mappings = {"username": {"claim": "sub", "prefix": ""}}
    return {"issuer": issuer, "claimMappings": mappings, **more}


def test_a_tenants_rules_are_bounded() -> None:
    rules = [{"expression": f"claims.sub != 'x{number}'"} for number in range(1000)]
    with pytest.raises(InvalidConfig, match="Too long"):
        config.from_object({"spec": {"jwt": [trusted(claimValidationRules=rules)]}})
    config.from_object({"spec": {"jwt": [trusted(claimValidationRules=rules[:100])]}})


def test_the_expressions_for_one_token_share_one_budget() -> None:
    tens = "[1,2,3,4,5,6,7,8,9,10]"
    costly = f"{tens}.all(a,{tens}.all(b,{tens}.all(c,{tens}.all(d,a+b+c+d>0))))"

    def mapper(count: int) -> Mapper:
        found: tuple[JWTAuthenticator, ...] = config.from_object(
            {"spec": {"jwt": [trusted(claimValidationRules=[{"expression": costly}] * count)]}}
        )
        return Mapper(found[0])

    assert mapper(1).user({"sub": "a"}).name == "a"
    with pytest.raises(TokenError, match="expression failed"):
        mapper(40).user({"sub": "a"})
