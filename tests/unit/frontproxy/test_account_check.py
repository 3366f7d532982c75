"""Which answers of a shard confirm the token of a service account, which refuse it, and which say nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.frontproxy.account_check import account_check
from atoll.machinery.apiserver.authentication.remote_service_accounts import AccountCheck, ShardUnreachable
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.wire.client import ClientError

SUBJECT = Subject("abcdefgh12345678", "default", "a", "u1")


class _Store:
    def snapshot(self) -> _Store:
        return self

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def made(answer: int | Exception, url: str = "https://east", requests: list[object] | None = None) -> AccountCheck:
    """The check, with a shard that gives one answer."""

    async def get(*request: object) -> SimpleNamespace:
        if requests is not None:
            requests.extend(request)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(status=answer)

    routes = SimpleNamespace(at=lambda _: SimpleNamespace(locator=SimpleNamespace(base_url=lambda *_: url)))
    return account_check(cast(Any, _Store()), lambda: cast(Any, routes), cast(Any, get))


@pytest.mark.parametrize(("status", "valid"), [(200, True), (403, True), (401, False)])
async def test_a_shard_that_authenticates_a_token_confirms_it(status: int, valid: bool) -> None:
    requests: list[object] = []
    assert await made(status, requests=requests)("east", SUBJECT, "token") is valid
    assert requests == ["https://east", "/clusters/abcdefgh12345678/api", [("Authorization", "Bearer token")]]


@pytest.mark.parametrize("answer", [404, 429, 500, 503, 301, ClientError("refused"), TimeoutError()])
async def test_any_other_answer_says_nothing_of_the_token(answer: int | Exception) -> None:
    with pytest.raises(ShardUnreachable):
        await made(answer)("east", SUBJECT, "token")


async def test_a_shard_without_an_address_is_not_asked() -> None:
    requests: list[object] = []
    with pytest.raises(ShardUnreachable):
        await made(200, "", requests)("east", SUBJECT, "token")
    assert requests == []
