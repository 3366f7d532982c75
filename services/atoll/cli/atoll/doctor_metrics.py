"""Findings of `atoll doctor --kubeconfig` from what a running server measures of itself.

Each rule is a metric, when it is bad, and what that means. Alerts watch the same for longer
(`infra/dashboards/alerts.yaml`); this is one look. Invariant: a metric that the server does not have is no finding, as
not each process has each; an audit log that is off is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from atoll.cli.atoll.doctor_server import Server
from atoll.cli.atoll.doctor_settings import ENDS_SOON
from atoll.cli.atoll.finding import FAIL, OK, WARN, Finding
from atoll.machinery.process.certificate_expiry import NAME as CERTIFICATE_END
from atoll.replication.metrics import FORGED_REASONS

#: What a shard or a proxy may be behind another one, or NATS behind a shard, in seconds.
LAG_S = 15.0
#: The store has less room than this part of its disk.
LEAST_ROOM = 0.15
#: What a shard has, and no process without objects of its own.
_PUBLISHES = "atoll_stream_connected"
_AUDIT_WAITING = "atoll_audit_events_waiting"
#: The name of findings about the audit log that the server writes.
AUDIT_LOG = "audit-log"


class Sample(NamedTuple):
    """One series: its labels and its value."""

    labels: Mapping[str, str]
    value: float


class Rule(NamedTuple):
    """When a series is bad, and how that reads: `{value:.0f}` is its value, labels go by their names."""

    metric: str
    level: str
    name: str
    is_bad: Callable[[Sample], bool]
    fact: str


def _above(limit: float) -> Callable[[Sample], bool]:
    return lambda sample: sample.value > limit


def _is_forged(sample: Sample) -> bool:
    return sample.value > 0 and sample.labels.get("reason") in FORGED_REASONS


RULES = (
    Rule("atoll_store_full", FAIL, "store", _above(0), "it is full: creates and updates are refused"),
    Rule(
        "atoll_clock_refused_step_seconds",
        FAIL,
        "clock-step",
        lambda sample: sample.value != 0,
        "the wall clock stepped by {value:.0f} s, which the server does not follow",
    ),
    Rule("atoll_audit_failed_writes_total", FAIL, AUDIT_LOG, _above(0), "its file refused {value:.0f} writes"),
    Rule("atoll_audit_events_dropped_total", WARN, AUDIT_LOG, _above(0), "{value:.0f} events of reads were left out"),
    Rule(
        _PUBLISHES,
        WARN,
        "stream",
        lambda sample: sample.value == 0,
        "NATS is not reached: changes wait on the disk of the shard",
    ),
    Rule("atoll_stream_lag_seconds", WARN, "stream", _above(LAG_S), "changes wait for NATS since {value:.0f} s"),
    Rule(
        "atoll_stream_foreign_messages",
        FAIL,
        "stream",
        _above(0),
        "others wrote {value:.0f} messages into the streams of the shard",
    ),
    Rule(
        "atoll_replication_lag_seconds",
        WARN,
        "replication",
        _above(LAG_S),
        "nothing was heard of shard {shard} for {value:.0f} s",
    ),
    Rule(
        "atoll_replication_generations",
        WARN,
        "replication",
        # The first reading, and one after a stream was made again or a shard restored.
        _above(2),
        "all rows of shard {shard} were read {value:.0f} times since the start: its stream lost messages",
    ),
    Rule(
        "atoll_replication_refused_rows_total",
        FAIL,
        "replication",
        _is_forged,
        "{value:.0f} rows in the stream of shard {shard} were not its own ({reason})",
    ),
    Rule("atoll_frontproxy_backends_down", FAIL, "backends", _above(0), "{value:.0f} shards cannot be reached"),
)


def measured(server: Server) -> Iterator[Finding]:
    """Check what the server shows at /metrics to the user of the kubeconfig."""
    answer = server.get("/metrics")
    if answer.status != 200:
        yield Finding(WARN, "metrics", f"not checked: /metrics answers {answer.status} to the user of the kubeconfig")
        return
    yield from findings(answer.body.decode(errors="replace"), time.time())


def findings(text: str, now_s: float) -> Iterator[Finding]:
    """The findings from metrics in Prometheus' text form. Raises ValueError if it is none."""
    series: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            series.setdefault(each.name, []).append(Sample(each.labels, each.value))
    found = [
        Finding(rule.level, rule.name, rule.fact.format(value=sample.value, **sample.labels))
        for rule in RULES
        for sample in series.get(rule.metric, ())
        if rule.is_bad(sample)
    ]
    found += _room(series)
    found += [end for each in series.get(CERTIFICATE_END, ()) if (end := _end(each, now_s)) is not None]
    if _PUBLISHES in series and _AUDIT_WAITING not in series:
        found.append(Finding(WARN, AUDIT_LOG, "the server writes none: nobody can tell afterwards who wrote what"))
    yield from found
    checked = {rule.name for rule in RULES if rule.metric in series} | {"certificates"}
    for name in sorted(checked - {each.name for each in found}):
        yield Finding(OK, name, "nothing is wrong by the metrics of the server")


def _room(series: Mapping[str, list[Sample]]) -> list[Finding]:
    """How little room the disk of the store has."""
    room, disk = (series.get(f"atoll_store_{each}_bytes", []) for each in ("room", "disk"))
    if not room or not disk or room[0].value >= LEAST_ROOM * disk[0].value:
        return []
    return [Finding(WARN, "store", f"it has room for {room[0].value / disk[0].value:.0%} of its disk")]


def _end(sample: Sample, now_s: float) -> Finding | None:
    """What is to be said of the end of a certificate."""
    left_s = sample.value - now_s
    if left_s >= ENDS_SOON.total_seconds():
        return None
    setting = sample.labels.get("setting", "")
    fact = "has ended" if left_s < 0 else f"ends in {left_s // 86400:.0f} days"
    return Finding(FAIL if left_s < 0 else WARN, "certificates", f"one of {setting} {fact}")
