"""Targets for backends: the workspace is replaced by its cluster, the bytes after it are unchanged."""

from __future__ import annotations

import pytest

from atoll.frontproxy import request_target


@pytest.mark.parametrize(
    ("target", "rest"),
    [
        (b"/clusters/root:a/api/v1?x=/clusters/b/c", b"/api/v1?x=/clusters/b/c"),
        (b"/clusters/a", b""),
        (b"/clusters/a/", b"/"),
        (b"/clusters/a?x", b"?x"),
        (b"/clusters/a//b/", b"//b/"),
        (b"//clusters//a//b", b"/b"),
        (b"/%63lusters/a/b%2Fc", b"/b%2Fc"),
        (b"/clusters//a/b", b"/b"),
        (b"//clusters/a", b""),
    ],
)
def test_what_is_behind_a_workspace_stays_as_it_was(target: bytes, rest: bytes) -> None:
    assert request_target.after_workspace(target) == rest


@pytest.mark.parametrize(
    ("path", "index"),
    [
        ("services/apiexport/c/e/clusters/x/api", 5),
        ("services/x/clusters/*", 3),
        ("services/clusters", 0),
        ("a", 0),
        ("clusters/x", 0),
        ("services/apiexport/root/clusters/clusters/x", 5),
        ("services/y/clusters", 0),
    ],
)
def test_where_a_workspace_is_named_behind_a_service(path: str, index: int) -> None:
    assert request_target.workspace_index(path.split("/")) == index


def test_a_target_of_another_backend_names_the_cluster() -> None:
    named = request_target.with_cluster(b"/services/x/clusters/root%3Aa/y/?q", 3, "1a")
    assert named == "/services/x/clusters/1a/y/?q"
    assert request_target.with_cluster(b"/services/x%2Fy?q=//", 0, "") == "/services/x%2Fy?q=//"
    assert request_target.with_cluster(b"//services//x", 0, "") == "/services/x"
