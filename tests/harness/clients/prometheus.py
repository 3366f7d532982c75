"""Prometheus' own parsers and rule engine on what processes show, and on the alerts of the tree.

begun_to_fire([before, after])                    how often each alert began to fire, of a target that shows both
evaluate([Scrape(0, "atoll", "a", text)], 3600)   the same, with metrics that there are and that alerts and panels name

Moments are those of the test: what is shown is kept up for as long as alerts wait.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harness.clients.go_programs import program
from harness.environment import ROOT

DASHBOARDS = ROOT / "infra" / "helm" / "atoll" / "monitoring" / "dashboards"
ALERTS = ROOT / "infra" / "dashboards" / "alerts.yaml"
#: Longer than any alert waits, and than the ranges of those that look back an hour at most.
HOLD_S, _BEFORE_S = 2400, 900
_TIMEOUT_S = 120.0


class Scrape(NamedTuple):
    """What a target answered at a moment, and shows until its next scrape. None: it did not answer."""

    at_s: int
    job: str
    instance: str
    text: str | None


class Fired(msgspec.Struct):
    """An alert, and how often it began to fire."""

    alert: str
    labels: dict[str, str]
    times: int


class Answer(msgspec.Struct):
    metrics: list[str]
    wanted: list[str]
    alerts: list[str]
    fired: list[Fired]


def evaluate(scrapes: Sequence[Scrape], seconds: int, *, dashboards: bool = False) -> Answer:
    """Ask Prometheus' code. Fails for what it cannot parse."""
    begun_s = int(time.time())
    question = {
        "rules": ALERTS.read_text(),
        "expressions": expressions() if dashboards else [],
        "scrapes": [
            {"at": begun_s + each.at_s, "target": {"job": each.job, "instance": each.instance}, "text": each.text}
            for each in scrapes
        ],
        "seconds": seconds,
    }
    done = subprocess.run(
        [program("prometheus", "monitoring")],
        input=json.dumps(question).encode(),
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:].decode()
    return msgspec.json.decode(done.stdout, type=Answer)


def begun_to_fire(texts: Sequence[str | None], every_s: int = 120) -> dict[str, int]:
    """How often alerts began to fire at a target that shows the first for a while, and then the others in turn."""
    moments = [0, *(_BEFORE_S + every_s * number for number in range(len(texts) - 1))]
    scrapes = [Scrape(at_s, "atoll", "one", text) for at_s, text in zip(moments, texts, strict=True)]
    found: Counter[str] = Counter()
    for each in evaluate(scrapes, moments[-1] + HOLD_S).fired:
        found[each.alert] += each.times
    return dict(found)


def expressions() -> list[str]:
    """The expressions of all dashboards, with what Grafana puts in."""
    found: list[str] = []
    for path in DASHBOARDS.glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            found += [target["expr"] for target in panel["targets"]]
    return [re.sub(r"\$instance", ".*", each).replace("$__rate_interval", "5m") for each in found]
