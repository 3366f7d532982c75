"""What resolution, case by case: categories, system objects, definers, and changes that take effect."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.edge import categories
from atoll.machinery.edge.categories import BuiltIns, category_of
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import Placement, placement_of, upsync_set
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.edge.what import NONE, Selection, definers, is_copied, selection

BUILT_INS = BuiltIns(edge_resources=frozenset({"builtins.x.dev"}), mailbox_resources=frozenset({"held.x.dev"}))


def placement(*tests: dict[str, Any], **spec: object) -> Placement:
    return placement_of({"metadata": {"name": "p"}, "spec": {"downsync": list(tests), **spec}})


def named(name: str, **fields: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


CONFIG_MAP = ObjectRef("", "configmaps", "a", "x")
EVERYTHING = placement({"apiGroup": ""}, {"apiGroup": "apiextensions.k8s.io"}, {"apiGroup": "apis.kcp.io"})


@pytest.mark.parametrize(
    ("group", "resource", "category"),
    [
        ("rbac.authorization.k8s.io", "clusterrolebindings", categories.DENATURED),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies", categories.DENATURED),
        ("flowcontrol.apiserver.k8s.io", "flowschemas", categories.DENATURED),
        ("apiregistration.k8s.io", "apiservices", categories.DENATURED),
        ("", "serviceaccounts", categories.DENATURED),
        ("", "namespaces", categories.DEFINITION),
        ("apiextensions.k8s.io", "customresourcedefinitions", categories.DEFINITION),
        ("apis.kcp.io", "apibindings", categories.MAILBOX),
        ("apis.kcp.io", "apiconversions", categories.REFUSED),
        ("apis.kcp.io", "apiexports", categories.CENTER),
        ("core.kcp.io", "logicalclusters", categories.CENTER),
        ("tenancy.kcp.io", "workspaceauthenticationconfigurations", categories.CENTER),
        ("cache.kcp.io", "clustercachedresources", categories.CENTER),
        ("coordination.k8s.io", "leases", categories.CENTER),
        ("events.k8s.io", "events", categories.CENTER),
        ("", "nodes", categories.CENTER),
        ("authentication.k8s.io", "selfsubjectreviews", categories.CENTER),
        ("edge.kubestellar.io", "customizers", categories.CONTROL),
        ("discovery.k8s.io", "endpointslices", categories.WORKLOAD),
        ("certificates.k8s.io", "clustertrustbundles", categories.WORKLOAD),
        ("apps", "deployments", categories.WORKLOAD),
        ("example.kcp.io", "sprockets", categories.WORKLOAD),
    ],
)
def test_each_kind_has_the_category_of_its_table(group: str, resource: str, category: str) -> None:
    assert category_of(group, resource) == category


def test_categories_decide_how_far_a_kind_goes() -> None:
    rows = {
        categories.WORKLOAD: ("apps", "deployments"),
        categories.DENATURED: ("", "limitranges"),
        categories.DEFINITION: ("", "namespaces"),
        categories.MAILBOX: ("apis.kcp.io", "apibindings"),
        categories.REFUSED: ("apis.kcp.io", "apiconversions"),
        categories.CENTER: ("", "events"),
        categories.CONTROL: ("edge.kubestellar.io", "locations"),
    }

    def those(holds: Any) -> set[str]:
        return {name for name, kind in rows.items() if holds(*kind)}

    full = {categories.WORKLOAD, categories.DENATURED}
    assert those(categories.goes_to_mailbox) == full | {categories.DEFINITION, categories.MAILBOX}
    assert those(categories.goes_to_edge) == full | {categories.DEFINITION}
    assert those(categories.comes_up) == those(categories.returns_status) == full
    assert those(categories.is_in_edge_view) == set(rows) - {categories.REFUSED, categories.CENTER}


SYSTEM = [
    (ObjectRef("", "secrets", "a", "t"), {"type": "kubernetes.io/service-account-token"}),
    (ObjectRef("", "secrets", "kube-system", "t"), {"type": "bootstrap.kubernetes.io/token"}),
    (ObjectRef("", "configmaps", "a", "kube-root-ca.crt"), {}),
    (ObjectRef("", "serviceaccounts", "a", "default"), {}),
    (ObjectRef("", "services", "default", "kubernetes"), {}),
    (ObjectRef("", "endpoints", "default", "kubernetes"), {}),
    (ObjectRef("discovery.k8s.io", "endpointslices", "default", "kubernetes"), {}),
    (ObjectRef("networking.k8s.io", "servicecidrs", "", "kubernetes"), {}),
    (ObjectRef("flowcontrol.apiserver.k8s.io", "flowschemas", "", "catch-all"), {}),
    (ObjectRef("scheduling.k8s.io", "priorityclasses", "", "system-node-critical"), {}),
    (ObjectRef("", "configmaps", "kubestellar-report", "x"), {}),
    (ObjectRef("", "namespaces", "", "kubestellar-report"), {}),
]
MARKED = [
    (ObjectRef("networking.k8s.io", "ipaddresses", "", "10.0.0.1"), "labels", "ipaddress.kubernetes.io/managed-by"),
    (ObjectRef("rbac.authorization.k8s.io", "clusterroles", "", "admin"), "labels", "kubernetes.io/bootstrapping"),
    (
        ObjectRef("apiregistration.k8s.io", "apiservices", "", "v1."),
        "labels",
        "kube-aggregator.kubernetes.io/automanaged",
    ),
    (
        ObjectRef("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "workload-low"),
        "annotations",
        "apf.kubernetes.io/autoupdate-spec",
    ),
]
VALUES = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "kubernetes.io/bootstrapping": "rbac-defaults"}


@pytest.mark.parametrize(("ref", "fields"), SYSTEM)
def test_system_objects_are_told_by_name_and_others_of_their_kinds_are_copied(
    ref: ObjectRef, fields: dict[str, Any]
) -> None:
    assert is_system_object(ref, named(ref.name, **fields))
    other = ObjectRef(ref.group, ref.resource, "mine" if ref.namespace else "", "mine")
    assert not is_system_object(other, named("mine", type="Opaque"))


@pytest.mark.parametrize(("ref", "field", "key"), MARKED)
def test_system_objects_are_told_by_the_mark_of_their_maker(ref: ObjectRef, field: str, key: str) -> None:
    assert is_system_object(ref, {"metadata": {"name": ref.name, field: {key: VALUES.get(key, "true")}}})
    assert not is_system_object(ref, {"metadata": {"name": ref.name, field: {"other": "true"}}})


def test_what_is_being_deleted_built_in_or_a_system_object_is_not_copied() -> None:
    assert selection([EVERYTHING], CONFIG_MAP, named("x"), None, BUILT_INS) == Selection(("p",))
    going = {"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert selection([EVERYTHING], CONFIG_MAP, going, None, BUILT_INS) == NONE
    assert not is_copied(ObjectRef("", "namespaces", "", "default"), named("default"), BUILT_INS)
    assert is_copied(ObjectRef("", "namespaces", "", "mine"), named("mine"), BUILT_INS)
    ca = ObjectRef("", "configmaps", "a", "kube-root-ca.crt")
    assert selection([EVERYTHING], ca, named(ca.name), None, BUILT_INS) == NONE


def test_a_namespaces_labels_decide_once_it_is_there() -> None:
    by_label = placement({"apiGroup": "", "namespaceSelectors": [{"matchLabels": {"common": "yes"}}]})
    labelled = {"metadata": {"name": "a", "labels": {"common": "yes"}}}
    assert selection([by_label], CONFIG_MAP, named("x"), labelled, BUILT_INS) == Selection(("p",))
    assert selection([by_label], CONFIG_MAP, named("x"), named("a"), BUILT_INS) == NONE
    everywhere = placement({"apiGroup": "", "namespaceSelectors": [{}]})
    assert selection([everywhere], CONFIG_MAP, named("x"), None, BUILT_INS) == NONE
    volume = ObjectRef("", "persistentvolumes", "", "v")
    assert selection([everywhere], volume, named("v"), None, BUILT_INS) == Selection(("p",))
    assert selection([by_label], volume, named("v"), labelled, BUILT_INS) == NONE


def test_a_change_of_upsync_or_of_the_singleton_wish_alone_changes_the_selection() -> None:
    test = {"apiGroup": "", "resources": ["configmaps"]}
    up = [{"apiGroup": "", "resources": ["configmaps"], "namespaces": ["a"], "names": ["x"]}]
    results = [
        selection([each], CONFIG_MAP, named("x"), None, BUILT_INS)
        for each in (placement(test), placement(test, upsync=up), placement(test, wantSingletonReportedState=True))
    ]
    assert results == [Selection(("p",)), NONE, Selection(("p",), True)]


def test_sets_of_objects_that_come_up_are_equal_whatever_their_order() -> None:
    one = {"apiGroup": "g", "resources": ["b", "a"], "namespaces": ["n"], "names": ["*"]}
    other = {"apiGroup": "g", "resources": ["a", "b", "a"], "namespaces": ["n"], "names": ["*"]}
    assert upsync_set(one) == upsync_set(other)
    assert upsync_set(one).as_object() == {**one, "resources": ["a", "b"]}


ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


def definition(resource: str, **status: object) -> dict[str, Any]:
    return named(f"{resource}.x.dev", spec={"group": "x.dev", "names": {"plural": resource}}, status=status)


def binding(name: str, *resources: str, export: str = "x", phase: str = "Bound") -> dict[str, Any]:
    rows = [{"group": "x.dev", "resource": each} for each in resources]
    spec = {"reference": {"export": {"path": "root", "name": export}}}
    return named(name, spec=spec, status={"phase": phase, "boundResources": rows})


SELECTED = {("x.dev", each): Selection(("p", "q"), True) for each in ("cogs", "builtins", "held")}


def test_definers_of_selected_kinds_go_along_once_they_are_established() -> None:
    established = definition("cogs", **ESTABLISHED)
    expected = {ObjectRef("apiextensions.k8s.io", "customresourcedefinitions", "", "cogs.x.dev"): Selection(("p", "q"))}
    assert definers(SELECTED, [established, definition("others", **ESTABLISHED)], [], BUILT_INS) == expected
    assert definers(SELECTED, [definition("cogs")], [], BUILT_INS) == {}
    found = definers(SELECTED, [], [binding("b", "cogs", "others"), binding("c", "cogs", phase="Binding")], BUILT_INS)
    assert found == {ObjectRef("apis.kcp.io", "apibindings", "", "b"): Selection(("p", "q"))}


def test_definers_that_the_edge_or_the_mailbox_has_anyway_stay() -> None:
    edge = binding("espw", "cogs", export="edge.kubestellar.io")
    crds = [definition(each, **ESTABLISHED) for each in ("builtins", "held")]
    everything = placement({"apiGroup": "apiextensions.k8s.io"})
    for each in crds:
        ref = ObjectRef("apiextensions.k8s.io", "customresourcedefinitions", "", each["metadata"]["name"])
        assert selection([everything], ref, each, None, BUILT_INS) == NONE, "not even where it is selected itself"
    assert definers(SELECTED, crds, [edge, binding("h", "held")], BUILT_INS) == {}
    limits = {("", "limitranges"): Selection(("p",))}
    bound = named("k", spec={}, status={"phase": "Bound", "boundResources": [{"group": "", "resource": "limitranges"}]})
    assert definers(limits, [], [bound], BUILT_INS) == {}


def test_bindings_to_an_export_that_every_mailbox_binds_stay_however_its_workspace_is_named() -> None:
    ref = ObjectRef("apis.kcp.io", "apibindings", "", "b")
    built_ins = BuiltIns(mailbox_exports=frozenset({("root:x", "gauges"), ("1abc", "meters")}))

    def goes(path: str, name: str, cluster: str = "") -> bool:
        reference = {"export": {"path": path, "name": name}}
        obj = named("b", spec={"reference": reference}, status={"apiExportClusterName": cluster})
        return is_copied(ref, obj, built_ins)

    assert not goes("root:x", "gauges")
    assert not goes("root:y", "meters", "1abc")
    assert goes("root:y", "gauges")
    assert goes("root:x", "meters", "2abc")
