"""Identities of exports: once a hash is there it stays, and the Secret is held against it."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from atoll.machinery.kcp.apis import apiexports
from atoll.machinery.kcp.apis.apiexports import NoIdentity, SecretReference
from atoll.machinery.meta.objects import Object

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
REFERENCE = SecretReference("kcp-system", "shapes")
KEY = "correct horse battery staple"


def an_export(**annotations: str) -> Object:
    metadata = {"name": "shapes", "uid": "u1", "annotations": {"kcp.io/cluster": "c1", **annotations}}
    return {"metadata": metadata, "spec": {"resources": []}}


def a_secret(key: str = KEY) -> Object:
    return {"data": {"key": base64.b64encode(key.encode()).decode()}}


def condition(status: Object) -> Object:
    return next(each for each in status["conditions"] if each["type"] == "IdentityValid")


def test_a_fresh_secret_holds_a_key_that_nobody_guesses() -> None:
    first, second = apiexports.new_secret(REFERENCE), apiexports.new_secret(REFERENCE)
    assert (first["metadata"], first["type"]) == ({"name": "shapes", "namespace": "kcp-system"}, "Opaque")
    assert first["data"]["key"] != second["data"]["key"]
    assert len(base64.b64decode(first["data"]["key"])) >= 32


def test_an_identity_is_the_hash_of_the_keys_bytes() -> None:
    assert apiexports.identity_of(a_secret(), REFERENCE) == hashlib.sha256(KEY.encode()).hexdigest()


@pytest.mark.parametrize(
    ("secret", "text"),
    [(None, "not found"), ({}, "missing data.key"), (a_secret(""), "missing data.key"), ({"data": None}, "data.key")],
    ids=["missing", "no-data", "empty-key", "null-data"],
)
def test_a_secret_without_a_key_is_none(secret: Object | None, text: str) -> None:
    with pytest.raises(NoIdentity, match=text):
        apiexports.identity_of(secret, REFERENCE)


def test_the_first_key_gives_the_hash_and_no_later_one_changes_it() -> None:
    first = apiexports.with_verified_identity({}, a_secret(), REFERENCE, NOW)
    assert first["identityHash"] == hashlib.sha256(KEY.encode()).hexdigest()
    assert condition(first) == {"type": "IdentityValid", "status": "True", "lastTransitionTime": NOW}
    assert apiexports.with_verified_identity(first, a_secret(), REFERENCE, LATER) == first
    for broken in (a_secret("another"), a_secret(""), None):
        other = apiexports.with_verified_identity(first, broken, REFERENCE, LATER)
        assert other["identityHash"] == first["identityHash"]
        said = condition(other)
        assert (said["status"], said["reason"], said["severity"]) == ("False", "IdentityVerificationFailed", "Error")
        healed = apiexports.with_verified_identity(other, a_secret(), REFERENCE, LATER)
        assert condition(healed)["status"] == "True"


def test_no_word_about_a_secret_holds_its_key() -> None:
    told = apiexports.with_verified_identity({"identityHash": "0" * 64}, a_secret(), REFERENCE, NOW)
    assert "hash mismatch" in condition(told)["message"]
    assert KEY not in json.dumps(told)
    assert a_secret()["data"]["key"] not in json.dumps(told)


def test_a_secret_that_could_not_be_made_is_told_apart() -> None:
    said = condition(apiexports.with_generation_error({}, "the namespace is going", NOW))
    assert (said["reason"], said["message"]) == (
        "IdentityGenerationFailed",
        "Error creating identity secret: the namespace is going",
    )


def test_an_export_names_its_secret_or_gets_one_of_its_name() -> None:
    export = an_export()
    assert apiexports.secret_reference(export) is None
    named = apiexports.with_reference(export, apiexports.generated_reference(export))
    assert apiexports.secret_reference(named) == REFERENCE
    assert export["spec"] == {"resources": []}
    assert apiexports.secret_reference({"spec": {"identity": {"secretRef": {"name": "mine"}}}}) == ("", "mine")


def test_the_default_slice_is_the_exports_unless_it_is_annotated_not_to_have_one() -> None:
    made = apiexports.default_slice(an_export(**{"kcp.io/path": "root:provider"}))
    assert made is not None
    assert made["spec"] == {"export": {"path": "root:provider", "name": "shapes"}}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert apiexports.default_slice(an_export(**{apiexports.SKIP_SLICE: ""})) is None


def test_bindings_carry_exactly_the_exports_extra_annotations() -> None:
    extra = apiexports.extra_annotations(an_export(**{"extra.apis.kcp.io/a": "1", "other/x": "2"}))
    assert extra == {"extra.apis.kcp.io/a": "1"}
    binding = {"metadata": {"annotations": {"kcp.io/cluster": "c2", "extra.apis.kcp.io/old": "0"}}}
    changed = apiexports.with_extra_annotations(binding, extra)
    assert changed["metadata"]["annotations"] == {"kcp.io/cluster": "c2", **extra}
    assert apiexports.with_extra_annotations(changed, extra) is changed


def test_deprecated_urls_are_written_in_order_with_their_condition() -> None:
    status = apiexports.with_urls({}, ["https://a", "https://b"], NOW)
    assert status["virtualWorkspaces"] == [{"url": "https://a"}, {"url": "https://b"}]
    assert status["conditions"][0]["type"] == "VirtualWorkspaceURLsReady"


def test_of_a_bindings_bytes_only_its_export_is_read() -> None:
    spec = {"reference": {"export": {"path": "root:provider", "name": "shapes"}}, "permissionClaims": [{"x": 1}]}
    bound = {"spec": spec, "status": {"apiExportClusterName": "c1", "phase": "Bound"}}
    assert apiexports.bound_export(json.dumps(bound).encode(), "c9") == ("c1", "root:provider", "shapes")
    beside = {"spec": {"reference": {"export": {"name": "shapes"}}}}
    assert apiexports.bound_export(json.dumps(beside).encode(), "c9") == ("", "c9", "shapes")
    assert apiexports.may_have_extra(b'{"metadata":{"annotations":{"extra.apis.kcp.io/a":"b"}}}')
    assert not apiexports.may_have_extra(json.dumps(bound).encode())


def test_deprecated_urls_go_with_their_condition() -> None:
    status = apiexports.with_verified_identity({}, a_secret(), REFERENCE, NOW)
    assert apiexports.without_urls(apiexports.with_urls(status, ["https://a"], NOW)) == status
    assert apiexports.without_urls(status) is status
