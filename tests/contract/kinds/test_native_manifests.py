"""Manifests of real projects, accepted unchanged by the built-in kinds."""

from pathlib import Path

from atoll.machinery.kinds import registry
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from harness.data.manifests import documents
from harness.models.native_write import create


def native_objects(folder: Path) -> list[tuple[Kind, Object]]:
    """Every document of a built-in kind."""
    found, kinds = [], {(kind.group, kind.kind): kind for kind in registry.NATIVE}
    for path in sorted(folder.rglob("*.yaml")):
        for document in documents(path):
            group, _, _ = str(document.get("apiVersion", "")).rpartition("/")
            if kind := kinds.get((group, str(document.get("kind")))):
                found.append((kind, document))
    return found


def test_real_manifests_are_accepted_without_a_warning(manifests: Path) -> None:
    found = native_objects(manifests)
    assert {kind.kind for kind, _ in found} >= {"CustomResourceDefinition", "Namespace", "ValidatingAdmissionPolicy"}
    if (manifests / "metallb").is_dir():
        assert "ServiceAccount" in {kind.kind for kind, _ in found}
    for kind, obj in found:
        name = f"{kind.kind} {obj['metadata']['name']}"
        if kind.namespaced:
            obj["metadata"].setdefault("namespace", "default")
        assert kind.schema is not None
        assert kind.schema.unknown_fields(obj) == [], name
        stored, errors = create(kind, obj)
        assert errors == [], name
        assert create(kind, stored) == (stored, []), name
