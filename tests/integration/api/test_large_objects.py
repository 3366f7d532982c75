"""Reads and writes of objects that are decoded in slices: what they answer is what small objects answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.clients.api import MERGE, PARTIAL, PARTIAL_LIST, TABLE, YAML, Api, configmap, workspace_under

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
#: Keys of each object: 100 KiB of JSON.
KEYS = 8_000


@pytest.fixture(scope="module")
def large(admin: Api) -> Iterator[Api]:
    """An administrator of a workspace with two large ConfigMaps."""
    api = admin.at(workspace_under(admin))
    for name in ("one", "two"):
        data = {f"key-{at}": "y" if at % 2 else "two\nlines" for at in range(KEYS)}
        api.post(CONFIGMAPS, configmap(name, data, labels={"large": name}))
    yield api
    api.close()


def test_a_table_has_a_row_for_each(large: Api) -> None:
    rows = large.get(f"{CONFIGMAPS}?labelSelector=large", accept=TABLE).json["rows"]
    assert [row["cells"][:2] for row in rows] == [["one", KEYS], ["two", KEYS]]
    assert [row["object"]["kind"] for row in rows] == ["PartialObjectMetadata"] * 2
    (row,) = large.get(f"{CONFIGMAPS}/two", accept=TABLE).json["rows"]
    assert row["cells"][:2] == ["two", KEYS]


def test_their_metadata_is_that_of_the_whole_objects(large: Api) -> None:
    whole = large.get(f"{CONFIGMAPS}/one").json["metadata"]
    listed = large.get(f"{CONFIGMAPS}?labelSelector=large", accept=PARTIAL_LIST).json["items"]
    assert [item["metadata"]["name"] for item in listed] == ["one", "two"]
    assert listed[0]["metadata"] == whole
    single = large.get(f"{CONFIGMAPS}/one", accept=PARTIAL).json
    assert (single["kind"], single["metadata"]) == ("PartialObjectMetadata", whole)


def test_a_list_as_yaml_has_all_items(large: Api) -> None:
    plain = large.get(f"{CONFIGMAPS}?labelSelector=large").json["items"]
    text = large.get(f"{CONFIGMAPS}?labelSelector=large", accept=YAML).body
    assert text.count(b"\n    key-") == 2 * KEYS
    assert text.count(b"|-\n") == KEYS
    assert [item["metadata"]["name"] for item in plain] == ["one", "two"]


def test_a_small_patch_changes_nothing_else_and_the_manager_owns_its_fields(large: Api) -> None:
    before = large.get(f"{CONFIGMAPS}/two").json
    path = f"{CONFIGMAPS}/two?fieldManager=second"
    after = large.patch(path, json.dumps({"data": {"key-1": "z"}}).encode(), MERGE).json
    assert after["data"] == {**before["data"], "key-1": "z"}
    own = {entry["manager"]: entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
    assert own["second"] == {"f:data": {"f:key-1": {}}}
    (first,) = (fields for name, fields in own.items() if name != "second")
    assert len(first["f:data"]) == KEYS  # a dot, and all keys but one
    assert large.get(f"{CONFIGMAPS}/two").json == after
