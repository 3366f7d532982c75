"""Conversion by the rules of APIConversions, in slices beside the event loop, with time limits.

`conversions` calls it for objects that are not cached. The author of an APIConversion decides its cost, which every
reader pays: so each object has a time limit, and a call has a deadline. Invariant: a returned object is pruned,
defaulted and in the requested version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Histogram

from atoll.machinery.apiserver.call.call import MAX_BODY
from atoll.machinery.kinds.apiconversion import ConversionError, Converter
from atoll.machinery.kinds.conversion import Conversion
from atoll.machinery.meta.objects import decode, encode_json
from atoll.machinery.process.time_slicing import run_sliced

#: Time limit of the transformations of one object, as in kcp.
OBJECT_TIMEOUT_S = 1.0
_BUCKETS = tuple(0.001 * 2**power for power in range(15))

Pause = Callable[[], None]


class RuleConversion:
    """The conversions by rules of one process. `timeout_s` bounds the computation for one object."""

    def __init__(self, timeout_s: float, registry: CollectorRegistry) -> None:
        self._timeout_s = timeout_s
        self._times = Histogram(
            "conversion_cel_transformation_duration_seconds",
            "Time that rules took for one object.",
            buckets=_BUCKETS,
            registry=registry,
        )

    async def convert(
        self, converter: Converter, conversion: Conversion, values: Sequence[bytes], api_version: str, deadline_s: float
    ) -> list[bytes]:
        """Return objects in another version, in order. Raises ConversionError, or TimeoutError past the deadline."""
        found = await run_sliced(
            lambda pause: [self._one(converter, conversion, value, api_version, pause) for value in values], deadline_s
        )
        for _, took_s in found:
            self._times.observe(took_s)
        return [value for value, _ in found]

    def _one(
        self, converter: Converter, conversion: Conversion, value: bytes, api_version: str, pause: Pause
    ) -> tuple[bytes, float]:
        """Convert one object; return it and the seconds of computation."""
        pause()
        obj = decode(value)
        converter.prepare(obj["apiVersion"], api_version, pause)
        began_s = time.thread_time()

        def watched() -> None:
            if time.thread_time() - began_s > self._timeout_s:
                raise ConversionError(f"error converting: transformations took longer than {self._timeout_s:g}s")
            pause()

        made = converter.convert(obj, api_version, watched)
        took_s = time.thread_time() - began_s
        found = encode_json(conversion.finish[api_version](made))
        if len(found) > MAX_BODY:
            raise ConversionError(f"the converted object is larger than {MAX_BODY} bytes")
        return found, took_s
