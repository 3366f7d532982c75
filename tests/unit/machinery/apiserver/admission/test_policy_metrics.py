"""Metrics of policies: what is observed, and how many series tenants can make."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.admission.policies.metrics import MAX_LABELS, OTHER, PolicyMetrics, error_type

_TOTAL = "apiserver_validating_admission_policy_check_total"


def _labels(policy: str) -> dict[str, str]:
    names = {"policy": policy, "policy_binding": policy}
    return {**names, "error_type": "invalid_error", "enforcement_action": "deny"}


def test_policies_beyond_the_bound_share_a_series() -> None:
    registry = CollectorRegistry()
    metrics = PolicyMetrics(registry, "validating")
    for number in range(MAX_LABELS + 3):
        metrics.observe(f"p-{number}", f"p-{number}", "invalid_error", 0.001, "deny")
    assert registry.get_sample_value(_TOTAL, _labels("p-0")) == 1
    assert registry.get_sample_value(_TOTAL, _labels(f"p-{MAX_LABELS}")) is None
    assert registry.get_sample_value(_TOTAL, _labels(OTHER)) == 3
    metrics.observe("p-0", "p-0", "invalid_error", 0.001, "deny")
    assert registry.get_sample_value(_TOTAL, _labels("p-0")) == 2


def test_the_type_of_an_error_is_told_by_its_message() -> None:
    assert error_type("compilation error: x") == "compile_error"
    assert error_type("validation failed due to running out of cost budget, no further ...") == "out_of_budget"
    assert error_type("failed expression: x") == "invalid_error"
