"""Destinations of calls: what is kept of URLs is bounded in bytes, and one URL is taken apart once."""

from __future__ import annotations

import pytest

from atoll.machinery.egress.destinations import MAX_BYTES, Destinations


@pytest.mark.long
def test_what_is_kept_of_long_urls_is_bounded() -> None:
    destinations = Destinations()
    for number in range(40):
        destinations.of(f"https://example.com/{number}/{'x' * 200_000}")
    assert 0 < sum(found.size_bytes for found in destinations.values()) <= MAX_BYTES


def test_a_url_is_taken_apart_once() -> None:
    destinations = Destinations()
    first = destinations.of("https://Example.com.:8443/hook")
    assert (first.host, first.port, first.target, first.peer) == ("example.com.", 8443, "/hook", "example.com:8443")
    assert destinations.of("https://Example.com.:8443/hook") is first
