"""What a SyncTarget says of the heartbeats of its syncer."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.edge.heartbeats import REFRESH_S, SILENT_S, TIME, Heartbeats, heartbeat_status
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import GROUP
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object, status_of

RENEWED_S = 1_700_000_000.0


def healthy(status: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_health_follows_the_centers_clock_and_the_time_is_written_with_each_change() -> None:
    fresh = heartbeat_status({}, RENEWED_S, RENEWED_S + 1)
    assert healthy(fresh) == {"HeartbeatHealthy": "True", "Ready": "True"}
    assert fresh[TIME] == times.format_time(int(RENEWED_S))
    assert heartbeat_status(fresh, RENEWED_S + 30, RENEWED_S + 31) == fresh, "nothing to write"
    silent = heartbeat_status(fresh, RENEWED_S + 30, RENEWED_S + 30 + SILENT_S)
    assert healthy(silent) == {"HeartbeatHealthy": "False", "Ready": "False"}
    assert silent["conditions"][0]["reason"] == "ErrorHeartbeat"
    assert silent[TIME] == times.format_time(int(RENEWED_S) + 30)
    assert heartbeat_status(silent, RENEWED_S + 30, RENEWED_S + 1000) == silent
    assert healthy(heartbeat_status(silent, RENEWED_S + 2000, RENEWED_S + 2001))["Ready"] == "True"


def test_while_all_is_well_the_time_is_written_every_five_minutes() -> None:
    status = heartbeat_status({}, RENEWED_S, RENEWED_S)
    later = RENEWED_S + REFRESH_S
    assert heartbeat_status(status, later - 1, later) == status
    assert heartbeat_status(status, later, later)[TIME] == times.format_time(int(later))


def test_a_syncer_that_never_came_says_nothing_and_one_whose_lease_is_gone_is_silent() -> None:
    assert heartbeat_status({"capacity": {}}, None, RENEWED_S) == {"capacity": {}}
    gone = heartbeat_status(heartbeat_status({}, RENEWED_S, RENEWED_S), None, RENEWED_S + 1)
    assert healthy(gone)["HeartbeatHealthy"] == "False"
    assert gone[TIME] == times.format_time(int(RENEWED_S))


class Inside:
    """A client of a workspace that notes patches and applies them to the target."""

    def __init__(self, target: Object) -> None:
        self.target, self.patches = target, [""] * 0

    async def patch(self, resource: Resource, name: str, body: Object, **options: Any) -> None:
        self.patches.append(resource.plural)
        if resource.plural == "synctargets":
            self.target["status"] = {**status_of(self.target), **body["status"]}


async def test_a_renewed_lease_writes_once_and_is_looked_at_again_when_it_would_be_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target: Object = {"apiVersion": f"{GROUP}/v2alpha1", "metadata": {"name": "t", "annotations": {}}}
    inside, now_s = Inside(target), [RENEWED_S + 10]
    monkeypatch.setattr("atoll.edge.heartbeats.time.time", lambda: now_s[0])
    found = Heartbeats(lambda _: inside, lambda _: target)  # type: ignore[arg-type,return-value]

    def renew(at_s: float, namespace: str = "default") -> None:
        metadata = {"name": "syncer", "namespace": namespace, "resourceVersion": str(int(at_s * 1e6))}
        found._seen(None, {"metadata": {**metadata, "annotations": {"kcp.io/cluster": "m"}}})

    renew(RENEWED_S + 5, "elsewhere")
    assert await found.reconcile("m") is None
    renew(RENEWED_S)
    assert await found.reconcile("m") == SILENT_S - 10
    renew(RENEWED_S + 9)
    assert await found.reconcile("m") == SILENT_S - 1
    assert inside.patches == ["syncerconfigs", "synctargets"]
    now_s[0] = RENEWED_S + 9 + SILENT_S
    assert await found.reconcile("m") is None
    assert inside.patches == ["syncerconfigs", "synctargets"] * 2
    assert healthy(status_of(target))["Ready"] == "False"
