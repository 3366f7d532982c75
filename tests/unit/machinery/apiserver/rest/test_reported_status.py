"""A status of another server is compared with nothing: its object may have been made anew there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atoll.machinery.apiserver.call.call import Restrictions
from atoll.machinery.apiserver.rest.write import subresource_errors
from atoll.machinery.kinds.kubernetes.validation import job_status, pod_status
from atoll.machinery.meta.objects import Object

ENDED = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
RUNNING = {"name": "main", "state": {"running": {}}}
LATER, EARLIER = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
CHECKS = {"Pod": pod_status.validate_status, "Job": job_status.validate_status}


def errors(kind: str, status: Object, before: Object, *, is_data: bool) -> list[str]:
    """Fields of a status that are refused after another one."""
    shape: Any = SimpleNamespace(subresource_checks={"status": CHECKS[kind]})
    call: Any = SimpleNamespace(kind=shape, restrictions=Restrictions(is_data=is_data))
    obj: Object = {"metadata": {}, "spec": {"restartPolicy": "Never"}}
    found = subresource_errors(call, "status", {**obj, "status": status}, {**obj, "status": before})
    return [each.field for each in found]


@pytest.mark.parametrize(
    ("kind", "status", "before", "field"),
    [
        ("Job", {"succeeded": 1, "startTime": EARLIER}, {"succeeded": 2, "startTime": EARLIER}, "status.succeeded"),
        ("Job", {"startTime": LATER}, {"startTime": EARLIER}, "status.startTime"),
        ("Pod", {"qosClass": "Guaranteed"}, {"qosClass": "Burstable"}, "status.qosClass"),
        ("Pod", {"containerStatuses": [RUNNING]}, {"containerStatuses": [ENDED]}, "status.containerStatuses[0].state"),
    ],
)
def test_what_a_made_anew_object_reports_is_taken_as_data_and_refused_otherwise(
    kind: str, status: Object, before: Object, field: str
) -> None:
    assert errors(kind, status, before, is_data=False) == [field]
    assert errors(kind, status, before, is_data=True) == []


def test_what_is_wrong_by_itself_is_refused_as_data_too() -> None:
    assert errors("Job", {"active": -1}, {}, is_data=True) == ["status.active"]
    address = {"podIPs": [{"ip": "nowhere"}]}
    assert errors("Pod", address, {}, is_data=True) == errors("Pod", address, {}, is_data=False) != []


def test_a_pod_without_a_class_takes_the_reported_one_and_keeps_it() -> None:
    assert errors("Pod", {"qosClass": "BestEffort"}, {"phase": "Pending"}, is_data=False) == []
    assert errors("Pod", {"phase": "Running"}, {"qosClass": "BestEffort"}, is_data=False) == ["status.qosClass"]
