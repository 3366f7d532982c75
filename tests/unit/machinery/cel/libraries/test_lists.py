"""Values, messages and costs of `lists`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from harness.oracles.cel_expressions import Expected, check_error, check_issue, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("[1, 2, 3].isSorted()", True, 3, (13, 13)),
    ("[2, 1].isSorted()", False, 2, (12, 12)),
    ("[].isSorted()", True, 0, (10, 10)),
    ("[1u, 2u].isSorted()", True, 2, (12, 12)),
    ("[2.0, 1.0].isSorted()", False, 2, (12, 12)),
    ("[true, false].isSorted()", False, 2, (12, 12)),
    ("[false, true].isSorted()", True, 2, (12, 12)),
    ("['a', 'b', 'b', 'c'].isSorted()", True, 0, (14, 7_378_697_629_483_821_070)),
    ("['b', 'B'].isSorted()", False, 0, (12, 3_689_348_814_741_910_540)),
    ("[b'a', b'B'].isSorted()", False, 0, (12, 3_689_348_814_741_910_540)),
    ("[duration('1s'), duration('1m')].isSorted()", True, 2, (14, 14)),
    ("[timestamp('2024-01-01T00:00:00Z'), timestamp('2023-01-01T00:00:00Z')].isSorted()", False, 2, (14, 14)),
    ("[dyn(1), dyn('a'), dyn(0)].isSorted()", True, 2, (16, 16)),
    ("[dyn(1), dyn(0.5)].isSorted()", False, 2, (14, 14)),
    ("[1, 3].sum()", 4, 2, (12, 12)),
    ("[1u, 3u].sum() == 4u", True, 3, (13, 13)),
    ("[1.5, 3.0].sum()", 4.5, 2, (12, 12)),
    ("[].sum()", 0, 0, (10, 10)),
    ("[duration('1m'), duration('1s')].sum() == duration('61s')", True, 3, (16, 16)),
    ("[dyn(1.0), dyn(2.0)].sum()", 3.0, 2, (14, 14)),
    ("[1, 3].min()", 1, 2, (12, 12)),
    ("[1, 3].max()", 3, 2, (12, 12)),
    ("[3.0, 1.5, 2.5].min()", 1.5, 3, (13, 13)),
    ("[3.0, 1.5, 4.5].max()", 4.5, 3, (13, 13)),
    ("['b', 'a'].min()", "a", 0, (12, 3_689_348_814_741_910_540)),
    ("['é', 'z'].max()", "é", 0, (12, 3_689_348_814_741_910_540)),
    ("[true, false].min()", False, 2, (12, 12)),
    ("([0] + []).min()", 0, 2, (22, 22)),
    ("[dyn(1), dyn(2.5)].max()", 2.5, 2, (14, 14)),
    ("[1, 2, 2, 3].indexOf(2)", 1, 4, (14, 14)),
    ("['a', 'b', 'b', 'c'].lastIndexOf('b')", 2, 0, (14, 7_378_697_629_483_821_070)),
    ("[1.0].indexOf(1.1)", -1, 1, (11, 11)),
    ("[].indexOf('string')", -1, 0, (10, 10)),
    ("[[1], [2]].indexOf([2])", 1, 2, (42, 42)),
    ("[dyn(1), dyn(2.0), dyn(3u)].indexOf(2)", 1, 3, (16, 16)),
    ("dyn([1, 2, 3]).lastIndexOf(3u)", 2, 3, (12, 12)),
    ("[quantity('1'), quantity('2k')].indexOf(quantity('2000'))", 1, 15, (15, 15)),
    ("[1, 2, 3].includes(2)", True, 3, (13, 13)),
    ("[1, 2, 3].includes(4)", False, 3, (13, 13)),
    ("'model-a'.includes('model-a')", True, 0, (7, 7)),
    ("'model-a'.includes('model')", False, 0, (7, 7)),
    ("{'a': 1}.includes({'a': 1})", True, 1, (61, 1_844_674_407_370_955_325)),
    ("dyn(1).includes(1.0)", True, 1, (2, 2)),
    ("[quantity('2')].includes(quantity('1').add(1))", False, 14, (14, 14)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    ("[9223372036854775807, 1].sum()", "integer overflow", 2, (12, 12)),
    ("[18446744073709551615u, 1u].sum()", "unsigned integer overflow", 2, (12, 12)),
    ("[dyn(1), dyn('a')].sum()", "no such overload", 1, (14, 14)),
    ("dyn(['a']).sum()", "no such overload: sum(list)", 0, (12, 12)),
    ("[].min()", "min called on empty list", 0, (10, 10)),
    ("[].max()", "max called on empty list", 0, (10, 10)),
]

#: Expression, issue of the checker.
ISSUES = [
    ("['a'].sum()", "found no matching overload for 'sum' applied to 'list(string).()'"),
    ("[1, 2].indexOf('a')", "found no matching overload for 'indexOf' applied to 'list(int).(string)'"),
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


@pytest.mark.parametrize(("expression", "message"), ISSUES)
def test_an_expression_is_refused_with_kubernetes_words(expression: str, message: str) -> None:
    check_issue(expression, message)
