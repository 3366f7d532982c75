"""The static cost estimate of an expression, from its tree and the declared sizes of its data.

Called through `Program.estimate` when a rule is written. Invariant: the numbers are those of cel-go's checker, node by
node with its oddities, because a definition that one server accepts another must not reject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.checker.checker import CheckedExpr
from atoll.machinery.cel.checker.scope import Tables
from atoll.machinery.cel.cost.call_estimates import LAZY, default_estimate
from atoll.machinery.cel.functions import CallSite, Overload, SizeEstimator
from atoll.machinery.cel.sizes import MAX, UNKNOWN_SIZE, CallEstimate, CostEstimate, SizeEstimate
from atoll.machinery.cel.syntax.ast import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    StructExpr,
)
from atoll.machinery.cel.types import Kind, Type, is_optional

#: Nodes between two pauses.
_STRIDE: Final = 63
_ZERO: Final = CostEstimate(0, 0)
_ONE: Final = CostEstimate(1, 1)
_SCALAR: Final = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})
_ACCUMULATORS: Final = frozenset({ACCUMULATOR, "__result__"})


class _NoSizes:
    def size(self, node: object) -> SizeEstimate | None:
        return None


@dataclass(frozen=True, slots=True)
class _Node:
    """An expression as functions and size estimators see it."""

    path: tuple[str, ...]
    type: Type
    expr: Expr | None
    computed_size: SizeEstimate | None


@dataclass(frozen=True, slots=True)
class _Entries:
    """Sizes of the keys (or indices) and of the values of a collection."""

    kind: Kind
    key: SizeEstimate
    value: SizeEstimate

    def union(self, other: _Entries) -> _Entries:
        return _Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


@dataclass(frozen=True, slots=True)
class _Local:
    path: tuple[str, ...]
    size: SizeEstimate | None
    entries: _Entries | None


def estimate(checked: CheckedExpr, tables: Tables, sizes: SizeEstimator | None) -> CostEstimate:
    """Return the range of costs of a checked expression."""
    return _Estimator(checked, tables, sizes or _NoSizes()).cost(checked.tree)


class _Estimator:
    def __init__(self, checked: CheckedExpr, tables: Tables, sizes: SizeEstimator) -> None:
        self.checked = checked
        self.tables = tables
        self.sizes = sizes
        self.nodes = 0
        self.paths: dict[int, tuple[str, ...]] = {}
        self.locals: dict[str, list[_Local]] = {}
        self.computed_sizes: dict[int, SizeEstimate] = {}
        self.computed_entries: dict[int, _Entries] = {}

    def cost(self, expr: Expr) -> CostEstimate:
        self.nodes += 1
        if self.nodes & _STRIDE == _STRIDE:
            yield_to_loop()
        return _COSTS[type(expr)](self, expr)

    # --- leaves

    def literal(self, _expr: Literal) -> CostEstimate:
        return _ZERO

    def ident(self, expr: Ident) -> CostEstimate:
        local = self._local(expr.name)
        self.paths[expr.id] = (expr.name,) if local is None else local.path
        declaration = self.checked.names.get(expr.id)
        if declaration is not None and declaration.constant:
            self.paths[expr.id] = (declaration.name,)
        return _ONE

    def select(self, expr: Select) -> CostEstimate:
        declaration = self.checked.names.get(expr.id)
        if declaration is not None:
            # To the checker a dotted name is one variable.
            self.paths[expr.id] = (declaration.name,)
            return _ONE
        cost = self.cost(expr.operand)
        if expr.test:
            return cost
        if self._type(expr.operand).kind in (Kind.MAP, Kind.OBJECT, Kind.PARAMETER):
            cost = cost.plus(_ONE)
        self.paths[expr.id] = (*self._path(expr.operand), expr.field)
        return cost

    # --- calls

    def call(self, expr: Call) -> CostEstimate:
        if expr.function == "dyn" and len(expr.arguments) == 1:
            cost = self.cost(expr.arguments[0])
            self._copy_sizes(expr, expr.arguments[0])
            return cost.plus(_ONE)
        costs = [self.cost(argument) for argument in expr.arguments]
        nodes = [self._node(argument) for argument in expr.arguments]
        total = _ZERO
        target: _Node | None = None
        if expr.target is not None:
            total = self.cost(expr.target)
            target = self._node(expr.target)
        overloads = self.checked.overloads.get(expr.id, ())
        if expr.function == "_?._":
            # The checker records one overload for it, which would be priced like any call.
            return self._optional_select(expr, costs)
        if not overloads:
            return _ZERO
        return total.plus(self._overloads(expr, overloads, target, nodes, costs))

    def _optional_select(self, expr: Call, costs: list[CostEstimate]) -> CostEstimate:
        size = self._size(expr)
        if size is not None:
            self.computed_sizes[expr.id] = size
        return _ONE.plus(costs[0]).plus(costs[1])

    def _overloads(
        self,
        expr: Call,
        overloads: Sequence[Overload],
        target: _Node | None,
        nodes: list[_Node],
        costs: list[CostEstimate],
    ) -> CostEstimate:
        """Return the range over all overloads that the call may resolve to."""
        cost = CostEstimate(MAX, 0)
        size: SizeEstimate | None = None
        for overload in overloads:
            site = CallSite(expr.function, overload.id, target, nodes, self.sizes)
            found = self._overload(expr, overload, site, costs)
            cost = cost.union(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload.id in ("index_list", "index_map"):
                entries = self._entries(expr.arguments[0])
                size = None if entries is None else entries.value
                part = "@items" if overload.id == "index_list" else "@values"
                self.paths[expr.id] = (*self._path(expr.arguments[0]), part)
            if size is None:
                size = self._size(expr)
        if size is not None:
            self.computed_sizes[expr.id] = size
        return cost

    def _overload(self, expr: Call, overload: Overload, site: CallSite, costs: list[CostEstimate]) -> CallEstimate:
        arguments = _ZERO
        for each in costs:
            arguments = arguments.plus(each)
        own = () if overload.estimate is None else (overload.estimate,)
        for declared in (*own, *self.tables.estimates.get(expr.function, ())):
            found = declared(site)
            if found is not None:
                return CallEstimate(found.cost.plus(arguments), found.size)
        if overload.id in LAZY:
            return self._lazy(expr, overload.id, costs)
        found = default_estimate(site)
        if overload.id in ("add_string", "add_bytes", "add_list"):
            self._join_entries(expr, expr.arguments[0], expr.arguments[1])
        return CallEstimate(found.cost.plus(arguments), found.size)

    def _lazy(self, expr: Call, overload: str, costs: list[CostEstimate]) -> CallEstimate:
        if overload != "conditional":
            return CallEstimate(CostEstimate(costs[0].min, costs[0].plus(costs[1]).max))
        if_true, if_false = expr.arguments[1], expr.arguments[2]
        size = self._size_or_unknown(if_true).union(self._size_or_unknown(if_false))
        self._join_entries(expr, if_true, if_false)
        return CallEstimate(costs[0].plus(costs[1].union(costs[2])), size)

    def _join_entries(self, expr: Expr, first: Expr, second: Expr) -> None:
        a, b = self._entries(first), self._entries(second)
        if a is not None and b is not None:
            self.computed_entries[expr.id] = a.union(b)

    # --- literals of collections

    def list(self, expr: ListExpr) -> CostEstimate:
        total = _ZERO
        items = SizeEstimate(MAX if expr.items else 0, 0)
        for item in expr.items:
            total = total.plus(self.cost(item))
            items = items.union(self._size_or_unknown(item))
        self.computed_entries[expr.id] = _Entries(Kind.LIST, SizeEstimate(1, 1), items)
        return total.plus(CostEstimate(10, 10))

    def map(self, expr: MapExpr) -> CostEstimate:
        total = _ZERO
        keys = values = SizeEstimate(MAX if expr.entries else 0, 0)
        for entry in expr.entries:
            assert entry.key is not None
            total = total.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            keys = keys.union(self._size_or_unknown(entry.key))
            values = values.union(self._size_or_unknown(entry.value))
        self.computed_entries[expr.id] = _Entries(Kind.MAP, keys, values)
        return total.plus(CostEstimate(30, 30))

    def struct(self, expr: StructExpr) -> CostEstimate:
        total = CostEstimate(40, 40)
        for entry in expr.entries:
            total = total.plus(self.cost(entry.value))
        return total

    # --- comprehensions

    def comprehension(self, expr: Comprehension) -> CostEstimate:
        if _is_bind(expr):
            return self._bind(expr)
        total = self.cost(expr.range).plus(self.cost(expr.init))
        self._push(expr.accumulator, self._path(expr.init), self._size(expr.init), self._entries(expr.init))
        self._push_variables(expr)
        iteration = self.cost(expr.condition)
        iteration = self.cost(expr.step).plus(iteration)
        self.locals[expr.variable].pop()
        if expr.variable2:
            self.locals[expr.variable2].pop()
        total = total.plus(self.cost(expr.result))
        self.locals[expr.accumulator].pop()
        count = self._size_or_unknown(expr.range)
        total = total.plus(count.cost_of_each(iteration))
        self._comprehension_size(expr, count)
        return total

    def _comprehension_size(self, expr: Comprehension, count: SizeEstimate) -> None:
        if isinstance(expr.init, Literal):
            size = self._size(expr.init)
            if size is not None:
                self.computed_sizes[expr.id] = size
        elif isinstance(expr.init, ListExpr | MapExpr):
            self.computed_sizes[expr.id] = count
            entries = self._entries(expr.step)
            if entries is not None:
                self.computed_entries[expr.id] = entries

    def _push_variables(self, expr: Comprehension) -> None:
        entries = self._entries(expr.range)
        kind = self._type(expr.range).kind if entries is None else entries.kind
        path = self._path(expr.range)
        is_list = kind is Kind.LIST
        key = None if entries is None else entries.key
        value = None if entries is None else entries.value
        if expr.variable2:
            self._push(expr.variable, (*path, "@indices" if is_list else "@keys"), key)
            self._push(expr.variable2, (*path, "@items" if is_list else "@values"), value)
        elif is_list:
            self._push(expr.variable, (*path, "@items"), value)
        else:
            self._push(expr.variable, (*path, "@keys"), key)

    def _bind(self, expr: Comprehension) -> CostEstimate:
        total = self.cost(expr.range).plus(self.cost(expr.init))
        self._push(expr.accumulator, self._path(expr.init), self._size(expr.init), self._entries(expr.init))
        total = total.plus(self.cost(expr.result))
        self.locals[expr.accumulator].pop()
        self._copy_sizes(expr, expr.result)
        return total

    # --- sizes and paths

    def _push(
        self, name: str, path: tuple[str, ...], size: SizeEstimate | None, entries: _Entries | None = None
    ) -> None:
        self.locals.setdefault(name, []).append(_Local(path, size, entries))

    def _local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def _type(self, expr: Expr) -> Type:
        return self.checked.types[expr.id]

    def _path(self, expr: Expr) -> tuple[str, ...]:
        if isinstance(expr, Ident):
            local = self._local(expr.name)
            if local is not None:
                return local.path
        return self.paths.get(expr.id, ())

    def _node(self, expr: Expr) -> _Node:
        path = self._path(expr)
        if path and path[0] in _ACCUMULATORS:
            path = ()
        return _Node(path, self._type(expr), expr, self._size(expr))

    def _size_or_unknown(self, expr: Expr) -> SizeEstimate:
        return self._size(expr) or UNKNOWN_SIZE

    def _copy_sizes(self, to: Expr, source: Expr) -> None:
        size, entries = self._size(source), self._entries(source)
        if size is not None:
            self.computed_sizes[to.id] = size
        if entries is not None:
            self.computed_entries[to.id] = entries

    def _size(self, expr: Expr) -> SizeEstimate | None:
        computed = self.computed_sizes.get(expr.id)
        if computed is not None:
            return computed
        written = _literal_size(expr)
        if written is not None:
            return written
        of = self._type(expr)
        declared = self.sizes.size(_Node(self._path(expr), of, expr, None))
        if declared is not None:
            self.computed_sizes[expr.id] = declared
            return declared
        if _is_scalar(of):
            return SizeEstimate(1, 1)
        local = self._local(expr.name) if isinstance(expr, Ident) else None
        return None if local is None else local.size

    def _entries(self, expr: Expr) -> _Entries | None:
        computed = self.computed_entries.get(expr.id)
        if computed is not None:
            return computed
        local = self._local(expr.name) if isinstance(expr, Ident) else None
        return None if local is None else local.entries


def _is_bind(expr: Comprehension) -> bool:
    empty = isinstance(expr.range, ListExpr) and not expr.range.items
    never = isinstance(expr.condition, Literal) and expr.condition.value is False
    return empty and never and expr.accumulator != "__result__"


def _is_scalar(of: Type) -> bool:
    if is_optional(of):
        return _is_scalar(of.parameters[0])
    return of.kind in _SCALAR


def _literal_size(expr: Expr) -> SizeEstimate | None:
    if isinstance(expr, Literal):
        size = len(expr.value) if isinstance(expr.value, str | bytes) else 1
    elif isinstance(expr, ListExpr):
        size = len(expr.items)
    elif isinstance(expr, MapExpr):
        size = len(expr.entries)
    else:
        return None
    return SizeEstimate(size, size)


_COSTS: Final[dict[type[Expr], Callable[[_Estimator, Any], CostEstimate]]] = {
    Literal: _Estimator.literal,
    Ident: _Estimator.ident,
    Select: _Estimator.select,
    Call: _Estimator.call,
    ListExpr: _Estimator.list,
    MapExpr: _Estimator.map,
    StructExpr: _Estimator.struct,
    Comprehension: _Estimator.comprehension,
}
