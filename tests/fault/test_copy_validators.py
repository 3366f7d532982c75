"""The validators of copies: each accepts a copy in order and names the one fault made by hand in it."""

from __future__ import annotations

import pytest

from fault.model.log import Entry, Image
from fault.recorder.history import Key
from fault.validators import violation as named
from fault.validators.copies import copy_follows, writes_are_few

SOURCE = "1 2 - 3 4 5 - 6"


def entries(tags: str) -> list[Entry]:
    """The log of one object with these tags in turn; `-` is a deletion."""
    key, found, uid, before = Key("c", "default", "a"), list[Entry](), 0, "-"
    for revision, tag in enumerate(tags.split(), 1):
        uid += before == "-"
        operation = "DELETED" if tag == "-" else "ADDED" if before == "-" else "MODIFIED"
        shown = before if tag == "-" else tag
        found.append(Entry(revision, operation, key, b"", Image(f"uid-{uid}", shown, {}, {}), revision - 1))
        before = tag
    return found


@pytest.mark.parametrize("copy", [SOURCE, "6", "1 - 3 - 6", "2 3 6", "1 1 2 6", "1 - 6", "5 - 6"])
def test_a_copy_may_leave_out_states_of_its_source(copy: str) -> None:
    copy_follows(entries(SOURCE), entries(copy))


@pytest.mark.parametrize(
    ("copy", "violation"),
    [
        ("1 7 6", named.Phantom),
        ("2 1 6", named.Unordered),
        ("1 - 2 6", named.Unordered),
        ("3 - 4 - 6", named.Unordered),
        ("1 - 3 4 - 5 - 6", named.Unordered),
        ("6 - 6", named.Unordered),
        ("1 2 - 5", named.Stalled),
        ("1 2 -", named.Stalled),
        ("", named.Stalled),
    ],
)
def test_what_a_source_never_had_in_this_order_is_named(copy: str, violation: type[named.Violation]) -> None:
    with pytest.raises(violation):
        copy_follows(entries(SOURCE), entries(copy))


def test_a_content_that_is_written_again_and_again_is_named() -> None:
    writes_are_few(entries("1 1 2 2 -"))
    with pytest.raises(named.WrittenAgain):
        writes_are_few(entries("1 1 1"))
