"""Manifests of real projects, which lie beside the repository and are never copied into it.

Tests of schemas and of kinds read them; a missing folder is an error, not a reason to skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml
from atoll.machinery.schema.definitions.crd import add_stored_version, default_crd

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def documents(path: Path) -> Iterator[Object]:
    """The documents of a YAML file that hold something."""
    for text in path.read_text().split("\n---\n"):
        value = decode_yaml(text.removeprefix("---\n").encode()).value
        if isinstance(value, dict):
            yield value


def real_crds() -> dict[str, Object]:
    """Every CustomResourceDefinition of the real projects by name, defaulted and established."""
    if not SHARED_DATA.is_dir():
        raise FileNotFoundError(
            f"{SHARED_DATA} is not there: the tests need the shared manifests beside the repository"
        )
    found: dict[str, Object] = {}
    for path in sorted([*SHARED_DATA.glob("cert-manager/*.yaml"), *SHARED_DATA.glob("gateway-api/*.yaml")]):
        for document in documents(path):
            if document["kind"] == "CustomResourceDefinition":
                default_crd(document)
                found[document["metadata"]["name"]] = established(document)
    assert len(found) >= 16, f"only {len(found)} definitions in {SHARED_DATA}"
    return found


def established(crd: Object) -> Object:
    """The definition as it stands after the controller accepted its names."""
    crd["status"] = {
        "acceptedNames": crd["spec"]["names"],
        "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
    }
    add_stored_version(crd)
    return crd


def gateway_examples() -> list[Object]:
    """Objects of the Gateway API's kinds, as its authors wrote them."""
    paths = sorted((SHARED_DATA / "gateway-api" / "examples").rglob("*.yaml"))
    return [document for path in paths for document in documents(path) if "gateway" in document["apiVersion"]]
