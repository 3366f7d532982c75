"""Values, messages and costs of `semver`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from harness.oracles.cel_expressions import Expected, check_error, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("isSemver('1.0.0')", True, 1, (1, 1)),
    ("isSemver('0.1.0-alpha.1+build.5')", True, 3, (3, 3)),
    ("isSemver('hello')", False, 1, (1, 1)),
    ("isSemver('v1.0.0')", False, 1, (1, 1)),
    ("isSemver('1.0')", False, 1, (1, 1)),
    ("isSemver('01.0.0')", False, 1, (1, 1)),
    ("isSemver('v1.0', true)", True, 1, (1, 1)),
    ("isSemver('01.01.01', true)", True, 1, (1, 1)),
    ("isSemver('1.0', false)", False, 1, (1, 1)),
    ("isSemver('1-alpha', true)", False, 1, (1, 1)),
    ("semver('1.2.3').major()", 1, 2, (2, 2)),
    ("semver('1.2.3').minor()", 2, 2, (2, 2)),
    ("semver('1.2.3-rc.1').patch()", 3, 2, (2, 2)),
    ("semver('v1', true).minor()", 0, 2, (2, 2)),
    ("semver('18446744073709551615.0.0').major()", -1, 4, (4, 4)),
    ("semver('1.2.3').compareTo(semver('1.2.3'))", 0, 3, (3, 3)),
    ("semver('1.2.3').compareTo(semver('2.0.0'))", -1, 3, (3, 3)),
    ("semver('1.2.3').compareTo(semver('0.1.2'))", 1, 3, (3, 3)),
    ("semver('1.0.0-alpha').compareTo(semver('1.0.0'))", -1, 4, (4, 4)),
    ("semver('1.0.0-alpha.1').compareTo(semver('1.0.0-alpha.beta'))", -1, 5, (5, 5)),
    ("semver('1.0.0-alpha.2').compareTo(semver('1.0.0-alpha.10'))", -1, 5, (5, 5)),
    ("semver('1.0.0-alpha').isLessThan(semver('1.0.0-alpha.1'))", True, 5, (5, 5)),
    ("semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))", True, 3, (3, 3)),
    ("semver('1.0.0') == semver('1.0.0+build')", True, 4, (4, 4)),
    ("semver('1.0.0') == semver('v1', true)", True, 3, (3, 3)),
    ("semver('1.0.0') == semver('1.0.1')", False, 3, (3, 3)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    ("semver('')", "Version string empty", 0, (0, 0)),
    ("semver('1.2')", "No Major.Minor.Patch elements found", 1, (1, 1)),
    ("semver('a.2.3')", 'Invalid character(s) found in major number "a"', 1, (1, 1)),
    ("semver('1.b.3')", 'Invalid character(s) found in minor number "b"', 1, (1, 1)),
    ("semver('1.2.c')", 'Invalid character(s) found in patch number "c"', 1, (1, 1)),
    ("semver('01.2.3')", 'Major number must not contain leading zeroes "01"', 1, (1, 1)),
    ("semver('1.02.3')", 'Minor number must not contain leading zeroes "02"', 1, (1, 1)),
    ("semver('1.2.03')", 'Patch number must not contain leading zeroes "03"', 1, (1, 1)),
    ("semver('.2.3')", 'strconv.ParseUint: parsing "": invalid syntax', 1, (1, 1)),
    (
        "semver('99999999999999999999.0.0')",
        'strconv.ParseUint: parsing "99999999999999999999": value out of range',
        3,
        (3, 3),
    ),
    ("semver('1.2.3-')", "Prerelease is empty", 1, (1, 1)),
    ("semver('1.2.3-01')", 'Numeric PreRelease version must not contain leading zeroes "01"', 1, (1, 1)),
    ("semver('1.2.3-a_b')", 'Invalid character(s) found in prerelease "a_b"', 1, (1, 1)),
    ("semver('1.2.3+')", "Build meta data is empty", 1, (1, 1)),
    ("semver('1.2.3+a_b')", 'Invalid character(s) found in build meta data "a_b"', 1, (1, 1)),
    ("semver('1.2-rc', true)", "short version cannot contain PreRelease/Build meta data", 1, (1, 1)),
    ("dyn(semver('1.2.3')) == dyn('1.2.3')", "no such overload", 3, (4, 4)),
]


@pytest.mark.parametrize(("expression", "value", "cost", "estimate"), VALUES)
def test_an_expression_has_kubernetes_value_cost_and_estimate(
    expression: str, value: Any, cost: int, estimate: Expected
) -> None:
    check_value(expression, value, cost, estimate)


@pytest.mark.parametrize(("expression", "message", "cost", "estimate"), ERRORS)
def test_an_expression_fails_with_kubernetes_message_cost_and_estimate(
    expression: str, message: str, cost: int, estimate: Expected
) -> None:
    check_error(expression, message, cost, estimate)
