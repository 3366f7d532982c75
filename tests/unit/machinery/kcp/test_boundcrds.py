"""Bound CRDs made of APIResourceSchemas, and what is remembered on them."""

from __future__ import annotations

from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kcp.apis.bound_crds import (
    RequiredCrd,
    bound_crd,
    exports_of,
    required_crds,
    with_collection_mark,
    with_export,
)
from atoll.machinery.kcp.apis.naming_conflicts import Holder, Names, conflict, names_of
from atoll.machinery.kinds.custom import kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object
from harness.clients.api import crd
from harness.clients.exports import schema_of

NOW = "2026-01-01T00:00:00Z"


def schema(**changes: object) -> Object:
    made = schema_of(crd("circles", "shapes.example.com"))
    made["metadata"]["uid"] = "u1"
    made["spec"] |= changes
    return made


def test_it_serves_what_the_schema_says() -> None:
    made = schema()
    crd_, identity = bound_crd(made, "provider", "shapes", NOW), "i" * 64
    (bound,), (offered,) = kinds_of_crd(crd_, identity), kinds_of_resource_schema(made, identity)
    for field in ("group", "version", "kind", "plural", "list_kind", "scale", "subresources", "storage_version"):
        assert getattr(bound, field) == getattr(offered, field)
    assert bound.schema is not None
    assert offered.schema is not None
    assert bound.schema.source == offered.schema.source


def test_names_that_fit_in_a_url_are_told_by_an_annotation() -> None:
    rules = "DNS1123Subdomain", "PathSegmentName"
    plain, open_ = (bound_crd(schema(nameValidation=each), "p", "e", NOW) for each in rules)
    assert wellknown.VALIDATE_NAME not in plain["metadata"]["annotations"]
    assert open_["metadata"]["annotations"][wellknown.VALIDATE_NAME] == "path-segment"
    assert [kinds_of_crd(each, "i")[0].name_rule for each in (plain, open_)] == ["subdomain", "path-segment"]


def test_approval_and_conversion_are_copied() -> None:
    client = {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}
    webhook = {"strategy": "Webhook", "webhook": client}
    made = schema(conversion=webhook)
    made["metadata"]["annotations"] = {wellknown.API_APPROVED: "https://example.com", "other": "no"}
    found = bound_crd(made, "provider", "shapes", NOW)
    assert found["spec"]["conversion"] == webhook
    assert found["metadata"]["annotations"] == {
        "apis.kcp.io/bound-crd": "",
        "apis.kcp.io/schema-cluster": "provider",
        "apis.kcp.io/schema-name": made["metadata"]["name"],
        bound_crds.EXPORTS: "shapes",
        wellknown.API_APPROVED: "https://example.com",
    }
    assert bound_crd(schema(), "p", "e", NOW)["spec"]["conversion"] == {"strategy": "None"}


def test_versions_are_served_unless_they_say_no() -> None:
    made = schema()
    first = made["spec"]["versions"][0]
    first.pop("served", None)
    made["spec"]["versions"].append({**first, "name": "v2", "storage": False, "served": False})
    found = bound_crd(made, "p", "e", NOW)
    assert [each["served"] for each in found["spec"]["versions"]] == [True, False]
    assert found["status"]["storedVersions"] == ["v1"]


def test_exports_are_remembered_once_and_a_mark_goes_with_the_next_binding() -> None:
    made = bound_crd(schema(), "p", "one", NOW)
    marked = with_collection_mark(with_export(made, "two"))
    assert bound_crds.COLLECTED in marked["metadata"]["annotations"]
    assert exports_of(marked) == ["one", "two"]
    kept = with_export(marked, "one")
    assert exports_of(kept) == ["one", "two"]
    assert bound_crds.COLLECTED not in kept["metadata"]["annotations"]


def test_a_binding_needs_what_its_status_names() -> None:
    item = {"group": "g", "resource": "r", "schema": {"name": "s", "UID": "u", "identityHash": "i"}}
    reference = {"reference": {"export": {"name": "shapes"}}}
    obj: Object = {"spec": reference, "status": {"apiExportClusterName": "p", "boundResources": [item]}}
    assert list(required_crds(obj)) == [RequiredCrd("p", "shapes", "s", "u")]
    assert list(required_crds({"spec": reference})) == []


def test_names_meet_within_a_group_only() -> None:
    mine = names_of({"plural": "circles", "kind": "Circle"})
    assert mine == Names("circles", "circle", (), "Circle", "CircleList")
    holder = Holder("X", "one", names_of({"plural": "discs", "kind": "Circle", "singular": "disc"}))
    assert conflict("one", mine, [holder]) == "naming conflict with X: spec.names.kind=Circle is forbidden"
    assert conflict("two", mine, [holder]) == ""
