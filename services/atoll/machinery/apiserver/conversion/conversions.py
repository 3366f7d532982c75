"""Conversion of objects to the requested version, by webhook or by rules.

Reads pass stored bytes and get bytes in their version; writes pass planned objects. Results are cached by content
(which includes uid and revision), version and definition, for a minute and within a bound of bytes. Concurrent
conversions of the same object are shared: a thousand watchers of one change cost one call. Invariant: a returned object
is pruned, defaulted and in the requested version.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Histogram

from atoll.machinery.apiserver.conversion import review
from atoll.machinery.apiserver.conversion.review import CALL, ReviewError
from atoll.machinery.apiserver.conversion.ruled import OBJECT_TIMEOUT_S, RuleConversion
from atoll.machinery.egress import Egress, EgressError, Outbound
from atoll.machinery.kinds.apiconversion import ConversionError, Converter
from atoll.machinery.kinds.conversion import Conversion, Webhook
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.uids import new_uid

#: Kubernetes' timeout.
TIMEOUT_S = 30.0
CACHE_BYTES, KEEP_S = 32 << 20, 60.0
#: Bounds of one call; it holds at least one object.
CHUNK_BYTES, CHUNK_OBJECTS = 1 << 20, 1000
#: How long results are processed between two turns of the loop.
_TURN_S = 0.004

_Key = tuple[str, str, bytes]


class _CachedConversion(msgspec.Struct, frozen=True):
    value: bytes
    until_s: float


def bare(kind: Kind) -> Kind:
    """Return the kind for objects that are already in its version, as returned by `Conversions`.

    Admission still has them converted where it asks about another version.
    """
    return replace(kind, from_stored=None, to_stored=None, conversion=None, review_conversion=kind.conversion)


class Conversions:
    """The conversions of one process by webhooks and by the rules of APIConversions."""

    def __init__(
        self, egress: Egress, registry: CollectorRegistry | None = None, rules_timeout_s: float = OBJECT_TIMEOUT_S
    ) -> None:
        self._egress = egress
        self._cache: LruCache[_Key, _CachedConversion] = LruCache(CACHE_BYTES, lambda kept: len(kept.value))
        self._running: dict[_Key, asyncio.Future[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        registry, labels = registry or CollectorRegistry(), ("result", "failure_type")
        self._count = Counter(
            "apiserver_conversion_webhook_request_total", "Questions to conversion webhooks.", labels, registry=registry
        )
        self._times = Histogram(
            "apiserver_conversion_webhook_duration_seconds", "Time they took.", labels, registry=registry
        )
        self._ruled = RuleConversion(rules_timeout_s, registry)

    async def served(self, kind: Kind, values: Sequence[bytes]) -> list[bytes]:
        """Return stored objects in the kind's version, in order, to be sent with `bare(kind)`.

        Raises ApiError (500) if any conversion fails.
        """
        return await self.convert(kind, values, kind.api_version)

    async def convert(self, kind: Kind, values: Sequence[bytes], api_version: str) -> list[bytes]:
        """Return objects of any version of the kind in another one, in order. Raises ApiError (500)."""
        conversion = kind.conversion
        assert conversion is not None
        own = b'{"apiVersion":%b,' % encode_json(api_version)
        found: dict[int, bytes] = {}
        waiting: dict[int, asyncio.Future[bytes]] = {}
        missing: dict[_Key, bytes] = {}
        now = time.monotonic()
        for index, value in enumerate(values):
            if value.startswith(own):
                found[index] = self._finished(conversion, value, api_version)
                continue
            key = (conversion.mark, api_version, hashlib.blake2b(value, digest_size=16).digest())
            kept = self._cache.get(key)
            if kept is not None and kept.until_s > now:
                found[index] = kept.value
                continue
            future = self._running.get(key)
            if future is None:
                future = self._running[key] = asyncio.get_running_loop().create_future()
                # Every waiter may be cancelled by then.
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
                missing[key] = value
            waiting[index] = future
        if missing:
            # A task of its own: the caller may be cancelled while others wait for the same result.
            task = asyncio.create_task(self._convert_all(kind, conversion, missing, api_version))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.shield(task)
        for index, future in waiting.items():
            found[index] = await asyncio.shield(future)
        return [found[index] for index in range(len(values))]

    def _finished(self, conversion: Conversion, value: bytes, api_version: str) -> bytes:
        """Return an object already in its version, pruned and defaulted if an earlier schema may have stored it."""
        return encode_json(conversion.finish[api_version](decode(value))) if conversion.revised else value

    async def _convert_all(
        self, kind: Kind, conversion: Conversion, missing: dict[_Key, bytes], api_version: str
    ) -> None:
        """Convert in chunks, and resolve every future, also on errors."""
        try:
            for chunk in _chunks(missing):
                values = [missing[key] for key in chunk]
                if isinstance(conversion.by, Converter):
                    converted = await self._compute(kind, conversion, conversion.by, values, api_version)
                else:
                    converted = await self._call_webhook(kind, conversion, values, api_version)
                until_s = time.monotonic() + KEEP_S
                for key, value in zip(chunk, converted, strict=True):
                    self._cache.put(key, _CachedConversion(value, until_s))
                    self._running.pop(key).set_result(value)
        except BaseException as error:
            reported = error if isinstance(error, ApiError) else _failed(kind, "failed: the request was cancelled")
            for key in missing:
                future = self._running.pop(key, None)
                if future is not None:
                    future.set_exception(reported)
            if not isinstance(error, ApiError):
                raise

    async def _compute(
        self, kind: Kind, conversion: Conversion, converter: Converter, values: Sequence[bytes], api_version: str
    ) -> list[bytes]:
        """Convert by rules. Raises ApiError."""
        lead = f"conversion for {kind.api_version}, Kind={kind.kind} failed:"
        try:
            return await self._ruled.convert(converter, conversion, values, api_version, TIMEOUT_S)
        except ConversionError as error:
            raise ApiError(f"{lead} {error}", code=500, reason="") from error
        except TimeoutError as error:
            raise ApiError(f"{lead} it took longer than {TIMEOUT_S:.0f}s", code=500, reason="") from error

    async def _call_webhook(
        self, kind: Kind, conversion: Conversion, values: Sequence[bytes], api_version: str
    ) -> list[bytes]:
        """Call the webhook once. Raises ApiError."""
        began, result, failure = time.monotonic(), "failure", CALL
        try:
            converted = await self._answer(conversion, values, api_version)
            result, failure = "success", ""
        except EgressError as error:
            raise _failed(kind, f"failed: {error}") from error
        except ReviewError as error:
            failure = error.failure
            raise _failed(kind, str(error)) from error
        finally:
            self._count.labels(result, failure).inc()
            self._times.labels(result, failure).observe(time.monotonic() - began)
        return converted

    async def _answer(self, conversion: Conversion, values: Sequence[bytes], api_version: str) -> list[bytes]:
        webhook, uid = conversion.by, new_uid()
        assert isinstance(webhook, Webhook)
        if not webhook.url:
            text = "service references cannot be resolved here, set spec.conversion.webhook.clientConfig.url"
            raise ReviewError(CALL, f"failed: {text}")
        version = review.version_of(webhook.reviews)
        body = review.request(version, uid, api_version, values)
        answer = await self._egress.send(
            Outbound(
                purpose="conversion",
                url=webhook.url,
                body=body,
                ca_pem=webhook.ca_pem,
                timeout_s=TIMEOUT_S,
                query=f"timeout={TIMEOUT_S:.0f}s",
                repeatable=True,
                tenant=conversion.mark,
            )
        )
        objects = review.objects(version, uid, answer.body, len(values))
        converted: list[bytes] = []
        turn_s = time.monotonic()
        for index, (value, obj) in enumerate(zip(values, objects, strict=True)):
            converted.append(review.adopted(conversion, value, obj, api_version, index))
            if time.monotonic() - turn_s > _TURN_S:
                await asyncio.sleep(0)
                turn_s = time.monotonic()
        return converted

    async def for_write(self, kind: Kind, obj: Object, *, may_hide: bool) -> ConvertedWrite:
        """Convert a planned object to its stored version and to the client's.

        `may_hide`: the reply may omit the object if that conversion fails. Raises ApiError (500).
        """
        conversion = kind.conversion
        assert conversion is not None
        value, stored_form = encode_json(obj), obj
        if obj["apiVersion"] != conversion.storage and not may_hide:
            (value,) = await self.convert(kind, [value], conversion.storage)
            stored_form = decode(value)
        try:
            (value,) = await self.convert(kind, [value], kind.api_version)
        except ApiError:
            if not may_hide:
                raise
            return ConvertedWrite(stored_form, None)
        return ConvertedWrite(stored_form, decode(value))


class ConvertedWrite(NamedTuple):
    """An object in its stored version, and in the client's; None if that conversion failed and may fail."""

    stored_form: Object
    served: Object | None


def _chunks(missing: dict[_Key, bytes]) -> Iterator[list[_Key]]:
    chunk: list[_Key] = []
    size = 0
    for key, value in missing.items():
        if chunk and (size + len(value) > CHUNK_BYTES or len(chunk) >= CHUNK_OBJECTS):
            yield chunk
            chunk, size = [], 0
        chunk.append(key)
        size += len(value)
    if chunk:
        yield chunk


def _failed(kind: Kind, text: str) -> ApiError:
    """Return the 500 with Kubernetes' text, which has no reason."""
    return ApiError(f"conversion webhook for {kind.api_version}, Kind={kind.kind} {text}", code=500, reason="")
