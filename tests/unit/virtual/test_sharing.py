"""Which workspaces a row may be made of: those whose bindings say so, and no other."""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import SHARED_WITH
from atoll.virtualworkspace_sdk.sharing import MAX_SHARED, Sharing


def binding(text: str) -> Object:
    return {"metadata": {"name": "it", "annotations": {SHARED_WITH: text}}}


def test_what_a_binding_names_is_shared_one_way_until_it_says_so_no_more() -> None:
    sharing = Sharing()
    assert sharing.put("other", "it", binding("mine, third")) == {"mine", "third"}
    assert sharing.readable("mine") == ("mine", "other")
    assert sharing.readable("other") == ("other",)
    assert sharing.put("other", "it", binding("third")) == {"mine"}
    assert sharing.readable("mine") == ("mine",)
    assert sharing.put("other", "it", None) == {"third"}
    assert (sharing.readable("third"), sharing.of("other")) == (("third",), frozenset())


def test_each_of_two_bindings_shares_and_nobody_with_itself() -> None:
    sharing = Sharing()
    sharing.put("other", "one", binding("mine,other"))
    assert sharing.put("other", "two", binding("mine")) == frozenset()
    assert sharing.put("other", "one", None) == frozenset()
    assert sharing.readable("mine") == ("mine", "other")
    assert sharing.readable("other") == ("other",)


def test_a_binding_names_a_bounded_number() -> None:
    sharing = Sharing()
    names = ",".join(f"c{number}" for number in range(2 * MAX_SHARED))
    assert len(sharing.put("other", "it", binding(names))) == MAX_SHARED
    assert sharing.put("third", "it", {"metadata": {"name": "it"}}) == frozenset()
