"""Costs of calls on data, at run time and as an estimate from the limits of a schema, as in Kubernetes 1.37."""

from __future__ import annotations

import contextlib

import pytest

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.libraries.authorizer import (
    AUTHORIZER,
    AuthorizationAttributes,
    AuthorizationResult,
    Authorizer,
)
from atoll.machinery.cel.types import BYTES, DYN, INT, STRING, ListType, MapType
from atoll.machinery.meta.user import User
from harness.oracles.cel_expressions import Expected, Sizes, compile_expression

#: 2^64-1, the upper end of an estimate without a limit.
MOST = 18_446_744_073_709_551_615

TYPES = {
    "s": STRING,
    "p": STRING,
    "u": STRING,
    "l": ListType(STRING),
    "n": ListType(INT),
    "b": ListType(BYTES),
    "d": DYN,
    "m": MapType(STRING, STRING),
    "a": AUTHORIZER,
}
LIMITS = Sizes({"s": (2, 10), "p": (0, 5), "l": (1, 5), "l.@items": (0, 20), "n": (0, 7), "b": (0, 3), "m": (0, 4)})


def _answer(attributes: AuthorizationAttributes) -> AuthorizationResult:
    if attributes.verb == "fail":
        return AuthorizationResult(False, "broken", "no answer")
    return AuthorizationResult(attributes.verb == "get")


VALUES = {
    "s": "10.0.0.0/8",
    "p": "a.",
    "u": "abcabc",
    "l": ["aa", "bb", "aa"],
    "n": [1, 2, 3],
    "b": [b"hello world hello", b"a"],
    "d": ["abcdefghijklmnopqrstuvwxyz", 1, {"kkkkkkkkkkkkkkkkkkkk": "vvvvvvvvvv"}],
    "m": {"k": "v"},
    "a": Authorizer(User("jane"), _answer),
}

#: Expression, run-time cost, estimate.
COSTS: list[tuple[str, int, Expected]] = [
    ("l.isSorted()", 1, (2, 16)),
    ("l.min()", 1, (2, 16)),
    ("n.sum()", 4, (1, 8)),
    ("n.max()", 4, (1, 8)),
    ("b.max()", 2, (1, 5_534_023_222_112_865_796)),
    ("b.lastIndexOf(b'aa')", 2, (1, 5_534_023_222_112_865_796)),
    ("l.indexOf('aa')", 1, (2, 16)),
    ("u.indexOf('a')", 1, (1, 1_844_674_407_370_955_265)),
    ("s.lastIndexOf('0')", 2, (2, 2)),
    ("d.includes(1)", 7, (1, MOST)),
    ("m.includes('k')", 1, (1, 7_378_697_629_483_821_061)),
    ("s.includes(s)", 3, (4, 12)),
    ("d.sum()", 7, (1, 1_844_674_407_370_955_265)),
    ("s.find(p)", 4, (2, 6)),
    ("s.findAll('[0-9]+')", 5, (3, 5)),
    ("s.findAll(p, 3)", 4, (2, 6)),
    ("u.find('a')", 2, (2, 1_844_674_407_370_955_265)),
    ("s.lowerAscii()", 2, (2, 2)),
    ("s.upperAscii().lowerAscii()", 3, (3, 3)),
    ("s.trim()", 2, (2, 2)),
    ("s.substring(1)", 2, (2, 2)),
    ("s.replace('0', 'abc')", 3, (2, 3)),
    ("s.replace(p, 'x')", 4, (3, 4)),
    ("s.replace('', p)", 4, (3, 4)),
    ("s.replace('abcd', 'x')", 3, (2, 3)),
    ("u.replace('a', 'b')", 3, (1, 3_689_348_814_741_910_529)),
    ("s.replace('0', 'abc').lowerAscii()", 5, (3, 6)),
    ("s.replace(p, 'xyz', 1)", 4, (3, 4)),
    ("s.split('.')", 3, (2, 3)),
    ("s.split('.', 2)", 3, (2, 3)),
    ("u.split(p).join('')", 6, (2, 5_534_023_222_112_865_794)),
    ("l.join()", 3, (1, 11)),
    ("l.join(', ')", 3, (1, 12)),
    ("l.join(p).lowerAscii()", 5, (2, 26)),
    ("u.split('').join(s)", 16, (2, 5_534_023_222_112_865_794)),
    ("isCIDR(s)", 2, (2, 2)),
    ("cidr(s).containsIP('10.1.2.3')", 4, (4, 7)),
    ("cidr(s).containsIP(ip('10.1.2.3'))", 4, (4, 7)),
    ("cidr(s).containsCIDR(s)", 7, (7, 11)),
    ("cidr(s).containsCIDR(cidr(s))", 7, (7, 11)),
    ("cidr(s).ip() == cidr(s).ip()", 7, (7, 7)),
    ("string(cidr(s).ip())", 4, (4, 4)),
    ("cidr(s).masked() == cidr(s)", 6, (6, 6)),
    ("cidr(s).prefixLength()", 3, (3, 3)),
    ("isIP(u)", 2, (1, 1_844_674_407_370_955_265)),
    ("ip.isCanonical('2001:db8::1')", 3, (3, 3)),
    ("ip('2001:db8::1') == ip('2001:db8::1')", 5, (5, 5)),
    ("cidr('2001:db8::/64').containsCIDR('2001:db8::/96')", 8, (7, 11)),
    ("isURL(u)", 2, (2, 2)),
    ("url('/' + s).getHost()", 6, (4, 6)),
    ("url('/' + s) == url('/' + s)", 11, (7, 12)),
    ("url('/' + u) == url('/' + s)", 9, (7, 3_689_348_814_741_910_536)),
    ("isQuantity(s)", 2, (2, 2)),
    ("isSemver(s)", 2, (2, 2)),
    ("isSemver(s, true)", 2, (2, 2)),
    ("format.dns1123Label().validate(s)", 18, (34, 34)),
    ("format.uri().validate(u)", 278, (2, MOST)),
    ("format.named(s)", 2, (2, 2)),
    ("s == s", 3, (3, 3)),
    ("l == l", 3, (3, 3)),
    ("m == m", 3, (3, 3)),
    ("a.path('/healthz').check('get').allowed()", 350_003, (350_003, 350_003)),
    ("a.group('').resource('pods').check('get').allowed()", 350_004, (350_004, 350_004)),
    (
        "a.group('apps').resource('deployments').subresource('scale').namespace('x').name('y').check('list').reason()",
        350_007,
        (350_007, 350_007),
    ),
    ("a.serviceAccount('default', 'me').path('/x').check('fail').errored()", 350_004, (350_004, 350_004)),
    ("a.path('/x').check('fail').error()", 350_003, (350_003, 350_003)),
    ("a.group('').resource('pods').fieldSelector(s).labelSelector(u).check('get').allowed()", 350_428, (350_077, MOST)),
    (
        "a.group('').resource('pods').check('get').allowed() && a.group('').resource('pods').check('list').allowed()",
        700_008,
        (350_004, 700_008),
    ),
    ("a.path(' ')", 2, (2, 2)),
    ("a.group('').resource(' ')", 3, (3, 3)),
    ("a.serviceAccount('Not valid', 'x')", 2, (2, 2)),
    ("a.serviceAccount('x', 'Not valid')", 2, (2, 2)),
    ("a == a", 3, (3, 3)),
    ("a.group('') == a.group('')", 5, (5, 5)),
]


@pytest.mark.parametrize(("expression", "cost", "estimate"), COSTS)
def test_an_expression_costs_what_kubernetes_charges_and_expects(
    expression: str, cost: int, estimate: Expected
) -> None:
    program = compile_expression(expression, TYPES)
    budget = Budget()
    with contextlib.suppress(EvaluationError):
        program.evaluate(VALUES, budget)
    assert budget.spent == cost
    assert program.estimate(LIMITS) == estimate
