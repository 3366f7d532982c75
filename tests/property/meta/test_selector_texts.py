"""Selectors on generated input: canonical texts are equivalent, and any invalid text is a 400."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from atoll.machinery.meta.fieldselectors import FieldSelector, Term
from atoll.machinery.meta.requirements import new_requirement
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, parse_field_selector, parse_label_selector

KEYS = st.sampled_from(["a", "b.c/d", "in", "notin", "x_y"])
VALUES = st.sampled_from(["", "1", "2", "in", "v.w", "A-b"])


@st.composite
def requirements(draw: st.DrawFn):  # type: ignore[no-untyped-def]
    operator = draw(st.sampled_from(["=", "!=", "in", "notin", "exists", "!", "gt", "lt"]))
    if operator in ("exists", "!"):
        return new_requirement(draw(KEYS), operator)
    if operator in ("gt", "lt"):
        return new_requirement(draw(KEYS), operator, [str(draw(st.integers(0, 9)))])
    size = 1 if operator in ("=", "!=") else 4
    return new_requirement(draw(KEYS), operator, draw(st.lists(VALUES, min_size=1, max_size=size)))


@settings(deadline=None)
@given(st.lists(requirements(), max_size=4), st.dictionaries(KEYS, VALUES))
def test_a_label_selector_is_what_its_text_says(found: list, labels: dict[str, str]) -> None:  # type: ignore[type-arg]
    selector = LabelSelector(found)
    again = parse_label_selector(str(selector))
    assert again == selector
    assert again.matches(labels) == selector.matches(labels)
    assert selector.matches(labels) == all(LabelSelector([each]).matches(labels) for each in found)


@settings(deadline=None)
@given(st.text(alphabet="ab=!(),<> \\innot\0é", max_size=30))
def test_any_text_is_a_label_selector_or_a_bad_request(text: str) -> None:
    try:
        selector = parse_label_selector(text)
    except SelectorError as error:
        assert error.code == 400
    else:
        assert parse_label_selector(str(selector)) == selector


@settings(deadline=None)
@given(st.lists(st.builds(Term, st.sampled_from(["metadata.name", "metadata.namespace"]), st.text(), st.booleans())))
def test_a_field_selector_is_what_its_text_says(terms: list[Term]) -> None:
    selector = FieldSelector(terms)
    assert parse_field_selector(str(selector)) == selector


@settings(deadline=None)
@given(st.text(alphabet="a=!,\\.é\n", max_size=30))
def test_any_text_is_a_field_selector_or_a_bad_request(text: str) -> None:
    try:
        parse_field_selector(text, ["a", "a.a", ""])
    except SelectorError as error:
        assert error.code == 400
