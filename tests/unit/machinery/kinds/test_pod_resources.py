"""Sums and quality of service of Pods."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kinds.kubernetes.pod_resources import pod_amounts, quality_of_service

Object = dict[str, Any]
BOTH = {"cpu": "1", "memory": "1Gi"}


def part(requests: Object | None = None, limits: Object | None = None, **more: Any) -> Object:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def amounts(field: str, *containers: Object, **spec: Any) -> Object:
    pod = {"spec": {"containers": list(containers), **spec}}
    return {name: amount.text for name, amount in pod_amounts(pod, field).items()}


def quality(*containers: Object, **spec: Any) -> str:
    return quality_of_service({"spec": {"containers": list(containers), **spec}})


def test_containers_add_up_in_the_family_of_the_first() -> None:
    found = amounts("requests", part({"cpu": "0.5", "memory": "512Mi"}), part({"cpu": "250m", "memory": "512Mi"}))
    assert found == {"cpu": "750m", "memory": "1Gi"}


def test_sums_of_any_size_are_exact() -> None:
    assert amounts("requests", part({"cpu": "100E"}), part({"cpu": "1n"})) == {"cpu": f"{10**29 + 1}n"}


def test_an_init_container_runs_beside_the_sidecars_before_it_only() -> None:
    sidecar = part({"cpu": "1"}, restartPolicy="Always")
    start = part({"cpu": "3"})
    assert amounts("requests", part({"cpu": "1"}), initContainers=[sidecar, start]) == {"cpu": "4"}
    assert amounts("requests", part({"cpu": "1"}), initContainers=[start, sidecar]) == {"cpu": "3"}


def test_a_pod_says_cpu_and_memory_itself() -> None:
    said = {"requests": {"cpu": "5", "ephemeral-storage": "1Gi"}}
    assert amounts("requests", part({"cpu": "1", "ephemeral-storage": "2Gi"}), resources=said) == {
        "cpu": "5",
        "ephemeral-storage": "2Gi",
    }


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([part()], "BestEffort"),
        ([part({"ephemeral-storage": "1Gi"})], "BestEffort"),
        ([part({"cpu": "0"})], "BestEffort"),
        ([part({"cpu": "1"})], "Burstable"),
        ([part(BOTH, BOTH)], "Guaranteed"),
        ([part({"cpu": "1000m", "memory": "1024Mi"}, BOTH)], "Guaranteed"),
        ([part(BOTH, BOTH), part()], "Burstable"),
        ([part({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
        ([part({"cpu": "500m", "memory": "1Gi"}, BOTH)], "Burstable"),
    ],
)
def test_quality_of_service_follows_from_requests_and_limits(containers: list[Object], expected: str) -> None:
    assert quality(*containers) == expected


def test_what_a_pod_says_itself_decides_its_quality() -> None:
    assert quality(part(), resources={"requests": BOTH, "limits": BOTH}) == "Guaranteed"
    assert quality(part(BOTH, BOTH), resources={}) == "BestEffort"
