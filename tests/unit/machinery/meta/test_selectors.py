"""Label and field selectors."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.requirements import MAX_TERMS
from atoll.machinery.meta.selectors import (
    LabelSelector,
    SelectorError,
    compile_label_selector,
    parse_field_selector,
    parse_label_selector,
    validate_label_selector,
)

WEB = {"app": "web", "tier": "front", "size": "12"}


@pytest.mark.parametrize(
    ("text", "selects_web", "selects_bare"),
    [
        ("", True, True),
        ("app", True, False),
        ("!app", False, True),
        ("! app", False, True),
        ("app=web", True, False),
        ("app == web", True, False),
        ("app!=web", False, True),
        ("app!=api", True, True),
        ("app in (api, web)", True, False),
        ("app notin (api,web)", False, True),
        ("app in (,x)", False, False),
        ("size>11", True, False),
        ("size > 12", False, False),
        ("size<13", True, False),
        ("app>1", False, False),
        ("app=web,tier=front", True, False),
        ("app=web,tier=back", False, False),
        ("app=", False, False),
        ("in in (in)", False, False),
    ],
)
def test_label_selectors_select(text: str, selects_web: bool, selects_bare: bool) -> None:
    selector = parse_label_selector(text)
    assert selector.matches(WEB) is selects_web
    assert selector.matches({}) is selects_bare


def test_an_empty_value_is_a_value() -> None:
    for text in ("app=", "app in (,x)", "app in (x,)", "app in (x,,y)"):
        assert parse_label_selector(text).matches({"app": ""}), text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a==!", "unable to parse requirement: found '!', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "a in ()",
            "unable to parse requirement: values: Invalid value: []: "
            "for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            "a>b",
            'unable to parse requirement: values[0]: Invalid value: "b": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_bad_label_selectors_are_refused_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert caught.value.message == message
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a/b/c=d", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": '),
        ("a=b/c", 'unable to parse requirement: values[0][a]: Invalid value: "b/c": '),
        ("a=" + "x" * 64, f'unable to parse requirement: values[0][a]: Invalid value: "{"x" * 64}": '),
    ],
)
def test_keys_and_values_that_no_label_can_have_are_refused(text: str, start: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert caught.value.message.startswith(start)


def test_numbers_beyond_64_bits_never_compare() -> None:
    with pytest.raises(SelectorError):
        parse_label_selector("a>9223372036854775808")
    assert not parse_label_selector("a>1").matches({"a": "9223372036854775808"})


@pytest.mark.parametrize(
    "text", ["b=1,a in (y,x)", "a in (x, y),b==1", "a in (y,x,x) , b in (1)", "b=1,a in (x,y),b=1"]
)
def test_selectors_that_say_the_same_share_one_text(text: str) -> None:
    selector = parse_label_selector(text)
    assert str(selector) == "a in (x,y),b=1"
    assert selector == parse_label_selector(str(selector))
    assert hash(selector) == hash(parse_label_selector(str(selector)))


def test_exact_labels_are_known_without_asking_an_object() -> None:
    assert parse_label_selector("a=1,b!=2,c in (3),d in (4,5),e").exact() == {"a": "1", "c": "3"}


@pytest.mark.parametrize("joint", [",", ", "])
def test_a_hundred_thousand_terms_are_refused(joint: str) -> None:
    with pytest.raises(SelectorError, match="label selector is too large"):
        parse_label_selector(joint.join(["a"] * 100_000))
    with pytest.raises(SelectorError, match="label selector is too large"):
        parse_label_selector("a in (" + ",".join("bcd"[i % 3] for i in range(MAX_TERMS + 1)) + ")")
    with pytest.raises(SelectorError, match="field selector is too large"):
        parse_field_selector(joint.join(["metadata.name!=a"] * 100_000))
    with pytest.raises(SelectorError, match="label selector is too large"):
        compile_label_selector({"matchLabels": {f"k{i}": "v" for i in range(100_000)}})
    with pytest.raises(SelectorError, match="label selector is too large"):
        expression = {"key": "a", "operator": "In", "values": ["x"] * 100_000}
        compile_label_selector({"matchExpressions": [expression]})


def test_a_selector_object_compiles_to_the_same_selector_as_its_text() -> None:
    selector = compile_label_selector(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "old", "operator": "DoesNotExist"},
                {"key": "size", "operator": "Exists"},
                {"key": "zone", "operator": "NotIn", "values": ["a"]},
            ],
        }
    )
    assert selector == parse_label_selector("app=web,tier in (front,back),!old,size,zone!=a")
    assert selector.matches(WEB)


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    nothing, everything = compile_label_selector(None), compile_label_selector({})
    assert not nothing.matches({})
    assert nothing.matches_nothing
    assert everything.matches(WEB)
    assert everything.matches_everything
    assert nothing != everything
    assert everything == LabelSelector()


def test_selector_objects_with_wrong_requirements_do_not_compile() -> None:
    with pytest.raises(SelectorError, match='"Gt" is not a valid label selector operator'):
        compile_label_selector({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})
    with pytest.raises(SelectorError, match="values set must be empty"):
        compile_label_selector({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]})


def test_selector_objects_are_validated_field_by_field() -> None:
    selector = {
        "matchLabels": {"a b": "c"},
        "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Has", "values": ["x y"]},
        ],
    }
    errors = validate_label_selector(selector, "spec.selector")
    assert [(error.type, error.field) for error in errors] == [
        ("FieldValueInvalid", "spec.selector.matchLabels"),
        ("FieldValueRequired", "spec.selector.matchExpressions[0].values"),
        ("FieldValueForbidden", "spec.selector.matchExpressions[1].values"),
        ("FieldValueInvalid", "spec.selector.matchExpressions[2].operator"),
        ("FieldValueInvalid", "spec.selector.matchExpressions[2].values[0]"),
    ]
    assert validate_label_selector({"matchLabels": {"a": "b"}}, "spec.selector") == []


NAMESPACE_LABELS = ("metadata.name", "status.phase")


def test_field_selectors_select() -> None:
    selector = parse_field_selector("metadata.name=a,status.phase!=Active", NAMESPACE_LABELS)
    assert selector.names == {"metadata.name", "status.phase"}
    assert selector.matches({"metadata.name": "a", "status.phase": "Terminating"})
    assert selector.matches({"metadata.name": "a"})
    assert not selector.matches({"metadata.name": "a", "status.phase": "Active"})
    assert not selector.matches({"metadata.name": "b"})
    assert parse_field_selector("", NAMESPACE_LABELS).matches_everything


def test_a_selector_by_name_tells_the_name() -> None:
    assert parse_field_selector("metadata.name==a,metadata.namespace=b").pinned_name() == "a"
    assert parse_field_selector("metadata.namespace=b").pinned("metadata.namespace") == "b"
    assert parse_field_selector("metadata.name!=a").pinned_name() == ""


def test_field_values_may_hold_escaped_signs() -> None:
    selector = parse_field_selector(r"metadata.name=a\,b\=c\\d")
    assert selector.pinned_name() == r"a,b=c\d"
    assert str(selector) == r"metadata.name=a\,b\=c\\d"
    assert parse_field_selector(str(selector)) == selector


def test_field_selectors_that_say_the_same_share_one_text() -> None:
    one = parse_field_selector("metadata.namespace=b,,metadata.name==a")
    assert str(one) == "metadata.name=a,metadata.namespace=b"
    assert one == parse_field_selector(str(one))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: ="),
        ("spec.x=a", "field label not supported: spec.x"),
    ],
)
def test_bad_field_selectors_are_refused_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_field_selector(text, NAMESPACE_LABELS)
    assert caught.value.message == message


def test_field_labels_are_left_to_a_caller_who_gives_none() -> None:
    assert parse_field_selector("spec.x=a").names == {"spec.x"}
