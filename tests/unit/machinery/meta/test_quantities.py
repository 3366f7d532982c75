from decimal import Decimal

import pytest

from atoll.machinery.meta.quantity import canonical, parse


# The right-hand sides are the results of k8s.io/apimachinery.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000m", "1"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("1e3", "1e3"),
        ("10000", "10k"),
        ("1500", "1500"),
        ("100", "100"),
        ("1023", "1023"),
        ("1024", "1024"),
        ("1000Ki", "1000Ki"),
        ("0", "0"),
        ("-5k", "-5k"),
        ("1e21", "1e21"),
        ("0.1n", "1n"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("1.5Ki", "1536"),
        ("512Ki", "512Ki"),
        ("1048576", "1048576"),
        ("12e-1", "1200e-3"),
        ("5e-10", "1e-9"),
        ("1e-3", "1e-3"),
        (".5", "500m"),
        ("0.0001Mi", "104857600u"),
    ],
)
def test_a_quantity_has_one_canonical_text(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


def test_numbers_are_quantities_too() -> None:
    assert canonical(5) == "5"
    assert canonical(0.25) == "250m"


def test_values_are_exact() -> None:
    assert parse("0.1") * 3 == Decimal("0.3")
    assert parse("1Ei") == 2**60


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1GiB", "--1", "1e", "1.2.3", "٣", "1" * 65, "1e9999", "Ki"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse(text)
