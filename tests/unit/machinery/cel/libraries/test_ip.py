"""Values, messages and costs of `ip`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from harness.oracles.cel_expressions import Expected, check_error, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("string(ip('127.0.0.1'))", "127.0.0.1", 2, (2, 2)),
    ("string(ip('2001:DB8::0:0:0:ABCD'))", "2001:db8::abcd", 3, (3, 3)),
    ("string(ip('::'))", "::", 2, (2, 2)),
    ("ip('127.0.0.1').family()", 4, 2, (2, 2)),
    ("ip('::1').family()", 6, 2, (2, 2)),
    ("isIP('127.0.0.1')", True, 1, (1, 1)),
    ("isIP('127.0.0.256')", False, 2, (2, 2)),
    ("isIP('127.0.0.01')", False, 1, (1, 1)),
    ("isIP(':::1')", False, 1, (1, 1)),
    ("isIP('::ffff:1.2.3.4')", False, 2, (2, 2)),
    ("isIP('fe80::1%eth0')", False, 2, (2, 2)),
    ("isIP('')", False, 0, (0, 0)),
    ("ip.isCanonical('127.0.0.1')", True, 2, (2, 2)),
    ("ip.isCanonical('2001:db8::abcd')", True, 3, (3, 3)),
    ("ip.isCanonical('2001:DB8::ABCD')", False, 3, (3, 3)),
    ("ip.isCanonical('2001:db8::0:0:0:abcd')", False, 4, (4, 4)),
    ("ip('0.0.0.0').isUnspecified()", True, 2, (2, 2)),
    ("ip('::').isUnspecified()", True, 2, (2, 2)),
    ("ip('127.0.0.1').isUnspecified()", False, 2, (2, 2)),
    ("ip('127.255.0.1').isLoopback()", True, 3, (3, 3)),
    ("ip('::1').isLoopback()", True, 2, (2, 2)),
    ("ip('192.168.0.1').isLoopback()", False, 3, (3, 3)),
    ("ip('224.0.0.1').isLinkLocalMulticast()", True, 2, (2, 2)),
    ("ip('224.0.1.1').isLinkLocalMulticast()", False, 2, (2, 2)),
    ("ip('ff02::1').isLinkLocalMulticast()", True, 2, (2, 2)),
    ("ip('ff12::1').isLinkLocalMulticast()", True, 2, (2, 2)),
    ("ip('fd00::1').isLinkLocalMulticast()", False, 2, (2, 2)),
    ("ip('169.254.169.254').isLinkLocalUnicast()", True, 3, (3, 3)),
    ("ip('fe80::1').isLinkLocalUnicast()", True, 2, (2, 2)),
    ("ip('febf::1').isLinkLocalUnicast()", True, 2, (2, 2)),
    ("ip('fec0::1').isLinkLocalUnicast()", False, 2, (2, 2)),
    ("ip('192.168.0.1').isGlobalUnicast()", True, 3, (3, 3)),
    ("ip('255.255.255.255').isGlobalUnicast()", False, 3, (3, 3)),
    ("ip('2001:db8::abcd').isGlobalUnicast()", True, 3, (3, 3)),
    ("ip('ff00::1').isGlobalUnicast()", False, 2, (2, 2)),
    ("ip('169.254.0.1').isGlobalUnicast()", False, 3, (3, 3)),
    ("ip('::1:1.2.3.4') == ip('::1:102:304')", True, 5, (5, 5)),
    ("ip('127.0.0.1') == ip('127.0.0.1')", True, 3, (3, 3)),
    ("ip('::1') == ip('0:0::1')", True, 3, (3, 3)),
    ("ip('::1') != ip('::2')", True, 4, (3, 1_844_674_407_370_955_266)),
    ("type(ip('127.0.0.1')) == net.IP", True, 3, (4, 1_844_674_407_370_955_267)),
    ("ip('::1') in [ip('::2'), ip('::1')]", True, 15, (15, 15)),
    ("dyn('127.0.0.1') == dyn(ip('127.0.0.1'))", False, 3, (4, 4)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    (
        "ip.isCanonical('x')",
        'IP Address "x" parse error during conversion from string: ParseAddr("x"): unable to parse IP',
        1,
        (1, 1),
    ),
    (
        "ip('127.0.0.256')",
        (
            'IP Address "127.0.0.256" parse error during conversion from string: ParseAddr("127.0.0.256'
            '"): IPv4 field has value >255'
        ),
        2,
        (2, 2),
    ),
    (
        "ip('1.2.3')",
        ('IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short'),
        1,
        (1, 1),
    ),
    (
        "ip('1.2.3.4.5')",
        (
            'IP Address "1.2.3.4.5" parse error during conversion from string: ParseAddr("1.2.3.4.5"): '
            "IPv4 address too long"
        ),
        1,
        (1, 1),
    ),
    (
        "ip('1..2.3')",
        (
            'IP Address "1..2.3" parse error during conversion from string: ParseAddr("1..2.3"): IPv4 f'
            'ield must have at least one digit (at ".2.3")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('1.2.3.a')",
        (
            'IP Address "1.2.3.a" parse error during conversion from string: ParseAddr("1.2.3.a"): unex'
            'pected character (at "a")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('01.2.3.4')",
        (
            'IP Address "01.2.3.4" parse error during conversion from string: ParseAddr("01.2.3.4"): IP'
            "v4 field has octet with leading zero"
        ),
        1,
        (1, 1),
    ),
    (
        "ip('abc')",
        ('IP Address "abc" parse error during conversion from string: ParseAddr("abc"): unable to parse IP'),
        1,
        (1, 1),
    ),
    (
        "ip('%eth0')",
        ('IP Address "%eth0" parse error during conversion from string: ParseAddr("%eth0"): missing IPv6 address'),
        1,
        (1, 1),
    ),
    (
        "ip('1:2:3:4:5:6:7')",
        (
            'IP Address "1:2:3:4:5:6:7" parse error during conversion from string: ParseAddr("1:2:3:4:5'
            ':6:7"): address string too short'
        ),
        2,
        (2, 2),
    ),
    (
        "ip('1:2:3:4:5:6:7:8:9')",
        (
            'IP Address "1:2:3:4:5:6:7:8:9" parse error during conversion from string: ParseAddr("1:2:3'
            ':4:5:6:7:8:9"): trailing garbage after address (at "9")'
        ),
        2,
        (2, 2),
    ),
    (
        "ip('1:2:3:4:5:6:7:8::')",
        (
            'IP Address "1:2:3:4:5:6:7:8::" parse error during conversion from string: ParseAddr("1:2:3'
            ':4:5:6:7:8::"): the :: must expand to at least one field of zeros'
        ),
        2,
        (2, 2),
    ),
    (
        "ip('1::2::3')",
        (
            'IP Address "1::2::3" parse error during conversion from string: ParseAddr("1::2::3"): mult'
            'iple :: in address (at ":3")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('12345::')",
        (
            'IP Address "12345::" parse error during conversion from string: ParseAddr("12345::"): each'
            ' group must have 4 or less digits (at "12345::")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('1:2:3:')",
        (
            'IP Address "1:2:3:" parse error during conversion from string: ParseAddr("1:2:3:"): colon '
            'must be followed by more characters (at ":")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('1:g::')",
        (
            'IP Address "1:g::" parse error during conversion from string: ParseAddr("1:g::"): each col'
            'on-separated field must have at least one digit (at "g::")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('1.2.3.4:1')",
        (
            'IP Address "1.2.3.4:1" parse error during conversion from string: ParseAddr("1.2.3.4:1"): '
            'unexpected character (at ":1")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('1:1.2.3.4')",
        (
            'IP Address "1:1.2.3.4" parse error during conversion from string: ParseAddr("1:1.2.3.4"): '
            'embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")'
        ),
        1,
        (1, 1),
    ),
    (
        "ip('fe80::1%')",
        (
            'IP Address "fe80::1%" parse error during conversion from string: ParseAddr("fe80::1%"): zo'
            "ne must be a non-empty string"
        ),
        1,
        (1, 1),
    ),
    ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed', 2, (2, 2)),
    ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed', 2, (2, 2)),
    ("dyn(ip('127.0.0.1')) == dyn('127.0.0.1')", "no such overload", 3, (4, 4)),
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
