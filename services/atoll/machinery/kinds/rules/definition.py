"""Checks of rules when a definition is written: compilation, static cost, and defaults that satisfy the rules.

`schema.definitions` calls this for CustomResourceDefinitions and APIResourceSchemas, once a schema is structural and
its defaults match it. The compiled rules stay attached to the compiled schema, where serving finds them. Messages and
order are Kubernetes'; fields of a schema are visited in document order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.sizes import saturated_product, saturated_sum
from atoll.machinery.kinds.rules.correlation import Correlation
from atoll.machinery.kinds.rules.decl_types import most_instances
from atoll.machinery.kinds.rules.evaluation import CALL_LIMIT, OBJECT_LIMIT, walk
from atoll.machinery.kinds.rules.rule import Expression, Rule
from atoll.machinery.kinds.rules.tree import VALIDATIONS, RuleNode, part_tree, rule_tree, tree_of
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import MAX_VALUE_SIZE, forbidden, invalid
from atoll.machinery.schema.structural.structural_schema import schema_for

#: Limits of the static estimate of a rule, and of all rules of a version, in units of the cost model.
RULE_COST_LIMIT, TOTAL_COST_LIMIT = 10_000_000, 100_000_000
_BLAMED = 4
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are"
    " declared)"
)
_BLAME = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"

Pause = Callable[[], None]
Stored = Callable[[], frozenset[str]]


def _no_pause() -> None:
    return None


class Checks:
    """The rule checks for `schema.definitions`. `pause` is called between rules, and ends the check by raising.

    `stored` returns the texts of the expressions in the stored definition.
    """

    def __init__(self, pause: Pause = _no_pause, stored: Stored = frozenset) -> None:
        self._pause, self._stored = pause, stored

    def pause(self) -> None:
        """Yield to other work, or end the check by raising."""
        self._pause()

    def default_validator(self) -> Callable[[Object, str], list[FieldError]]:
        """Return the check of the defaults of one schema: each by the rules of its own part, all within one budget.

        A default must pass both as an unchanged value and as a new one.
        """
        budget = Budget(OBJECT_LIMIT, CALL_LIMIT, self._pause)

        def validate(schema: Object, path: str) -> list[FieldError]:
            tree, default = part_tree(schema), schema["default"]
            if tree is None or budget.spent > OBJECT_LIMIT:
                return []
            found = walk(tree, default, default, path, Correlation(None), budget).errors
            return found or walk(tree, default, None, path, Correlation(None), budget).errors

        return validate

    def rule_errors(self, schema: Object, path: str, broken: list[FieldError]) -> list[FieldError]:
        """Return the errors of rules that do not compile or cost too much, except in parts with other errors."""
        tree = tree_of(schema_for(encode_json(schema)))
        if tree is None:
            return []
        version_rules = _VersionRules({error.field for error in broken}, self._pause, self._stored)
        found = list(version_rules.errors(tree, path, _Location(1, "")))
        return [*found, *version_rules.total_errors(path)]


def expressions_of(schemas: Iterable[Object]) -> frozenset[str]:
    """Return the texts of all expressions in schemas."""
    found: set[str] = set()
    todo = list(map(rule_tree, schemas))
    while todo:
        node = todo.pop()
        if node is not None:
            texts = (entry.get(key) for entry in node.entries for key in ("rule", "messageExpression"))
            found.update(text for text in texts if isinstance(text, str))
            todo += [node.items, node.additional, *node.properties.values()]
    return frozenset(found)


class _Location:
    """The location of a part: its maximum number of instances (None: unbounded), and the uncorrelated part above it."""

    __slots__ = ("instances", "uncorrelated")

    def __init__(self, instances: int | None, uncorrelated: str) -> None:
        self.instances, self.uncorrelated = instances, uncorrelated

    def below(self, schema: Object, uncorrelated: str = "") -> _Location:
        """Return the location of the children of a part; of several uncorrelated parts the outermost is reported."""
        factor = _most_elements(schema)
        known = self.instances is not None and factor is not None
        instances = saturated_product(self.instances or 0, factor or 0) if known else None
        return _Location(instances, self.uncorrelated or uncorrelated)


def _most_elements(schema: Object) -> int | None:
    """Return the factor by which a part multiplies the instances of its children; None if unbounded."""
    kind, bound = schema.get("type"), None
    if kind == "object":
        if schema.get("additionalProperties") is None:
            return 1
        bound = schema.get("maxProperties")
    elif kind == "array":
        bound = schema.get("maxItems")
    else:
        return 1
    return max(int(bound), 0) if bound is not None else None


class _VersionRules:
    """The rules of one version, and their total cost."""

    def __init__(self, broken: set[str], pause: Pause, stored: Stored) -> None:
        self._broken, self._pause, self._stored = broken, pause, stored
        self._total = 0
        self._costs: list[tuple[int, str]] = []

    def errors(self, node: RuleNode, path: str, location: _Location) -> Iterator[FieldError]:
        """Yield errors of the rules below a part, then of its own rules."""
        inside = location.below(node.schema)
        if node.additional is not None:
            yield from self.errors(node.additional, f"{path}.additionalProperties", inside)
        for key, child in node.properties.items():
            yield from self.errors(child, f"{path}.properties[{key}]", inside)
        if node.items is not None:
            history = "" if node.schema.get("x-kubernetes-list-type") == "map" else path
            yield from self.errors(node.items, f"{path}.items", location.below(node.schema, history))
        if node.entries and not self._is_broken(path):
            yield from self._own_errors(node, path, location)

    def _is_broken(self, path: str) -> bool:
        starts = (f"{path}.", f"{path}[")
        return any(field == path or field.startswith(starts) for field in self._broken)

    def _own_errors(self, node: RuleNode, path: str, location: _Location) -> Iterator[FieldError]:
        declared = node.declared
        if declared is None:
            text = "failed to construct type information for x-kubernetes-validations rules: "
            text += "unable to convert structural schema to CEL declarations"
            yield FieldError("InternalError", f"{path}.{VALIDATIONS}", f"Internal error: internal error: {text}")
            return
        instances = most_instances(declared) if location.instances is None else location.instances
        for index, rule in enumerate(node.compile(self._pause)):
            yield from self._rule_errors(rule, f"{path}.{VALIDATIONS}[{index}]", instances, location)

    def _rule_errors(self, rule: Rule, path: str, instances: int, location: _Location) -> Iterator[FieldError]:
        if (expression := rule.expression) is not None:
            cost = saturated_product(expression.cost, instances)
            yield from self._cost_errors(cost, "estimated rule cost", f"{path}.rule")
            if error := self._error(expression, rule.entry["rule"]):
                yield _invalid_rule(f"{path}.rule", rule.entry, error)
        if (message := rule.message) is not None:
            at = f"{path}.messageExpression"
            if error := self._error(message, rule.entry["messageExpression"]):
                yield _invalid_rule(at, rule.entry, f"messageExpression {error}")
            else:
                yield from self._cost_errors(message.cost, "estimated messageExpression cost", at)
        if rule.uses_old and location.uncorrelated:
            text = "oldSelf cannot be used on the uncorrelatable portion of the schema within"
            yield invalid(f"{path}.rule", rule.entry["rule"], f"{text} {location.uncorrelated}")
        elif not rule.uses_old and (optional := rule.entry.get("optionalOldSelf")) is not None:
            yield invalid(f"{path}.optionalOldSelf", optional, "may not be set if oldSelf is not used in rule")

    def _error(self, expression: Expression, text: str) -> str:
        """Return the error of an expression; a stored expression may use functions that a new one may not."""
        if expression.error_if_new and text not in self._stored():
            return expression.error_if_new
        return expression.error

    def _cost_errors(self, cost: int, what: str, path: str) -> Iterator[FieldError]:
        if cost > RULE_COST_LIMIT:
            yield forbidden(path, _exceeds(what, cost, RULE_COST_LIMIT))
        self._total = saturated_sum(self._total, cost)
        if cost >= TOTAL_COST_LIMIT // 100:
            self._costs.append((cost, path))

    def total_errors(self, path: str) -> Iterator[FieldError]:
        """Yield the errors of a total cost above the limit of a version, for the most expensive rules first."""
        if self._total <= TOTAL_COST_LIMIT:
            return
        for _, at in sorted(self._costs, key=lambda each: -each[0])[:_BLAMED]:
            yield forbidden(at, _BLAME)
        what = f"{VALIDATIONS} estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden(path, _exceeds(what, self._total, TOTAL_COST_LIMIT))


def _exceeds(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    # More digits close to the limit, so that no factor prints as 1.0.
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {shown} {_HINT}"


def _invalid_rule(path: str, entry: Object, error: str) -> FieldError:
    """Return an error that prints the whole rule, as Go prints its struct."""
    fields: dict[str, Any] = {
        "Rule": entry.get("rule") or "",
        "Message": entry.get("message") or "",
        "MessageExpression": entry.get("messageExpression") or "",
        "Reason": entry.get("reason"),
        "FieldPath": entry.get("fieldPath") or "",
        "OptionalOldSelf": entry.get("optionalOldSelf"),
    }
    parts = (f'"{key}":{encode_json(value).decode()}' for key, value in fields.items())
    text = "{" + ",".join(parts) + "}"
    for char, escape in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e")):
        text = text.replace(char, escape)
    shown = text if len(text) <= MAX_VALUE_SIZE else text[:MAX_VALUE_SIZE] + "..."
    return FieldError("FieldValueInvalid", path, f"Invalid value: {shown}: {error}")
