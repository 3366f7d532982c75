"""Subjects that select what is followed."""

from __future__ import annotations

import pytest

from atoll.edge import followed
from atoll.edge.followed import Followed
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.stream.subjects import CHANGES, all_subjects, changes_subject, control_subject

MAPS, GADGETS = ResourceType("", "configmaps", "core"), ResourceType("g.example.com", "gadgets", "3f")
CONTROL = control_subject(CHANGES, "root")


def subject(type: ResourceType, cluster: str) -> str:
    return changes_subject("root", type, cluster)


def test_a_few_clusters_or_identities_are_selected_by_the_server() -> None:
    found: Followed[str] = Followed()
    found.follow("a", ("c1", "c2"), ())
    assert found.filters("root") == ("atoll.changes.root.*.*.*.c1", "atoll.changes.root.*.*.*.c2", CONTROL)
    found.follow("a", (), ("3f",))
    assert found.filters("root") == ("atoll.changes.root.3f.*.*.*", CONTROL)


def test_many_or_such_as_overlap_are_selected_by_their_subjects_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Followed[str] = Followed()
    found.follow("a", ("c1",), ())
    found.follow("b", (), ("3f",))
    assert found.filters("root") == all_subjects(CHANGES, "root")
    wanted = [subject(MAPS, "c1"), subject(GADGETS, "c2"), CONTROL]
    assert [each for each in (*wanted, subject(MAPS, "c2")) if found.wants(each)] == wanted
    found.follow("b", (), ())
    monkeypatch.setattr(followed, "MAX_FILTERS", 1)
    assert len(found.filters("root")) == 2
    found.follow("b", ("c2",), ())
    assert found.filters("root") == all_subjects(CHANGES, "root")


def test_each_is_told_of_what_it_follows_until_it_follows_that_no_more() -> None:
    found: Followed[str] = Followed()
    key = ObjectKey(GADGETS, "c1", "", "g")
    assert not found
    found.follow("a", ("c1",), ())
    found.follow("b", ("c1", "c2"), ())
    found.follow("c", (), ("3f",))
    assert found.who(key.cluster, key.type.identity) == {"a", "b", "c"}
    found.follow("a", (), ())
    found.follow("c", ("c2",), ())
    assert found.who("c1", "3f") == {"b"}
    assert found.who("c2", "") == {"b", "c"}
