"""Values, messages and costs of `quantity`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from harness.oracles.cel_expressions import Expected, check_error, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("quantity('1.5G').asInteger()", 1500000000, 2, (2, 2)),
    ("quantity('200k').asInteger()", 200000, 2, (2, 2)),
    ("quantity('12e6').asInteger()", 12000000, 2, (2, 2)),
    ("quantity('1Ki').asInteger()", 1024, 2, (2, 2)),
    ("quantity('1.5Gi').asApproximateFloat()", 1610612736.0, 2, (2, 2)),
    ("quantity('1.5Gi').isInteger()", False, 2, (2, 2)),
    ("quantity('100m').isInteger()", False, 2, (2, 2)),
    ("quantity('100m').asApproximateFloat()", 0.1, 2, (2, 2)),
    ("quantity('-1.1n').asApproximateFloat()", -2e-09, 2, (2, 2)),
    ("quantity('0.1n').compareTo(quantity('1n'))", 0, 3, (3, 3)),
    ("quantity('9999999999999999999999999999999999999G').isInteger()", False, 5, (5, 5)),
    ("quantity('9999999999999999999999999999999999999Gi') == quantity('9223372036854775807')", True, 7, (7, 7)),
    ("quantity('.').asInteger()", 0, 2, (2, 2)),
    ("quantity('Mi').asInteger()", 0, 2, (2, 2)),
    ("quantity('+').asInteger()", 0, 2, (2, 2)),
    ("isQuantity('1.3Gi')", True, 1, (1, 1)),
    ("isQuantity('1,3G')", False, 1, (1, 1)),
    ("isQuantity('10000k')", True, 1, (1, 1)),
    ("isQuantity('200K')", False, 1, (1, 1)),
    ("isQuantity('Three')", False, 1, (1, 1)),
    ("isQuantity('')", False, 0, (0, 0)),
    ("isQuantity('1e')", False, 1, (1, 1)),
    ("isQuantity('1E3')", True, 1, (1, 1)),
    ("sign(quantity('-5'))", -1, 2, (2, 2)),
    ("sign(quantity('0'))", 0, 2, (2, 2)),
    ("sign(quantity('1u'))", 1, 2, (2, 2)),
    ("quantity('50k').add(quantity('20k')) == quantity('70k')", True, 5, (5, 5)),
    ("quantity('50k').add(20) == quantity('50020')", True, 4, (4, 4)),
    ("quantity('50k').sub(quantity('20k')) == quantity('30k')", True, 5, (5, 5)),
    ("quantity('50k').sub(20000) == quantity('30k')", True, 4, (4, 4)),
    ("quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')", True, 7, (7, 7)),
    ("quantity('70k') != quantity('50k').add(quantity('20k'))", True, 5, (5, 1_844_674_407_370_955_268)),
    ("quantity('5') in [quantity('4').add(1)]", False, 14, (14, 14)),
    ("[quantity('6')] == [quantity('4').add(1)]", True, 24, (24, 24)),
    ("quantity('1.5').add(quantity('500m')).isInteger()", False, 4, (4, 4)),
    ("quantity('9223372036854775807').add(1).isInteger()", False, 4, (4, 4)),
    ("quantity('9223372036854775807').add(1).isGreaterThan(quantity('9223372036854775807'))", True, 6, (6, 6)),
    ("quantity('0').sub(-9223372036854775807 - 1).asInteger()", -9223372036854775808, 4, (4, 4)),
    ("quantity('200M').compareTo(quantity('0.2G'))", 0, 3, (3, 3)),
    ("quantity('50M').compareTo(quantity('50Mi'))", -1, 3, (3, 3)),
    ("quantity('50Mi').compareTo(quantity('50M'))", 1, 3, (3, 3)),
    ("quantity('150Mi').isGreaterThan(quantity('100Mi'))", True, 3, (3, 3)),
    ("quantity('50Mi').isGreaterThan(quantity('100Mi'))", False, 3, (3, 3)),
    ("quantity('50M').isLessThan(quantity('100M'))", True, 3, (3, 3)),
    ("quantity('1').isLessThan(quantity('1'))", False, 3, (3, 3)),
    ("quantity('200M') == quantity('0.2G')", True, 3, (3, 3)),
    ("quantity('2.0G') == quantity('2000000001')", False, 3, (3, 3)),
    ("dyn(quantity('1')) == null", False, 3, (3, 3)),
    ("type(quantity('1')) == type(quantity('2'))", True, 5, (5, 1_844_674_407_370_955_268)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    ("quantity('9999999999999999999999999999999999999G').asInteger()", "cannot convert value to integer", 5, (5, 5)),
    ("quantity('100m').asInteger()", "cannot convert value to integer", 2, (2, 2)),
    ("quantity('200K')", "unable to parse quantity's suffix", 1, (1, 1)),
    (
        "quantity('Three')",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        1,
        (1, 1),
    ),
    (
        "quantity('')",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        0,
        (0, 0),
    ),
    ("quantity('Ei')", "unable to parse numeric part of quantity", 1, (1, 1)),
    (
        "quantity('1.2.3')",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        1,
        (1, 1),
    ),
    ("quantity('70k') == quantity('50k').add(quantity('20k'))", "no such overload", 5, (5, 5)),
    ("dyn(quantity('1')) == dyn(1)", "no such overload", 3, (4, 4)),
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
