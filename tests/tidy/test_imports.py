"""Modules of services form no circle: each can be read knowing only what it imports."""

from __future__ import annotations

from tidy.imports import circles, import_graph

#: Remaining circles. This list only gets shorter.
STANDING: frozenset[frozenset[str]] = frozenset()


def test_a_circle_is_found() -> None:
    graph = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    assert list(circles(graph)) == [frozenset("abc")]


def test_modules_import_each_other_in_no_circle() -> None:
    assert len(import_graph()) > 500
    assert frozenset(circles(import_graph())) == STANDING
