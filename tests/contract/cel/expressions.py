"""Random expressions that use all of Kubernetes' environment, most of them well typed.

`Expressions(rng).any()` returns the text of one; VARIABLES lists the names that it may use, `bindings` their values,
LIMITS their size limits. The source of randomness determines everything, so a seed identifies a case. An expression
grows from PRODUCTIONS: templates for each result type, with a hole for each expression within; `{bool|x=int}` is a hole
in which `x` is a variable of type int.
"""

from __future__ import annotations

import random
import re
from typing import Any, Final

#: The probability that a hole gets an expression of another type, for the checker or for dyn to detect.
_WRONG: Final = 0.01
_HOLE = re.compile(r"\{([^{}|]+)(?:\|([^{}]*))?\}")

#: Names an expression may use, each with its type.
VARIABLES: Final = {
    "b": "bool",
    "i": "int",
    "j": "int",
    "u": "uint",
    "f": "double",
    "s": "string",
    "t": "string",
    "y": "bytes",
    "li": "list(int)",
    "ls": "list(string)",
    "lf": "list(double)",
    "msi": "map(string, int)",
    "mso": "map(string, int)",
    "mss": "map(string, string)",
    "d": "dyn",
}
#: Sizes for the estimate: `s`, the items of `ls` and the map have limits, the others have none.
LIMITS: Final = {"s": (0, 40), "ls": (0, 8), "ls.@items": (1, 12), "li": (2, 6), "msi": (0, 5), "msi.@keys": (1, 9)}

_LITERALS: Final = {
    "bool": ("true", "false"),
    "int": ("0", "1", "2", "-1", "7", "10", "9223372036854775807", "-9223372036854775808"),
    "uint": ("0u", "1u", "3u", "18446744073709551615u"),
    "double": ("0.0", "1.0", "-1.5", "2.5", "1e300", "0.1"),
    "string": (
        *("''", "'a'", "'abc'", "'héllo wörld'", "'日本'", "'a,b,c'", "'  x '", "'10'", "'true'", "'a-b'", "'1.5'"),
        *(
            "'1.2.3'",
            "'10.0.0.1'",
            "'::1'",
            "'10.0.0.0/8'",
            "'1h30m'",
            "'2024-02-29T12:30:15Z'",
            "'https://a.b:80/c?k=v'",
        ),
        *("'100Mi'", "'-0.5'", "'[a-z]+'", "'b+'", "'(a)(b)'", "'A.B'", "'%s'"),
    ),
    "bytes": ("b''", "b'abc'", "b'\\xff'", "b'h\\xc3\\xa9'"),
    "duration": ("duration('1s')", "duration('-90m')", "duration('0s')", "duration('1h2m3.5s')"),
    "timestamp": ("timestamp('2024-02-29T12:30:15Z')", "timestamp('1970-01-01T00:00:00Z')", "timestamp(1700000000)"),
    "quantity": ("quantity('100Mi')", "quantity('1.5')", "quantity('-3k')", "quantity('1e30')", "quantity('0')"),
    "ip": ("ip('10.0.0.1')", "ip('::1')", "ip('2001:db8::1')", "ip('169.254.1.1')"),
    "cidr": ("cidr('10.0.0.0/8')", "cidr('2001:db8::/32')", "cidr('192.168.1.7/24')"),
    "url": ("url('https://a.b:80/c?k=v&k=w#f')", "url('/path')", "url('https://[::1]/')"),
    "semver": ("semver('1.2.3')", "semver('1.0.0-rc.1+b')", "semver('v2', true)"),
    "format": ("format.dns1123Label()", "format.uri()", "format.datetime()", "format.labelValue()"),
    "type": ("int", "string", "type(1.5)", "list", "type(ip('::1'))"),
    "null": ("null",),
}

_SCALARS = ("bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp")
_ORDERED = _SCALARS
_OPAQUE = ("quantity", "ip", "cidr", "url", "semver", "format")


def _productions() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {
        "bool": [
            *("!{bool}", "{bool} && {bool}", "{bool} || {bool}", "{bool} ? {bool} : {bool}", "({bool})"),
            *("{string}.startsWith({string})", "{string}.endsWith({string})", "{string}.contains({string})"),
            *("{string}.matches({string})", "{string}.matches('[a-z]+b?')", "bool({string})", "dyn({dyn}) == {dyn}"),
            *("{int} in {list(int)}", "{string} in {list(string)}", "{string} in {map(string, int)}"),
            *("{list(int)}.all(x, {bool|x=int})", "{list(int)}.exists(x, {bool|x=int})"),
            *("{list(string)}.exists_one(x, {bool|x=string})", "{map(one)}.all(x, {bool|x=string})"),
            *("{map(one)}.exists(x, {bool|x=string})", "{list(int)}.all(x, v, {bool|x=int,v=int})"),
            *(
                "{map(one)}.exists(x, v, {bool|x=string,v=int})",
                "{list(string)}.existsOne(x, v, {bool|x=int,v=string})",
            ),
            *("has({map(string, int)}.abc)", "has(msi.a)", "has(d.a)", "{optional}.hasValue()", "{dyn} == {dyn}"),
            *("isURL({string})", "isIP({string})", "isCIDR({string})", "isQuantity({string})", "isSemver({string})"),
            *("isSemver({string}, {bool})", "ip.isCanonical({string})", "{ip}.isUnspecified()", "{ip}.isLoopback()"),
            *("{ip}.isLinkLocalMulticast()", "{ip}.isLinkLocalUnicast()", "{ip}.isGlobalUnicast()"),
            *("{cidr}.containsIP({string})", "{cidr}.containsIP({ip})", "{cidr}.containsCIDR({string})"),
            *("{cidr}.containsCIDR({cidr})", "{quantity}.isInteger()", "{quantity}.isGreaterThan({quantity})"),
            *("{quantity}.isLessThan({quantity})", "{semver}.isLessThan({semver})", "{semver}.isGreaterThan({semver})"),
            *("{format}.validate({string}).hasValue()", "sets.contains({list(int)}, {list(int)})"),
            *("sets.intersects({list(string)}, {list(string)})", "sets.equivalent({list(int)}, {list(int)})"),
            *("{list(int)}.includes({int})", "{dyn}.includes({dyn})", "{type} == {type}", "{int} < {double}"),
            *("{uint} >= {int}", "{double} == {double}", "{list(int)} != {list(int)}", "{dyn} != {dyn}"),
            *("{dyn} in [{dyn}, {dyn}]", "{list(dyn)} == {list(dyn)}", "{map(string, int)} == {map(string, int)}"),
        ],
        "int": [
            *("{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}", "-{int}"),
            *("{bool} ? {int} : {int}", "size({string})", "{string}.size()", "size({bytes})", "size({list(string)})"),
            *("size({map(string, int)})", "{list(int)}.size()", "int({string})", "int({double})", "int({uint})"),
            *(
                "int({timestamp})",
                "{list(int)}[{int}]",
                "{map(string, int)}[{string}]",
                "{map(string, int)}.a",
                "msi.b",
            ),
            *("{list(int)}.sum()", "{list(int)}.min()", "{list(int)}.max()", "{list(int)}.indexOf({int})"),
            *(
                "{list(string)}.lastIndexOf({string})",
                "{string}.indexOf({string})",
                "{string}.indexOf({string}, {int})",
            ),
            *("{string}.lastIndexOf({string})", "{string}.lastIndexOf({string}, {int})", "{timestamp}.getFullYear()"),
            *(
                "{timestamp}.getMonth()",
                "{timestamp}.getDayOfYear()",
                "{timestamp}.getDate()",
                "{timestamp}.getDayOfWeek()",
            ),
            *(
                "{timestamp}.getHours('America/New_York')",
                "{timestamp}.getMinutes('+05:30')",
                "{timestamp}.getSeconds()",
            ),
            *(
                "{duration}.getHours()",
                "{duration}.getMinutes()",
                "{duration}.getSeconds()",
                "{duration}.getMilliseconds()",
            ),
            *("{ip}.family()", "{cidr}.prefixLength()", "{quantity}.asInteger()", "sign({quantity})"),
            *(
                "{quantity}.compareTo({quantity})",
                "{semver}.compareTo({semver})",
                "{semver}.major()",
                "{semver}.patch()",
            ),
            *("{optional}.value()", "{optional}.orValue({int})", "{list(int)}.first().orValue({int})"),
            *("{list(dyn)}[0]", "{list(int)}.last().value()"),
        ],
        "uint": [
            *("{uint} + {uint}", "{uint} - {uint}", "{uint} * {uint}", "{uint} / {uint}", "{uint} % {uint}"),
            *("uint({int})", "uint({string})", "uint({double})", "[{uint}, {uint}].sum()", "[{uint}, {uint}].max()"),
        ],
        "double": [
            *("{double} + {double}", "{double} - {double}", "{double} * {double}", "{double} / {double}", "-{double}"),
            *("double({int})", "double({string})", "double({uint})", "{list(double)}.sum()", "{list(double)}.max()"),
            *("{quantity}.asApproximateFloat()", "{list(double)}[{int}]"),
        ],
        "string": [
            *(
                "{string} + {string}",
                "{bool} ? {string} : {string}",
                "string({int})",
                "string({uint})",
                "string({double})",
            ),
            *("string({bool})", "string({bytes})", "string({timestamp})", "string({duration})", "string({ip})"),
            *(
                "string({cidr})",
                "{string}.lowerAscii()",
                "{string}.upperAscii()",
                "{string}.trim()",
                "{string}.charAt({int})",
            ),
            *("{string}.substring({int})", "{string}.substring({int}, {int})", "{string}.replace({string}, {string})"),
            *("{string}.replace({string}, {string}, {int})", "{list(string)}.join()", "{list(string)}.join({string})"),
            *("{string}.find({string})", "{string}.find('[a-c]+')", "{list(string)}[{int}]", "{list(string)}.max()"),
            *("'%s|%d'.format([{string}, {int}])", "'%.2f %e'.format([{double}, {double}])", "strings.quote({string})"),
            *("'%x %X %o %b'.format([{int}, {string}, {uint}, {bool}])", "'%s'.format([{dyn}])", "{url}.getScheme()"),
            *("{url}.getHost()", "{url}.getHostname()", "{url}.getPort()", "{url}.getEscapedPath()", "mss['a']"),
            *("{list(string)}.min()", "{string}.reverse()", "{format}.validate({string}).orValue([])[0]"),
        ],
        "bytes": ["{bytes} + {bytes}", "bytes({string})", "[{bytes}, {bytes}].min()"],
        "duration": [
            *("{duration} + {duration}", "{duration} - {duration}", "{timestamp} - {timestamp}", "duration({string})"),
            *("[{duration}, {duration}].sum()", "[{duration}, {duration}].max()"),
        ],
        "timestamp": [
            *("{timestamp} + {duration}", "{duration} + {timestamp}", "{timestamp} - {duration}", "timestamp({int})"),
            *("timestamp({string})", "[{timestamp}, {timestamp}].min()"),
        ],
        "list(int)": [
            *("[{int}, {int}]", "[{int}]", "[]", "{list(int)} + {list(int)}", "{list(int)}.map(x, {int|x=int})"),
            *("{list(int)}.filter(x, {bool|x=int})", "{list(int)}.map(x, {bool|x=int}, {int|x=int})"),
            *("{list(string)}.map(x, {int|x=string})", "{list(int)}.sort()", "{list(int)}.distinct()"),
            *(
                "{list(int)}.slice({int}, {int})",
                "{list(int)}.reverse()",
                "lists.range(4)",
                "[{list(int)}, {list(int)}].flatten()",
            ),
            *(
                "{list(int)}.transformList(x, v, {int|x=int,v=int})",
                "[{int}, ?{optional}]",
                "{list(int)}.sortBy(x, {int|x=int})",
            ),
            *("{map(one)}.transformList(x, v, {int|x=string,v=int})", "{map(one)}.map(x, {int|x=string})"),
        ],
        "list(string)": [
            *("[{string}, {string}]", "[{string}]", "{list(string)} + {list(string)}", "{string}.split({string})"),
            *("{string}.split({string}, {int})", "{string}.findAll({string})", "{string}.findAll({string}, {int})"),
            *("{list(string)}.map(x, {string|x=string})", "{list(string)}.filter(x, {bool|x=string})"),
            *("{list(string)}.sort()", "{list(string)}.distinct()", "{map(one)}.map(x, x)"),
            *("{map(one)}.filter(x, {bool|x=string})", "{url}.getQuery()['k']", "{format}.validate({string}).value()"),
        ],
        "list(double)": [
            "[{double}, {double}]",
            "{list(double)} + {list(double)}",
            "{list(int)}.map(x, {double|x=int})",
        ],
        "map(string, int)": [
            *("{'a': {int}, {string}: {int}}", "{'a': {int}}", "{}", "{?'a': {optional}}"),
            *(
                "{list(string)}.transformMapEntry(x, v, {v: {int|x=int,v=string}})",
                "{bool} ? {map(string, int)} : {map(string, int)}",
            ),
            *("{map(one)}.transformMap(x, v, {int|x=string,v=int})",),
        ],
        # Loops over maps take one entry, because the order of entries is undefined.
        "map(one)": ["{'a': {int}}", "{{string}: {int}}", "{}", "{?'a': {optional}}", "mso"],
        "optional": [
            *(
                "optional.of({int})",
                "optional.none()",
                "optional.ofNonZeroValue({int})",
                "{map(string, int)}[?{string}]",
            ),
            *(
                "{map(string, int)}.?a",
                "{list(int)}[?{int}]",
                "{optional}.or({optional})",
                "{optional}.optMap(x, {int|x=int})",
            ),
            *("{optional}.optFlatMap(x, {optional|x=int})", "{list(int)}.first()"),
        ],
        "quantity": [
            *(
                "quantity({string})",
                "{quantity}.add({quantity})",
                "{quantity}.add({int})",
                "{quantity}.sub({quantity})",
            ),
            *("{quantity}.sub({int})", "{bool} ? {quantity} : {quantity}"),
        ],
        "ip": ["ip({string})", "{cidr}.ip()", "{bool} ? {ip} : {ip}"],
        "cidr": ["cidr({string})", "{cidr}.masked()"],
        "url": ["url({string})", "url('/' + {string})"],
        "semver": ["semver({string})", "semver({string}, {bool})"],
        "format": ["format.named({string}).value()", "format.named('uuid').value()", "format.byte()"],
        "type": ["type({int})", "type({dyn})", "type({quantity})", "type({optional})"],
        "null": ["null"],
        "list(dyn)": ["[dyn({int}), dyn({string})]", "[{dyn}, {dyn}]", "{list(int)}.map(x, dyn(x))"],
        "dyn": ["d", "d.a", "d.b[0]", "d[{string}]", "{bool} ? dyn({int}) : dyn({string})"],
    }
    for kind in _ORDERED:
        found["bool"] += [f"{{{kind}}} {sign} {{{kind}}}" for sign in ("==", "!=", "<", "<=", ">", ">=")]
        found["bool"].append(f"[{{{kind}}}, {{{kind}}}].isSorted()")
        found["dyn"].append(f"dyn({{{kind}}})")
    for kind in _OPAQUE:
        found["bool"] += [f"{{{kind}}} == {{{kind}}}", f"{{{kind}}} != {{{kind}}}", f"{{{kind}}} in [{{{kind}}}]"]
        found["dyn"].append(f"dyn({{{kind}}})")
    found["dyn"] += ["dyn({list(int)})", "dyn({map(string, int)})", "dyn({optional})", "dyn(null)", "dyn({type})"]
    return found


PRODUCTIONS: Final = _productions()


class Expressions:
    """Draws expressions from one source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = 0

    def any(self) -> str:
        """Return an expression of some type: of bool, as rules are, half of the time."""
        rng = self._rng
        kind = "bool" if rng.random() < 0.5 else rng.choice(tuple(PRODUCTIONS))
        return self.of(kind, rng.choice((1, 2, 2, 3, 3, 4)))

    def of(self, kind: str, depth: int, scope: dict[str, str] | None = None) -> str:
        """Return an expression of a type, at most `depth` productions deep."""
        rng, scope = self._rng, scope or {}
        if rng.random() < _WRONG:
            kind = rng.choice(tuple(PRODUCTIONS))
        if depth <= 0 or rng.random() < 0.15:
            return self._leaf(kind, scope)
        return _HOLE.sub(lambda hole: self._fill(hole, depth - 1, scope), self._renamed(rng.choice(PRODUCTIONS[kind])))

    def _fill(self, hole: re.Match[str], depth: int, scope: dict[str, str]) -> str:
        kind, given = hole[1], hole[2]
        if kind not in PRODUCTIONS:
            return hole[0]
        bound = dict(pair.split("=") for pair in given.split(",")) if given else {}
        text = self.of(kind, depth, {**scope, **bound})
        return f"({text})" if " " in text and not text.startswith(("'", "(", "[")) else text

    def _renamed(self, template: str) -> str:
        """Return the template with fresh names for its variables, so that scopes nest."""
        if "x" not in template or ("|x=" not in template and "(x," not in template):
            return template
        self._names += 1
        template = re.sub(r"(?<![a-z0-9'%.A-Z_])x(?![a-z0-9'(A-Z])", f"x{self._names}", template)
        return re.sub(r"(?<![a-z0-9'%.A-Z_])v(?![a-z0-9'(A-Z])", f"v{self._names}", template)

    def _leaf(self, kind: str, scope: dict[str, str]) -> str:
        rng = self._rng
        named = [name for name, of in scope.items() if of == kind]
        if named and rng.random() < 0.7:
            return rng.choice(named)
        known = [name for name, of in VARIABLES.items() if of == kind and name != "mso"]
        if known and rng.random() < 0.5:
            return rng.choice(known)
        if kind in _LITERALS:
            return rng.choice(_LITERALS[kind])
        return rng.choice(_SIMPLE[kind])


_SIMPLE: Final = {
    "list(int)": ("[1, 2, 3]", "[]", "[3, 1, 2]"),
    "list(string)": ("['a', 'b']", "['abc', '']"),
    "list(double)": ("[1.5, -1.0]",),
    "list(dyn)": ("[dyn(1), dyn('a')]",),
    "map(string, int)": ("{'a': 1}", "{}", "{'b': 2, 'a': 1}"),
    "map(one)": ("{'a': 1}", "mso"),
    "optional": ("optional.of(1)", "optional.none()"),
    "dyn": ("dyn(1)", "dyn('a')", "d"),
}


def bindings(rng: random.Random) -> dict[str, Any]:
    """Values of VARIABLES as JSON; `u` and `f` may look like ints and `y` is in base64."""
    pick = rng.choice
    return {
        "b": pick((True, False)),
        "i": pick((0, 1, -5, 42)),
        "j": pick((1, 2, 3)),
        "u": pick((0, 1, 7)),
        "f": pick((0.5, -1.25, 3.75)),
        "s": pick(("", "abc", "a.b.c", "héllo", "10.0.0.0/8", "1.2.3")),
        "t": pick(("a", "b", "日本", "x y")),
        "y": pick(("", "YWJj", "/w==")),
        "li": pick(([1, 2], [3, 1, 2, 2], [5, 4, 3, 2, 1])),
        "ls": pick(([], ["a"], ["b", "a", "abc"], ["", "é"])),
        "lf": pick(([], [1.5, 0.5])),
        "msi": pick(({}, {"a": 1}, {"a": 1, "b": 2, "abc": 3})),
        "mso": pick(({}, {"abc": 2})),
        "mss": pick(({}, {"a": "x"}, {"a": "1", "b": "b"})),
        "d": pick((None, 1, "text", [1, "a", True], {"a": 1, "b": [2.5]}, {"a": {"b": None}})),
    }
