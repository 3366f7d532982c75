"""Serve a request again once the data that its authentication waits for has been fetched.

The request pipeline and the front proxy's handler call `retry_when_authenticated` for an `AuthenticationPending`.
Invariant: one request waits for at most MAX_KEY_FETCHES fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.wire.exchange import Exchange

E = TypeVar("E", bound=Exchange)

#: What one request may wait for, for its caller and for a token that it reviews: the keys of an issuer, or the shard of
#: a service account and that shard's answer.
MAX_KEY_FETCHES = 4


def retry_when_authenticated(
    exchange: E, pending: AuthenticationPending, fetches_left: int, serve: Callable[[E, int], None]
) -> bool:
    """Call `serve` with one fetch less after `pending` completed; False if no fetches are left."""
    if not fetches_left:
        return False

    async def retry() -> None:
        await pending.complete()
        serve(exchange, fetches_left - 1)

    exchange.spawn(retry())
    return True
