"""Whose endpoints in a slice are those of shards that are no more."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.apis.endpointslices import abandoned_managers, endpoint_url
from atoll.machinery.meta.objects import encode_json

PATH = endpoint_url("", "prov", "shapes")


def a_slice(**urls: str) -> Any:
    """A slice with one endpoint for each field manager."""

    def entry(manager: str, url: str) -> Any:
        owned: dict[str, Any] = {f"k:{encode_json({'url': url}).decode()}": {".": {}, "f:url": {}}}
        status = {"f:status": {"f:endpoints": owned}}
        return {"manager": manager, "operation": "Apply", "subresource": "status", "fieldsV1": status}

    managed = [entry(manager, url) for manager, url in urls.items()]
    endpoints = [{"url": url} for url in urls.values()]
    return {"metadata": {"name": "shapes", "managedFields": managed}, "status": {"endpoints": endpoints}}


FOUND = a_slice(amber=f"https://amber{PATH}", blue=f"https://blue{PATH}", tool="https://elsewhere/of-its-own")


@pytest.mark.parametrize(
    ("shards", "expected"),
    [({"amber", "blue"}, []), ({"amber"}, ["blue"]), ({"green"}, ["amber", "blue"]), (set(), ["amber", "blue"])],
    ids=["both are there", "one is gone", "another came", "none is known"],
)
def test_who_is_no_shard_any_more_and_published_as_one(shards: set[str], expected: list[str]) -> None:
    assert abandoned_managers(FOUND, PATH, shards) == expected


def test_what_was_taken_away_already_is_not_asked_for_again() -> None:
    empty = {**FOUND, "status": {}}
    assert abandoned_managers(empty, PATH, set()) == []
