"""Selectors and quantities against definitions of one line each."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.meta.fieldselectors import FieldSelector, Term
from atoll.machinery.meta.quantity import canonical, format_quantity, parse
from atoll.machinery.meta.selectors import compile_label_selector, parse_field_selector, parse_label_selector
from harness.seeds import drawn

KEYS = st.sampled_from(["a", "b.c/d", "in", "x_y"])
VALUES = st.sampled_from(["", "1", "2", "in", "v.w", "10"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)
#: `in ()` is a set without values, which is refused.
SETS = st.lists(VALUES, min_size=1, max_size=3, unique=True).filter(lambda values: values != [""])


@settings(max_examples=drawn(200), deadline=None)
@given(KEYS, SETS, LABELS)
def test_a_label_requirement_selects_what_it_says(key: str, values: list[str], labels: dict[str, str]) -> None:
    one, many = values[0], ",".join(values)
    meaning = {
        f"{key}={one}": labels.get(key) == one,
        f"{key}=={one}": labels.get(key) == one,
        f"{key}!={one}": labels.get(key) != one,
        f"{key} in ({many})": labels.get(key) in values,
        f"{key} notin ({many})": labels.get(key) not in values,
        key: key in labels,
        f"!{key}": key not in labels,
        f"{key}>5": labels.get(key, "x").isdigit() and int(labels[key]) > 5,
        f"{key}<5": labels.get(key, "x").isdigit() and int(labels[key]) < 5,
    }
    for text, wanted in meaning.items():
        selector = parse_label_selector(text)
        assert selector.matches(labels) == wanted, text
        assert parse_label_selector(str(selector)) == selector


_EXPRESSIONS = st.one_of(
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["In", "NotIn"]), "values": SETS}),
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)


@settings(max_examples=drawn(200), deadline=None)
@given(LABELS, st.lists(_EXPRESSIONS, max_size=3), LABELS)
def test_a_selector_in_an_object_selects_what_all_its_parts_do(
    exact: dict[str, str], expressions: list[dict[str, object]], labels: dict[str, str]
) -> None:
    def holds(each: dict[str, object]) -> bool:
        key, values = str(each["key"]), each.get("values") or []
        assert isinstance(values, list)
        return {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[str(each["operator"])]

    selector = compile_label_selector({"matchLabels": exact, "matchExpressions": expressions})
    assert selector.matches(labels) == (exact.items() <= labels.items() and all(map(holds, expressions)))


_NAMES = st.sampled_from(["metadata.name", "status.phase"])
_TERMS = st.lists(st.builds(Term, _NAMES, st.text("ab,=\\é", max_size=3), st.booleans()), max_size=3)


@settings(max_examples=drawn(200), deadline=None)
@given(_TERMS, st.dictionaries(_NAMES, st.text("ab,=\\é", max_size=3)))
def test_a_field_selector_selects_what_all_its_terms_do(terms: list[Term], fields: dict[str, str]) -> None:
    wanted = all((fields.get(term.name, "") == term.value) == term.equal for term in terms)
    assert FieldSelector(terms).matches(fields) == wanted
    assert parse_field_selector(str(FieldSelector(terms))).matches(fields) == wanted


_WORTH = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
}
_NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.tuples(st.integers(-999, 999), st.integers(0, 999)).map(lambda pair: f"{pair[0]}.{pair[1]:03d}"),
)


def _worth(number: str, suffix: str) -> Fraction:
    return Fraction(number) * _WORTH[suffix]


@settings(max_examples=drawn(300), deadline=None)
@given(_NUMBERS, st.sampled_from(sorted(_WORTH)))
def test_a_quantity_is_worth_what_it_says(number: str, suffix: str) -> None:
    assert Fraction(parse(number + suffix)) == _worth(number, suffix)


@settings(max_examples=drawn(300), deadline=None)
@given(_NUMBERS, st.sampled_from(sorted(_WORTH)))
def test_the_canonical_text_is_worth_the_same_but_for_less_than_a_billionth(number: str, suffix: str) -> None:
    text, exact = canonical(number + suffix), _worth(number, suffix)
    assert canonical(text) == text
    rounded = Fraction(parse(text))
    assert abs(rounded) >= abs(exact) and abs(rounded - exact) < Fraction(1, 10**9)
    assert "." not in text


@settings(max_examples=drawn(200), deadline=None)
@given(_NUMBERS, st.sampled_from(sorted(_WORTH)), _NUMBERS, st.sampled_from(sorted(_WORTH)))
def test_quantities_of_different_families_compare_by_worth(a: str, b: str, c: str, d: str) -> None:
    assert (parse(a + b) < parse(c + d)) == (_worth(a, b) < _worth(c, d))


@settings(max_examples=drawn(200), deadline=None)
@given(st.integers(0, 10**15))
def test_whole_numbers_survive_every_family(number: int) -> None:
    for family in ("k", "Ki", "e"):
        assert parse(format_quantity(parse(number), family)) == number
