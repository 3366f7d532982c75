"""Cases of x-kubernetes-validations: random schemas with rules, their definitions and objects, creates and updates."""

from __future__ import annotations

import copy
import random
import re
from functools import lru_cache
from typing import Any

from atoll.machinery.cel.budget import Budget
from atoll.machinery.kinds.rules.correlation import CorrelatedValue, Correlation
from atoll.machinery.kinds.rules.definition import Checks
from atoll.machinery.kinds.rules.evaluation import CALL_LIMIT, OBJECT_LIMIT, walk
from atoll.machinery.kinds.rules.tree import tree_of
from atoll.machinery.schema.definitions.version_schema import definition_errors
from atoll.machinery.schema.structural.structural_schema import compile_schema
from contract.oracle.draw import Object, Schemas, Values, rng_of

_PER_SCHEMA = 10
_GROUP, _PATH = "example.io", "spec.validation.openAPIV3Schema"
#: Rules on a part, by the type of its schema; `{0}` is the part. Those of lists and maps hold one on their items.
_RULES = {
    "string": (
        "{0}.size() < 2",
        "{0}.startsWith('x')",
        "{0}.matches('^[a-z]*$')",
        "{0} in ['x', 'y']",
        "{0}.contains('y')",
        "{0} < 'y'",
        "{0} + 'z' == 'xz'",
        "isURL({0})",
        "int({0}) > 1",
        "{0}.lowerAscii() == {0}",
        "{0}.split('y').size() == 1",
        "{0}.find('[a-z]') != ''",
        "{0}.charAt(0) == 'x'",
        "!format.dns1123Label().validate({0}).hasValue()",
        "quantity({0}).isInteger()",
    ),
    "integer": (
        "{0} < 2",
        "{0} % 2 == 0",
        "10 / {0} > 1",
        "{0} + 1 > {0}",
        "{0} in [1, 2, 3]",
        "double({0}) > 1.5",
        "string({0}) == '1'",
        "{0} * 9223372036854775807 > 0",
        "uint({0}) > 1u",
    ),
    "number": ("{0} < 2.0", "{0} >= 1.0", "int({0}) == 1", "{0} / 2.0 > 0.5", "{0} == 1.0"),
    "boolean": ("{0}", "!{0}", "{0} == true"),
    "array": ("{0}.size() < 2", "size({0}) == 0", "{0} + {0} == {0}", "{0}[0] in {0}"),
    "entries": ("{0}.size() < 2", "'a' in {0}", "has({0}.a)"),
    "": ("type({0}) == int ? {0} < 5 : {0} == 'x'", "string({0}) == '1'"),
}
_OF_ITEMS = (
    "{0}.all({1}, {2})",
    "{0}.exists({1}, {2})",
    "{0}.exists_one({1}, {2})",
    "{0}.filter({1}, {2}).size() > 0",
    "{0}.map({1}, {2}).size() > 0",
    "{0}.all(i, {1}, i >= 0 && {2})",
)
_OF_ENTRIES = ("{0}.all(k, {0}[k] == {0}[k])", "{0}.all(k, {1}, {2})", "{0}.exists(k, k == 'b')")
_OF_SETS = (
    "'x' in {0}",
    "{0}.join(',').size() > 2",
    "sets.contains({0}, ['x'])",
    "{0} == ['y', 'x']",
    "{0}.sort() == ['x', 'y']",
    "{0}.distinct().size() == {0}.size()",
)


#: Formats whose strings are no strings to a rule.
_TYPED_FORMATS = frozenset({"date-time", "duration", "byte"})


class Rules:
    """Draws rules and puts them into schemas. Those of `broken` are refused now and then."""

    def __init__(self, rng: random.Random, *, broken: bool = False) -> None:
        self.rng, self.broken = rng, broken

    def set_into(self, schema: Object, is_root: bool = False) -> None:
        """Give some of the parts of a schema rules, in place."""
        has_type = schema.get("type") or "x-kubernetes-int-or-string" in schema
        if has_type and self.rng.random() < (1 if is_root else 0.3):
            schema["x-kubernetes-validations"] = [self.rule(schema) for _ in range(self.rng.choice((1, 1, 2)))]
        for child in schema.get("properties", {}).values():
            self.set_into(child)
        if isinstance(schema.get("additionalProperties"), dict):
            self.set_into(schema["additionalProperties"])
        # Below other lists there is no old value, and a rule that asks for it is refused.
        if "items" in schema and (self.broken or schema.get("x-kubernetes-list-type") == "map"):
            self.set_into(schema["items"])

    def rule(self, schema: Object) -> Object:
        rng = self.rng
        is_transition = rng.random() < 0.25
        if is_transition:
            text = rng.choice(("self == oldSelf", "self != oldSelf", f"oldSelf == self || {self.text(schema, 'self')}"))
        else:
            text = self.text(schema, "self")
        rule: Object = {"rule": text}
        if is_transition and rng.random() < 0.3:
            rule = {
                "rule": f"!oldSelf.hasValue() || oldSelf.value() == self || {self.text(schema, 'self')}",
                "optionalOldSelf": True,
            }
        if rng.random() < 0.3:
            rule["message"] = rng.choice(("no", "it must not be so"))
        if rng.random() < 0.2:
            rule["messageExpression"] = rng.choice(self.messages(schema))
        if rng.random() < 0.2:
            rule["reason"] = rng.choice(("FieldValueRequired", "FieldValueForbidden", "FieldValueDuplicate"))
        if schema.get("properties") and rng.random() < 0.2:
            rule["fieldPath"] = "." + rng.choice([*schema["properties"], *(["absent"] if self.broken else [])])
        return rule

    def messages(self, schema: Object) -> tuple[str, ...]:
        """Expressions for messages on a part."""
        sized = schema.get("type") in ("string", "array") and schema.get("format") not in _TYPED_FORMATS
        found = ("'never'", "''", *(("'is ' + string(self.size())",) if sized or self.broken else ()))
        return (*found, "1 + 1") if self.broken else found

    def text(self, schema: Object, part: str, depth: int = 2) -> str:
        """An expression on a part, of type bool as far as the part's type is known."""
        rng = self.rng
        if depth > 0 and rng.random() < 0.2:
            left, right = self.text(schema, part, depth - 1), self.text(schema, part, depth - 1)
            return f"({left} {rng.choice(('&&', '||'))} {right})"
        if "x-kubernetes-int-or-string" in schema:
            return str(rng.choice(_RULES[""])).format(part)
        kind = schema.get("type")
        if kind == "object" and "additionalProperties" not in schema:
            return self._of_object(schema, part, depth)
        if kind in ("array", "object") and depth > 0 and rng.random() < 0.6:
            return self._of_members(schema, part, depth)
        if schema.get("format") in _TYPED_FORMATS and not self.broken:
            return f"{part} == {part}"
        known = _RULES.get("entries" if kind == "object" else str(kind), ("true",))
        return str(rng.choice(known)).format(part)

    def _of_object(self, schema: Object, part: str, depth: int) -> str:
        properties = {name: child for name, child in schema.get("properties", {}).items() if child.get("type")}
        if not properties:
            return "true"
        name = self.rng.choice(list(properties))
        inner = self.text(properties[name], f"{part}.{name}", depth - 1) if depth > 0 else f"has({part}.{name})"
        return self.rng.choice((inner, f"!has({part}.{name}) || {inner}", f"has({part}.{name}) && {inner}"))

    def _of_members(self, schema: Object, part: str, depth: int) -> str:
        is_list = schema["type"] == "array"
        child = schema["items" if is_list else "additionalProperties"]
        if is_list and child.get("type") == "string" and "format" not in child and self.rng.random() < 0.4:
            return str(self.rng.choice(_OF_SETS)).format(part)
        name = f"v{depth}"
        inner = self.text(child, name, depth - 1) if child.get("type") else "true"
        return str(self.rng.choice(_OF_ITEMS if is_list else _OF_ENTRIES)).format(part, name, inner)


@lru_cache(maxsize=8)
def _schema(number: int) -> Object:
    rng = rng_of("rules-schema", number)
    schema = Schemas(rng, validated=True).root()
    for part in schema["properties"].values():
        Rules(rng).set_into(part, is_root=True)
    return schema


def case(number: int) -> Object:
    """An object under a schema with rules; every other one is an update."""
    rng, schema = rng_of("rules", number), _schema(number // _PER_SCHEMA)
    values = Values(rng)
    head = {"apiVersion": f"{_GROUP}/v1", "kind": "Thing", "metadata": {"name": "n"}}
    made = {"op": "structural", "schema": schema, "object": {**head, **values.mapping(schema, 6)}}
    if number % 2:
        old = {**head, **values.mapping(schema, 6)}
        changes = values.changed({name: old[name] for name in schema["properties"] if name in old}, schema)
        made["old"] = _whole(old, schema)
        made["object"] = {**head, **changes}
    return made


def _whole(obj: Object, schema: Object) -> Object:
    """An object as it would be stored."""
    stored, compiled = copy.deepcopy(obj), compile_schema(schema)
    compiled.prune(stored)
    compiled.default(stored)
    return stored


def ours(case: Object) -> Any:
    """The errors of the rules, and their cost."""
    compiled, obj, old = compile_schema(case["schema"]), _whole(case["object"], case["schema"]), case.get("old")
    if any(error.type in _BLOCKING for error in compiled.validate(obj, old)):
        return {"blocked": True}
    tree, budget = tree_of(compiled), Budget(OBJECT_LIMIT, CALL_LIMIT)
    if tree is None:
        return {"rules": [], "cost": 0}
    correlation = Correlation(CorrelatedValue(tree.schema, obj, old) if old is not None else None)
    verdict = walk(tree, obj, old, "", correlation, budget)
    found = {"rules": sorted(_plain(str(error)) for error in verdict.errors), "cost": budget.spent}
    return _without_failures(found)


def _without_failures(found: Object) -> Object:
    """A result without its cost where an evaluation failed: upstream still charges the rest after a failure."""
    if any("evaluating rule" in text for text in found["rules"]):
        del found["cost"]
    return found


_BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}


def theirs(answer: Any) -> Any:
    """The oracle's result."""
    if answer.get("blocked"):
        return {"blocked": True}
    if "rules" not in answer:
        return answer
    found = {"rules": sorted(map(_plain, answer["rules"])), "cost": answer["cost"]}
    return _without_failures(found)


def definition_case(number: int) -> Object:
    """A definition whose schema has rules: which do not compile, and which are too expensive."""
    rng = rng_of("definitions", number)
    schema = Schemas(rng, validated=True).root()
    for part in schema["properties"].values():
        Rules(rng, broken=True).set_into(part, is_root=True)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": _GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"op": "definition", "object": {"metadata": {"name": f"things.{_GROUP}"}, "spec": spec}}


def our_definition(case: Object) -> Any:
    """The product's reasons to reject the schema."""
    schema = case["object"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = definition_errors(copy.deepcopy(schema), _PATH, has_status=False, rules=Checks())
    return sorted(_plain(str(error)) for error in found)


def their_definition(answer: Any) -> Any:
    """Upstream's reasons to reject the definition."""
    return sorted(map(_plain, answer["errors"])) if "errors" in answer else answer


def _plain(text: str) -> str:
    """An error without what upstream draws anew each time.

    That is the name of the type of `self`, and which of several rules of one cost it calls too expensive together.
    """
    text = re.sub(r"selfType\d+", "selfType", text)
    return text[text.index("Forbidden") :] if "cost total exceeding cost limit" in text else text
