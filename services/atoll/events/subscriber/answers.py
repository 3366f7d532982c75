"""What an answer of the API means to a subscriber that was already let in.

Invariant: only what may pass by itself is tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from atoll.events.subscription_options import Gone, Revoked
from atoll.machinery.meta.status import ApiError
from atoll.machinery.stream.connection import Unavailable
from atoll.machinery.stream.tenants.subscriptions import Subscription
from atoll.machinery.wire.pending_response import ClientError

Answer = TypeVar("Answer")


async def answered(question: Awaitable[Answer]) -> Answer:
    """The answer to a question. Raises Unavailable to try again later, ApiError for what stays."""
    try:
        return await question
    except ApiError as error:
        if error.code == 429 or error.code >= 500:
            raise Unavailable(str(error)) from error
        raise
    except (ClientError, TimeoutError) as error:
        raise Unavailable(str(error) or repr(error)) from error


async def admitted(question: Awaitable[Answer]) -> Answer:
    """As `answered`, of one's own subscription. Raises Revoked where the caller is refused, Gone where it is absent."""
    try:
        return await answered(question)
    except ApiError as error:
        if error.code in (401, 403):
            raise Revoked(str(error)) from error
        if error.code == 404:
            raise Gone(str(error)) from error
        raise


def raise_unless_active(subscription: Subscription) -> None:
    """Raises Revoked, Gone."""
    if subscription.state == "Revoked":
        raise Revoked(subscription.reason)
    if subscription.state == "Gone":
        raise Gone(subscription.reason)
