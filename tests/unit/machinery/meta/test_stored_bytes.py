from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.objects import decode, encode


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (1.0, 1),
        (-0.0, 0),
        (1e3, 1000),
        (1e15, 10**15),
        (1e18, 10**18),
        (9.2e18, 9200000000000000000),
        (-(2.0**63), -(2**63)),
        (2.0**63, 2.0**63),
        (1e20, 1e20),
        (1.5, 1.5),
        (1e-7, 1e-7),
        ("1.0,", "1.0,"),
        ("1e16]", "1e16]"),
    ],
)
@pytest.mark.parametrize("place", [lambda value: value, lambda value: [value, 1], lambda value: {"b": {"c": [value]}}])
def test_whole_floats_are_stored_as_integers_as_go_writes_them(value: Any, stored: Any, place: Any) -> None:
    obj = {"metadata": {"name": "a"}, "spec": place(value)}
    data, _ = encode(obj)
    found = decode(data)["spec"]
    assert (found, repr(found)) == (place(stored), repr(place(stored)))
    assert obj["spec"] == place(value)
