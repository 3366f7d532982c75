"""Metrics of a syncer, read when they are scraped: work that waits, writes, failures by reason, lag and links.

`process` serves them. Invariant: no label names an object; reasons are those of the Kubernetes API and of the syncer,
any other one counts as `Other`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.edge.failures import metric_reason
from atoll.syncer.syncer import Syncer


class SyncerMetrics(Collector):
    """Reads one syncer. Before that has identified its edge cluster all is zero."""

    def __init__(self, syncer: Syncer, registry: CollectorRegistry) -> None:
        self._syncer = syncer
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield what is served."""
        syncer = self._syncer
        down, returns, up = syncer.downsync, syncer.returns, syncer.upsync
        queues = [each.queue for each in (down, returns, up, syncer.associated) if each is not None]
        yield _gauge("queue_depth", "Objects to look at.", sum(map(len, queues)))
        yield _counter("applies", "Applies to the edge.", down.applies if down else 0)
        yield _counter("deletions", "Deletions at the edge.", down.deletions if down else 0)
        yield _counter("status_writes", "Writes of status to the mailbox.", returns.writes if returns else 0)
        yield _counter("upsync_writes", "Writes of what comes up to the mailbox.", up.writes if up else 0)
        yield _counter("state_writes", "Writes of AssociatedStates to the mailbox.", syncer.associated.writes)
        yield self._failing()
        revision, applied = syncer.mailbox.revision, syncer.applied
        yield _gauge("mailbox_revision", "Revision of the mailbox that was read.", revision)
        yield _gauge("applied_revision", "Revision up to which all was tried.", applied)
        # Revisions count microseconds.
        yield _gauge("lag_seconds", "How far what was tried is behind what was read.", (revision - applied) / 1e6)
        yield _gauge("center_connected", "Whether the mailbox is followed.", not syncer.mailbox.failure)
        yield _gauge("edge_connected", "Whether all kinds are followed.", not syncer.edge.failure)
        yield _gauge("writer", "Whether this process is the one that writes to the edge.", syncer.is_writer)

    def _failing(self) -> Metric:
        failures = self._syncer.failures if self._syncer.downsync is not None else {}
        found = GaugeMetricFamily("syncer_failing_objects", "Objects that fail, by reason.", labels=("reason",))
        for reason, count in Counter(metric_reason(each.reason) for each in failures.values()).items():
            found.add_metric((reason,), count)
        return found


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"syncer_{name}", text, float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"syncer_{name}", text, float(value))
