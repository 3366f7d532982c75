"""Every built-in kind, over the wire, through every verb: what one kind can, all can."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import NATIVE
from harness.api import APPLY, JSON_PATCH, MERGE, PARTIAL, STRATEGIC, TABLE, YAML, Api, crd, eventually, workspace_under
from harness.shard import ShardProcess

ADMISSION = "admissionregistration.k8s.io"
RBAC = "rbac.authorization.k8s.io"
KINDS = [kind for kind in NATIVE if "get" in kind.verbs]


def _request() -> str:
    """A certificate signing request as the API takes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


_ROLE = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
_USER = [{"apiGroup": RBAC, "kind": "User", "name": "kcp-admin"}]
_RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
_MATCH = {"resourceRules": [{
    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
}]}  # fmt: skip
_WEBHOOK = {
    "name": "a.example.com", "clientConfig": {"url": "https://hook.example.com/a"}, "sideEffects": "None",
    "admissionReviewVersions": ["v1"], "rules": [{**_MATCH["resourceRules"][0], "scope": "*"}],
}  # fmt: skip
_MUTATION = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"},
}  # fmt: skip

#: What a minimal object of a kind needs beside a name.
CONTENT: dict[tuple[str, str], dict[str, Any]] = {
    ("", "configmaps"): {"data": {"k": "v"}},
    ("", "secrets"): {"data": {"k": "dg=="}},
    ("", "events"): {"involvedObject": {"namespace": "default", "kind": "ConfigMap", "name": "a"}, "reason": "Because"},
    ("", "resourcequotas"): {"spec": {"hard": {"configmaps": "10"}}},
    ("events.k8s.io", "events"): {
        "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "example.com/c", "reportingInstance": "c-1",
        "action": "Act", "reason": "Because", "type": "Normal",
        "regarding": {"namespace": "default", "kind": "ConfigMap", "name": "a"},
    },
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "spec": {"request": _request(), "signerName": "example.com/signer", "usages": ["client auth"]},
    },
    (RBAC, "clusterrolebindings"): {"roleRef": _ROLE, "subjects": _USER},
    (RBAC, "rolebindings"): {"roleRef": _ROLE, "subjects": _USER},
    (RBAC, "clusterroles"): {"rules": _RULES},
    (RBAC, "roles"): {"rules": _RULES},
    (ADMISSION, "mutatingadmissionpolicies"): {
        "spec": {"matchConstraints": _MATCH, "mutations": [_MUTATION], "reinvocationPolicy": "Never"},
    },
    (ADMISSION, "mutatingadmissionpolicybindings"): {"spec": {"policyName": "p"}},
    (ADMISSION, "mutatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    (ADMISSION, "validatingadmissionpolicies"): {
        "spec": {"matchConstraints": _MATCH, "validations": [{"expression": "true"}]},
    },
    (ADMISSION, "validatingadmissionpolicybindings"): {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    (ADMISSION, "validatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"spec": crd("squares")["spec"]},
    ("coordination.k8s.io", "leases"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
}  # fmt: skip


def name_of(kind: Kind) -> str:
    return "squares.shapes.example.com" if kind.plural == "customresourcedefinitions" else "x"


def sample(kind: Kind, **metadata: Any) -> dict[str, Any]:
    content = CONTENT.get((kind.group, kind.plural), {})
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name_of(kind), **metadata}, **content,
    }  # fmt: skip


def collection(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard")) as running:
        yield running


@pytest.fixture
def api(shard: ShardProcess) -> Iterator[Api]:
    """kcp-admin in a new workspace."""
    root = Api(shard, "root")
    here = root.at(workspace_under(root, type_="universal"))
    yield here
    here.close()
    root.close()


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind.plural}.{kind.group}")
def kind(request: pytest.FixtureRequest) -> Kind:
    assert isinstance(request.param, Kind)
    return request.param


@pytest.fixture
def made(api: Api, kind: Kind) -> dict[str, Any]:
    """The object as it was created, once nobody changes it any more."""
    api.post(collection(kind), sample(kind))
    path = f"{collection(kind)}/{name_of(kind)}"

    def settled() -> dict[str, Any] | None:
        obj: dict[str, Any] = api.get(path).json
        waiting = kind.plural == "customresourcedefinitions" and "Established" not in str(obj.get("status"))
        return None if waiting else obj

    return dict(eventually(settled, f"{path} settled"))


@pytest.fixture
def path(kind: Kind) -> str:
    return f"{collection(kind)}/{name_of(kind)}"


def test_it_is_created_read_and_listed(api: Api, kind: Kind, made: dict[str, Any], path: str) -> None:
    metadata = made["metadata"]
    assert (made["apiVersion"], made["kind"]) == (kind.api_version, kind.kind)
    assert metadata["uid"]
    if set(sample(kind)) != {"apiVersion", "kind", "metadata"}:
        assert "wire-test" in {each["manager"] for each in metadata["managedFields"]}
    assert metadata.get("generation") == (1 if kind.generation else None)
    assert api.get(path).json == made
    listed = api.get(collection(kind)).json
    assert (listed["kind"], listed["apiVersion"]) == (f"{kind.kind}List", kind.api_version)
    assert made in listed["items"]
    assert api.post(collection(kind), sample(kind), expect=409).json["reason"] == "AlreadyExists"


def test_it_is_taken_as_yaml_and_with_strict_validation(api: Api, kind: Kind) -> None:
    body = yaml.safe_dump(sample(kind)).encode()
    query = "?fieldValidation=Strict&dryRun=All"
    assert api.post(collection(kind) + query, body, kind=YAML).json["kind"] == kind.kind
    wrong = {**sample(kind), "nonsense": 1}
    message = api.post(collection(kind) + query, wrong, expect=400).message
    assert message.endswith('strict decoding error: unknown field "nonsense"')


def test_it_is_watched_from_its_creation_to_its_end(api: Api, kind: Kind, made: dict[str, Any], path: str) -> None:
    query = f"?watch=1&fieldSelector=metadata.name%3D{name_of(kind)}"
    with api.watch(collection(kind) + query) as events:
        first = events.next()
        assert (first.type, first.object) == ("ADDED", made)
        api.patch(path, {"metadata": {"labels": {"a": "b"}}})
        changed = events.next()
        assert (changed.type, changed.object["metadata"]["labels"]["a"]) == ("MODIFIED", "b")
        api.delete(path)
        while (last := events.next()).type == "MODIFIED":
            continue
        assert (last.type, last.object["kind"]) == ("DELETED", kind.kind)
        assert last.revision > changed.revision


@pytest.mark.parametrize(("media", "body"), [
    (MERGE, {"metadata": {"labels": {"a": "b"}}}),
    (STRATEGIC, {"metadata": {"labels": {"a": "b"}}}),
    (JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
])  # fmt: skip
def test_it_is_patched(api: Api, made: dict[str, Any], path: str, media: str, body: Any) -> None:
    changed = api.patch(path, body, media).json
    assert changed["metadata"]["labels"]["a"] == "b"
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["metadata"].get("generation") == made["metadata"].get("generation")
    if media == MERGE:
        assert api.patch(path, body, media).json == changed


def test_it_is_applied_new_again_and_over_another(api: Api, kind: Kind, path: str) -> None:
    query = "?fieldManager=tester"
    api.patch(path + query, sample(kind, labels={"a": "1"}), APPLY, expect=201)
    again = api.patch(path + query, sample(kind, labels={"a": "2"}), APPLY).json
    assert again["metadata"]["labels"]["a"] == "2"
    assert ("tester", "Apply") in {(f["manager"], f["operation"]) for f in again["metadata"]["managedFields"]}
    conflict = api.patch(path + "?fieldManager=other", sample(kind, labels={"a": "3"}), APPLY, expect=409).json
    assert ".metadata.labels.a" in {cause["field"] for cause in conflict["details"]["causes"]}
    forced = api.patch(path + "?fieldManager=other&force=true", sample(kind, labels={"a": "3"}), APPLY).json
    assert forced["metadata"]["labels"]["a"] == "3"


def test_it_is_replaced_and_left_alone_when_nothing_changed(api: Api, made: dict[str, Any], path: str) -> None:
    assert api.put(path, made).json == made
    made["metadata"]["annotations"] = {**made["metadata"]["annotations"], "a": "b"}
    changed = api.put(path, made).json
    assert changed["metadata"]["annotations"]["a"] == "b"
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_it_is_shown_as_a_table_and_as_metadata(api: Api, kind: Kind, made: dict[str, Any], path: str) -> None:
    for where in (path, collection(kind)):
        table = api.get(where, accept=TABLE).json
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert (table["kind"], len(set(columns))) == ("Table", len(columns))
        row = next(row for row in table["rows"] if row["object"]["metadata"]["name"] == name_of(kind))
        assert len(row["cells"]) == len(columns)
        assert name_of(kind) in row["cells"] or kind.plural == "events"
        assert row["object"]["kind"] == "PartialObjectMetadata"
    assert api.get(path, accept=PARTIAL).json["metadata"] == made["metadata"]


def test_its_status_has_a_door_of_its_own(api: Api, kind: Kind, made: dict[str, Any], path: str) -> None:
    if kind.subresource("status") is None:
        api.get(f"{path}/status", expect=404)
        return
    assert api.get(f"{path}/status").json == made
    assert api.put(f"{path}/status", made).json == made
    assert api.patch(f"{path}/status", {"metadata": {"labels": {"a": "b"}}}).json["metadata"]["uid"]


def test_it_is_deleted_alone_and_with_its_collection(api: Api, kind: Kind, made: dict[str, Any], path: str) -> None:
    api.delete(f"{path}?dryRun=All")
    api.get(path)
    answer = api.delete(path).json
    assert answer["kind"] in {"Status", kind.kind}
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")
    if "deletecollection" in kind.verbs:
        api.post(collection(kind), sample(kind, labels={"all": "of"}))
        deleted = api.delete(f"{collection(kind)}?labelSelector=all").json
        assert [item["metadata"]["name"] for item in deleted["items"]] == [name_of(kind)]
        eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")


def test_every_kind_with_content_of_its_own_is_in_the_matrix() -> None:
    known = {(kind.group, kind.plural) for kind in KINDS}
    assert set(CONTENT) <= known
    assert len(KINDS) >= 18
