"""CustomResourceDefinitions as objects; their schemas are tested with `schema.crd`."""

import copy

import pytest

from atoll.machinery.kinds.apiextensions.customresourcedefinitions import CUSTOMRESOURCEDEFINITIONS as CRDS
from atoll.machinery.meta.objects import Object
from harness.models.native_write import NOW, accepted, create, refused, sample, update

SCHEMA: Object = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}


def crd(**spec: object) -> Object:
    obj = sample(
        CRDS,
        spec={
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
            **spec,
        },
    )
    obj["metadata"]["name"] = "widgets.example.com"
    return obj


def test_a_definition_gets_names_a_conversion_and_its_stored_version() -> None:
    stored = accepted(CRDS, crd())
    assert stored["spec"]["names"] == {
        "plural": "widgets",
        "kind": "Widget",
        "singular": "widget",
        "listKind": "WidgetList",
    }
    assert stored["spec"]["conversion"] == {"strategy": "None"}
    assert stored["status"] == {"storedVersions": ["v1"]}
    assert CRDS.cells is not None
    assert CRDS.cells(stored, 0) == ["widgets.example.com", NOW]


def test_what_go_clients_send_for_nothing_is_nothing() -> None:
    obj = crd(
        versions=[
            {"name": "v1", "served": True, "storage": True, "schema": SCHEMA, "additionalPrinterColumns": None},
            {"name": "v0", "schema": SCHEMA},
        ]
    )
    stored = accepted(CRDS, obj)
    assert stored["spec"]["versions"][1] == {"name": "v0", "served": False, "storage": False, "schema": SCHEMA}
    assert "additionalPrinterColumns" not in stored["spec"]["versions"][0]


def test_nulls_inside_defaults_and_enums_of_a_schema_stay() -> None:
    properties = {"a": {"type": "string", "nullable": True, "enum": ["x", None], "description": None}}
    versions = crd()["spec"]["versions"]
    versions[0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    }
    stored, _ = create(CRDS, crd(versions=versions))
    field = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"]
    assert field == {"type": "string", "nullable": True, "enum": ["x", None]}


def test_a_definition_is_named_after_what_it_defines() -> None:
    obj = crd()
    obj["metadata"]["name"] = "other.example.com"
    assert any(error.startswith("metadata.name: Invalid value") for error in refused(CRDS, obj))


def test_a_definition_of_a_wrong_shape_is_refused() -> None:
    assert refused(CRDS, crd(versions="v1"))
    assert refused(CRDS, sample(CRDS, spec=5))
    assert refused(CRDS, sample(CRDS, status=5))


def test_a_new_storage_version_joins_the_stored_ones() -> None:
    old = accepted(CRDS, crd())
    before = copy.deepcopy(old)
    new = crd(
        versions=[
            {"name": "v1", "served": True, "storage": False, "schema": SCHEMA},
            {"name": "v2", "served": True, "storage": True, "schema": SCHEMA},
        ]
    )
    stored, errors = update(CRDS, {**new, "status": old["status"]}, old)
    assert errors == []
    assert stored["status"]["storedVersions"] == ["v1", "v2"]
    CRDS.prepare_update({**new, "status": old["status"]}, old)
    assert old == before


def test_the_scope_of_a_definition_that_is_served_never_changes() -> None:
    old = accepted(CRDS, crd())
    old["status"]["conditions"] = [{"type": "Established", "status": "True", "lastTransitionTime": NOW}]
    _, errors = update(CRDS, {**crd(scope="Cluster"), "status": old["status"]}, old)
    assert any(error.startswith("spec.scope: ") for error in errors)


def test_the_deletion_of_a_definition_waits_for_its_instances() -> None:
    obj = accepted(CRDS, crd())
    assert CRDS.held(obj)
    obj["metadata"]["deletionTimestamp"] = NOW
    CRDS.begin_deletion(obj)
    assert not CRDS.held(obj)
    assert obj["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert obj["status"]["conditions"] == [
        {
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "lastTransitionTime": NOW,
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }
    ]
    CRDS.begin_deletion(obj)
    assert len(obj["metadata"]["finalizers"]) == len(obj["status"]["conditions"]) == 1


@pytest.mark.parametrize("status", [None, {}, {"acceptedNames": {"plural": "widgets", "kind": "Widget"}}])
def test_a_status_is_judged_by_itself(status: Object | None) -> None:
    assert CRDS.validate_status({**crd(), "status": status}, crd()) == []
