"""Escaped names of fields in rules."""

from __future__ import annotations

import pytest

from atoll.machinery.kinds.rules.escaping import escape


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("plain", "plain"),
        ("_a1", "_a1"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("___", "__underscores___"),
        (".x", "__dot__x"),
        ("int", "int"),
    ],
)
def test_names_are_escaped_as_in_kubernetes(name: str, identifier: str) -> None:
    assert escape(name) == identifier


@pytest.mark.parametrize("name", ["", "1a", "a b", "ä", "a$"])
def test_names_beyond_escaping_are_out_of_reach(name: str) -> None:
    assert escape(name) is None
