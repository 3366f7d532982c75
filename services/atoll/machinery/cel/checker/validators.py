"""Validators of literals and collections: invalid durations, timestamps, patterns and formats, and mixed types.

Called by the environment after checking, like cel-go's validators. Invariant: only constants are validated, so an
expression that passes may still fail at run time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from atoll.machinery.cel.checker.checker import CheckedExpr
from atoll.machinery.cel.dispatch import dispatcher
from atoll.machinery.cel.errors import EvaluationError, Issue
from atoll.machinery.cel.ext.formatting import check_format
from atoll.machinery.cel.functions import Overload
from atoll.machinery.cel.patterns import compile_pattern
from atoll.machinery.cel.syntax.ast import Call, Expr, ListExpr, Literal, MapExpr, Place, children, walk
from atoll.machinery.cel.types import Type, is_optional


def validate(checked: CheckedExpr, place: Place, *, homogeneous: bool) -> list[Issue]:
    """Return the issues in the order of the tree. `homogeneous` rejects literals of mixed types, as Kubernetes does."""
    found = [problem for expr in walk(checked.tree) if isinstance(expr, Call) for problem in _problems(expr, checked)]
    if homogeneous:
        found += _mixed_types(checked.tree, checked)
    return [_issue(place, at, message) for at, message in found]


def _mixed_types(tree: Expr, checked: CheckedExpr) -> Iterator[tuple[Expr, str]]:
    """Yield items of lists and maps that differ in type; the arguments of `format` may differ at any depth."""
    stack = [tree]
    while stack:
        expr = stack.pop()
        if isinstance(expr, Call) and expr.function == "format":
            continue
        if isinstance(expr, ListExpr):
            marked = [(item, index in expr.optional) for index, item in enumerate(expr.items)]
            yield from itertools.islice(_mismatches(marked, checked), 1)
        elif isinstance(expr, MapExpr):
            keys = [(entry.key, False) for entry in expr.entries if entry.key is not None]
            yield from _mismatches(keys, checked)
            yield from _mismatches([(entry.value, entry.optional) for entry in expr.entries], checked)
        stack.extend(reversed(children(expr)))


def _mismatches(items: list[tuple[Expr, bool]], checked: CheckedExpr) -> Iterator[tuple[Expr, str]]:
    first: Type | None = None
    for expr, optional in items:
        of = checked.types[expr.id]
        if optional and is_optional(of):
            of = of.parameters[0]
        if first is None:
            first = of
        elif of != first:
            yield expr, f"expected type '{first}' but found '{of}'"


def _problems(expr: Call, checked: CheckedExpr) -> Iterator[tuple[Expr, str]]:
    arguments = expr.arguments
    if expr.function in ("duration", "timestamp") and len(arguments) == 1 and expr.target is None:
        if isinstance(arguments[0], Literal) and _fails(expr.function, checked.overloads[expr.id], arguments[0]):
            yield arguments[0], f"invalid {expr.function} argument"
    elif expr.function == "matches" and arguments and _is_text(arguments[0]):
        # For `matches(text, pattern)` cel-go validates the text, not the pattern.
        if not _is_pattern(arguments[0]):
            yield arguments[0], "invalid matches argument"
    elif expr.function == "format" and expr.target is not None:
        items = arguments[0] if len(arguments) == 1 else None
        if _is_text(expr.target) and isinstance(items, ListExpr):
            yield from _format_problems(expr, expr.target, items, checked)


def _format_problems(expr: Call, template: Expr, items: ListExpr, checked: CheckedExpr) -> Iterator[tuple[Expr, str]]:
    assert isinstance(template, Literal)
    problem = check_format(template.value, [checked.types[item.id] for item in items.items])
    if problem is not None:
        index, message = problem
        yield (expr if index is None else items.items[index]), message


def _is_text(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, str)


def _fails(function: str, overloads: tuple[Overload, ...], literal: Literal) -> bool:
    try:
        dispatcher(function, overloads)(literal.value)
    except EvaluationError:
        return True
    return False


def _is_pattern(expr: Expr) -> bool:
    assert isinstance(expr, Literal)
    try:
        compile_pattern(expr.value)
    except EvaluationError:
        return False
    return True


def _issue(place: Place, expr: Expr, message: str) -> Issue:
    line, column = place.of(expr.offset)
    return Issue(line, column, message)
