"""Errors that the proxy answers itself, as Kubernetes Status objects.

Invariant: only a request that was not sent is answered with Retry-After, as client-go repeats any verb when it sees
one.
"""

from __future__ import annotations

import time

from atoll.machinery.apiserver.call.preferences import preferences_of
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable, Timeout
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.wire.exchange import Exchange

NOT_AVAILABLE = b"Not available.\n"
RETRY_AFTER_S = 1


def shard_unreachable() -> ApiError:
    """503: nothing was sent."""
    return ServiceUnavailable(
        "the shard of this workspace cannot be reached, please try again", Details(retry_after_s=RETRY_AFTER_S)
    )


def not_synced() -> ApiError:
    """503: the proxy's store has received nothing yet."""
    return ServiceUnavailable(
        "the front proxy knows no shard yet, please try again", Details(retry_after_s=RETRY_AFTER_S)
    )


def response_lost() -> ApiError:
    """502: the request was sent, and its outcome is unknown."""
    return ApiError(
        "the connection to the shard ended before its answer; the request may have been served", code=502, reason=""
    )


def response_timeout() -> ApiError:
    """504: as `response_lost`."""
    return Timeout("the shard did not answer in time; the request may be served yet")


def loop_detected() -> ApiError:
    """508: the mappings lead back to this proxy."""
    return ApiError("the request went through the front proxy several times already", code=508, reason="")


class _NoObserver:
    """The observer of requests that are counted by the proxy's own metrics."""

    has_room = True

    def streaming(self, request: Request) -> None: ...

    def done(self, request: Request, duration_s: float) -> None: ...

    async def room(self) -> None: ...


def write_error(exchange: Exchange, info: RequestInfo, error: Exception) -> int:
    """Answer with an error, with the headers a shard would send. Return its status code."""
    preferences = preferences_of(exchange.request)
    audit_id = preferences.audit_id or new_uid()
    request = Request(exchange, preferences, audit_id, info, _NoObserver(), time.monotonic(), warnings=[])
    fail(request, error)
    return request.code


def reply_unavailable(exchange: Exchange) -> int:
    """Answer for a Workspace that exists and cannot be used now, as kcp's proxy does. Return the status code."""
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", str(RETRY_AFTER_S))]
    exchange.reply(503, headers, NOT_AVAILABLE)
    return 503
