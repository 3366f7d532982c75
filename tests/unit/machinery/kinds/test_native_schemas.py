"""The published schemas: complete, described, and with the markers that merging and apply rely on."""

from collections.abc import Iterator

import pytest

from atoll.machinery.kinds import native_schemas
from atoll.machinery.kinds.native_schemas import REF_PREFIX, component, definitions, drop_nulls
from atoll.machinery.meta.objects import Object

CORE, META = "io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
ADMISSION, RBAC = "io.k8s.api.admissionregistration.v1.", "io.k8s.api.rbac.v1."
CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
CSR = "io.k8s.api.certificates.v1."

# component, field: list type, list map keys, patch strategy, patch merge key
LISTS = [
    (META + "ObjectMeta", "ownerReferences", "map", ["uid"], "merge", "uid"),
    (META + "ObjectMeta", "finalizers", "set", None, "merge", None),
    (META + "ObjectMeta", "managedFields", "atomic", None, None, None),
    (META + "LabelSelector", "matchExpressions", "atomic", None, None, None),
    (CORE + "ServiceAccount", "secrets", "map", ["name"], "merge", "name"),
    (CORE + "ServiceAccount", "imagePullSecrets", "atomic", None, None, None),
    (CORE + "NamespaceStatus", "conditions", "map", ["type"], "merge", "type"),
    (CORE + "NamespaceSpec", "finalizers", "atomic", None, None, None),
    (ADMISSION + "MutatingWebhookConfiguration", "webhooks", "map", ["name"], "merge", "name"),
    (ADMISSION + "ValidatingWebhookConfiguration", "webhooks", "map", ["name"], "merge", "name"),
    (ADMISSION + "MutatingWebhook", "matchConditions", "map", ["name"], "merge", "name"),
    (ADMISSION + "ValidatingWebhook", "matchConditions", "map", ["name"], "merge", "name"),
    (ADMISSION + "MutatingWebhook", "rules", "atomic", None, None, None),
    (ADMISSION + "ValidatingWebhook", "rules", "atomic", None, None, None),
    (ADMISSION + "ValidatingAdmissionPolicySpec", "validations", "atomic", None, None, None),
    (ADMISSION + "ValidatingAdmissionPolicySpec", "variables", "map", ["name"], "merge", "name"),
    (ADMISSION + "ValidatingAdmissionPolicySpec", "matchConditions", "map", ["name"], "merge", "name"),
    (ADMISSION + "ValidatingAdmissionPolicyStatus", "conditions", "map", ["type"], None, None),
    (ADMISSION + "ValidatingAdmissionPolicyBindingSpec", "validationActions", "set", None, None, None),
    (ADMISSION + "MutatingAdmissionPolicySpec", "matchConditions", "map", ["name"], "merge", "name"),
    (ADMISSION + "MutatingAdmissionPolicySpec", "variables", "atomic", None, None, None),
    (ADMISSION + "MutatingAdmissionPolicySpec", "mutations", "atomic", None, None, None),
    (RBAC + "Role", "rules", "atomic", None, None, None),
    (RBAC + "ClusterRole", "rules", "atomic", None, None, None),
    (RBAC + "RoleBinding", "subjects", "atomic", None, None, None),
    (RBAC + "ClusterRoleBinding", "subjects", "atomic", None, None, None),
    (RBAC + "AggregationRule", "clusterRoleSelectors", "atomic", None, None, None),
    (RBAC + "PolicyRule", "verbs", "atomic", None, None, None),
    (CRD + "CustomResourceDefinitionStatus", "conditions", "map", ["type"], None, None),
    (CRD + "CustomResourceDefinitionStatus", "storedVersions", "atomic", None, None, None),
    (CRD + "CustomResourceDefinitionSpec", "versions", "atomic", None, None, None),
    (CRD + "JSONSchemaProps", "x-kubernetes-validations", "map", ["rule"], "merge", "rule"),
    (CSR + "CertificateSigningRequestStatus", "conditions", "map", ["type"], None, None),
]


@pytest.mark.parametrize(("name", "field", "type_", "keys", "strategy", "merge_key"), LISTS)
def test_lists_say_how_they_merge(
    name: str, field: str, type_: str, keys: list[str] | None, strategy: str | None, merge_key: str | None
) -> None:
    source = component(name)["properties"][field]
    assert source["type"] == "array"
    assert source["x-kubernetes-list-type"] == type_
    assert source.get("x-kubernetes-list-map-keys") == keys
    assert source.get("x-kubernetes-patch-strategy") == strategy
    assert source.get("x-kubernetes-patch-merge-key") == merge_key


@pytest.mark.parametrize(
    "name", [META + "LabelSelector", CORE + "ObjectReference", CORE + "LocalObjectReference", RBAC + "RoleRef"]
)
def test_references_and_selectors_merge_as_a_whole(name: str) -> None:
    assert component(name)["x-kubernetes-map-type"] == "atomic"


@pytest.mark.parametrize(("name", "field"), [("ConfigMap", "data"), ("ConfigMap", "binaryData"), ("Secret", "data")])
def test_data_merges_key_by_key(name: str, field: str) -> None:
    source = component(CORE + name)["properties"][field]
    assert source["additionalProperties"]["type"] == "string"
    assert "x-kubernetes-map-type" not in source


def walk(source: object) -> Iterator[Object]:
    if isinstance(source, dict):
        yield source
        for value in source.values():
            yield from walk(value)
    elif isinstance(source, list):
        for value in source:
            yield from walk(value)


def components() -> dict[str, Object]:
    found = {name: component(name) for name in sorted(definitions())}
    assert len(found) > 100
    return found


def test_components_and_all_their_fields_are_described_in_a_sentence() -> None:
    wrong = []
    for name, source in components().items():
        fields = source.get("properties", {})
        texts = {"": source["description"], **{field: each["description"] for field, each in fields.items()}}
        wrong += [(name, field) for field, text in texts.items() if not text.endswith(".") or len(text) >= 130]
    assert wrong == []


def test_references_name_components() -> None:
    wrong = [
        (name, reference)
        for name, source in components().items()
        for node in walk(source)
        if isinstance(reference := node.get("$ref"), str)
        and not (reference.startswith(REF_PREFIX) and reference.removeprefix(REF_PREFIX) in definitions())
    ]
    assert wrong == []


def test_required_fields_are_declared() -> None:
    undeclared = {
        name: set(source.get("required", ())) - set(source.get("properties", {}))
        for name, source in components().items()
    }
    assert {name: fields for name, fields in undeclared.items() if fields} == {}


@pytest.mark.parametrize("name", ["Status", "DeleteOptions", "ListMeta", "WatchEvent", "APIResourceList", "Patch"])
def test_what_every_api_speaks_has_a_component(name: str) -> None:
    assert component(META + name)["type"] == "object"


def test_an_unknown_component_is_an_error() -> None:
    with pytest.raises(KeyError):
        component("io.k8s.api.core.v1.Pod")


def test_components_are_read_once_and_cannot_be_replaced() -> None:
    assert definitions() is native_schemas.definitions()
    with pytest.raises(TypeError):
        definitions()["x"] = {}  # type: ignore[index]


def test_nulls_are_dropped_at_every_depth() -> None:
    obj: Object = {"a": None, "b": {"c": None, "d": [{"e": None, "f": 1}, None]}}
    drop_nulls(obj)
    assert obj == {"b": {"d": [{"f": 1}, None]}}


def test_nulls_stay_in_fields_that_hold_any_json() -> None:
    obj: Object = {
        "default": {"a": None},
        "enum": [None],
        "example": None,
        "properties": {"default": {"type": None, "enum": [{"x": None}]}},
    }
    drop_nulls(obj, ("default", "enum", "example"))
    assert obj == {"default": {"a": None}, "enum": [None], "properties": {"default": {"enum": [{"x": None}]}}}


def test_a_very_deep_object_is_walked_without_recursion() -> None:
    obj: Object = {}
    for _ in range(20_000):
        obj = {"a": obj, "b": None}
    drop_nulls(obj)
    assert set(obj) == {"a"}
    while obj:
        obj = obj.get("a", {})
