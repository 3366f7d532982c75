"""Messages of failing evaluations and of rejected expressions, word for word as Kubernetes prints them."""

from __future__ import annotations

import pytest

from atoll.machinery.cel.errors import CompileError, EvaluationError, ProgramError
from harness.data.cel_table import PROGRAMS, VALUES

_LITERALS = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
OPERAND = "{'[', '{', '(', '.', '-', '!', " + _LITERALS
OPERAND_OR_END = "{'[', '{', '(', ')', '.', '-', '!', " + _LITERALS
OPERAND_OR_MARK = "{'[', '{', '(', '.', '-', '!', '?', " + _LITERALS

FAILURES = [
    ("optional.none().value()", "optional.none() dereference"),
    ("i / 0", "division by zero"),
    ("i % 0", "modulus by zero"),
    ("9223372036854775807 + i", "integer overflow"),
    ("-9223372036854775808 - i", "integer overflow"),
    ("u - 4u", "unsigned integer overflow"),
    ("u + 18446744073709551615u", "unsigned integer overflow"),
    ("1/0 > 0 || false", "division by zero"),
    ("l[5]", "index out of bounds: 5"),
    ("l[-1]", "index out of bounds: -1"),
    ('m["zz"]', "no such key: zz"),
    ("m.zz", "no such key: zz"),
    ("d.zz", "no such key: zz"),
    ("d.x.y.z", "no such key: z"),
    ("dyn(1).a", "no such key: a"),
    ("dyn([1]).a", "unsupported index type 'string' in list"),
    ('dyn([1])["a"]', "unsupported index type 'string' in list"),
    ("dyn([1])[0.5]", "unsupported index value 0.5 in list"),
    ("dyn({1:2})[true]", "no such key: true"),
    ('dyn(1) + "a"', "no such overload"),
    ('dyn("a") + 1', "no such overload"),
    ('dyn("a") < 1', "no such overload"),
    ("size(dyn(1))", "no such overload: size"),
    ("dyn(1).size()", "no such overload: size"),
    ('dyn(1).startsWith("a")', "no such overload"),
    ('"a".startsWith(dyn(1))', "no such overload"),
    ('dyn(1).contains("a")', "no such overload"),
    ("int(s)", "type conversion error from 'string' to 'int'"),
    ("double(s)", "type conversion error from 'string' to 'double'"),
    ("timestamp(s)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
    ("duration(s)", "type conversion error from 'string' to 'google.protobuf.Duration'"),
    ('timestamp("9999-12-31T23:59:59Z") + duration("1s")', "timestamp overflow"),
    ('timestamp("2020-06-01T12:34:56.789Z").getHours("Nowhere/X")', "unknown time zone Nowhere/X"),
    ('{"a": 1}.b', "no such key: b"),
    ('"abc".substring(2,1)', "invalid substring range. start: 2, end: 1"),
    ('"abc".substring(4)', "index out of range: 4"),
    ('"abc".charAt(4)', "index out of range: 4"),
    ('"abcabc".indexOf("c", -1)', "index out of range: -1"),
    ("math.abs(-9223372036854775808)", "integer overflow"),
    ("math.bitShiftLeft(1,-1)", "math.bitShiftLeft() negative offset: -1"),
    ('base64.decode("a*")', "illegal base64 data at input byte 1"),
    ("l.slice(2,5)", "cannot slice(2, 5), list is length 3"),
    ("0.0/0.0 < 1.0", "NaN values cannot be ordered"),
    ("l.filter(x, 1/(x-2) > 0)", "division by zero"),
    ("l.exists_one(x, 1/(x-2) > 0)", "division by zero"),
    ("dyn(i).all(k, true)", "got 'types.Int', expected iterable type"),
]
PLANNED = [
    ('int("abc")', "type conversion error from 'string' to 'int'"),
    ('uint("-1")', "type conversion error from 'string' to 'uint'"),
    ("uint(-1)", "unsigned integer overflow"),
    ("int(1e30)", "integer overflow"),
    ('double("x")', "type conversion error from 'string' to 'double'"),
    ('bool("yes")', "type conversion error from 'string' to 'bool'"),
    ("string(b'\\xff')", "invalid UTF-8 in bytes, cannot convert to string"),
]
REFUSALS = [
    ("{1:2}[1.0]", "ERROR: <input>:1:6: found no matching overload for '_[_]' applied to '(map(int, int), double)'"),
    ("{1:2}[1u]", "ERROR: <input>:1:6: found no matching overload for '_[_]' applied to '(map(int, int), uint)'"),
    ("{1u:2}[1]", "ERROR: <input>:1:7: found no matching overload for '_[_]' applied to '(map(uint, int), int)'"),
    (
        "[1] == [1.0]",
        "ERROR: <input>:1:5: found no matching overload for '_==_' applied to '(list(int), list(double))'",
    ),
    (
        '{"a":1} == {"a":1u}',
        "ERROR: <input>:1:9: found no matching overload for '_==_' applied to '(map(string, int), map(string, uint))'",
    ),
    ("1 in [1.0,2.0]", "ERROR: <input>:1:3: found no matching overload for '@in' applied to '(int, list(double))'"),
    ('timestamp("x")', "ERROR: <input>:1:11: invalid timestamp argument"),
    ('duration("x")', "ERROR: <input>:1:10: invalid duration argument"),
    ('timestamp("2020-02-30T00:00:00Z")', "ERROR: <input>:1:11: invalid timestamp argument"),
    ('timestamp("0000-01-01T00:00:00Z")', "ERROR: <input>:1:11: invalid timestamp argument"),
    ('s.matches("(")', "ERROR: <input>:1:11: invalid matches argument"),
    ('"(".matches("a") || s.matches("[")', "ERROR: <input>:1:31: invalid matches argument"),
    ("undefined_var", "ERROR: <input>:1:1: undeclared reference to 'undefined_var' (in container '')"),
    ("undefined_fn(1)", "ERROR: <input>:1:13: undeclared reference to 'undefined_fn' (in container '')"),
    ("s.undefined_fn(1)", "ERROR: <input>:1:15: undeclared reference to 'undefined_fn' (in container '')"),
    ("i + s", "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'"),
    ("s.foo", "ERROR: <input>:1:2: type 'string' does not support field selection"),
    ("s.startsWith(1)", "ERROR: <input>:1:13: found no matching overload for 'startsWith' applied to 'string.(int)'"),
    ('[1, "a"]', "ERROR: <input>:1:5: expected type 'int' but found 'string'"),
    ('{"a": 1, "b": "c"}', "ERROR: <input>:1:15: expected type 'int' but found 'string'"),
    ('{"a": 1, 2: 3}', "ERROR: <input>:1:10: expected type 'string' but found 'int'"),
    ('[1, dyn("a")]', "ERROR: <input>:1:8: expected type 'int' but found 'dyn'"),
    ("i ? 1 : 2", "ERROR: <input>:1:3: found no matching overload for '_?_:_' applied to '(int, int, int)'"),
    ('b ? 1 : "a"', "ERROR: <input>:1:3: found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
    ("i && b", "ERROR: <input>:1:1: expected type 'bool' but found 'int'"),
    ("!i", "ERROR: <input>:1:1: found no matching overload for '!_' applied to '(int)'"),
    ("-s", "ERROR: <input>:1:1: found no matching overload for '-_' applied to '(string)'"),
    ("l.all(x, x)", "ERROR: <input>:1:10: expected type 'bool' but found 'int'"),
    ("l.all(x, x + 1)", "ERROR: <input>:1:12: expected type 'bool' but found 'int'"),
    (
        "i.all(x, true)",
        "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension "
        "(must be list, map, or dynamic)",
    ),
    (
        "l.map(x, y, z)",
        "ERROR: <input>:1:6: found no matching overload for '_?_:_' applied to '(bytes, list(!error!), list(!error!))'",
    ),
    ("l.foo(x, x)", "ERROR: <input>:1:6: undeclared reference to 'foo' (in container '')"),
    ("has(i)", "ERROR: <input>:1:5: invalid argument to has() macro"),
    ("has(l[0])", "ERROR: <input>:1:6: invalid argument to has() macro"),
    (
        "optional.of(1) + 1",
        "ERROR: <input>:1:16: found no matching overload for '_+_' applied to '(optional_type(int), int)'",
    ),
    ("[?1]", "ERROR: <input>:1:3: expected type 'optional_type(int)' but found 'int'"),
    ('"%s %d %.2f %x %X %o %b %e".format(["a"])', "ERROR: <input>:1:35: index 1 out of range"),
    (
        '"%d".format(["a"])',
        "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string",
    ),
    ('"%z".format([1])', 'ERROR: <input>:1:12: could not parse formatting clause: unrecognized formatting clause "z"'),
    ('"%".format([1])', "ERROR: <input>:1:11: unexpected end of string"),
    ('"%%".format([1])', "ERROR: <input>:1:12: too many arguments supplied to string.format (expected 0, got 1)"),
    ('"abc".reverse()', "ERROR: <input>:1:14: found no matching overload for 'reverse' applied to 'string.()'"),
    ("math.greatest()", "ERROR: <input>:1:1: math.greatest() requires at least one argument"),
    ('math.greatest("a")', "ERROR: <input>:1:15: math.greatest() invalid single argument value"),
    ("[1,[2,[3]]].flatten(2)", "ERROR: <input>:1:4: expected type 'int' but found 'list(dyn)'"),
    ("1 +", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting " + OPERAND),
    ("1 2", "ERROR: <input>:1:3: Syntax error: extraneous input '2' expecting <EOF>"),
    ("1 2 3", "ERROR: <input>:1:3: Syntax error: mismatched input '2' expecting <EOF>"),
    ("$ + 1", "ERROR: <input>:1:1: Syntax error: token recognition error at: '$'"),
    ("a.b(", "ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting " + OPERAND_OR_END),
    ("[1,2", "ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting {']', ','}"),
    (
        "'''x'''+r'\\d'+b'\\xff'",
        "ERROR: <input>:1:14: found no matching overload for '_+_' applied to '(string, bytes)'",
    ),
    ("has(a)", "ERROR: <input>:1:5: invalid argument to has() macro"),
    ("if", "ERROR: <input>:1:1: reserved identifier: if"),
    ("a.", "ERROR: <input>:1:3: Syntax error: no viable alternative at input '.'"),
    ("a.true", "ERROR: <input>:1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"),
    ("(1", "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'"),
    ("(1]", "ERROR: <input>:1:3: Syntax error: mismatched input ']' expecting ')'"),
    ("1]", "ERROR: <input>:1:2: Syntax error: extraneous input ']' expecting <EOF>"),
    ("{1:", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting " + OPERAND),
    ("{1}", "ERROR: <input>:1:3: Syntax error: mismatched input '}' expecting ':'"),
    ("{'a' 2}", "ERROR: <input>:1:6: Syntax error: missing ':' at '2'"),
    ("a ? b", "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting ':'"),
    ("a ? b c", "ERROR: <input>:1:7: Syntax error: missing ':' at 'c'"),
    ("x.all(1, true)", "ERROR: <input>:1:7: argument must be a simple name"),
    ("'abc", "ERROR: <input>:1:1: Syntax error: token recognition error at: ''abc'"),
    ("a && ", "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting " + OPERAND),
    ("a b", "ERROR: <input>:1:3: Syntax error: extraneous input 'b' expecting <EOF>"),
    ("[1 2]", "ERROR: <input>:1:4: Syntax error: extraneous input '2' expecting {']', ','}"),
    ("f(1 2)", "ERROR: <input>:1:5: Syntax error: extraneous input '2' expecting ')'"),
    ("1 + + 2", "ERROR: <input>:1:5: Syntax error: extraneous input '+' expecting " + OPERAND),
    ("", "ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting " + OPERAND),
    ("99999999999999999999", "ERROR: <input>:1:1: invalid int literal"),
    ("'\\ud800'", "ERROR: <input>:1:1: invalid unicode code point"),
    ("a.`b`", "ERROR: <input>:1:3: unsupported syntax: '`'"),
    ("A{b 1}", "ERROR: <input>:1:5: Syntax error: missing ':' at '1'"),
    ("a.?", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {IDENTIFIER, ESC_IDENTIFIER}"),
    ("'\\q'", "ERROR: <input>:1:1: Syntax error: token recognition error at: ''\\q'"),
    ("a[", "ERROR: <input>:1:3: Syntax error: mismatched input '<EOF>' expecting " + OPERAND_OR_MARK),
    ("a[1", "ERROR: <input>:1:4: Syntax error: missing ']' at '<EOF>'"),
    ("=1", "ERROR: <input>:1:1: Syntax error: token recognition error at: '=1'"),
    ("a = 1", "ERROR: <input>:1:3: Syntax error: token recognition error at: '= '"),
    ("a & b", "ERROR: <input>:1:3: Syntax error: token recognition error at: '& '"),
    ("a | b", "ERROR: <input>:1:3: Syntax error: token recognition error at: '| '"),
    ("1..2", "ERROR: <input>:1:3: Syntax error: no viable alternative at input '..2'"),
    ("a.1", "ERROR: <input>:1:2: Syntax error: extraneous input '.1' expecting <EOF>"),
    ("foo(,)", "ERROR: <input>:1:5: Syntax error: extraneous input ',' expecting " + OPERAND_OR_END),
    ("a ?: b", "ERROR: <input>:1:4: Syntax error: extraneous input ':' expecting " + OPERAND),
    ("\n\n  a +\n", "ERROR: <input>:4:1: Syntax error: mismatched input '<EOF>' expecting " + OPERAND),
]


@pytest.mark.parametrize(("text", "message"), FAILURES)
def test_fails_with_its_message(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        PROGRAMS.compile(text).evaluate(VALUES)
    assert str(caught.value) == message


@pytest.mark.parametrize(("text", "message"), PLANNED)
def test_a_literal_that_cannot_be_converted_makes_no_program(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        PROGRAMS.compile(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(("text", "message"), REFUSALS)
def test_is_refused_with_its_first_issue(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        PROGRAMS.compile(text)
    assert str(caught.value).split("\n")[0] == message


def test_an_issue_shows_its_line_and_a_caret_below_the_column() -> None:
    with pytest.raises(CompileError) as caught:
        PROGRAMS.compile("i +\n  'é' + s")
    assert str(caught.value) == (
        "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | i +\n | ..^"
    )


def test_all_issues_are_reported_in_the_order_of_their_positions() -> None:
    with pytest.raises(CompileError) as caught:
        PROGRAMS.compile("nobody == 1 && s.nothing")
    assert [(issue.line, issue.column) for issue in caught.value.issues] == [(1, 0), (1, 16)]


DEEP = ["(" * 300 + "i" + ")" * 300, "i" + " + 1" * 300, "d" + ".x" * 300, "!!!" + "(" * 260]


@pytest.mark.parametrize("text", DEEP)
def test_an_expression_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match="expression recursion limit exceeded: 250"):
        PROGRAMS.compile(text)


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(CompileError, match="expression code point size exceeds limit: size: 100001, limit 100000"):
        PROGRAMS.compile("1".ljust(100_001))


def test_a_long_chain_of_logic_is_not_deep() -> None:
    assert PROGRAMS.compile(" && ".join(["b"] * 2000)).evaluate(VALUES) is True
