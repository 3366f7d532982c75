"""Observation of requests: one log line each, Kubernetes' metrics, audit events.

The pipeline calls `RequestObserver`. Labels are bounded: verb, group, version and resource of served kinds, scope,
code; never the name of an object or a workspace.
"""

from __future__ import annotations

import logging as levels
import time
from collections.abc import Iterator

import structlog
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.serving.audit import COMPLETE, STARTED, AuditedRequest, AuditLog, event_of
from atoll.machinery.process import logging
from atoll.machinery.process.durations import Durations

log = structlog.get_logger()

_LABELS = ("verb", "group", "version", "resource", "subresource", "code")
SLOW_S = 1.0
_READS = frozenset({"get", "list", "watch", "head"})
MAX_SERIES = 5000


class RequestMetrics(Collector):
    """The apiserver_* metrics of a process. Plain numbers that a scrape collects: each request counts in them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.streams = Gauge("apiserver_longrunning_requests", "Open streams.", registry=registry)
        self._requests: dict[tuple[str, ...], int] = {}
        self._durations: dict[tuple[str, ...], Durations] = {}
        registry.register(self)

    def count(self, labels: tuple[str, str, str, str, str], code: int, duration_s: float) -> None:
        """Count one answered request. Past the limit of series, new ones count under empty labels."""
        key = (*labels, str(code))
        counted = self._requests.get(key)
        if counted is None:
            if len(self._requests) >= MAX_SERIES:
                labels, key = (labels[0], "", "", "", ""), (labels[0], "", "", "", "", str(code))
            counted = self._requests.get(key, 0)
        self._requests[key] = counted + 1
        durations = self._durations.get(labels)
        if durations is None:
            durations = self._durations[labels] = Durations()
        durations.add(duration_s)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        requests = CounterMetricFamily("apiserver_request", "Requests answered.", labels=_LABELS)
        for key, count in tuple(self._requests.items()):
            requests.add_metric(key, count)
        yield requests
        text = "Time from the request to its answer."
        durations = HistogramMetricFamily("apiserver_request_duration_seconds", text, labels=_LABELS[:5])
        for labels, found in tuple(self._durations.items()):
            durations.add_metric(labels, found.buckets(), found.sum_s)
        yield durations


class RequestObserver:
    """The observer of a pipeline. `audit` None: no audit log.

    `logged` selects the requests to log: `none`, `writes` or `all`. Slow and failed ones are always logged, the others
    at debug level.
    """

    def __init__(self, metrics: RequestMetrics, audit: AuditLog | None = None, logged: str = logging.WRITES) -> None:
        self._metrics, self._audit = metrics, audit
        self._writes, self._reads = logged != logging.NONE, logged == logging.ALL
        # Bound once: a logger that is not costs more than to count the request.
        bound = log.bind()
        self._info = logging.frequent()
        self._debug = bound.debug if bound.is_enabled_for(levels.DEBUG) else None

    @property
    def has_room(self) -> bool:
        """Whether the audit log has room for a mutating request."""
        return self._audit is None or self._audit.has_room

    async def room(self) -> None:
        """Return once the audit log has room for a mutating request."""
        if self._audit is not None:
            await self._audit.room()

    def streaming(self, request: Request) -> None:
        """Audit the start of a stream."""
        self._metrics.streams.inc()
        request.streams = True
        if self._audit is not None:
            self._audit.record(event_of(_audited(request), STARTED, request.code))

    def done(self, request: Request, duration_s: float) -> None:
        """Log, count and audit a completed request."""
        info = request.info
        if request.streams:
            self._metrics.streams.dec()
        if self._audit is not None:
            error = request.error
            reason, message = (error.reason, error.message) if error is not None else ("", "")
            self._audit.record(event_of(_audited(request), COMPLETE, request.code, reason, message))
        known = request.code not in {403, 404}
        labels = (info.verb, info.group, info.version, info.resource, info.subresource)
        self._metrics.count(labels if known else (info.verb, "", "", "", ""), request.code, duration_s)
        wanted = self._reads if info.verb in _READS else self._writes
        # The client decides how long a stream lasts, so a stream never counts as slow.
        slow = duration_s > SLOW_S and (self._writes or not request.streams)
        is_shown = wanted or slow or request.code >= 500
        if not is_shown and self._debug is None:
            return
        facts = {
            "verb": info.verb,
            "cluster": request.cluster,
            "path": info.path,
            "user": request.user.name,
            "code": request.code,
            "duration_ms": round(duration_s * 1000, 2),
            "audit_id": request.audit_id,
        }
        if is_shown:
            self._info("request", facts)
        elif self._debug is not None:
            self._debug("request", **facts)


def _audited(request: Request) -> AuditedRequest:
    workspace = request.info.workspace
    return AuditedRequest(
        audit_id=request.audit_id,
        http=request.http,
        info=request.info,
        user=request.user,
        received_s=time.time() - (time.monotonic() - request.started),
        cluster=request.cluster,
        path=workspace if ":" in workspace else "",
        impersonator=request.impersonator,
        through=request.through,
        decision=request.decision,
        annotations=request.annotations,
    )
