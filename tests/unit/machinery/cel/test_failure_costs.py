"""Costs of evaluations with errors in them; each row is the cost in Kubernetes 1.37."""

from __future__ import annotations

import contextlib

import pytest

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.types import DYN, INT, STRING, ListType, MapType
from harness.oracles.cel_expressions import compile_expression

TYPES = {
    "mm": MapType(STRING, MapType(STRING, INT)),
    "ml": MapType(STRING, ListType(INT)),
    "ll": ListType(ListType(INT)),
    "l": ListType(STRING),
    "n": ListType(INT),
    "s": STRING,
    "d": DYN,
}
VALUES = {"mm": {"b": {}}, "ml": {"a": []}, "ll": [[1]], "l": ["a", "b"], "n": [1, 2, 3], "s": "x y", "d": None}

COSTS = [
    ("mm.a.b", 2),
    ("mm.a.b == 1 || true", 3),
    ("mm.b.c + mm.a.c > 0 || true", 7),
    ("ml.b[0] == 1", 3),
    ("ll[1][0] == ll[0][0]", 6),
    ("has(mm.x.y) || true", 1),
    ("has((s == '' ? mm : mm).b)", 1),
    ("url(s).getQuery()['a'][0] == s || true", 6),
    ("int(s) < size(l.join(s)) || true", 7),
    ("int(s) == size(l.join(s)) || true", 7),
    ("s.charAt(9) == l.join() || true", 5),
    ("l.join() == s.charAt(9) || true", 5),
    ("s.charAt(9).startsWith(l.join()) || true", 5),
    ("s.replace(s.charAt(9), l.join()) == 'a' || true", 4),
    ("s.replace(l.join(), s.charAt(9)) == 'a' || true", 7),
    ("s.charAt(9).find('a') == l.join() || true", 5),
    ("s.charAt(9).matches('[a-z]+') || true", 2),
    ("[int(s), size(l.join())].sum() > 0 || true", 14),
    ("{s.charAt(9): size(l.join())}.size() > 0 || true", 34),
    ("[int(s), ?optional.of(size(l.join()))].sum() > 0 || true", 14),
    ("n.map(x, 1 / (x - 2)).size() > 0 || true", 49),
    ("n.filter(x, 1 / (x - 2) > 0).size() > 0 || true", 29),
    ("n.exists_one(x, 1 / (x - 2) > 0) || true", 17),
    ("n.exists(x, 1 / (x - 2) > 5) || true", 26),
    ("[mm.a.c].map(x, x).size() > 0 || true", 14),
    ("quantity(s).isLessThan(quantity('1')) || true", 4),
    ("quantity('2') == quantity('1').add(1) || true", 4),
    ("quantity('2') != quantity('1').add(1)", 4),
    ("d.a == 1 || true", 3),
    ("d[0] == 1 || true", 3),
    ("{'a': 1, 'a': 2}.a", 2),
    ("s.startsWith('x y z a b c d e f')", 3),
]


@pytest.mark.parametrize(("expression", "cost"), COSTS)
def test_a_failure_costs_what_kubernetes_charges(expression: str, cost: int) -> None:
    budget = Budget()
    with contextlib.suppress(EvaluationError):
        compile_expression(expression, TYPES).evaluate(VALUES, budget)
    assert budget.spent == cost
