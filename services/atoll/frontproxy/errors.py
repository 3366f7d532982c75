"""What the proxy answers by itself when it cannot pass a request on, as Kubernetes says such things.

Invariant: only what was not sent is answered with a Retry-After, as clients repeat such requests whatever they do.
"""

from __future__ import annotations

import time

from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.meta.status import ApiError, Details, ServiceUnavailable, Timeout
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.wire.exchange import Exchange

NOT_AVAILABLE = b"Not available.\n"
RETRY_AFTER_S = 1


def shard_down() -> ApiError:
    """503: nothing was sent."""
    return ServiceUnavailable(
        "the shard of this workspace cannot be reached, please try again", Details(retry_after_s=RETRY_AFTER_S)
    )


def no_routes() -> ApiError:
    """503: the proxy is new, and nothing has arrived yet."""
    return ServiceUnavailable(
        "the front proxy knows no shard yet, please try again", Details(retry_after_s=RETRY_AFTER_S)
    )


def answer_lost() -> ApiError:
    """502: it was sent, and what became of it is not known."""
    return ApiError(
        "the connection to the shard ended before its answer; the request may have been served", code=502, reason=""
    )


def no_answer() -> ApiError:
    """504: as before."""
    return Timeout("the shard did not answer in time; the request may be served yet")


def in_circles() -> ApiError:
    """508: the mappings lead back to where they begin."""
    return ApiError("the request went through the front proxy several times already", code=508, reason="")


class _Unobserved:
    """An observer of requests that are counted elsewhere."""

    def streaming(self, request: Request) -> None: ...

    def done(self, request: Request, duration_s: float) -> None: ...

    async def room(self) -> None: ...


def refuse(exchange: Exchange, info: RequestInfo, error: Exception) -> int:
    """Answer with an error, in a shard's form to the last header; gives its code."""
    audit_id = exchange.request.header("audit-id")[:64] or new_uid()
    request = Request(exchange, audit_id, info, _Unobserved(), time.monotonic(), warnings=[])
    fail(request, error)
    return request.code


def unavailable(exchange: Exchange) -> int:
    """Answer for a Workspace that is there and cannot be used now, as kcp's proxy does."""
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", str(RETRY_AFTER_S))]
    exchange.reply(503, headers, NOT_AVAILABLE)
    return 503
