"""Forms of URLs, and the response to unknown paths."""

from __future__ import annotations

import gzip
import json

import pytest

from harness.clients.api import Api, configmap

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    "path", [f"{CONFIGMAPS}/", "//api//v1/namespaces/default//configmaps", "/api/v1/namespaces/default/configmaps//"]
)
def test_doubled_and_trailing_slashes_mean_the_clean_path(api: Api, path: str) -> None:
    assert api.get(path).json["kind"] == "ConfigMapList"


def test_a_post_to_a_path_with_a_trailing_slash_is_served_and_not_redirected(api: Api) -> None:
    assert api.post(f"{CONFIGMAPS}/", configmap("a")).json["metadata"]["name"] == "a"


@pytest.mark.parametrize("segment", ["a%2fb", "a%00b", "%2e%2e", "..", ".", "%ff"])
def test_segments_that_no_name_can_be_are_a_400(api: Api, segment: str) -> None:
    status = api.get(f"{CONFIGMAPS}/{segment}", expect=400).json
    assert (status["kind"], status["reason"]) == ("Status", "BadRequest")


def test_a_name_with_an_escaped_colon_is_decoded_after_splitting(api: Api) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a:b c"}}
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    found = api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab%20c").json
    assert found["metadata"]["name"] == "a:b c"


def test_an_unknown_resource_of_a_known_version_is_a_json_404_without_details(api: Api) -> None:
    status = api.get("/api/v1/pods", expect=404).json
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
        "message": "the server could not find the requested resource",
        "details": {},
    }


@pytest.mark.parametrize(
    "path",
    [
        "/apis/nothing.example.com",
        "/apis/nothing.example.com/v1",
        "/apis/nothing.example.com/v1/things",
        "/api/v2",
        "/api/v2/things",
        "/apis/rbac.authorization.k8s.io/v9",
        "/nothing",
    ],
)
def test_unknown_groups_versions_and_paths_are_a_404(api: Api, path: str) -> None:
    assert api.get(path, expect=404).json["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", CONFIGMAPS),
        ("PUT", CONFIGMAPS),
        ("POST", f"{CONFIGMAPS}/a"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", "/api/v1"),
        ("POST", "/version"),
    ],
)
def test_a_known_path_with_the_wrong_method_is_a_405(api: Api, method: str, path: str) -> None:
    status = api.send(method, path, {} if method != "GET" else None, expect=405).json
    assert (status["reason"], status["details"]) == ("MethodNotAllowed", {})
    assert status["message"] == "the server does not allow this method on the requested resource"


def test_a_method_that_http_does_not_know_is_refused(api: Api) -> None:
    assert api.send("BREW", CONFIGMAPS).code in {400, 405}


def test_head_is_answered_like_get_without_a_body(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    head, get = api.send("HEAD", f"{CONFIGMAPS}/a"), api.get(f"{CONFIGMAPS}/a")
    assert (head.code, head.body) == (200, b"")
    assert head.header("content-length") == str(len(get.body))


def test_every_answer_says_its_audit_id_and_forbids_caching(api: Api) -> None:
    answer = api.get(CONFIGMAPS, headers={"Audit-ID": "mine"})
    assert (answer.header("audit-id"), answer.header("cache-control")) == ("mine", "no-cache, private")
    assert answer.header("content-type") == "application/json"
    assert answer.body.endswith(b"\n")
    assert len(api.get(CONFIGMAPS).header("audit-id")) == 36


def test_the_old_watch_prefix_is_a_watch(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    with api.watch("/api/v1/watch/namespaces/default/configmaps/a?timeoutSeconds=1") as events:
        assert [(e.type, e.name) for e in events.rest()] == [("ADDED", "a")]


def test_an_unparsable_number_is_a_400_and_an_unknown_parameter_is_ignored(api: Api) -> None:
    assert api.get(f"{CONFIGMAPS}?limit=x", expect=400).json["reason"] == "BadRequest"
    api.get(f"{CONFIGMAPS}?nothing=x&pretty=false")


def test_of_a_parameter_given_twice_the_first_wins(api: Api) -> None:
    for name in ("a", "b"):
        api.post(CONFIGMAPS, configmap(name))
    assert len(api.get(f"{CONFIGMAPS}?limit=1&limit=2").json["items"]) == 1


def test_pretty_and_browsers_get_indented_json(api: Api) -> None:
    assert b'\n  "' in api.get(f"{CONFIGMAPS}?pretty=true").body
    assert b'\n  "' in api.get(CONFIGMAPS, headers={"User-Agent": "curl/8.0"}).body
    assert b"\n  " not in api.get(CONFIGMAPS).body


def test_a_big_list_is_compressed_for_who_asks_and_only_then(api: Api) -> None:
    for index in range(3):
        api.post(CONFIGMAPS, configmap(f"c{index}", {"a": "x" * 90_000}))
    answer = api.get(CONFIGMAPS, headers={"Accept-Encoding": "gzip"})
    assert answer.header("content-encoding") == "gzip"
    assert "accept-encoding" in answer.header("vary").lower()
    plain = api.get(CONFIGMAPS)
    assert not plain.header("content-encoding")
    assert json.loads(gzip.decompress(answer.body)) == plain.json


def test_a_list_that_is_streamed_is_compressed_too(api: Api) -> None:
    """Lists above one slice (1 MiB) leave in pieces, which are not indented."""
    for index in range(15):
        api.post(CONFIGMAPS, configmap(f"c{index:02}", {"a": "x" * 90_000}))
    plain = api.get(CONFIGMAPS)
    assert plain.header("transfer-encoding") == "chunked"
    packed = api.get(CONFIGMAPS, headers={"Accept-Encoding": "gzip"})
    assert packed.header("content-encoding") == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == plain.json
    pretty = api.get(f"{CONFIGMAPS}?pretty=1")
    assert pretty.json == plain.json
    assert b"\n " not in pretty.body
    assert b'\n  "items": [\n' in api.get(f"{CONFIGMAPS}?pretty=1&limit=5").body
    yaml_list = api.get(CONFIGMAPS, accept="application/yaml", headers={"Accept-Encoding": "gzip"})
    assert b"kind: ConfigMapList" in gzip.decompress(yaml_list.body)


def test_a_small_answer_is_not_compressed(api: Api) -> None:
    assert not api.get(CONFIGMAPS, headers={"Accept-Encoding": "gzip"}).header("content-encoding")


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("", 200),
        ("*/*", 200),
        ("application/json;q=0.5,text/html", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/vnd.kubernetes.protobuf, */*", 200),
        ("application/cbor", 406),
        ("text/html", 406),
        ("application/json;as=Nothing;v=v1;g=meta.k8s.io", 406),
    ],
)
def test_the_accept_header_decides_the_form(api: Api, accept: str, code: int) -> None:
    answer = api.get(CONFIGMAPS, accept=accept, expect=code)
    assert answer.header("content-type") == "application/json"
    if code == 406:
        assert answer.json["reason"] == "NotAcceptable"
        assert answer.message.startswith("only the following media types are accepted: application/json")


def test_yaml_is_answered_when_asked_for(api: Api) -> None:
    answer = api.get(CONFIGMAPS, accept="application/yaml")
    assert answer.header("content-type") == "application/yaml"
    assert b"kind: ConfigMapList" in answer.body


@pytest.mark.parametrize("value", ["Bearer ", "Bearer", "Basic YTpi"])
def test_an_authorization_header_without_a_token_is_no_credential(api: Api, value: str) -> None:
    nobody = Api(api.shard, "", user="")
    nobody.get("/readyz", headers={"Authorization": value})
    answer = nobody.get(f"/clusters/{api.cluster}{CONFIGMAPS}", expect=403, headers={"Authorization": value})
    assert 'User "system:anonymous" cannot list' in answer.message
    nobody.get("/readyz", expect=401, headers={"Authorization": "Bearer wrong"})
    nobody.close()
