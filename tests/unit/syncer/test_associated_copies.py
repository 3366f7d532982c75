"""Which associated objects come up whole, and when it is known that one does not."""

from __future__ import annotations

from atoll.machinery.edge.names import ObjectRef
from atoll.syncer.associated_copies import AssociatedCopies

WEB, API = (ObjectRef("apps", "deployments", "shop", name) for name in ("web", "api"))
PODS = [ObjectRef("", "pods", "shop", f"p{number}") for number in range(3)]


class Listened:
    """Copies, and what they tell."""

    def __init__(self) -> None:
        self.copies, self.changed, self.completions = AssociatedCopies(), list[str](), 0
        self.copies.changed = lambda ref: self.changed.append(ref.name)
        self.copies.completed = self._completed

    def _completed(self) -> None:
        self.completions += 1

    def changes(self) -> list[str]:
        found, self.changed = self.changed, []
        return found


def test_an_object_comes_up_as_long_as_it_belongs_to_some_placed_one() -> None:
    heard = Listened()
    copies = heard.copies
    copies.put(WEB, frozenset(PODS[:2]))
    copies.put(API, frozenset(PODS[1:]))
    assert heard.changes() == ["p0", "p1", "p1", "p2"]
    assert [copies.placed(each) for each in PODS] == [WEB, API, API]
    copies.put(API, frozenset())
    assert heard.changes() == ["p1", "p2"]
    assert [copies.placed(each) for each in PODS] == [WEB, WEB, None]
    copies.put(WEB, frozenset(PODS[:2]))
    assert heard.changes() == []


def test_nothing_is_known_to_go_before_every_placed_object_was_looked_at() -> None:
    heard = Listened()
    copies = heard.copies
    assert copies.is_complete
    copies.expect([WEB, API])
    copies.put(WEB, frozenset(PODS[:1]))
    assert (copies.is_complete, heard.completions) == (False, 0)
    copies.put(API, frozenset())
    assert (copies.is_complete, heard.completions) == (True, 1)
    copies.put(API, frozenset(PODS[1:]))
    assert heard.completions == 1
    copies.expect([WEB])
    copies.expect([])
    assert (copies.is_complete, heard.completions) == (True, 2)
