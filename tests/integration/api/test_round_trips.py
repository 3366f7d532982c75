"""Round trips: a PUT of the bytes that a GET returned, in any format, changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from harness.clients.api import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    YAML,
    Api,
    configmap,
    crd,
    define,
    eventually,
    workspace_under,
)
from harness.clients.exports import bind, make_export, schema_of
from harness.clients.put_back import check_all_put_back, check_put_back
from harness.data.yaml_texts import MISREAD

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
BLOBS = "/apis/round.example.com/v1/namespaces/default/blobs"
#: Values that some format, or some decoder, might change.
TEXTS = [
    *MISREAD,
    *("", " ", "a\n", "a\n\n", " a\nb", "a \nb", "a\r\nb", "\t", "\x00\x07", "\x7f\x85", "\u2028\ufeff", "😀"),
]
DATA = {
    "texts": TEXTS,
    "keys": {text: text for text in TEXTS},
    "long": {"k" * 2000: "v" * 5000, "l" * 129: ["x\n" * 50]},
    "numbers": [0, -1, 2**63 - 1, -(2**63), 1.5, 1.0, -0.0, 1e3, 1e16, 9.2e18, 1e20, 1e-7, 1e300, 0.1],
    "empty": [None, {}, [], [[]], {"a": {}}, False],
    "deep": json.loads("[" * 120 + "]" * 120),
}


@pytest.fixture(scope="module")
def here(admin: Api) -> Api:
    definition = crd("blobs", "round.example.com")
    version: Any = definition["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"] = {
        "data": {"x-kubernetes-preserve-unknown-fields": True},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    version["subresources"] = {"status": {}}
    define(admin, definition)
    return admin


def blob(name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "round.example.com/v1", "kind": "Blob", "metadata": {"name": name}, **content}


def _empty(api: Api, name: str) -> dict[str, Any]:
    return dict(api.post(BLOBS, blob(name)).json)


def _create(api: Api, name: str) -> None:
    api.post(BLOBS, blob(name, data=DATA))


def _create_yaml(api: Api, name: str) -> None:
    # In YAML a key in braces is short, and a character beyond 16 bits is not escaped as a pair.
    data = {key: value for key, value in DATA.items() if key != "long"}
    body = json.dumps(blob(name, data=data)).replace("\\ud83d\\ude00", "😀")
    api.post(BLOBS, f"# YAML\n{body}".encode(), kind=YAML)


def _update(api: Api, name: str) -> None:
    api.put(f"{BLOBS}/{name}", {**_empty(api, name), "data": DATA})


def _merge_patch(api: Api, name: str) -> None:
    _empty(api, name)
    api.patch(f"{BLOBS}/{name}", {"data": DATA}, MERGE)


def _json_patch(api: Api, name: str) -> None:
    _empty(api, name)
    api.patch(f"{BLOBS}/{name}", [{"op": "add", "path": "/data", "value": DATA}], JSON_PATCH)


def _apply(api: Api, name: str) -> None:
    api.send("PATCH", f"{BLOBS}/{name}?fieldManager=m", blob(name, data=DATA), kind=APPLY, expect=201)


def _status(api: Api, name: str) -> None:
    api.put(f"{BLOBS}/{name}/status", {**_empty(api, name), "status": DATA})


WRITES = [_create, _create_yaml, _update, _merge_patch, _json_patch, _apply, _status]


@pytest.mark.parametrize("write", WRITES, ids=lambda each: each.__name__.strip("_"))
def test_an_object_can_be_put_back_as_it_was_read(here: Api, write: Callable[[Api, str], None]) -> None:
    name = write.__name__.strip("_").replace("_", "-")
    write(here, name)
    check_put_back(here, f"{BLOBS}/{name}")


@pytest.mark.parametrize("kind", [STRATEGIC, MERGE, JSON_PATCH, APPLY])
def test_a_configmap_can_be_put_back_as_it_was_read(here: Api, kind: str) -> None:
    name = kind.partition("/")[2].partition("+")[0]
    data = {
        "k": "".join(TEXTS),
        **{f"k{at}": text for at, text in enumerate(TEXTS)},
        "y": "n",
        "1e3": "on",
        "08": "0o17",
    }
    path = f"{CONFIGMAPS}/{name}"
    here.post(CONFIGMAPS, configmap(name))
    patch: Any = [{"op": "add", "path": "/data", "value": data}] if kind == JSON_PATCH else {"data": data}
    if kind == APPLY:
        patch = configmap(name, data)
    here.send("PATCH", f"{path}?fieldManager=m", json.dumps(patch).encode(), kind=kind, expect=200)
    assert here.get(path).json["data"] == data
    check_put_back(here, path)


def test_every_object_of_a_workspace_can_be_put_back(admin: Api) -> None:
    provider, consumer = admin.at(workspace_under(admin)), admin.at(workspace_under(admin))
    make_export(provider, "blobs", schema_of(crd("blobs", "kept.example.com")))
    bind(consumer, provider.cluster, "blobs")
    body = {"apiVersion": "kept.example.com/v1", "kind": "Blob", "metadata": {"name": "one"}, "spec": {"replicas": 2}}
    consumer.post("/apis/kept.example.com/v1/namespaces/default/blobs", body)
    consumer.post(CONFIGMAPS, {**configmap("raw"), "data": {"a": ""}, "binaryData": {"b": "AP8="}})
    check_all_put_back(provider, "apiexports", "apiresourceschemas", "secrets")
    check_all_put_back(consumer, "apibindings", "configmaps", "blobs", "scale")


def test_what_is_being_deleted_can_be_put_back(admin: Api) -> None:
    api = admin.at(workspace_under(admin))
    held = {"finalizers": ["example.com/hold"]}
    api.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    paths = [f"/api/v1/namespaces/{namespace}/configmaps/held" for namespace in ("default", "going")]
    for path in paths:
        api.post(path.removesuffix("/held"), configmap("held", {"k": "v"}, **held))
    api.delete(paths[0])
    api.delete("/api/v1/namespaces/going")

    def waits() -> bool:
        found = api.get("/api/v1/namespaces/going").json["status"]
        held_by = [each for each in found.get("conditions", []) if each["type"] == "NamespaceFinalizersRemaining"]
        return bool(held_by) and held_by[0]["status"] == "True"

    eventually(waits, "the namespace waits")
    for path in ("/api/v1/namespaces/going", *paths):
        assert api.get(path).json["metadata"]["deletionTimestamp"]
        check_put_back(api, path)


def test_a_json_patch_is_read_by_the_rules_of_bodies(here: Api) -> None:
    path = f"{BLOBS}/patched"
    _empty(here, "patched")
    before = here.get(path).json
    for value in (b"9" * 40, b"[" * 400 + b"]" * 400):
        here.patch(path, b'[{"op":"add","path":"/data","value":%b}]' % value, JSON_PATCH, expect=400)
    assert here.get(path).json == before


def test_an_object_cannot_be_nested_deeper_by_patch_after_patch(here: Api) -> None:
    path = f"{BLOBS}/grown"
    here.post(BLOBS, blob("grown", data=[]))
    below, codes = "/data", []
    for _ in range(4):
        value = json.loads("[" * 60 + "]" * 60)
        patch = [{"op": "add", "path": f"{below}/-", "value": value}]
        codes.append(here.send("PATCH", path, json.dumps(patch).encode(), kind=JSON_PATCH).code)
        below += "/0" * 60
    assert codes == [200, 200, 200, 400]
    here.get(path, accept=YAML)
    here.get(BLOBS, accept=YAML)


def test_characters_that_are_not_unicode_are_replaced_and_then_stay(here: Api) -> None:
    body = json.dumps(blob("odd", data="?")).encode()
    here.post(BLOBS, body.replace(b"?", b"\\ud800\xff"))
    assert here.get(f"{BLOBS}/odd").json["data"] == "\ufffd\ufffd"
    check_put_back(here, f"{BLOBS}/odd")


def test_a_list_in_yaml_is_the_list(here: Api) -> None:
    """The list is longer than a slice, so it is streamed."""
    for at in range(4):
        here.post(CONFIGMAPS, configmap(f"big-{at}", {"k": "line\n" * 80_000}, labels={"big": "y"}))
    for query in ("labelSelector=big", "labelSelector=big&limit=1", "labelSelector=none"):
        plain = here.get(f"{CONFIGMAPS}?{query}").json
        answer = here.get(f"{CONFIGMAPS}?{query}", accept=YAML)
        assert answer.header("content-type") == YAML
        decoded = yaml.load(answer.body, yaml.CSafeLoader)
        decoded["metadata"].pop("continue", None)
        plain["metadata"].pop("continue", None)
        assert decoded == plain
