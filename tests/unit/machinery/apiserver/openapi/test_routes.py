from __future__ import annotations

import pytest

from atoll.machinery.apiserver.openapi import routes, v2, v3
from atoll.machinery.apiserver.openapi.routes import OperationRoute, id_part
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import native_kind
from harness.data.openapi import definition, structure

_SUBRESOURCES = {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}


def _native(group: str, plural: str) -> list[OperationRoute]:
    kind = native_kind(group, plural)
    assert kind is not None
    return list(routes.of_kind(kind, kind.schema_name, kind.schema_name + "List"))


def _custom() -> Kind:
    return kinds_of_crd(definition("squares", structure(), subresources=_SUBRESOURCES))[0]


def test_operations_of_a_built_in_kind_have_the_ids_that_generated_clients_are_named_after() -> None:
    assert {(route.path, route.id, route.action) for route in _native("coordination.k8s.io", "leases")} == {
        (f"/apis/coordination.k8s.io/v1/{path}", id, action)
        for path, id, action in (
            ("leases", "listCoordinationV1LeaseForAllNamespaces", "list"),
            ("namespaces/{namespace}/leases", "listCoordinationV1NamespacedLease", "list"),
            ("namespaces/{namespace}/leases", "createCoordinationV1NamespacedLease", "post"),
            ("namespaces/{namespace}/leases", "deleteCoordinationV1CollectionNamespacedLease", "deletecollection"),
            ("namespaces/{namespace}/leases/{name}", "readCoordinationV1NamespacedLease", "get"),
            ("namespaces/{namespace}/leases/{name}", "replaceCoordinationV1NamespacedLease", "put"),
            ("namespaces/{namespace}/leases/{name}", "patchCoordinationV1NamespacedLease", "patch"),
            ("namespaces/{namespace}/leases/{name}", "deleteCoordinationV1NamespacedLease", "delete"),
            ("watch/leases", "watchCoordinationV1LeaseListForAllNamespaces", "watchlist"),
            ("watch/namespaces/{namespace}/leases", "watchCoordinationV1NamespacedLeaseList", "watchlist"),
            ("watch/namespaces/{namespace}/leases/{name}", "watchCoordinationV1NamespacedLease", "watch"),
        )
    }
    assert {route.tag for route in _native("rbac.authorization.k8s.io", "roles")} == {"rbacAuthorization_v1"}


def test_subresources_speak_of_the_kind_they_answer() -> None:
    token = next(route for route in _native("", "serviceaccounts") if route.path.endswith("/token"))
    assert (token.id, token.method, token.action) == ("createCoreV1NamespacedServiceAccountToken", "post", "post")
    assert token.answer == token.body == "io.k8s.api.authentication.v1.TokenRequest"
    assert token.subject == {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
    finalize = [route.id for route in _native("", "namespaces") if route.path.endswith("/finalize")]
    assert finalize == ["replaceCoreV1NamespaceFinalize"]


def test_custom_kinds_have_no_watch_paths_and_no_strategic_patches() -> None:
    kind = _custom()
    found = list(routes.of_kind(kind, "one", "list"))
    assert not [route for route in found if "/watch/" in route.path]
    patch = next(route for route in found if route.id == "patchShapesExampleComV1NamespacedSquare")
    assert patch.consumes == (
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    )
    scale = [route for route in found if route.path.endswith("/scale")]
    assert {route.answer for route in scale} == {"io.k8s.api.autoscaling.v1.Scale"}
    assert {str(route.subject) for route in scale} == {str(found[0].subject)}


@pytest.mark.parametrize("written", [v3.path_items, v2.path_items])
def test_what_every_operation_of_a_path_takes_stands_with_the_path(written: object) -> None:
    items = written(_native("", "configmaps"))  # type: ignore[operator]
    item = items["/api/v1/namespaces/{namespace}/configmaps/{name}"]
    assert len(item["parameters"]) == 3
    assert "parameters" not in item["get"]
    # kubectl's probe for field validation reads the parameters of PATCH.
    assert "fieldValidation" in {each.get("name") for each in item["patch"]["parameters"]}
    assert "dryRun" in {each.get("name") for each in item["patch"]["parameters"]}


def test_every_parameter_that_v2_refers_to_is_there() -> None:
    shared = v2.shared_parameters()
    found = {
        each["$ref"].removeprefix("#/parameters/")
        for item in v2.path_items([*_native("", "configmaps"), *routes.of_kind(_custom(), "a", "b")]).values()
        for operation in (item, *item.values())
        if isinstance(operation, dict)
        for each in operation.get("parameters", ())
        if "$ref" in each
    }
    assert found <= shared.keys()
    assert any(name.startswith("force-") for name in found)
    assert all(name.startswith(f"{value['name']}-") for name, value in shared.items())


@pytest.mark.parametrize(
    ("text", "capital", "part"),
    [
        ("rbac.authorization", True, "RbacAuthorization"),
        ("stable.example-2.com", False, "stableExample2Com"),
        ("2a", True, "A"),
        ("core", False, "core"),
    ],
)
def test_parts_of_ids_hold_letters_and_digits(text: str, capital: bool, part: str) -> None:
    assert id_part(text, capital=capital) == part


def test_keys_lead_to_what_they_name() -> None:
    for key in routes.ROOTS:
        assert routes.of_root(key) is not None
    group = routes.of_root("apis/rbac.authorization.k8s.io")
    assert group is not None
    assert (group.path, group.id) == ("/apis/rbac.authorization.k8s.io/", "getRbacAuthorizationAPIGroup")
    assert routes.of_root("apis/a/b") is None
    assert routes.of_root("nothing") is None
