"""Catalogues and definitions for tests of OpenAPI publishing, and documents written by a separate publisher.

catalog = catalog_of(definition("widgets", {...}))
await written(catalog, tmp_path)      every document, in both forms
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.openapi import forms, publisher
from atoll.machinery.apiserver.openapi.publisher import OpenApiPublisher
from atoll.machinery.apiserver.openapi.routes import ROOTS, key_of
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.objects import Object

GROUP = "shapes.example.com"


def definition(plural: str, schema: Object, **version: Any) -> Object:
    """An established CustomResourceDefinition with one version v1 of a schema."""
    kind = plural.removesuffix("s").capitalize()
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def structure(**properties: Object) -> Object:
    """The schema of an object."""
    return {"type": "object", "properties": properties}


def catalog_of(*definitions: Object) -> Catalog:
    """The built-in kinds and those of some definitions."""
    return Catalog([*NATIVE, *(kind for each in definitions for kind in kinds_of_crd(each))])


def keys_of(catalog: Catalog) -> list[str]:
    """Keys of the index."""
    groups = {f"apis/{group}" for group, _ in catalog.versions if group}
    return sorted({*ROOTS, *groups, *(key_of(*version) for version in catalog.versions)})


async def written(catalog: Catalog, place: Path) -> None:
    """Write every document of a catalogue: v2.json, v2.pb, and v3-<key>.json and .pb with `/` as `+`."""
    made = OpenApiPublisher()
    everything = publisher.of_everything(catalog)
    for form, ending in ((forms.V2, "json"), (forms.V2_BINARY, "pb")):
        (place / f"v2.{ending}").write_bytes((await made.document(everything, form)).body())
    for key in keys_of(catalog):
        wanted = publisher.of_key(catalog, key)
        assert wanted is not None
        for form, ending in ((forms.V3, "json"), (forms.V3_BINARY, "pb")):
            body = (await made.document(wanted, form)).body()
            (place / f"v3-{key.replace('/', '+')}.{ending}").write_bytes(body)
