"""Bearer tokens at the proxy: the cost of verification is bounded for any number of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from atoll.frontproxy.tokens import MAX_FETCHING, ServiceAccountTokens, TokenAuthentication, TokenUser, _Account
from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.stores import store_options


class _SlowIssuer:
    """An issuer of a workspace whose keys arrive only when the test releases them."""

    def __init__(self) -> None:
        self.requests, self.comes = 0, asyncio.Event()

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View, cluster: str) -> User | None:
        raise AuthenticationPending(self._settle)

    async def _settle(self) -> None:
        self.requests += 1
        await self.comes.wait()


async def test_tokens_of_an_issuer_that_is_slow_go_on_and_few_of_them_wait_for_its_keys(tmp_path: Path) -> None:
    issuer = _SlowIssuer()
    tokens = TokenAuthentication((), ServiceAccountTokens({}, ServiceAccountIssuers()), ("here",), issuer)
    store = open_store(store_options(tmp_path / "store"))
    with store.snapshot() as snapshot:
        for number in range(5 * MAX_FETCHING):
            assert tokens.authenticate(f"token-{number}", "abcdefgh12345678", snapshot) is None
    await asyncio.sleep(0)
    assert issuer.requests == MAX_FETCHING
    issuer.comes.set()
    for _ in range(3):
        await asyncio.sleep(0)
    with store.snapshot() as snapshot:
        assert tokens.authenticate("another", "abcdefgh12345678", snapshot) is None
    await asyncio.sleep(0)
    assert issuer.requests == MAX_FETCHING + 1, "who came later is asked for again"
    await store.close()


def test_a_service_accounts_token_of_a_key_that_is_new_to_the_proxy_is_the_shards_to_judge() -> None:
    known, other = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    accounts = ServiceAccountTokens({"known": known.public_key()}, ServiceAccountIssuers())
    claims = encode_json({"iss": ServiceAccountIssuers().names[0], "sub": "system:serviceaccount:default:a"})
    assert accounts.user_of(jwt.sign(claims, other, "new"), b"1") is None
    with pytest.raises(Unauthorized):
        accounts.user_of(jwt.sign(claims, other, "known"), b"2")


@pytest.mark.parametrize("vouch", [False, True])
def test_a_user_of_a_workspaces_issuer_is_asserted_to_backends_that_are_no_shards_only(vouch: bool) -> None:
    issuer = SimpleNamespace(user_of=lambda *_: User("wanda"))
    tokens = TokenAuthentication((), ServiceAccountTokens({}, ServiceAccountIssuers()), (), cast(Any, issuer))
    found = tokens.authenticate("token", "abcdefgh12345678", cast(Any, None), vouch=vouch)
    assert found == TokenUser(User("wanda"), verified=vouch)
    assert tokens.authenticate("token", "", cast(Any, None), vouch=vouch) is None


@pytest.mark.parametrize(("cluster", "confirmed"), [("abcdefgh12345678", True), ("other", False)])
def test_a_shard_confirms_an_account_for_the_accounts_own_cluster_alone(cluster: str, confirmed: bool) -> None:
    checks = list[str]()
    shards = SimpleNamespace(check=lambda shard, *_: checks.append(shard))
    key = generate_private_key(SECP256R1())
    accounts = ServiceAccountTokens({"known": key.public_key()}, ServiceAccountIssuers(), shards=cast(Any, shards))
    subject = Subject("abcdefgh12345678", "default", "a", "u1")
    accounts._cache.put(b"1", _Account(subject, User(subject.user_name)))
    view = SimpleNamespace(replicas=SimpleNamespace(shard_of=lambda _: "east"))
    assert accounts.confirm("token", b"1", cluster, cast(Any, view)) is confirmed
    assert checks == ["east"] * confirmed
