"""Workspace paths."""

from __future__ import annotations

import pytest

from atoll.machinery.meta import paths


def test_joining_and_splitting_are_each_others_opposite() -> None:
    assert paths.join("root", "acme", "web") == "root:acme:web"
    assert paths.split("root:acme:web") == ("root:acme", "web")
    assert paths.join("", "root") == "root"


@pytest.mark.parametrize("path", ["root", "system:admin", "system:cache:server", "user:alice"])
def test_roots_homes_and_system_names_have_no_parent(path: str) -> None:
    assert paths.split(path) == ("", path)
    assert paths.parent(path) == ""
    assert paths.segments(path) == (path,)


def test_workspaces_below_a_home_have_it_as_root() -> None:
    assert paths.segments("user:alice:lab:one") == ("user:alice", "lab", "one")
    assert paths.parent("user:alice:lab") == "user:alice"


def test_ancestors_come_nearest_first() -> None:
    assert list(paths.ancestors("root:acme:web")) == ["root:acme:web", "root:acme", "root"]
    assert list(paths.ancestors("")) == []


@pytest.mark.parametrize("text", [":root:acme", "root/acme", "root:acme:", "/root/acme/", "root:acme"])
def test_people_may_write_slashes_and_outer_separators(text: str) -> None:
    assert paths.canonical(text) == "root:acme"


@pytest.mark.parametrize("text", ["", ":", "root::acme", "Root", "root:-a", "root:acme\n", "::root"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a workspace path"):
        paths.canonical(text)
