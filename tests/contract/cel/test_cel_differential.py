"""Atoll's CEL against Google's C++ implementation, on their common subset: thousands of expressions from a seed.

Most expressions are well typed, some have a hole of a wrong type. Both must reject, fail, or return the same value of
the same type. `tests/contract/oracle` compares messages and costs, with the implementation in Kubernetes.
"""

from __future__ import annotations

import datetime
import math
import random
from functools import cache
from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from atoll.machinery.cel import ext
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import CompileError, EvaluationError, ProgramError
from atoll.machinery.cel.types import BOOL, DOUBLE, DYN, INT, STRING, UINT, ListType, MapType
from atoll.machinery.cel.values import SECOND, Duration, Timestamp, TypeValue
from harness.tiers import every

CASES, SHARDS = 6_000, 12
BINDINGS = {
    "i": 7,
    "j": -3,
    "s": "héllo",
    "t": "abcabc",
    "f": 2.5,
    "b": True,
    "l": [3, 1, 2],
    "ls": ["b", "", "abc"],
    "m": {"a": 1, "bb": 2},
    "d": {"x": [1, "y"], "n": None},
}

#: Templates for each type of result, with a hole for each expression within, two spaces apart.
_GRAMMAR = {
    "int": """
        0  1  2  -1  9223372036854775807  -9223372036854775808  i  j  ({int} + {int})  ({int} - {int})
        ({int} * {int})  ({int} / {int})  ({int} % {int})  -{int}  size({string})  {list}.size()  size({map})
        int({string})  int({double})  {list}[{int}]  ({bool} ? {int} : {int})  m[{string}]  m.a  int({uint})
        {duration}.getSeconds()  {timestamp}.getFullYear()  {timestamp}.getDayOfYear()
        {timestamp}.getHours('+01:30')  {string}.indexOf({string})  {timestamp}.getMonth()
        {timestamp}.getDayOfWeek()  {duration}.getMinutes()
    """,
    "uint": """
        0u  1u  18446744073709551615u  ({uint} + {uint})  ({uint} - {uint})  ({uint} / {uint})  uint({int})
    """,
    "double": """
        0.0  1.5  -2.25  1e300  f  ({double} + {double})  ({double} * {double})  double({int})  -{double}
    """,
    "bool": """
        true  false  b  ({int} == {int})  ({int} < {int})  ({int} >= {int})  ({string} == {string})
        ({string} < {string})  ({bool} && {bool})  ({bool} || {bool})  !{bool}  {string}.contains({string})
        {string}.startsWith({string})  {string}.endsWith({string})  {string}.matches('[a-c]+')
        ({int} in {list})  ({string} in m)  {list}.all(x, x > {int})  {list}.exists(x, x == {int})
        {list}.exists_one(x, x < {int})  has(m.a)  has(m.zz)  has(d.x)  ({list} == {list})  ({map} == {map})
        (d.x[0] == {int})  ls.exists(x, x == {string})  ({double} < {double})  ({uint} != {uint})
        (d.n == null)  (dyn({int}) == {double})  ({duration} < {duration})  ({timestamp} >= {timestamp})
        m.all(k, m[k] > {int})  (type({int}) == int)  (1 / {int} > 0 || {bool})  (1 / {int} > 0 && {bool})
        d.zz == {int}  (dyn({string}) == {int})
    """,
    "string": """
        ''  'a'  'abc'  '日本'  s  t  ({string} + {string})  string({int})  string({bool})  ls[{int}]
        ({bool} ? {string} : {string})  string({uint})  {string}.lowerAscii()  {string}.upperAscii()
        {string}.substring({int})  {string}.replace({string}, {string})  {string}.trim()
        {string}.charAt({int})  {string}.split(',').join('-')  ['a', {string}].join({string})
    """,
    "list": """
        []  [1, 2]  l  [{int}, {int}]  ({list} + {list})  {list}.map(x, x + {int})
        {list}.filter(x, x > {int})  {list}.map(x, x > 1, x * 2)  ({bool} ? {list} : {list})  m.map(k, 1)
    """,
    "map": """
        {{}}  m  {{'a': {int}}}  {{{string}: {int}, 'k': {int}}}
    """,
    "duration": """
        duration('90s')  duration('-1h30m')  ({duration} + {duration})  ({timestamp} - {timestamp})
    """,
    "timestamp": """
        timestamp('2024-02-29T12:30:15Z')  timestamp('1970-01-01T00:00:00Z')  ({timestamp} + {duration})
    """,
}
_TEMPLATES = {
    kind: [each.strip() for each in text.replace("\n", "  ").split("  ") if each.strip()]
    for kind, text in _GRAMMAR.items()
}


def _grown(rng: random.Random, kind: str, depth: int) -> str:
    """Return an expression of a type. At depth 0 only templates without holes are used."""
    if rng.random() < 0.01:
        kind = rng.choice(list(_TEMPLATES))
    templates = _TEMPLATES[kind]
    if depth <= 0:
        templates = [each for each in templates if "{" not in each.replace("{{}}", "")]
    template = rng.choice(templates)
    return template.format_map(_Holes(rng, depth - 1))


class _Holes(dict[str, str]):
    def __init__(self, rng: random.Random, depth: int) -> None:
        super().__init__()
        self.rng, self.depth = rng, depth

    def __missing__(self, kind: str) -> str:
        return _grown(self.rng, kind, self.depth)


@cache
def _ours() -> Environment:
    texts = ListType(STRING)
    types = {"i": INT, "j": INT, "s": STRING, "t": STRING, "f": DOUBLE, "b": BOOL, "u": UINT, "l": ListType(INT)}
    types |= {"ls": texts, "m": MapType(STRING, INT), "d": DYN}
    return Environment({name: types[name] for name in BINDINGS}, (ext.STRINGS,), homogeneous=False)


@cache
def _theirs() -> Any:
    kinds = {"i": "int", "j": "int", "s": "string", "t": "string", "f": "double", "b": "bool", "l": "list<int>"}
    kinds |= {"ls": "list<string>", "m": "map<string, int>", "d": "dyn"}
    variables = {name: cel.Type(kind) for name, kind in kinds.items()}
    return cel.NewEnv(variables=variables, extensions=[ext_strings.ExtStrings()])


def _our_answer(text: str) -> Any:
    try:
        program = _ours().compile(text)
    except ProgramError:
        # Kubernetes converts literals at planning time, whether they are evaluated or not.
        return "planned"
    except CompileError:
        return "refused"
    try:
        return _plain(program.evaluate(BINDINGS))
    except EvaluationError:
        return "failed"


def _their_answer(text: str) -> Any:
    try:
        expression = _theirs().compile(text)
    except RuntimeError:
        return "refused"
    value = expression.eval(data=BINDINGS)
    return "failed" if str(value.type()) == "ERROR" else _plain(value.value())


def _plain(value: Any) -> Any:
    """Return a form in which equal values of both are equal; the type is part of it."""
    if type(value).__module__.startswith("cel_expr_python") and hasattr(value, "value"):
        # Items of its collections are wrapped.
        value = value.value()
    if isinstance(value, float):
        return ("double", "nan" if math.isnan(value) else value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    if isinstance(value, int):
        return ("int", int(value))
    if isinstance(value, list):
        return ["list", *map(_plain, value)]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return _plain_time(value)


def _plain_time(value: Any) -> Any:
    if type(value).__name__ == "Type":
        return ("type", str(value).lower())
    if isinstance(value, datetime.timedelta):
        return ("duration", value // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return ("timestamp", (value - epoch) // datetime.timedelta(microseconds=1))
    if isinstance(value, Duration | Timestamp):
        return (type(value).__name__.lower(), value.nanos // (SECOND // 1_000_000))
    assert isinstance(value, TypeValue), value
    return ("type", value.name)


@pytest.mark.parametrize("shard", every(4, range(SHARDS)))
def test_both_give_the_same_answer_to_expressions_grown_from_a_seed(shard: int) -> None:
    different = []
    for case in range(shard * CASES // SHARDS, (shard + 1) * CASES // SHARDS):
        rng = random.Random(case)
        text = _grown(rng, rng.choice(list(_TEMPLATES)), rng.randint(1, 4))
        ours, theirs = _our_answer(text), _their_answer(text)
        if ours not in (theirs, "planned"):
            different.append(f"{case}: {text}\n    ours {ours}, theirs {theirs}")
    assert not different, "\n".join(different[:20])


def test_the_grown_expressions_are_of_every_kind_of_answer() -> None:
    answers = set()
    for case in range(400):
        rng = random.Random(case)
        answer = _our_answer(_grown(rng, rng.choice(list(_TEMPLATES)), rng.randint(1, 4)))
        answers.add(answer if isinstance(answer, str) else type(answer).__name__)
    assert answers >= {"refused", "failed", "tuple", "list", "dict"}
