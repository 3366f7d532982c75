"""The product against Kubernetes' own code, case by case (tests/go/cmd/oracle, harness.oracles.kubernetes).

Each suite compares a seeded series: by default a part of it that takes seconds, in the long tier 5,000 cases. Known
differences are listed in differences.json, each with its reason; a new one fails, and so does a listed one that has
gone, so the list can only shrink.
"""

from __future__ import annotations

import pytest

from contract.oracle.agreement import LONG, agree, listed
from contract.oracle.suites import SUITES
from harness.clients.go_programs import BUILD_TIMEOUT_S
from harness.oracles.kubernetes import Oracle

pytestmark = pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 300)

DEFAULT = 80


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.mark.parametrize("name", SUITES)
def test_the_product_agrees_with_kubernetes(oracle: Oracle, name: str) -> None:
    agree(SUITES[name], oracle, DEFAULT)


@pytest.mark.long
@pytest.mark.parametrize("name", SUITES)
def test_the_product_agrees_with_kubernetes_in_thousands_of_cases(oracle: Oracle, name: str) -> None:
    agree(SUITES[name], oracle, LONG)


@pytest.mark.parametrize("name", SUITES)
def test_listed_differences_are_few(name: str) -> None:
    found = listed(SUITES[name])
    assert all(number < LONG and reason for number, reason in found.items())
    assert len(found) <= LONG // 50
