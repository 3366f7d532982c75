"""Observation of requests: one log line each, Kubernetes' metrics, audit events.

The pipeline calls `RequestObserver`. Labels are bounded: verb, group, version and resource of served kinds, scope,
code; never the name of an object or a workspace. Metric children are cached by label tuple, because finding one costs
more than counting.
"""

from __future__ import annotations

import time

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.serving.audit import COMPLETE, STARTED, AuditedRequest, AuditLog, event_of
from atoll.machinery.process import logging

log = structlog.get_logger()

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LABELS = ("verb", "group", "version", "resource", "subresource", "code")
SLOW_S = 1.0
_READS = frozenset({"get", "list", "watch", "head"})
MAX_SERIES = 5000


class RequestMetrics:
    """The apiserver_* metrics of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("apiserver_request_total", "Requests answered.", _LABELS, registry=registry)
        self._durations = Histogram(
            "apiserver_request_duration_seconds",
            "Time from the request to its answer.",
            _LABELS[:5],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.streams = Gauge("apiserver_longrunning_requests", "Open streams.", registry=registry)
        self._children: dict[tuple[str, ...], tuple[Counter, Histogram]] = {}

    def count(self, labels: tuple[str, str, str, str, str], code: int, duration_s: float) -> None:
        """Count one answered request. Past the limit of series, new ones count under empty labels."""
        key = (*labels, str(code))
        children = self._children.get(key)
        if children is None:
            if len(self._children) >= MAX_SERIES:
                labels, key = (labels[0], "", "", "", ""), (labels[0], "", "", "", "", str(code))
            children = self._requests.labels(*key), self._durations.labels(*labels)
            self._children[key] = children
        children[0].inc()
        children[1].observe(duration_s)


class RequestObserver:
    """The observer of a pipeline. `audit` None: no audit log.

    `logged` selects the requests to log: `none`, `writes` or `all`. Slow and failed ones are always logged, the others
    at debug level.
    """

    def __init__(self, metrics: RequestMetrics, audit: AuditLog | None = None, logged: str = logging.WRITES) -> None:
        self._metrics, self._audit = metrics, audit
        self._writes, self._reads = logged != logging.NONE, logged == logging.ALL

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
        write = log.info if wanted or slow or request.code >= 500 else log.debug
        write(
            "request",
            verb=info.verb,
            cluster=request.cluster,
            path=info.path,
            user=request.user.name,
            code=request.code,
            duration_ms=round(duration_s * 1000, 2),
            audit_id=request.audit_id,
        )


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
    )
