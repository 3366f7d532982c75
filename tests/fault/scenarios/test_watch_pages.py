"""Writes between two pages of the initial state of a watch: each is in the state or arrives as an event."""

from __future__ import annotations

import contextlib
import json
from http.client import HTTPResponse
from pathlib import Path

import pytest

from fault.mutants import MutantProcess
from fault.validators.violation import Missed
from harness.clients.api import Api, configmap
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
QUERY = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=10"
#: More than the buffers between server and client hold: the server stops at a page until the client reads on.
COUNT, SIZE_BYTES = 32, 900_000


def change(api: Api, name: str) -> str:
    """Change an object. Return its revision."""
    patched = api.send("PATCH", f"{CONFIGMAPS}/{name}", {"data": {"new": "yes"}}, kind="application/merge-patch+json")
    return str(patched.json["metadata"]["resourceVersion"])


def read_until(stream: HTTPResponse, wanted: dict[str, str]) -> None:
    """Read until every object has arrived at its expected revision. Raises Missed if the stream ends before."""
    found: dict[str, str] = {}
    while line := stream.readline():
        metadata = json.loads(line)["object"]["metadata"]
        found[metadata.get("name", "")] = metadata["resourceVersion"]
        if wanted.items() <= found.items():
            return
    raise Missed(f"{wanted} are the last changes, the watch showed { ({name: found.get(name) for name in wanted}) }")


def writes_between_pages(shard: ShardProcess) -> None:
    """Change an object of the first page and one of the last while the first page is sent. Raises Missed."""
    api = Api(shard, "root")
    names = [f"page-{number:02}" for number in range(COUNT)]
    for name in names:
        api.post(CONFIGMAPS, {**configmap(name), "data": {"a": "x" * SIZE_BYTES}})
    with contextlib.closing(api.open()) as connection:
        connection.request("GET", f"/clusters/root{CONFIGMAPS}?{QUERY}", headers=api.headers())
        stream = connection.getresponse()
        assert stream.status == 200
        first = json.loads(stream.readline())
        assert first["type"] == "ADDED"
        read_until(stream, {name: change(api, name) for name in (names[0], names[-1])})


@pytest.mark.long
def test_changes_between_two_pages_are_shown(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as shard:
        writes_between_pages(shard)


@pytest.mark.long
def test_pages_of_different_revisions_are_found(tmp_path: Path) -> None:
    with MutantProcess(tmp_path, "moving_pages") as shard, pytest.raises(Missed):
        writes_between_pages(shard)
