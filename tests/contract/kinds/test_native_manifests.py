"""Manifests of real projects, taken by the built-in kinds as they stand."""

import pytest

from atoll.machinery.kinds import registry
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from harness.native import create
from harness.shared_data import SHARED_DATA, documents


def manifests() -> list[tuple[Kind, Object]]:
    """Every document of a built-in kind."""
    found = []
    for path in sorted(SHARED_DATA.rglob("*.yaml")):
        for document in documents(path):
            group, _, _ = str(document.get("apiVersion", "")).rpartition("/")
            if kind := registry.native_kind_named(group, str(document.get("kind"))):
                found.append((kind, document))
    return found


MANIFESTS = manifests()


def test_the_manifests_are_there() -> None:
    kinds = {kind.kind for kind, _ in MANIFESTS}
    assert kinds >= {"CustomResourceDefinition", "Namespace", "ServiceAccount", "ValidatingAdmissionPolicy"}


@pytest.mark.parametrize(
    ("kind", "obj"), MANIFESTS, ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else value.kind
)
def test_a_real_manifest_is_taken_without_a_word(kind: Kind, obj: Object) -> None:
    if kind.namespaced:
        obj["metadata"].setdefault("namespace", "default")
    assert kind.schema is not None
    assert kind.schema.unknown_fields(obj) == []
    stored, errors = create(kind, obj)
    assert errors == []
    assert create(kind, stored) == (stored, [])
