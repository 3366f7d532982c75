"""The CustomResourceDefinitions of kcp's kinds: structural, and with kcp's facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from atoll.machinery.process.resources import schema_path

FILES = sorted(schema_path("crds").glob("*.yaml"))
CRDS: dict[str, Any] = {path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in FILES}
JUNCTORS = ("allOf", "anyOf", "oneOf")
VALUE_KEYWORDS = {"properties", "items", "required", "enum", "pattern", "minItems", "minLength", "not", *JUNCTORS}

#: name of the file: kind, short names, versions (storage first), has status
KINDS = {
    "apis.kcp.io_apibindings": ("APIBinding", [], ["v1alpha2", "v1alpha1"], True),
    "apis.kcp.io_apiconversions": ("APIConversion", [], ["v1alpha1"], False),
    "apis.kcp.io_apiexportendpointslices": ("APIExportEndpointSlice", [], ["v1alpha1"], True),
    "apis.kcp.io_apiexports": ("APIExport", [], ["v1alpha2", "v1alpha1"], True),
    "apis.kcp.io_apiresourceschemas": ("APIResourceSchema", [], ["v1alpha1"], False),
    "cache.kcp.io_clustercachedresourceendpointslices": ("ClusterCachedResourceEndpointSlice", [], ["v1alpha1"], True),
    "cache.kcp.io_clustercachedresources": ("ClusterCachedResource", [], ["v1alpha1"], True),
    "core.kcp.io_logicalclusters": ("LogicalCluster", [], ["v1alpha1"], True),
    "core.kcp.io_shards": ("Shard", [], ["v1alpha1"], True),
    "tenancy.kcp.io_workspaceauthenticationconfigurations": (
        "WorkspaceAuthenticationConfiguration",
        [],
        ["v1alpha1"],
        False,
    ),
    "tenancy.kcp.io_workspaces": ("Workspace", ["ws"], ["v1alpha1"], True),
    "tenancy.kcp.io_workspacetypes": ("WorkspaceType", [], ["v1alpha1"], True),
    "topology.kcp.io_partitions": ("Partition", [], ["v1alpha1"], False),
    "topology.kcp.io_partitionsets": ("PartitionSet", [], ["v1alpha1"], True),
}

READY = '.status.conditions[?(@.type=="Ready")].status'
URLS_READY = '.status.conditions[?(@.type=="VirtualWorkspaceURLsReady")].status'
COLUMNS = {
    ("apis.kcp.io_apibindings", "v1alpha2"): {"Ready": READY},
    ("apis.kcp.io_apibindings", "v1alpha1"): {"Ready": READY},
    ("apis.kcp.io_apiexportendpointslices", "v1alpha1"): {
        "Export": ".spec.export.name",
        "Partition": ".spec.partition",
    },
    ("apis.kcp.io_apiexports", "v1alpha2"): {},
    ("apis.kcp.io_apiexports", "v1alpha1"): {"Ready": URLS_READY},
    ("cache.kcp.io_clustercachedresourceendpointslices", "v1alpha1"): {
        "ClusterCachedResource": ".spec.clusterCachedResource.name"
    },
    ("cache.kcp.io_clustercachedresources", "v1alpha1"): {"Resource": ".spec.resource"},
    ("core.kcp.io_logicalclusters", "v1alpha1"): {"Phase": ".status.phase", "URL": ".status.URL"},
    ("core.kcp.io_shards", "v1alpha1"): {
        "Region": ".metadata.labels['region']",
        "URL": ".spec.baseURL",
        "External URL": ".spec.externalURL",
    },
    ("tenancy.kcp.io_workspaces", "v1alpha1"): {
        "Type": ".spec.type.name",
        "Region": ".metadata.labels['region']",
        "Phase": ".status.phase",
        "URL": ".spec.URL",
    },
    ("topology.kcp.io_partitions", "v1alpha1"): {"Owner": ".metadata.ownerReferences[*].name"},
    ("topology.kcp.io_partitionsets", "v1alpha1"): {"Count": ".status.count"},
}

PHASES = ["Scheduling", "Initializing", "Ready", "Unavailable", "Inactive", "Terminating", "Deleting"]
PATH = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
TYPE_NAME = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
WORKSPACE, TYPE, CLUSTER = ("tenancy.kcp.io_workspaces", "tenancy.kcp.io_workspacetypes", "core.kcp.io_logicalclusters")
EXPORT, BINDING, SCHEMA = ("apis.kcp.io_apiexports", "apis.kcp.io_apibindings", "apis.kcp.io_apiresourceschemas")
KEYS, LIST = "x-kubernetes-list-map-keys", "x-kubernetes-list-type"

#: file, version, path ([] is an array's items), keyword, value
FACTS: list[tuple[str, str, str, str, object]] = [
    (WORKSPACE, "v1alpha1", "metadata.name", "maxLength", 63),
    (WORKSPACE, "v1alpha1", "spec", "default", {}),
    (WORKSPACE, "v1alpha1", "spec.type", "required", ["name"]),
    (WORKSPACE, "v1alpha1", "spec.type.name", "pattern", TYPE_NAME),
    (WORKSPACE, "v1alpha1", "spec.type.path", "pattern", PATH),
    (WORKSPACE, "v1alpha1", "spec.mount.ref", "required", ["apiVersion", "kind", "name"]),
    (WORKSPACE, "v1alpha1", "status", "default", {}),
    (WORKSPACE, "v1alpha1", "status.phase", "default", "Scheduling"),
    (WORKSPACE, "v1alpha1", "status.phase", "enum", PHASES),
    (TYPE, "v1alpha1", "metadata.name", "not", {"enum": ["any", "system"]}),
    (TYPE, "v1alpha1", "spec", "default", None),
    (TYPE, "v1alpha1", "spec.defaultChildWorkspaceType", "default", {"name": "universal", "path": "root"}),
    (TYPE, "v1alpha1", "spec.limitAllowedChildren", "oneOf", [{"required": ["none"]}, {"required": ["types"]}]),
    (TYPE, "v1alpha1", "spec.limitAllowedParents.types", "minItems", 1),
    (TYPE, "v1alpha1", "spec.defaultAPIBindings.[]", "required", ["export"]),
    (TYPE, "v1alpha1", "spec.defaultAPIBindingLifecycle", "enum", ["InitializeOnly", "Maintain"]),
    (TYPE, "v1alpha1", "status.virtualWorkspaces.[].type", "enum", ["initializing", "terminating"]),
    (TYPE, "v1alpha1", "status.virtualWorkspaces.[].url", "minLength", 1),
    (CLUSTER, "v1alpha1", "metadata.name", "enum", ["cluster"]),
    (CLUSTER, "v1alpha1", "spec", "default", {}),
    (CLUSTER, "v1alpha1", "spec.directlyDeletable", "default", False),
    (CLUSTER, "v1alpha1", "spec.owner", "required", ["apiVersion", "cluster", "name", "resource", "uid"]),
    (CLUSTER, "v1alpha1", "spec.owner.apiVersion", "pattern", "^([^/]+/)?[^/]+$"),
    (CLUSTER, "v1alpha1", "status.phase", "default", "Scheduling"),
    (CLUSTER, "v1alpha1", "status.phase", "enum", PHASES),
    ("core.kcp.io_shards", "v1alpha1", "spec", "required", ["baseURL"]),
    ("core.kcp.io_shards", "v1alpha1", "spec.baseURL", "format", "uri"),
    (SCHEMA, "v1alpha1", "spec", "required", ["group", "names", "scope", "versions"]),
    (SCHEMA, "v1alpha1", "spec.scope", "enum", ["Cluster", "Namespaced"]),
    (SCHEMA, "v1alpha1", "spec.versions", KEYS, ["name"]),
    (SCHEMA, "v1alpha1", "spec.versions", "minItems", 1),
    (SCHEMA, "v1alpha1", "spec.versions.[].name", "pattern", "^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$"),
    (SCHEMA, "v1alpha1", "spec.versions.[].served", "default", True),
    (SCHEMA, "v1alpha1", "spec.versions.[].schema", "x-kubernetes-preserve-unknown-fields", True),
    (SCHEMA, "v1alpha1", "spec.versions.[].schema", "x-kubernetes-map-type", "atomic"),
    (SCHEMA, "v1alpha1", "spec.versions.[].selectableFields", "maxItems", 8),
    (SCHEMA, "v1alpha1", "spec.nameValidation", "default", "DNS1123Subdomain"),
    (SCHEMA, "v1alpha1", "spec.conversion.strategy", "enum", ["None", "Webhook"]),
    ("apis.kcp.io_apiconversions", "v1alpha1", "spec.conversions", KEYS, ["from", "to"]),
    ("apis.kcp.io_apiconversions", "v1alpha1", "spec.conversions.[].rules", KEYS, ["destination"]),
    (EXPORT, "v1alpha2", "spec.resources", KEYS, ["name", "group"]),
    (EXPORT, "v1alpha2", "spec.resources.[].storage", "default", {"crd": {}}),
    (EXPORT, "v1alpha2", "spec.permissionClaims", KEYS, ["group", "resource"]),
    (EXPORT, "v1alpha2", "spec.permissionClaims.[]", "required", ["resource", "verbs"]),
    (EXPORT, "v1alpha2", "spec.permissionClaims.[].group", "default", ""),
    (EXPORT, "v1alpha2", "spec.permissionClaims.[].verbs", LIST, "set"),
    (EXPORT, "v1alpha2", "spec.permissionClaims.[].verbs", "minItems", 1),
    (EXPORT, "v1alpha2", "spec.maximalPermissionPolicy", "oneOf", [{"required": ["local"]}]),
    (EXPORT, "v1alpha1", "spec.latestResourceSchemas", LIST, "set"),
    (EXPORT, "v1alpha1", "spec.permissionClaims.[]", "required", ["resource"]),
    (BINDING, "v1alpha2", "spec.permissionClaims", KEYS, ["group", "resource", "identityHash"]),
    (BINDING, "v1alpha2", "spec.permissionClaims.[]", "required", ["resource", "selector", "state", "verbs"]),
    (BINDING, "v1alpha2", "spec.permissionClaims.[].state", "enum", ["Accepted", "Rejected"]),
    (BINDING, "v1alpha2", "spec.reference.export", "required", ["name"]),
    (BINDING, "v1alpha2", "spec.reference", "oneOf", None),
    (BINDING, "v1alpha2", "status.boundResources", KEYS, ["group", "resource"]),
    (BINDING, "v1alpha2", "status.boundResources.[].storageVersions", LIST, "set"),
    (BINDING, "v1alpha2", "status.phase", "enum", ["", "Binding", "Bound"]),
    (BINDING, "v1alpha2", "status.appliedPermissionClaims", KEYS, ["group", "resource", "identityHash"]),
    (BINDING, "v1alpha1", "spec.reference", "oneOf", [{"required": ["export"]}]),
    (BINDING, "v1alpha1", "spec.permissionClaims", LIST, None),
    ("apis.kcp.io_apiexportendpointslices", "v1alpha1", "status.endpoints", KEYS, ["url"]),
    ("topology.kcp.io_partitionsets", "v1alpha1", "spec.shardSelector.matchExpressions", "maxItems", 10),
    ("topology.kcp.io_partitionsets", "v1alpha1", "spec.shardSelector.matchLabels", "maxProperties", 10),
    ("cache.kcp.io_clustercachedresources", "v1alpha1", "status.phase", "default", "Initializing"),
    (
        "cache.kcp.io_clustercachedresources",
        "v1alpha1",
        "status.phase",
        "enum",
        ["Scheduling", "Initializing", "Ready", "Deleting", "Deleted"],
    ),
    (
        "cache.kcp.io_clustercachedresourceendpointslices",
        "v1alpha1",
        "spec",
        "required",
        ["clusterCachedResource", "export"],
    ),
]

#: file, version, path: messages of its CEL rules
RULES = {
    (WORKSPACE, "v1alpha1", "spec"): ["URL cannot be unset", "cluster cannot be unset"],
    (WORKSPACE, "v1alpha1", "spec.cluster"): ["cluster is immutable"],
    (WORKSPACE, "v1alpha1", "spec.type"): ["path is immutable"],
    (WORKSPACE, "v1alpha1", "spec.type.name"): ["name is immutable"],
    (WORKSPACE, "v1alpha1", "spec.type.path"): ["path is immutable"],
    (WORKSPACE, "v1alpha1", "spec.mount"): ["mount is immutable"],
    (SCHEMA, "v1alpha1", "spec"): ["Conversion must be specified when multiple versions exist"],
    (SCHEMA, "v1alpha1", "spec.conversion"): ["Webhook must be specified if strategy=Webhook"],
    (EXPORT, "v1alpha2", "spec.resources.[].storage"): ["Exactly one of crd or virtual must be set"],
    (EXPORT, "v1alpha1", "spec.permissionClaims.[]"): ['either "all" or "resourceSelector" must be set'],
    (BINDING, "v1alpha2", "spec.reference"): ["APIExport reference must not be changed"],
    (BINDING, "v1alpha1", "spec.reference"): ["APIExport reference must not be changed"],
    (BINDING, "v1alpha1", "spec.permissionClaims.[]"): ['either "all" or "resourceSelector" must be set'],
}


def version(name: str, wanted: str) -> Any:
    return next(each for each in CRDS[name]["spec"]["versions"] if each["name"] == wanted)


def at(name: str, wanted: str, path: str) -> Any:
    schema = version(name, wanted)["schema"]["openAPIV3Schema"]
    for part in path.split("."):
        schema = schema["items"] if part == "[]" else schema["properties"][part]
    return schema


def schemas() -> Iterator[tuple[str, Any]]:
    for name, crd in CRDS.items():
        for each in crd["spec"]["versions"]:
            yield from nodes(f"{name}/{each['name']}", each["schema"]["openAPIV3Schema"])


def nodes(path: str, schema: Any) -> Iterator[tuple[str, Any]]:
    yield path, schema
    for key, child in schema.get("properties", {}).items():
        yield from nodes(f"{path}.{key}", child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(f"{path}.{key}", schema[key])


def declares(schema: Any, validation: Any) -> bool:
    """Whether a value validation only speaks of what the schema declares, and says nothing of types."""
    if not set(validation) <= VALUE_KEYWORDS:
        return False
    parts = [part for junctor in JUNCTORS for part in validation.get(junctor, [])]
    parts += [validation["not"]] if "not" in validation else []
    return all(declares(schema, part) for part in parts) and all(
        key in schema["properties"] and declares(schema["properties"][key], part)
        for key, part in validation.get("properties", {}).items()
    )


def test_there_is_a_file_for_every_kind() -> None:
    assert set(CRDS) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_names_versions_and_status_are_kcps(name: str) -> None:
    kind, short_names, versions, has_status = KINDS[name]
    group, plural = name.split("_")
    crd = CRDS[name]
    assert (crd["apiVersion"], crd["kind"]) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert crd["metadata"] == {"name": f"{plural}.{group}"}
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == (group, "Cluster")
    names = crd["spec"]["names"]
    assert (names["kind"], names["plural"], names["singular"]) == (kind, plural, kind.lower())
    assert names["listKind"] == kind + "List"
    assert names.get("shortNames", []) == short_names
    assert names["categories"] == ["kcp"]
    found = crd["spec"]["versions"]
    assert [each["name"] for each in found] == versions
    assert [each["storage"] for each in found] == [True, False][: len(found)]
    assert all(each["served"] for each in found)
    assert all(each.get("subresources") == ({"status": {}} if has_status else None) for each in found)


@pytest.mark.parametrize("name", KINDS)
def test_columns_are_kcps(name: str) -> None:
    for each in CRDS[name]["spec"]["versions"]:
        columns = {column["name"]: column["jsonPath"] for column in each.get("additionalPrinterColumns", [])}
        expected = COLUMNS.get((name, each["name"]))
        if columns:
            assert columns.pop("Age") == ".metadata.creationTimestamp"
        assert (columns or None) == (expected or None)


@pytest.mark.parametrize(("name", "of", "path", "keyword", "value"), FACTS)
def test_facts_are_kcps(name: str, of: str, path: str, keyword: str, value: object) -> None:
    found = at(name, of, path)
    assert found.get(keyword) == value
    if keyword == KEYS:
        assert found[LIST] == "map"


@pytest.mark.parametrize(("where", "messages"), RULES.items())
def test_rules_say_what_kcps_say(where: tuple[str, str, str], messages: list[str]) -> None:
    rules = at(*where)["x-kubernetes-validations"]
    assert [rule["message"] for rule in rules] == messages


def test_every_node_has_a_type_and_every_array_its_items() -> None:
    for path, schema in schemas():
        if not schema.get("x-kubernetes-int-or-string"):
            assert schema.get("type"), path
        if schema.get("type") == "array":
            assert isinstance(schema["items"], dict), path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert set(schema.get("required", [])) <= set(schema.get("properties", {})), path


def test_junctors_speak_of_declared_fields_only() -> None:
    for path, schema in schemas():
        if schema.get("x-kubernetes-int-or-string"):
            continue
        parts = [part for junctor in JUNCTORS for part in schema.get(junctor, [])]
        parts += [schema["not"]] if "not" in schema else []
        assert all(declares(schema, part) for part in parts), path


def test_keys_of_list_maps_are_required_or_defaulted_scalars() -> None:
    for path, schema in schemas():
        for key in schema.get(KEYS, []):
            item = schema["items"]
            field = item["properties"][key]
            assert key in item["required"] or "default" in field, path
            assert field["type"] in ("string", "integer", "boolean"), path


def test_metadata_is_restricted_in_its_name_only() -> None:
    for name, crd in CRDS.items():
        for each in crd["spec"]["versions"]:
            metadata = each["schema"]["openAPIV3Schema"]["properties"]["metadata"]
            assert set(metadata) <= {"type", "properties"}, name
            assert set(metadata.get("properties", {})) <= {"name"}, name


def test_every_field_is_described_in_one_sentence() -> None:
    for path, schema in schemas():
        last = path.rpartition(".")[2]
        if last in ("items", "additionalProperties", "metadata", "name") and "description" not in schema:
            continue
        assert schema["description"].endswith("."), path
        assert "\n" not in schema["description"], path


def test_both_versions_of_a_kind_have_the_same_conditions() -> None:
    for path, schema in schemas():
        if path.endswith(".conditions"):
            item = schema["items"]
            assert item["required"] == ["lastTransitionTime", "status", "type"], path
            assert set(item["properties"]) == {
                "type",
                "status",
                "severity",
                "lastTransitionTime",
                "reason",
                "message",
            }, path
