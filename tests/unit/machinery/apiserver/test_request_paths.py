"""Segments of a request path: split first, then decoded, whatever is escaped."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.meta.status import BadRequest


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/api/v1/namespaces", "/api/v1/namespaces"),
        (b"//api//v1/namespaces/", "/api/v1/namespaces"),
        (b"api/v1/namespaces", "/api/v1/namespaces"),
        (b"/apis/.hidden/..v1", "/apis/.hidden/..v1"),
        (b"/apis/a%2Eb/%2e.x", "/apis/a.b/..x"),
        ("/apis/ü".encode(), "/apis/ü"),
        (b"/apis/%C3%BC", "/apis/ü"),
        (b"/", "/"),
    ],
)
def test_segments_are_decoded(target: bytes, path: str) -> None:
    assert parse("GET", target).path == path


@pytest.mark.parametrize("segment", [b"a%2fb", b"a%00b", b"a\0b", b"%2e%2e", b".%2e", b"..", b".", b"%ff", b"\xff"])
def test_a_segment_that_may_mislead_is_refused_wherever_it_stands(segment: bytes) -> None:
    for target in (b"/api/%b/a", b"/%b/api", b"/api/v1/%b", b"%b/api", b"/clusters/root/%b"):
        with pytest.raises(BadRequest):
            parse("GET", target % segment)
