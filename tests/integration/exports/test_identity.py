"""The identity of an export: its Secret, its hash, and the effect of changes to either."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from harness.clients.api import MERGE, Api, Object, eventually
from harness.clients.exports import (
    EXPORTS,
    PATIENCE_S,
    SECRETS,
    SLICES,
    bind,
    claim,
    cluster_of,
    condition,
    export,
    identity_of,
    is_true,
    make_export,
    schema,
    wait,
    wait_condition,
)
from harness.clients.tenants import allow
from harness.servers.shard_process import ShardProcess, process_of

NAMESPACES = "/api/v1/namespaces"
BINDINGS = "/apis/apis.kcp.io/v1alpha2/apibindings"
FAILED = "IdentityVerificationFailed"


def secret(name: str, key: str, namespace: str = "kcp-system") -> Object:
    data = {"key": base64.b64encode(key.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


def key_of(api: Api, name: str) -> bytes:
    return base64.b64decode(api.get(f"{SECRETS}/{name}").json["data"]["key"])


def named(name: str, namespace: str = "default") -> Object:
    """A spec.identity that names a Secret."""
    return {"secretRef": {"name": name, "namespace": namespace}}


def hash_of(key: str | bytes) -> str:
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).hexdigest()


def test_an_export_gets_a_secret_of_its_own_and_shows_its_hash(provider: Api) -> None:
    made = make_export(provider, "shapes", schema("circles"))
    assert made["spec"]["identity"] == named("shapes", "kcp-system")
    key = key_of(provider, "shapes")
    assert len(key) >= 32
    assert made["status"]["identityHash"] == hash_of(key)
    said = condition(made, "IdentityValid")
    assert said == {"type": "IdentityValid", "status": "True", "lastTransitionTime": said["lastTransitionTime"]}
    assert set(made["status"]) == {"identityHash", "conditions"}
    other = make_export(provider, "more-shapes", schema("squares"))
    assert other["status"]["identityHash"] != made["status"]["identityHash"]


def test_the_same_key_gives_the_same_identity_wherever_it_is(provider: Api, consumer: Api) -> None:
    for api in (provider, consumer):
        api.post("/api/v1/namespaces/default/secrets", secret("mine", "a key of my own", "default"))
    first = make_export(provider, "shapes", schema("circles"), identity=named("mine"))
    second = make_export(consumer, "forms", schema("circles"), identity=named("mine"))
    assert first["status"]["identityHash"] == second["status"]["identityHash"] == hash_of("a key of my own")
    assert provider.get(f"{SECRETS}/shapes", expect=0).code == 404, "nothing is made where a Secret is named"


def test_a_hash_never_changes_and_the_condition_follows_the_secret(provider: Api) -> None:
    made = make_export(provider, "shapes", schema("circles"))
    path, kept = f"{EXPORTS}/shapes", made["status"]["identityHash"]
    right = provider.get(f"{SECRETS}/shapes").json["data"]
    wrong = base64.b64encode(b"somebody else's").decode()

    def broken(reason: str) -> None:
        found = wait_condition(provider, path, "IdentityValid", "False")
        said = condition(found, "IdentityValid")
        assert (said["reason"], said["severity"], found["status"]["identityHash"]) == (FAILED, "Error", kept)
        assert reason in said["message"]

    def healed() -> None:
        assert wait_condition(provider, path, "IdentityValid")["status"]["identityHash"] == kept

    provider.patch(f"{SECRETS}/shapes", {"data": {"key": wrong}})
    broken("hash mismatch")
    provider.patch(f"{SECRETS}/shapes", {"data": right})
    healed()
    provider.patch(f"{SECRETS}/shapes", {"data": {"key": None}})
    broken("missing data.key")
    provider.patch(f"{SECRETS}/shapes", {"data": right})
    healed()
    provider.delete(f"{SECRETS}/shapes")
    broken("not found")
    provider.post(SECRETS, {**secret("shapes", ""), "data": right})
    healed()


def test_another_secret_named_later_does_not_change_the_identity(provider: Api) -> None:
    made = make_export(provider, "shapes", schema("circles"))
    provider.post("/api/v1/namespaces/default/secrets", secret("other", "another key", "default"))
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"identity": named("other")}})
    found = wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid", "False", FAILED)
    assert found["status"]["identityHash"] == made["status"]["identityHash"]
    right = provider.get(f"{SECRETS}/shapes").json["data"]
    provider.patch("/api/v1/namespaces/default/secrets/other", {"data": right})
    wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid")
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"identity": None}})
    back = named("shapes", "kcp-system")
    again = wait(provider, f"{EXPORTS}/shapes", lambda obj: obj["spec"].get("identity") == back)
    assert again["status"] == {**made["status"], "conditions": again["status"]["conditions"]}
    assert is_true(again, "IdentityValid")


def test_a_secret_that_is_not_there_yet_gives_the_identity_once_it_is(provider: Api) -> None:
    provider.post(EXPORTS, export("shapes", identity=named("coming")))
    found = wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid", "False", FAILED)
    assert "identityHash" not in found["status"]
    provider.post("/api/v1/namespaces/default/secrets", secret("coming", "late", "default"))
    assert wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid")["status"]["identityHash"] == hash_of("late")


def test_a_secret_of_the_exports_name_is_taken_as_it_is(provider: Api) -> None:
    provider.post(NAMESPACES, {"metadata": {"name": "kcp-system"}})
    provider.post(SECRETS, secret("shapes", "older than the export"))
    made = make_export(provider, "shapes", schema("circles"))
    assert made["status"]["identityHash"] == hash_of("older than the export")


def test_the_namespace_of_the_secrets_may_go_and_come_back(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    key = provider.get(f"{SECRETS}/shapes").json["data"]
    provider.delete(f"{NAMESPACES}/kcp-system")
    wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid", "False", FAILED)
    gone = f"{NAMESPACES}/kcp-system"
    eventually(lambda: provider.get(gone, expect=0).code == 404, "the namespace is gone", PATIENCE_S)
    # A new export creates the namespace again.
    make_export(provider, "others", schema("squares"))
    provider.post(SECRETS, {**secret("shapes", ""), "data": key})
    wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid")


def test_a_secret_that_cannot_be_made_is_told_and_made_later(provider: Api) -> None:
    """The namespace is being deleted, and a finalizer in it delays that."""
    make_export(provider, "first", schema("circles"))
    held = {"metadata": {"name": "held", "finalizers": ["example.com/wait"]}, "apiVersion": "v1", "kind": "ConfigMap"}
    provider.post(f"{NAMESPACES}/kcp-system/configmaps", held)
    provider.delete(f"{NAMESPACES}/kcp-system")
    provider.post(EXPORTS, export("shapes"))
    found = wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid", "False", "IdentityGenerationFailed")
    assert condition(found, "IdentityValid")["message"].startswith("Error creating identity secret: ")
    assert "identityHash" not in found["status"]
    provider.patch(f"{NAMESPACES}/kcp-system/configmaps/held", {"metadata": {"finalizers": None}})
    wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid")
    assert identity_of(provider, "shapes") == hash_of(key_of(provider, "shapes"))


def test_who_may_not_read_a_secret_cannot_make_it_an_identity(provider: Api) -> None:
    """Neither by reference, nor by creating a Secret of the name that the system looks up."""
    make_export(provider, "shapes", schema("circles"))
    provider.post("/api/v1/namespaces/default/secrets", secret("theirs", "their key", "default"))
    exporter = Api(provider.shard, provider.cluster, token="alice-token")
    allow(provider, "enters", "alice", nonResourceURLs=["/"], verbs=["access"])
    allow(provider, "exports", "alice", apiGroups=["apis.kcp.io"], resources=["apiexports"], verbs=["*"])
    exporter.post(EXPORTS, export("hers"))
    wait_condition(provider, f"{EXPORTS}/hers", "IdentityValid")
    text = 'no permission to get secret "default/theirs"'
    stolen = export("stolen", identity=named("theirs"))
    assert text in exporter.post(EXPORTS, stolen, expect=403).message
    older = {**stolen, "apiVersion": "apis.kcp.io/v1alpha1", "spec": {"identity": named("theirs")}}
    assert text in exporter.post(EXPORTS.replace("v1alpha2", "v1alpha1"), older, expect=403).message
    assert text in exporter.patch(f"{EXPORTS}/hers", {"spec": {"identity": named("theirs")}}, expect=403).message
    assert exporter.patch(f"{EXPORTS}/hers", {"metadata": {"labels": {"a": "b"}}}).code == 200
    provider.delete(f"{EXPORTS}/shapes")
    assert "kcp-system/shapes" in exporter.post(EXPORTS, export("shapes"), expect=403).message
    allow(provider, "reads", "alice", apiGroups=[""], resources=["secrets"], verbs=["get"])
    exporter.post(EXPORTS, stolen)
    assert wait_condition(provider, f"{EXPORTS}/stolen", "IdentityValid")["status"]["identityHash"] == hash_of(
        "their key"
    )


def test_an_export_is_shown_field_for_field(provider: Api) -> None:
    created = make_export(provider, "shapes", schema("circles"), claims=[claim("configmaps")])
    found = provider.get(f"{EXPORTS}/shapes").json
    assert found == created
    metadata, since = found.pop("metadata"), condition(found, "IdentityValid")["lastTransitionTime"]
    assert found == {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "spec": {
            "identity": {"secretRef": {"name": "shapes", "namespace": "kcp-system"}},
            "permissionClaims": [{"group": "", "resource": "configmaps", "verbs": ["*"], "identityHash": ""}],
            "resources": [
                {
                    "group": "shapes.example.com",
                    "name": "circles",
                    "schema": "today.circles.shapes.example.com",
                    "storage": {"crd": {}},
                }
            ],
        },
        "status": {
            "identityHash": hash_of(key_of(provider, "shapes")),
            "conditions": [{"type": "IdentityValid", "status": "True", "lastTransitionTime": since}],
        },
    }
    assert metadata["annotations"] == {"kcp.io/cluster": cluster_of(provider), "kcp.io/path": provider.cluster}
    assert set(metadata) == {
        "name",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "annotations",
        "managedFields",
    }


def test_a_shard_is_shown_field_for_field(admin: Api) -> None:
    found, url = admin.get("/apis/core.kcp.io/v1alpha1/shards/root").json, admin.shard.url
    metadata = found.pop("metadata")
    assert found == {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "Shard",
        "spec": {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": url},
    }
    assert (metadata["annotations"], metadata["labels"]["name"]) == ({"kcp.io/cluster": "root"}, "root")


def test_the_default_slice_comes_back_unless_the_export_says_it_needs_none(provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    first = provider.get(f"{SLICES}/shapes").json
    provider.delete(f"{SLICES}/shapes")
    wait(provider, f"{SLICES}/shapes", lambda obj: obj["metadata"]["uid"] != first["metadata"]["uid"])
    skip = {"apiexports.apis.kcp.io/skip-endpointslice": "true"}
    without = export("without")
    provider.post(EXPORTS, {**without, "metadata": {"name": "without", "annotations": skip}})
    wait_condition(provider, f"{EXPORTS}/without", "IdentityValid")
    assert provider.get(f"{SLICES}/without", expect=0).code == 404
    provider.patch(f"{EXPORTS}/without", {"metadata": {"annotations": {next(iter(skip)): None}}})
    wait(provider, f"{SLICES}/without", bool)


def test_extra_annotations_of_an_export_are_on_all_its_bindings(provider: Api, consumer: Api, admin: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    path, key = f"{BINDINGS}/shapes", "extra.apis.kcp.io/contact"

    def annotate(value: str | None) -> None:
        provider.patch(f"{EXPORTS}/shapes", {"metadata": {"annotations": {key: value, "other.example/x": "y"}}})

    def carried(api: Api, value: str | None) -> Object:
        return wait(api, path, lambda obj: obj["metadata"]["annotations"].get(key) == value)

    annotate("harbour")
    assert "other.example/x" not in carried(consumer, "harbour")["metadata"]["annotations"]
    bind(provider, provider.cluster, "shapes")
    carried(provider, "harbour")
    consumer.patch(path, {"metadata": {"annotations": {key: "mine", "extra.apis.kcp.io/more": "mine"}}})
    assert "extra.apis.kcp.io/more" not in carried(consumer, "harbour")["metadata"]["annotations"]
    annotate(None)
    carried(consumer, None)
    carried(provider, None)


def test_no_key_is_written_anywhere_but_into_its_secret(provider: Api, audit_path: Path) -> None:
    """Neither in normal operation, nor in a message about the Secret."""
    make_export(provider, "shapes", schema("circles"))
    keys = [key_of(provider, "shapes").decode(), "a key that somebody brought"]
    provider.post("/api/v1/namespaces/default/secrets", secret("brought", keys[1], "default"))
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"identity": named("brought")}})
    wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid", "False", FAILED)
    provider.send("PATCH", f"{SECRETS}/shapes", {"data": {"key": f"{keys[0]}: no base64"}}, kind=MERGE)
    eventually(lambda: '"brought"' in audit_path.read_text(), "the audit log has heard of it", PATIENCE_S)
    shown = [json.dumps(provider.get(path).json) for path in (f"{EXPORTS}/shapes", "/api/v1/events", SLICES)]
    written = [path.read_text(errors="replace") for path in (audit_path, process_of(provider).stderr_path)]
    for key in keys:
        for form in (key, base64.b64encode(key.encode()).decode().rstrip("=")):
            assert not [text for text in (*shown, *written) if form in text], form


@pytest.mark.long
def test_deprecated_urls_are_in_an_exports_status_if_the_gate_is_open(tmp_path: Path) -> None:
    gate = "--feature-gates=EnableDeprecatedAPIExportVirtualWorkspacesUrls="
    with ShardProcess(tmp_path, gate + "true") as shard:
        root = Api(shard, "root")
        found = wait_condition(root, f"{EXPORTS}/tenancy.kcp.io", "VirtualWorkspaceURLsReady")
        urls = [{"url": f"{shard.url}/services/apiexport/root/tenancy.kcp.io"}]
        assert found["status"]["virtualWorkspaces"] == urls
        root.close()
        shard.stop()
        shard.flags = (gate + "false",)
        shard.start()
        root = Api(shard, "root")
        # Controllers list objects only if the log does not reach back; a write queues the export.
        root.patch(f"{EXPORTS}/tenancy.kcp.io", {"metadata": {"labels": {"touched": "yes"}}})
        left = wait(root, f"{EXPORTS}/tenancy.kcp.io", lambda obj: "virtualWorkspaces" not in obj["status"])
        assert is_true(left, "IdentityValid")
        assert not condition(left, "VirtualWorkspaceURLsReady")
        assert identity_of(root, "tenancy.kcp.io") == found["status"]["identityHash"]
