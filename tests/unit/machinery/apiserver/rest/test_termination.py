"""When a deleted object has to be gone, compared with what Kubernetes' BeforeDelete does in each case."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.apiserver.rest.termination import Termination, is_as_short, termination
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.pod_deletion import grace_period_s
from atoll.machinery.meta.objects import Object

NOW, LATER, LAST = "2026-01-01T00:01:00Z", "2026-01-01T00:01:30Z", "9999-12-31T23:59:59Z"
PODS = Kind(group="", version="v1", kind="Pod", plural="pods", singular="pod", grace_period_s=grace_period_s)


def pod(grace: int | None = 30, phase: str = "Running", node: str = "berth") -> Object:
    return {
        "metadata": {},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": grace},
        "status": {"phase": phase},
    }


def going(at: str, held: int | None) -> Object:
    obj: dict[str, Any] = {**pod(), "metadata": {"deletionTimestamp": at}}
    return obj if held is None else {**obj, "metadata": {**obj["metadata"], "deletionGracePeriodSeconds": held}}


@pytest.mark.parametrize(
    ("obj", "requested", "expected"),
    [
        (pod(), None, (LATER, 30)),
        (pod(), 10, ("2026-01-01T00:01:10Z", 10)),
        (pod(), 0, (NOW, 0)),
        (pod(), -5, ("2026-01-01T00:01:01Z", 1)),
        (pod(-5), None, ("2026-01-01T00:01:01Z", 1)),
        (pod(None), None, (NOW, 0)),
        (pod(1 << 62), None, (LAST, 1 << 62)),
        (pod(node=""), 30, (NOW, 0)),
        (pod(phase="Succeeded"), 30, (NOW, 0)),
        (pod(phase="Failed"), None, (NOW, 0)),
        (going(LATER, 30), 10, ("2026-01-01T00:01:10Z", 10)),
        (going(LATER, 30), 0, (NOW, 0)),
        (going("2026-01-01T00:00:50Z", 30), 20, (NOW, 1)),
        (going("2026-01-01T00:00:50Z", 30), 0, (NOW, 0)),
        (going(LATER, 30), 30, None),
        (going(LATER, 30), None, None),
        (going(NOW, 0), 0, None),
        (going(NOW, None), 5, None),
    ],
)
def test_the_time_of_a_pod_is_its_own_or_the_clients_and_only_becomes_shorter(
    obj: Object, requested: int | None, expected: tuple[str, int] | None
) -> None:
    assert termination(PODS, obj, requested, NOW) == (Termination(*expected) if expected else None)


def test_only_a_deletion_with_a_grace_period_goes_on_without_a_change() -> None:
    assert (
        is_as_short(going(LATER, 30), None) and is_as_short(going(LATER, 30), 31) and is_as_short(going(LATER, 1), -7)
    )
    assert not is_as_short(going(LATER, 30), 29)
    assert not any(is_as_short(each, None) for each in (pod(), going(NOW, 0), going(NOW, None)))


def test_a_kind_without_grace_periods_begins_its_deletion_now() -> None:
    plain = Kind(group="", version="v1", kind="Thing", plural="things", singular="thing")
    assert termination(plain, pod(), 30, NOW) == Termination(NOW, 0)
