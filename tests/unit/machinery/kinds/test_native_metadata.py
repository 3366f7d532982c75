"""The checks on metadata that all kinds share."""

import copy

import pytest

from atoll.machinery.kinds import registry
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.metadata import (
    dedupe_owner_references,
    finalizer_warnings,
    validate_metadata,
    validate_metadata_update,
)
from atoll.machinery.meta.objects import Object

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}
WIDGET = Kind(group="example.com", version="v1", kind="Widget", plural="widgets", singular="widget")


def kind_of(plural: str) -> Kind:
    return next(kind for kind in registry.NATIVE if kind.plural == plural)


CONFIGMAP = kind_of("configmaps")


def problems(kind: Kind = CONFIGMAP, **metadata: object) -> list[str]:
    base = {"name": "x", "namespace": "n"} if kind.namespaced else {"name": "x"}
    return [str(error) for error in validate_metadata({"metadata": {**base, **metadata}}, kind)]


def changes(old: Object, new: Object, kind: Kind = CONFIGMAP) -> list[str]:
    base = {"name": "x", "namespace": "n", "uid": "u"}
    before, after = {"metadata": {**base, **old}}, {"metadata": {**base, **new}}
    return [str(error) for error in validate_metadata_update(after, before, kind)]


def test_good_metadata_passes() -> None:
    assert (
        problems(
            labels={"a": "b", "example.com/c": ""},
            annotations={"Example.com/D": "anything\n"},
            finalizers=["e.io/f"],
            ownerReferences=[OWNER],
            managedFields=[{"operation": "Apply", "fieldsType": "FieldsV1", "manager": "m"}],
        )
        == []
    )


def test_a_name_is_needed() -> None:
    assert problems(name="") == ["metadata.name: Required value: name or generateName is required"]


def test_most_names_are_subdomains() -> None:
    assert problems(name="A_b") == [f'metadata.name: Invalid value: "A_b": {SUBDOMAIN}']


def test_namespaces_are_named_by_labels() -> None:
    assert problems(kind_of("namespaces"), name="a.b") == ['metadata.name: Invalid value: "a.b": must not contain dots']


def test_rbac_names_are_any_path_segment() -> None:
    assert problems(kind_of("clusterroles"), name="system:x:Y") == []
    assert problems(kind_of("clusterroles"), name="a/b") == [
        "metadata.name: Invalid value: \"a/b\": may not contain '/'"
    ]


def test_a_prefix_for_names_may_end_in_a_dash() -> None:
    assert problems(generateName="web-") == []
    assert problems(generateName="Web-") == [f'metadata.generateName: Invalid value: "Web-": {SUBDOMAIN}']


def test_a_namespaced_object_has_a_namespace_and_another_has_none() -> None:
    assert problems(namespace="") == ["metadata.namespace: Required value"]
    assert problems(namespace="a.b") == ['metadata.namespace: Invalid value: "a.b": must not contain dots']
    assert problems(kind_of("clusterroles"), namespace="n") == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_labels_have_keys_and_values_of_a_shape() -> None:
    first, second = problems(labels={"a b": "c d"})
    assert first.startswith('metadata.labels: Invalid value: "a b": name part must consist of alphanumeric')
    assert second.startswith('metadata.labels: Invalid value: "c d": a valid label must be an empty string or')


def test_annotations_are_bounded_together() -> None:
    assert problems(annotations={"a": "x" * 262_143}) == []
    assert problems(annotations={"a": "x" * 262_144}) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]
    assert problems(annotations={"a": "ä" * 131_072})


def test_annotation_keys_are_judged_without_case() -> None:
    assert problems(annotations={"Example.COM/A": ""}) == []
    assert "prefix part" in problems(annotations={"exa_mple/a": ""})[0]


def test_a_generation_is_not_negative() -> None:
    assert problems(generation=-1) == ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"apiVersion": ""}, '.apiVersion: Invalid value: "": version must not be empty'),
        ({"apiVersion": "g/"}, '.apiVersion: Invalid value: "g/": version must not be empty'),
        ({"kind": ""}, '.kind: Invalid value: "": must not be empty'),
        ({"name": ""}, '.name: Invalid value: "": must not be empty'),
        ({"uid": ""}, '.uid: Invalid value: "": must not be empty'),
    ],
)
def test_an_owner_is_named_in_full(change: Object, error: str) -> None:
    assert problems(ownerReferences=[{**OWNER, **change}]) == [f"metadata.ownerReferences{error}"]


def test_an_event_owns_nothing() -> None:
    (error,) = problems(ownerReferences=[{**OWNER, "kind": "Event"}])
    assert error.endswith(": /v1, Kind=Event is disallowed from being an owner")


def test_one_owner_at_most_is_the_controller() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "uid": "2", "controller": True}, {**OWNER, "uid": "3"}]
    (error,) = problems(ownerReferences=owners)
    assert error.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/o and ConfigMap/o'
    )
    assert problems(ownerReferences=owners[1:]) == []


def test_finalizers_of_built_in_kinds_carry_a_domain() -> None:
    assert problems(finalizers=["orphan"]) == problems(finalizers=["kubernetes"]) == []
    assert problems(finalizers=["mine"]) == [
        'metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully '
        "qualified"
    ]
    assert problems(WIDGET, finalizers=["mine"]) == []
    assert problems(kind_of("customresourcedefinitions"), finalizers=["mine"]) == []


def test_a_finalizer_is_a_qualified_name() -> None:
    (error,) = problems(WIDGET, finalizers=["a b"])
    assert error.startswith('metadata.finalizers: Invalid value: "a b": name part must consist')


def test_dependents_are_orphaned_or_awaited_never_both() -> None:
    (error,) = problems(finalizers=["orphan", "foregroundDeletion"])
    assert error.endswith("finalizer orphan and foregroundDeletion cannot be both set")


def test_managed_fields_are_of_the_one_known_format() -> None:
    assert problems(managedFields=[{"operation": "X", "fieldsType": "Y", "manager": "m" * 129}]) == [
        'metadata.managedFields[0].operation: Invalid value: "X": must be `Apply` or `Update`',
        'metadata.managedFields[0].fieldsType: Invalid value: "Y": must be `FieldsV1`',
        "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
    ]


@pytest.mark.parametrize(
    "field", ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
)
def test_an_update_keeps_what_the_server_set(field: str) -> None:
    assert changes({field: "a"}, {field: "b"}) == [f'metadata.{field}: Invalid value: "b": field is immutable']


def test_a_generation_never_goes_back() -> None:
    assert changes({"generation": 2}, {"generation": 1}) == [
        "metadata.generation: Invalid value: 1: must not be decremented"
    ]
    assert changes({"generation": 2}, {"generation": 3}) == []


def test_no_finalizer_comes_to_an_object_under_deletion() -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.io/a"]}
    assert changes(deleted, {**deleted, "finalizers": ["a.io/a", "x.io/c", "b.io/b"]}) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new "
        'finalizers []string{"b.io/b", "x.io/c"}'
    ]
    assert changes(deleted, {**deleted, "finalizers": []}) == []
    assert changes({}, {"finalizers": ["b.io/b"]}) == []


def test_an_update_judges_labels_like_a_create() -> None:
    assert changes({}, {"labels": {"a b": ""}})


def test_repeated_owner_references_are_removed_with_a_warning() -> None:
    obj: Object = {"metadata": {"ownerReferences": [OWNER, {**OWNER, "uid": "2"}, dict(OWNER)]}}
    assert dedupe_owner_references(obj) == [
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may "
        "reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1"
    ]
    assert obj["metadata"]["ownerReferences"] == [OWNER, {**OWNER, "uid": "2"}]
    unchanged = copy.deepcopy(obj)
    assert dedupe_owner_references(obj) == []
    assert obj == unchanged


def test_new_finalizers_of_custom_resources_without_a_domain_are_warned_of() -> None:
    obj: Object = {"metadata": {"finalizers": ["mine", "a.io/b", "orphan"]}}
    assert finalizer_warnings(obj, WIDGET) == [
        'metadata.finalizers: "mine": prefer a domain-qualified finalizer name including a path (/) to avoid '
        "accidental conflicts with other finalizer writers"
    ]
    assert finalizer_warnings(obj, WIDGET, obj) == finalizer_warnings(obj, CONFIGMAP) == []


@pytest.mark.parametrize("value", [5, "x", [1], {"a": 1}, None, True])
@pytest.mark.parametrize(
    "field",
    ["name", "generateName", "labels", "annotations", "ownerReferences", "finalizers", "managedFields", "generation"],
)
def test_wrong_types_are_left_to_the_schema(field: str, value: object) -> None:
    obj: Object = {"metadata": {"name": "x", "namespace": "n", field: value}}
    validate_metadata(obj, CONFIGMAP)
    validate_metadata_update(obj, obj, CONFIGMAP)
    dedupe_owner_references(obj)
    finalizer_warnings(obj, WIDGET)
