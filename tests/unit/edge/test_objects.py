"""The objects of the edge service: its kinds with their columns, and what is put back."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.edge.install import with_wanted
from atoll.edge.objects import EXPORTS, ROLES, SCHEMAS, service, steps
from atoll.machinery.meta.objects import Object

OBJECTS = [each for step in steps() for each in step]
SPECS: dict[str, Any] = {
    each.object["spec"]["names"]["plural"]: each.object["spec"]
    for step in steps()
    for each in step
    if each.resource == SCHEMAS
}

READY = '.status.conditions[?(@.type=="Ready")].status'
#: plural: kind, short name, scope, whether it has a status, columns with their priority
KINDS: dict[str, tuple[str, str, str, bool, dict[str, tuple[str, int]]]] = {
    "edgeplacements": (
        "EdgePlacement",
        "epl",
        "Cluster",
        True,
        {
            "Locations": (".status.matchingLocationCount", 0),
            "Objects": (".status.objectCount", 0),
            "Destinations": (".status.destinations.total", 0),
            "Up-To-Date": (".status.destinations.upToDate", 0),
            "Failing": (".status.destinations.failing", 0),
            "Age": (".metadata.creationTimestamp", 0),
        },
    ),
    "singleplacementslices": ("SinglePlacementSlice", "sps", "Cluster", False, {}),
    "syncerconfigs": ("SyncerConfig", "escfg", "Cluster", True, {}),
    "edgesyncconfigs": ("EdgeSyncConfig", "esc", "Cluster", True, {}),
    "customizers": ("Customizer", "", "Namespaced", False, {}),
    "synctargets": (
        "SyncTarget",
        "",
        "Cluster",
        True,
        {
            "Location": (".metadata.name", 1),
            "Ready": (READY, 2),
            "Synced API resources": (".status.syncedResources", 3),
            "Key": (r".metadata.labels['internal\.workload\.kcp\.dev/key']", 4),
            "Age": (".metadata.creationTimestamp", 0),
        },
    ),
    "locations": (
        "Location",
        "",
        "Cluster",
        True,
        {
            "Resource": (".spec.resource.resource", 0),
            "Available": (".status.availableInstances", 0),
            "Instances": (".status.instances", 0),
            "Labels": (r".metadata.annotations['scheduling\.kcp\.dev/labels']", 0),
            "Age": (".metadata.creationTimestamp", 0),
        },
    ),
    "statuscollectors": ("StatusCollector", "sc", "Cluster", True, {"Age": (".metadata.creationTimestamp", 0)}),
    "statussummaries": (
        "StatusSummary",
        "stsum",
        "Namespaced",
        False,
        {
            "Object": (".subject", 0),
            "Destinations": (".counts.destinations", 0),
            "Up-To-Date": (".counts.upToDate", 0),
            "Broken": (".counts.broken", 0),
            "Age": (".metadata.creationTimestamp", 0),
        },
    ),
    "associatedstates": (
        "AssociatedState",
        "asst",
        "Namespaced",
        False,
        {
            "Resource": (".subject.resource", 0),
            "Object": (".subject.name", 0),
            "Associated": (".total", 0),
            "Broken": (".broken", 0),
            "Age": (".metadata.creationTimestamp", 0),
        },
    ),
}


def test_the_export_offers_every_kind_by_a_schema_that_is_written_before() -> None:
    written = [each.object["metadata"]["name"] for each in OBJECTS if each.resource == SCHEMAS]
    (export,) = [each.object for each in OBJECTS if each.resource == EXPORTS]
    assert [each["schema"] for each in export["spec"]["resources"]] == written
    assert [each["name"] for each in export["spec"]["resources"]] == list(KINDS) == list(service().kinds)


@pytest.mark.parametrize("plural", KINDS)
def test_names_status_and_columns_are_kubestellars(plural: str) -> None:
    kind, short, scope, has_status, columns = KINDS[plural]
    spec = SPECS[plural]
    names, (version,) = spec["names"], spec["versions"]
    assert (names["kind"], names.get("shortNames", [""])[0], spec["scope"]) == (kind, short, scope)
    assert (version["name"], version.get("subresources")) == ("v2alpha1", {"status": {}} if has_status else None)
    found = version.get("additionalPrinterColumns", [])
    assert {each["name"]: (each["jsonPath"], each.get("priority", 0)) for each in found} == columns


def test_every_field_has_a_description() -> None:
    def missing(path: str, schema: Object) -> list[str]:
        below = [missing(f"{path}.{name}", each) for name, each in schema.get("properties", {}).items()]
        items = schema.get("items")
        below += [missing(f"{path}[]", items)] if isinstance(items, dict) and "properties" in items else []
        bare = [path] if "description" not in schema and not path.endswith(".metadata") else []
        return bare + [name for names in below for name in names]

    for plural, spec in SPECS.items():
        assert missing(plural, spec["versions"][0]["schema"]) == []


def test_no_account_may_do_everything() -> None:
    for each in OBJECTS:
        if each.resource == ROLES:
            assert not any("*" in rule[field] for rule in each.object["rules"] for field in ("verbs", "resources"))


def test_what_differs_is_put_back_and_what_others_added_stays() -> None:
    wanted = {"metadata": {"name": "a"}, "spec": {"resources": [1]}}
    stored = {
        "metadata": {"name": "a", "labels": {"team": "x"}, "uid": "u"},
        "spec": {"resources": [2], "permissionClaims": [3], "identity": {"secretRef": {}}},
        "status": {"identityHash": "h"},
    }
    assert with_wanted(stored, wanted) == {
        "metadata": stored["metadata"],
        "spec": {"resources": [1], "identity": {"secretRef": {}}},
        "status": {"identityHash": "h"},
    }
