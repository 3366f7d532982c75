"""Values, messages and costs of `url`; each row is the result of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from harness.oracles.cel_expressions import Expected, check_error, check_value

#: Expression, value, run-time cost, estimate.
VALUES: list[tuple[str, Any, int, Expected]] = [
    ("url('/path').getScheme()", "", 2, (2, 2)),
    ("url('HTTPS://example.com/').getScheme()", "https", 3, (3, 3)),
    ("url('https://example.com:80/').getHost()", "example.com:80", 4, (4, 4)),
    ("url('https://user:pass@example.com/').getHost()", "example.com", 4, (4, 4)),
    ("url('https://[::1]:80/').getHost()", "[::1]:80", 3, (3, 3)),
    ("url('https://%C3%A9.com/').getHost()", "é.com", 3, (3, 3)),
    ("url('/path').getHost()", "", 2, (2, 2)),
    ("url('https://example.com:80/').getHostname()", "example.com", 4, (4, 4)),
    ("url('https://[::1]:80/').getHostname()", "::1", 3, (3, 3)),
    ("url('https://[fe80::1%25eth0]/').getHostname()", "fe80::1%eth0", 4, (4, 4)),
    ("url('https://example.com:80/').getPort()", "80", 4, (4, 4)),
    ("url('https://example.com:/').getPort()", "", 4, (4, 4)),
    ("url('https://example.com/').getPort()", "", 3, (3, 3)),
    ("url('https://example.com/path with spaces/').getEscapedPath()", "/path%20with%20spaces/", 5, (5, 5)),
    ("url('https://example.com/a%2Fb/%41!').getEscapedPath()", "/a%2Fb/%41!", 4, (4, 4)),
    ("url('https://example.com').getEscapedPath()", "", 3, (3, 3)),
    ("url('mailto:someone').getEscapedPath()", "", 3, (3, 3)),
    ("url('https://example.com/path?k1=a&k2=b&k2=c').getQuery()", {"k1": ["a"], "k2": ["b", "c"]}, 5, (5, 5)),
    (
        "url('https://example.com/?a%20b=c+d&x&=y&;&%zz=1').getQuery()",
        {"": ["y"], "a b": ["c d"], "x": [""]},
        6,
        (6, 6),
    ),
    ("url('https://example.com/path?').getQuery()", {}, 4, (4, 4)),
    ("url('https://example.com/path').getQuery()", {}, 4, (4, 4)),
    ("url('https://example.com/?%ff=1').getQuery()", {"�": ["1"]}, 4, (4, 4)),
    ("isURL('https://user:pass@example.com:80/path?query=val#fragment')", True, 1, (1, 1)),
    ("isURL('/absolute-path')", True, 1, (1, 1)),
    ("isURL('../relative-path')", False, 1, (1, 1)),
    ("isURL('https://a:b:c/')", False, 1, (1, 1)),
    ("isURL('')", False, 1, (1, 1)),
    ("isURL('*')", True, 1, (1, 1)),
    ("isURL('https://example.com/%zz')", False, 1, (1, 1)),
    ("url('https://a.b/c') == url('https://a.b/c')", True, 5, (5, 6)),
    ("url('https://a.b/c') == url('HTTPS://a.b/c')", True, 5, (5, 6)),
    ("url('https://a.b/c?') == url('https://a.b/c')", False, 5, (5, 6)),
    ("url('https://a.b/%41') == url('https://a.b/A')", False, 5, (5, 6)),
    ("dyn(url('/a')) == null", False, 3, (3, 3)),
]

#: Expression, message, run-time cost, estimate.
ERRORS: list[tuple[str, str, int, Expected]] = [
    (
        "url('https://a:b:c/')",
        ('URL parse error during conversion from string: parse "https://a:b:c/": invalid port ":b:c" after host'),
        2,
        (2, 2),
    ),
    (
        "url('../relative-path')",
        ('URL parse error during conversion from string: parse "../relative-path": invalid URI for request'),
        2,
        (2, 2),
    ),
    ("url('')", 'URL parse error during conversion from string: parse "": empty url', 0, (0, 0)),
    (
        "url('https://example.com/%4')",
        ('URL parse error during conversion from string: parse "https://example.com/%4": invalid URL escape "%4"'),
        3,
        (3, 3),
    ),
    (
        "url('https://[::1/')",
        "URL parse error during conversion from string: parse \"https://[::1/\": missing ']' in host",
        2,
        (2, 2),
    ),
    (
        "url('https://[1.2.3.4]/')",
        'URL parse error during conversion from string: parse "https://[1.2.3.4]/": invalid IP-literal',
        2,
        (2, 2),
    ),
    (
        "url('https://[x]/')",
        (
            'URL parse error during conversion from string: parse "https://[x]/": invalid host: ParseAd'
            'dr("x"): unable to parse IP'
        ),
        2,
        (2, 2),
    ),
    (
        "url('https://a[b]/')",
        'URL parse error during conversion from string: parse "https://a[b]/": invalid IP-literal',
        2,
        (2, 2),
    ),
    (
        "url('https://exa mple.com/')",
        (
            'URL parse error during conversion from string: parse "https://exa mple.com/": invalid char'
            'acter " " in host name'
        ),
        3,
        (3, 3),
    ),
    (
        "url('https://exa%41mple.com/')",
        ('URL parse error during conversion from string: parse "https://exa%41mple.com/": invalid URL escape "%41"'),
        3,
        (3, 3),
    ),
    (
        "url('https://a b@c/')",
        ('URL parse error during conversion from string: parse "https://a b@c/": net/url: invalid userinfo'),
        2,
        (2, 2),
    ),
    (
        "url('https://example.com/\\u0001')",
        (
            'URL parse error during conversion from string: parse "https://example.com/\\x01": net/url: '
            "invalid control character in URL"
        ),
        3,
        (3, 3),
    ),
    ("url(':foo')", 'URL parse error during conversion from string: parse ":foo": missing protocol scheme', 1, (1, 1)),
    (
        "url('https://example.com/#%zz')",
        ('URL parse error during conversion from string: parse "https://example.com/#%zz": invalid URL escape "%zz"'),
        3,
        (3, 3),
    ),
    ("dyn(url('/a')) == dyn('/a')", "no such overload", 3, (4, 4)),
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
