"""OpenAPI on the wire: index, documents of a version, the v2 document; hashes, formats and cache headers."""

from __future__ import annotations

import gzip
import re
from email.utils import parsedate_to_datetime

import pytest

from harness.clients.api import CRDS, JSON_PATCH, Answer, Api, crd, define, eventually, workspace_under

SHAPES = "/openapi/v3/apis/shapes.example.com/v1"
CIRCLE = "com.example.shapes.v1.Circle"
V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def _url(api: Api, key: str) -> str:
    return str(api.get("/openapi/v3").json["paths"][key]["serverRelativeURL"])


@pytest.fixture
def circles(api: Api) -> Api:
    """A workspace with a definition of circles."""
    define(api, crd("circles"))
    return api


def test_the_index_points_at_documents_that_are_there(circles: Api) -> None:
    paths = circles.get("/openapi/v3").json["paths"]
    assert {
        ".well-known/openid-configuration",
        "api",
        "api/v1",
        "apis",
        "apis/rbac.authorization.k8s.io",
        "apis/rbac.authorization.k8s.io/v1",
        "apis/shapes.example.com",
        "apis/shapes.example.com/v1",
        "openid/v1/jwks",
        "version",
    } <= set(paths)
    for key in paths:
        url = paths[key]["serverRelativeURL"]
        assert re.fullmatch(rf"/openapi/v3/{re.escape(key)}\?hash=[0-9A-F]{{128}}", url)
        assert circles.get(url).json["openapi"] == "3.0.0"


def test_a_document_with_its_hash_may_be_kept_for_ever(circles: Api) -> None:
    answer = circles.get(_url(circles, "apis/shapes.example.com/v1"))
    assert answer.header("content-type") == "application/json"
    assert (answer.header("cache-control"), answer.header("vary")) == ("public, immutable", "Accept")
    assert parsedate_to_datetime(answer.header("expires")) > parsedate_to_datetime(answer.header("last-modified"))
    etag = answer.header("etag")
    assert re.fullmatch(r'"[0-9A-F]{128}"', etag)
    assert circles.get(SHAPES, headers={"If-None-Match": f'"other", {etag}'}, expect=304).body == b""
    modified = {"If-Modified-Since": answer.header("last-modified")}
    assert circles.get(SHAPES, headers=modified, expect=304).header("etag") == etag
    circles.get(SHAPES, headers={**modified, "If-None-Match": '"other"'})


def test_a_document_without_a_hash_may_not_be_kept(circles: Api) -> None:
    answer = circles.get(SHAPES)
    assert (answer.header("cache-control"), answer.header("expires")) == ("no-cache, private", "")


def test_a_stale_hash_leads_to_the_fresh_document_in_the_same_workspace(circles: Api) -> None:
    etag = circles.get(SHAPES).header("etag").strip('"')
    answer = circles.get(f"{SHAPES}?hash=STALE", expect=301)
    # Relative, so that it is correct below /clusters/ and behind any prefix of a proxy.
    assert answer.header("location") == f"v1?hash={etag}"
    assert "immutable" not in answer.header("cache-control")


def test_the_document_of_a_custom_kind_carries_what_kubectl_looks_for(circles: Api) -> None:
    document = circles.get(SHAPES).json
    gvk = {"group": "shapes.example.com", "version": "v1", "kind": "Circle"}
    schemas = document["components"]["schemas"]
    assert schemas[CIRCLE]["x-kubernetes-group-version-kind"] == [gvk]
    assert {f"{CIRCLE}List", "io.k8s.api.autoscaling.v1.Scale"} < schemas.keys()
    path = "/apis/shapes.example.com/v1/namespaces/{namespace}/circles/{name}"
    patch = document["paths"][path]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == gvk
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert {f"{path}/scale", f"{path}/status"} < document["paths"].keys()
    core = circles.get("/openapi/v3/api/v1").json
    patch = core["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert "/api/v1/watch/namespaces/{namespace}/configmaps/{name}" in core["paths"]


@pytest.mark.parametrize(
    ("path", "accept", "form"),
    [
        (SHAPES, V3_PROTOBUF, V3_PROTOBUF),
        (SHAPES, V3_PROTOBUF.replace("v3.v1", "v3@v1"), V3_PROTOBUF),
        (SHAPES, f"{V3_PROTOBUF};q=0.5, application/json", "application/json"),
        (SHAPES, "text/html, application/*;q=0.1", "application/json"),
        ("/openapi/v2", V2_PROTOBUF, V2_PROTOBUF),
        ("/openapi/v2", V2_PROTOBUF.replace("v2.v1", "v2@v1"), V2_PROTOBUF),
        ("/openapi/v2", "*/*", "application/json"),
        ("/openapi/v2", "", "application/json"),
    ],
)
def test_the_form_is_the_first_that_is_asked_for(circles: Api, path: str, accept: str, form: str) -> None:
    answer = circles.get(path, accept=accept)
    assert answer.header("content-type") == form
    assert answer.body.startswith(b"{") is (form == "application/json")


@pytest.mark.parametrize("path", [SHAPES, "/openapi/v2"])
def test_a_form_that_there_is_not_is_refused(circles: Api, path: str) -> None:
    for accept in ("text/html", "application/yaml", "application/json;q=0", "application/vnd.kubernetes.protobuf"):
        assert circles.get(path, accept=accept, expect=406).json["reason"] == "NotAcceptable"


def test_the_v2_document_has_built_in_and_custom_kinds(circles: Api) -> None:
    answer = circles.get("/openapi/v2")
    document = answer.json
    assert document["swagger"] == "2.0"
    assert {"io.k8s.api.core.v1.ConfigMap", CIRCLE, f"{CIRCLE}List"} < document["definitions"].keys()
    metadata = document["definitions"][CIRCLE]["properties"]["metadata"]
    assert metadata["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert "/apis/shapes.example.com/v1/circles" in document["paths"]
    references = set(re.findall(rb'"\$ref":"#/definitions/([^"]+)"', answer.body))
    assert references <= {name.encode() for name in document["definitions"]}
    assert re.fullmatch(r'"[0-9A-F]{128}"', answer.header("etag"))
    same = circles.get("/openapi/v2", headers={"If-None-Match": answer.header("etag")}, expect=304)
    assert same.body == b""
    binary = circles.get("/openapi/v2", accept=V2_PROTOBUF)
    assert binary.header("etag") == answer.header("etag")


def test_large_documents_are_compressed_where_that_is_asked_for(circles: Api) -> None:
    plain = circles.get("/openapi/v2")
    packed = circles.get("/openapi/v2", headers={"Accept-Encoding": "gzip"})
    assert packed.header("content-encoding") == "gzip"
    assert {"Accept", "Accept-Encoding"} == set(packed.headers.get_all("vary", []))
    assert gzip.decompress(packed.body) == plain.body
    # Documents are not indented for browsers: indenting a large one would block the event loop.
    assert circles.get("/openapi/v2", headers={"User-Agent": "curl/8"}).body == plain.body


def test_documents_follow_definitions_as_they_come_change_and_go(api: Api) -> None:
    before = api.get("/openapi/v3").header("etag")
    define(api, crd("circles"))
    index = api.get("/openapi/v3")
    assert index.header("etag") != before
    first = api.get(_url(api, "apis/shapes.example.com/v1"))
    changed = api.get(f"{CRDS}/circles.shapes.example.com").json
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["weight"] = {"type": "integer"}
    api.put(f"{CRDS}/circles.shapes.example.com", changed)
    second = api.get(SHAPES)
    assert second.header("etag") != first.header("etag")
    assert "weight" in second.json["components"]["schemas"][CIRCLE]["properties"]["spec"]["properties"]
    assert CIRCLE in api.get("/openapi/v2").json["definitions"]
    api.delete(f"{CRDS}/circles.shapes.example.com")
    eventually(lambda: api.get(SHAPES, expect=0).code == 404, "the document is gone")
    assert CIRCLE not in api.get("/openapi/v2").json["definitions"]
    assert api.get("/openapi/v3").header("etag") == before


def test_workspaces_with_the_same_definitions_have_the_same_documents(circles: Api, admin: Api) -> None:
    other = admin.at(workspace_under(admin, type_="universal"))
    assert other.get(SHAPES, expect=0).code == 404
    define(other, crd("circles"))
    for path in ("/openapi/v3", "/openapi/v2", SHAPES, "/apis/shapes.example.com/v1"):
        pair: list[Answer] = [each.get(path) for each in (circles, other)]
        assert pair[0].body == pair[1].body
        assert pair[0].header("etag") == pair[1].header("etag")
    other.close()


def test_paths_below_openapi_that_are_not_there_are_not_found(circles: Api) -> None:
    for path in ("/openapi", "/openapi/v1", "/openapi/v2/x", "/openapi/v3/apis/nothing/v1", f"{SHAPES}/more"):
        circles.get(path, expect=404)
    circles.send("POST", "/openapi/v2", {}, expect=405)


def test_versions_that_are_renamed_or_no_longer_served_leave_the_documents(api: Api) -> None:
    definition = crd("circles")
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    define(api, definition)
    define(api, crd("squares"))
    define(api, crd("circles", "other.example.com"))
    group = "/openapi/v3/apis/shapes.example.com"
    names = {CIRCLE, "com.example.shapes.v2.Circle", "com.example.shapes.v1.Square", "com.example.other.v1.Circle"}
    assert names < api.get("/openapi/v2").json["definitions"].keys()
    path = f"{CRDS}/circles.shapes.example.com"
    api.patch(path, [{"op": "replace", "path": "/spec/versions/1/name", "value": "v3"}], JSON_PATCH)
    assert "com.example.shapes.v3.Circle" in api.get(f"{group}/v3").json["components"]["schemas"]
    api.get(f"{group}/v2", expect=404)
    api.patch(path, [{"op": "replace", "path": "/spec/versions/1/served", "value": False}], JSON_PATCH)
    api.get(f"{group}/v3", expect=404)
    left = api.get("/openapi/v2").json["definitions"].keys()
    assert {name for name in left if name.endswith((".Circle", ".Square"))} == names - {"com.example.shapes.v2.Circle"}
    assert "apis/shapes.example.com/v3" not in api.get("/openapi/v3").json["paths"]
