"""Values, messages and costs of `cidr`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from harness.oracles.cel_expressions import Expected, check_error, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("string(cidr('192.168.0.1/16'))", "192.168.0.1/16", 3, (3, 3)),
    ("string(cidr('192.168.0.1/16').masked())", "192.168.0.0/16", 4, (4, 4)),
    ("string(cidr('2001:DB8::1/32').masked())", "2001:db8::/32", 4, (4, 4)),
    ("isCIDR('192.168.0.0/16')", True, 2, (2, 2)),
    ("isCIDR('192.168.0.0/33')", False, 2, (2, 2)),
    ("isCIDR('::1/128')", True, 1, (1, 1)),
    ("isCIDR('::1/129')", False, 1, (1, 1)),
    ("isCIDR('1.2.3.4')", False, 1, (1, 1)),
    ("isCIDR('::ffff:1.2.3.4/24')", False, 2, (2, 2)),
    ("isCIDR('1.2.3.4/024')", False, 2, (2, 2)),
    ("isCIDR('1.2.3.4/+24')", False, 2, (2, 2)),
    ("cidr('192.168.0.0/24').containsIP(ip('192.168.0.1'))", True, 5, (5, 8)),
    ("cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))", False, 5, (5, 8)),
    ("cidr('192.168.0.0/24').containsIP('192.168.0.1')", True, 5, (5, 8)),
    ("cidr('192.168.0.0/24').containsIP('192.168.1.1')", False, 5, (5, 8)),
    ("cidr('192.168.0.0/24').containsIP('::1')", False, 4, (4, 7)),
    ("cidr('::/0').containsIP('2001:db8::1')", True, 3, (4, 7)),
    ("cidr('192.168.0.0/16').containsCIDR(cidr('192.168.10.0/24'))", True, 7, (7, 11)),
    ("cidr('192.168.1.0/24').containsCIDR(cidr('192.168.2.0/24'))", False, 7, (7, 11)),
    ("cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')", True, 7, (7, 11)),
    ("cidr('192.168.0.0/24').containsCIDR('192.168.0.0/16')", False, 7, (7, 11)),
    ("cidr('2001:db8::/32').containsCIDR('2001:db8:1::/48')", True, 7, (7, 11)),
    ("string(cidr('192.168.0.1/24').ip())", "192.168.0.1", 4, (4, 4)),
    ("cidr('::1/128').ip().family()", 6, 3, (3, 3)),
    ("cidr('192.168.0.0/24') == cidr('192.168.0.0/24').masked()", True, 6, (6, 6)),
    ("cidr('192.168.0.1/24') == cidr('192.168.0.1/24').masked()", False, 6, (6, 6)),
    ("cidr('192.168.0.0/16').prefixLength()", 16, 3, (3, 3)),
    ("cidr('::1/128').prefixLength()", 128, 2, (2, 2)),
    ("type(cidr('1.2.3.0/24')) == net.CIDR", True, 3, (4, 1_844_674_407_370_955_267)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    ("cidr('192.168.0.0/24').containsIP('x')", "no such overload", 4, (4, 7)),
    (
        "cidr('2001:db8::/32').containsCIDR('x')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            "ing conversion from string: netip.ParsePrefix(\"x\"): no '/'"
        ),
        6,
        (6, 10),
    ),
    (
        "cidr('192.168.0.0/33')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            'ing conversion from string: netip.ParsePrefix("192.168.0.0/33"): prefix length out of rang'
            "e"
        ),
        2,
        (2, 2),
    ),
    (
        "cidr('192.168.0.0')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            "ing conversion from string: netip.ParsePrefix(\"192.168.0.0\"): no '/'"
        ),
        2,
        (2, 2),
    ),
    (
        "cidr('192.168.0/16')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            'ing conversion from string: netip.ParsePrefix("192.168.0/16"): ParseAddr("192.168.0"): IPv'
            "4 address too short"
        ),
        2,
        (2, 2),
    ),
    (
        "cidr('1.2.3.4/x')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            'ing conversion from string: netip.ParsePrefix("1.2.3.4/x"): bad bits after slash: "x"'
        ),
        1,
        (1, 1),
    ),
    (
        "cidr('1.2.3.4/')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            'ing conversion from string: netip.ParsePrefix("1.2.3.4/"): bad bits after slash: ""'
        ),
        1,
        (1, 1),
    ),
    (
        "cidr('fe80::1%eth0/64')",
        (
            "network address parse error during conversion from string: network address parse error dur"
            'ing conversion from string: netip.ParsePrefix("fe80::1%eth0/64"): IPv6 zones cannot be pre'
            "sent in a prefix"
        ),
        2,
        (2, 2),
    ),
    (
        "cidr('::ffff:1.2.3.4/24')",
        (
            'network address parse error during conversion from string: IPv4-mapped IPv6 address "::fff'
            'f:1.2.3.4/24" is not allowed'
        ),
        2,
        (2, 2),
    ),
    ("dyn(cidr('1.2.3.0/24')) == dyn(ip('1.2.3.0'))", "no such overload", 5, (5, 1_844_674_407_370_955_268)),
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
